r"""Server statistics in Prometheus's text format, under the metric names of redis_exporter.

    # HELP redis_stream_length Entries in the stream.
    # TYPE redis_stream_length gauge
    redis_stream_length{db="db0",stream="orders"} 1204

In a label's value a backslash is written \\, a quote \" and a new line \n. An unknown value has no line at
all: a lag that the server does not know is absent, never 0. Metrics that redis_exporter does not have begin
with headrace_.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.console.replication_stats import primary_of, replicas_of
from headrace.console.server_stats import GroupStats, ServerStats, StreamStats, running_snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"
LATENCY = "latency_percentiles_usec_"

# The field of INFO: the name of the metric without redis_, and its help text.
GAUGES = {
    "uptime_in_seconds": ("uptime_in_seconds", "Seconds since the server started."),
    "process_id": ("process_id", "Process ID of the server."),
    "connected_clients": ("connected_clients", "Connected clients."),
    "blocked_clients": ("blocked_clients", "Clients waiting in a blocking command."),
    "tracking_clients": ("tracking_clients", "Clients that track keys."),
    "maxclients": ("config_maxclients", "Limit of connected clients."),
    "used_memory": ("memory_used_bytes", "Memory in use."),
    "used_memory_rss": ("memory_used_rss_bytes", "Resident memory."),
    "used_memory_peak": ("memory_used_peak_bytes", "Peak of the memory in use."),
    "maxmemory": ("memory_max_bytes", "Memory limit; 0 for none."),
    "total_system_memory": ("total_system_memory_bytes", "Memory of the machine."),
    "loading": ("loading_dump_file", "1 while data are loaded from disk."),
    "rdb_changes_since_last_save": ("rdb_changes_since_last_save", "Changes since the last snapshot."),
    "rdb_bgsave_in_progress": ("rdb_bgsave_in_progress", "1 while a snapshot is written."),
    "rdb_last_save_time": ("rdb_last_save_timestamp_seconds", "When the last snapshot was written."),
    "rdb_last_bgsave_status": ("rdb_last_bgsave_status", "1 if the last snapshot succeeded."),
    "rdb_last_bgsave_time_sec": ("rdb_last_bgsave_duration_sec", "Duration of the last snapshot."),
    "rdb_current_bgsave_time_sec": (
        "rdb_current_bgsave_duration_sec",
        "Duration of the current snapshot.",
    ),
    "rdb_last_cow_size": ("rdb_last_cow_size_bytes", "Memory copied during the last snapshot."),
    "aof_enabled": ("aof_enabled", "1 if the log (AOF) is enabled."),
    "aof_rewrite_in_progress": ("aof_rewrite_in_progress", "1 while the log is rewritten."),
    "aof_rewrite_scheduled": ("aof_rewrite_scheduled", "1 if a rewrite is scheduled after a snapshot."),
    "aof_last_rewrite_time_sec": (
        "aof_last_rewrite_duration_sec",
        "Duration of the last rewrite.",
    ),
    "aof_current_rewrite_time_sec": (
        "aof_current_rewrite_duration_sec",
        "Duration of the current rewrite.",
    ),
    "aof_last_bgrewrite_status": ("aof_last_bgrewrite_status", "1 if the last rewrite succeeded."),
    "aof_last_write_status": ("aof_last_write_status", "1 if the last write to the log succeeded."),
    "rules_streams": ("rules_streams", "Streams with rules."),
    "rules_waiting_entries": ("rules_waiting_entries", "Entries that wait for others of their key."),
    "scheduled_entries": ("scheduled_entries", "Entries that are scheduled for later."),
    "aof_current_size": ("aof_current_size_bytes", "Size of the log."),
    "aof_base_size": ("aof_base_size_bytes", "Size of the log after the last rewrite."),
    "aof_delayed_fsync": ("aof_delayed_fsync", "Writes that had to wait for a sync."),
    "pubsub_channels": ("pubsub_channels", "Channels with subscribers."),
    "pubsub_patterns": ("pubsub_patterns", "Channel patterns with subscribers."),
    "connected_slaves": ("connected_slaves", "Connected replicas."),
    "master_repl_offset": ("master_repl_offset", "Replication offset in bytes."),
}
COUNTERS = {
    "total_connections_received": ("connections_received_total", "Accepted connections."),
    "rejected_connections": ("rejected_connections_total", "Rejected connections."),
    "total_commands_processed": ("commands_processed_total", "Executed commands."),
    "total_net_input_bytes": ("net_input_bytes_total", "Bytes received."),
    "total_net_output_bytes": ("net_output_bytes_total", "Bytes sent."),
    "expired_keys": ("expired_keys_total", "Expired keys."),
    "evicted_keys": ("evicted_keys_total", "Keys evicted because memory was full."),
    "evicted_entries": ("evicted_entries_total", "Stream entries evicted because memory was full."),
    "rules_removed_entries": ("rules_removed_entries_total", "Entries removed by rules of streams."),
    "rules_dead_letters": ("rules_dead_letters_total", "Dead letters added by rules of groups."),
    "rules_rejected_entries": ("rules_rejected_entries_total", "XADDs rejected by rules of streams."),
    "keyspace_hits": ("keyspace_hits_total", "Lookups of keys that existed."),
    "keyspace_misses": ("keyspace_misses_total", "Lookups of keys that did not exist."),
    "used_cpu_sys": ("cpu_sys_seconds_total", "CPU time in the kernel."),
    "used_cpu_user": ("cpu_user_seconds_total", "CPU time in user mode."),
    "used_cpu_sys_children": ("cpu_sys_children_seconds_total", "CPU time of children in the kernel."),
    "used_cpu_user_children": (
        "cpu_user_children_seconds_total",
        "CPU time of children in user mode.",
    ),
}
STATUS = {"ok": "1", "err": "0"}
INSTANCE = {
    "role",
    "redis_version",
    "redis_mode",
    "os",
    "maxmemory_policy",
    "tcp_port",
    "run_id",
    "process_id",
}

COMMAND_HELP = {
    "commands_total": "Calls of the command.",
    "commands_duration_seconds_total": "Time spent in the command.",
    "commands_rejected_calls_total": "Calls rejected before the command ran.",
    "commands_failed_calls_total": "Calls that returned an error.",
}
STREAM_HELP = {
    "stream_length": "Entries in the stream.",
    "stream_radix_tree_keys": "Listpack nodes of the stream.",
    "stream_radix_tree_nodes": "Nodes of the radix tree.",
    "stream_groups": "Consumer groups of the stream.",
    "stream_last_generated_id": "Milliseconds of the last ID.",
    "stream_max_deleted_entry_id": "Milliseconds of the highest deleted ID.",
    "stream_first_entry_id": "Milliseconds of the first entry's ID.",
    "stream_last_entry_id": "Milliseconds of the last entry's ID.",
}
GROUP_HELP = {
    "stream_group_consumers": "Consumers of the group.",
    "stream_group_messages_pending": "Entries delivered to the group and not acknowledged.",
    "stream_group_last_delivered_id": "Milliseconds of the last delivered ID.",
    "stream_group_entries_read": "Entries read by the group; absent when unknown.",
    "stream_group_lag": "Entries not delivered yet; absent when unknown.",
}
PRIMARY_HELP = {
    "master_link_up": "1 if the link to the primary is up.",
    "slave_repl_offset": "Replication offset of this replica in bytes.",
    "master_last_io_seconds_ago": "Seconds since the primary last sent something.",
    "master_sync_in_progress": "1 while a snapshot of the primary is received or loaded.",
    "master_sync_read_bytes": "Bytes of that snapshot received.",
    "master_sync_total_bytes": "Bytes of that snapshot; 0 if unknown.",
}
REPLICA_HELP = {
    "connected_slave_offset_bytes": "Offset that the replica has acknowledged.",
    "connected_slave_lag_seconds": "Seconds since the replica last acknowledged.",
    "connected_slave_behind_bytes": "Bytes of the stream that the replica has not acknowledged.",
}
CONSUMER_HELP = {
    "stream_group_consumer_messages_pending": "Entries that the consumer has not acknowledged.",
    "stream_group_consumer_idle_seconds": "Seconds since the consumer was last active.",
}
OLDEST = "headrace_stream_group_oldest_pending_seconds"

Labels = dict[str, str]
Value = int | float | str | None


class Exposition:
    """A collection of samples by metric, because the format wants each metric in one block.

    A second sample with the same name and labels is ignored.
    """

    def __init__(self) -> None:
        self.heads: dict[str, str] = {}
        self.values: dict[str, dict[str, Value]] = {}  # by metric, then by the text of the labels

    def add(self, name: str, kind: str, about: str, value: Value, labels: Labels | None = None) -> None:
        """Add a sample; None adds nothing."""
        if value is None:
            return
        self.heads[name] = f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
        inner = ",".join(f'{key}="{escape_label(text)}"' for key, text in (labels or {}).items())
        self.values.setdefault(name, {}).setdefault(f"{{{inner}}}" if inner else "", value)

    def text(self) -> str:
        """Return all lines."""
        return "".join(
            head + "".join(f"{name}{labels} {value}\n" for labels, value in self.values[name].items())
            for name, head in self.heads.items()
        )


def exposition(stats: ServerStats) -> str:
    """Return the metrics of a running server as text."""
    out = Exposition()
    out.add("redis_up", GAUGE, "1 if the server answers.", 1)
    _server(out, stats)
    _commands(out, stats.info)
    _databases(out, stats.info)
    _replication(out, stats.info)
    for stream in stats.streams:
        _stream(out, stream)
    about = "Streams beyond the limit, which have no metrics."
    out.add("headrace_streams_left_out", GAUGE, about, stats.left_out)
    return out.text()


def _server(out: Exposition, stats: ServerStats) -> None:
    info = stats.info
    labels = {name: info[name] for name in sorted(INSTANCE & info.keys())}
    out.add("redis_instance_info", GAUGE, "Facts about the server.", 1, labels)
    for kind, table in ((GAUGE, GAUGES), (COUNTER, COUNTERS)):
        for source, (name, about) in table.items():
            value = STATUS.get(info.get(source, ""), info.get(source))
            if is_number(value):
                out.add(f"redis_{name}", kind, about, value)
    running = running_snapshot(info)
    if running is not None:
        about = "The share of a snapshot or rewrite that is written, while there is one."
        out.add("headrace_snapshot_progress_ratio", GAUGE, about, running.share, {"what": running.what})
    now, uptime = stats.number("server_time_usec"), stats.number("uptime_in_seconds")
    if now is not None and uptime is not None:
        out.add("redis_start_time_seconds", GAUGE, "When the server started.", int(now / 1e6 - uptime))


def _commands(out: Exposition, info: dict[str, str]) -> None:
    for field, text in info.items():
        if field.startswith("cmdstat_"):
            about = pairs(text)
            labels = {"cmd": field.removeprefix("cmdstat_")}
            spent = str(float(about.get("usec", "0")) / 1e6)
            values = (about.get("calls"), spent, about.get("rejected_calls"), about.get("failed_calls"))
            for (name, help_text), value in zip(COMMAND_HELP.items(), values, strict=True):
                out.add(f"redis_{name}", COUNTER, help_text, value, labels)
    for field, text in info.items():
        if field.startswith("errorstat_"):
            labels = {"err": field.removeprefix("errorstat_")}
            out.add("redis_errors_total", COUNTER, "Error replies.", pairs(text).get("count"), labels)

    for field, text in info.items():
        if field.startswith(LATENCY):
            for percent, value in pairs(text).items():
                labels = {"cmd": field.removeprefix(LATENCY), "quantile": percent.removeprefix("p")}
                out.add(f"redis_{LATENCY[:-1]}", SUMMARY, "Microseconds per call.", value, labels)


def _replication(out: Exposition, info: dict[str, str]) -> None:
    primary = primary_of(info)
    if primary is not None:
        host, _, port = primary.address.rpartition(":")
        labels = {"master_host": host, "master_port": port}
        values: Iterable[Value] = (
            int(primary.is_up),
            info.get("slave_repl_offset"),
            primary.silent_s,
            info.get("master_sync_in_progress"),
            primary.synced_bytes,
            primary.total_bytes,
        )
        for (name, about), value in zip(PRIMARY_HELP.items(), values, strict=True):
            out.add(f"redis_{name}", GAUGE, about, value, labels)
    for row in replicas_of(info):
        host, _, port = row.address.rpartition(":")
        labels = {"slave_ip": host, "slave_port": port, "slave_state": row.state}
        offset = pairs(info[row.name]).get("offset")
        for (name, about), value in zip(
            REPLICA_HELP.items(), (offset, row.lag_s, row.behind_bytes), strict=True
        ):
            out.add(f"redis_{name}", GAUGE, about, value, labels)


def _databases(out: Exposition, info: dict[str, str]) -> None:
    for field, text in info.items():
        if field.startswith("db") and field[2:].isdigit():
            about, labels = pairs(text), {"db": field}
            out.add("redis_db_keys", GAUGE, "Keys in the database.", about.get("keys"), labels)
            out.add("redis_db_keys_expiring", GAUGE, "Keys with an expiry.", about.get("expires"), labels)
            seconds = float(about.get("avg_ttl", "0")) / 1000
            out.add("redis_db_avg_ttl_seconds", GAUGE, "Average time to live of those keys.", seconds, labels)


def _stream(out: Exposition, stream: StreamStats) -> None:
    labels = {"db": f"db{stream.database}", "stream": label(stream.key)}
    values: Iterable[Value] = (
        stream.length,
        stream.keys,
        stream.nodes,
        len(stream.groups),
        milliseconds(stream.last_id),
        milliseconds(stream.max_deleted_id),
        milliseconds(stream.first_entry_id),
        milliseconds(stream.last_entry_id),
    )
    for (name, about), value in zip(STREAM_HELP.items(), values, strict=True):
        out.add(f"redis_{name}", GAUGE, about, value, labels)
    for group in stream.groups:
        _group(out, group, labels | {"group": label(group.name)})


def _group(out: Exposition, group: GroupStats, labels: Labels) -> None:
    values: Iterable[Value] = (
        group.consumers,
        group.pending,
        milliseconds(group.last_id),
        group.entries_read,
        group.lag,
    )
    for (name, about), value in zip(GROUP_HELP.items(), values, strict=True):
        out.add(f"redis_{name}", GAUGE, about, value, labels)
    oldest = None if group.oldest_idle_ms is None else group.oldest_idle_ms / 1000
    out.add(OLDEST, GAUGE, "Seconds since the first pending entry was delivered.", oldest, labels)
    for member in group.members:
        theirs = labels | {"consumer": label(member.name)}
        for (name, about), value in zip(
            CONSUMER_HELP.items(), (member.pending, member.idle_ms / 1000), strict=True
        ):
            out.add(f"redis_{name}", GAUGE, about, value, theirs)


def pairs(text: str) -> dict[str, str]:
    """Return text such as a=1,b=2 as a dictionary."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def is_number(text: str | None) -> bool:
    """Return whether the text is a number."""
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def milliseconds(entry_id: bytes | None) -> int | None:
    """Return the milliseconds of an ID, which redis_exporter uses as its value."""
    return int(entry_id.partition(b"-")[0]) if entry_id else None


def label(name: bytes) -> str:
    """Return a name as a label, with bytes that are not UTF-8 as escapes."""
    return name.decode(errors="backslashreplace")


def escape_label(text: str) -> str:
    """Return a label's value with escapes, to be put in quotes."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
