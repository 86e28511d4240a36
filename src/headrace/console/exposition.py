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

from headrace.console.metric_names import COUNTERS, GAUGES
from headrace.console.operation_stats import OperationStats
from headrace.console.replication_stats import primary_of, replicas_of
from headrace.console.server_stats import GroupStats, ServerStats, StreamStats, running_snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER, SUMMARY, HISTOGRAM = "gauge", "counter", "summary", "histogram"
LATENCY_FIELD_PREFIX = "latency_percentiles_usec_"

STATUS_VALUES = {"ok": "1", "err": "0"}
INSTANCE_INFO_FIELDS = {
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
LOSS_HELP = {
    "stream_group_lost_unread_total": "Entries that were removed before the group read them.",
    "stream_group_lost_pending_total": "Pending entries of the group that were deleted before their ack.",
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
COLD_HELP = {
    "stream_cold_entries": "Entries of the stream in files instead of in memory.",
    "stream_cold_bytes": "Bytes of memory that these entries would take.",
    "stream_cold_files": "Files that have entries of the stream.",
}
OLDEST_PENDING_METRIC = "headrace_stream_group_oldest_pending_seconds"

Labels = dict[str, str]
Value = int | float | str | None


class Exposition:
    """A collection of samples by metric, because the format wants each metric in one block.

    A second sample with the same name and labels is ignored.
    """

    def __init__(self) -> None:
        self.metric_headers: dict[str, str] = {}
        self.values: dict[str, dict[str, Value]] = {}  # by metric, then by the text of the labels

    def add(
        self,
        name: str,
        kind: str,
        about: str,
        value: Value,
        labels: Labels | None = None,
        family: str | None = None,
    ) -> None:
        """Add a sample; do nothing if the value is None.

        Args:
            about: the HELP text; empty: write no HELP and TYPE lines.
            family: the metric's name in these lines, as for the parts of a histogram; None: `name`.
        """
        if value is None:
            return
        family = family or name
        self.metric_headers[name] = f"# HELP {family} {about}\n# TYPE {family} {kind}\n" if about else ""
        inner = ",".join(f'{key}="{escape_label(text)}"' for key, text in (labels or {}).items())
        self.values.setdefault(name, {}).setdefault(f"{{{inner}}}" if inner else "", value)

    def text(self) -> str:
        """Return all lines."""
        return "".join(
            head + "".join(f"{name}{labels} {value}\n" for labels, value in self.values[name].items())
            for name, head in self.metric_headers.items()
        )


def exposition(stats: ServerStats) -> str:
    """Return the metrics of a running server as text."""
    out = Exposition()
    out.add("redis_up", GAUGE, "1 if the server answers.", 1)
    _add_server_metrics(out, stats)
    _add_command_metrics(out, stats.info)
    _add_database_metrics(out, stats.info)
    _add_replication_metrics(out, stats.info)
    if stats.operations is not None:
        _add_operation_metrics(out, stats.operations, stats.info)
    for stream in stats.streams:
        _add_stream_metrics(out, stream)
    about = "Streams beyond the limit, which have no metrics."
    out.add("headrace_streams_left_out", GAUGE, about, stats.left_out_streams)
    return out.text()


def _add_server_metrics(out: Exposition, stats: ServerStats) -> None:
    info = stats.info
    labels = {name: info[name] for name in sorted(INSTANCE_INFO_FIELDS & info.keys())}
    out.add("redis_instance_info", GAUGE, "Facts about the server.", 1, labels)
    for kind, table in ((GAUGE, GAUGES), (COUNTER, COUNTERS)):
        for source, name, about in table:
            value = STATUS_VALUES.get(info.get(source, ""), info.get(source))
            if is_number(value):
                out.add(f"redis_{name}", kind, about, value)
    running = running_snapshot(info)
    if running is not None:
        about = "The share of a snapshot or rewrite that is written, while there is one."
        out.add(
            "headrace_snapshot_progress_ratio",
            GAUGE,
            about,
            running.fraction_done,
            {"what": running.job_name},
        )
    now, uptime = stats.info_number("server_time_usec"), stats.info_number("uptime_in_seconds")
    if now is not None and uptime is not None:
        out.add("redis_start_time_seconds", GAUGE, "When the server started.", int(now / 1e6 - uptime))


def _add_command_metrics(out: Exposition, info: dict[str, str]) -> None:
    for field, text in info.items():
        if field.startswith("cmdstat_"):
            about = parse_pairs(text)
            labels = {"cmd": field.removeprefix("cmdstat_")}
            spent = str(float(about.get("usec", "0")) / 1e6)
            values = (about.get("calls"), spent, about.get("rejected_calls"), about.get("failed_calls"))
            for (name, help_text), value in zip(COMMAND_HELP.items(), values, strict=True):
                out.add(f"redis_{name}", COUNTER, help_text, value, labels)
    for field, text in info.items():
        if field.startswith("errorstat_"):
            labels = {"err": field.removeprefix("errorstat_")}
            out.add("redis_errors_total", COUNTER, "Error replies.", parse_pairs(text).get("count"), labels)

    for field, text in info.items():
        if field.startswith(LATENCY_FIELD_PREFIX):
            for percent, value in parse_pairs(text).items():
                labels = {
                    "cmd": field.removeprefix(LATENCY_FIELD_PREFIX),
                    "quantile": percent.removeprefix("p"),
                }
                out.add(
                    f"redis_{LATENCY_FIELD_PREFIX[:-1]}", SUMMARY, "Microseconds per call.", value, labels
                )


def _add_operation_metrics(out: Exposition, operations: OperationStats, info: dict[str, str]) -> None:
    """Add the slow log, latency spikes, the distributions of durations, and limits of buffers."""
    out.add("redis_slowlog_length", GAUGE, "Entries of the slow log.", operations.slow_log_length)
    out.add("redis_slowlog_last_id", GAUGE, "ID of its newest entry.", operations.slow_last_id)
    about = "Duration of the newest entry of the slow log."
    out.add("redis_last_slow_execution_duration_seconds", GAUGE, about, operations.slow_last_us / 1e6)
    for event, at_s, duration_ms in operations.spikes:
        labels = {"event_name": event}
        out.add("redis_latency_spike_last", GAUGE, "When the last spike was.", at_s, labels)
        about = "Duration of the last spike."
        out.add("redis_latency_spike_duration_seconds", GAUGE, about, duration_ms / 1000, labels)
    for client_class, hard, soft, seconds in operations.output_limits:
        labels = {"class": client_class}
        about = "Limits of unread replies."
        out.add(
            "redis_config_client_output_buffer_limit_bytes", GAUGE, about, hard, labels | {"limit": "hard"}
        )
        out.add(
            "redis_config_client_output_buffer_limit_bytes", GAUGE, about, soft, labels | {"limit": "soft"}
        )
        name = "redis_config_client_output_buffer_limit_overcome_seconds"
        out.add(name, GAUGE, "How long the soft limit may be exceeded.", seconds, labels | {"limit": "soft"})
    _add_duration_metrics(out, operations, info)


def _add_duration_metrics(out: Exposition, operations: OperationStats, info: dict[str, str]) -> None:
    """Add the distribution of each command's durations in microseconds, which is cumulative."""
    family = "redis_commands_latencies_usec"
    for command, calls, buckets in operations.durations:
        labels = {"cmd": command}
        about = "Durations of calls in microseconds."
        for bound, count in [*buckets, ("+Inf", calls)]:
            out.add(f"{family}_bucket", HISTOGRAM, about, count, labels | {"le": str(bound)}, family)
        spent = parse_pairs(info.get(f"cmdstat_{command}", "")).get("usec", "0")
        out.add(f"{family}_sum", HISTOGRAM, "", spent, labels, family)
        out.add(f"{family}_count", HISTOGRAM, "", calls, labels, family)


def _add_replication_metrics(out: Exposition, info: dict[str, str]) -> None:
    primary = primary_of(info)
    if primary is not None:
        host, _, port = primary.address.rpartition(":")
        labels = {"master_host": host, "master_port": port}
        values: Iterable[Value] = (
            int(primary.is_up),
            info.get("slave_repl_offset"),
            primary.silent_s,
            info.get("master_sync_in_progress"),
            primary.snapshot_received_bytes,
            primary.snapshot_total_bytes,
        )
        for (name, about), value in zip(PRIMARY_HELP.items(), values, strict=True):
            out.add(f"redis_{name}", GAUGE, about, value, labels)
        read_only = {"read_only": info.get("slave_read_only", "0")}
        out.add("redis_slave_info", GAUGE, "Facts about this replica.", 1, labels | read_only)
    for row in replicas_of(info):
        host, _, port = row.address.rpartition(":")
        labels = {"slave_ip": host, "slave_port": port, "slave_state": row.state}
        offset = parse_pairs(info[row.name]).get("offset")
        for (name, about), value in zip(
            REPLICA_HELP.items(), (offset, row.lag_s, row.behind_bytes), strict=True
        ):
            out.add(f"redis_{name}", GAUGE, about, value, labels)


def _add_database_metrics(out: Exposition, info: dict[str, str]) -> None:
    for field, text in info.items():
        if field.startswith("db") and field[2:].isdigit():
            about, labels = parse_pairs(text), {"db": field}
            out.add("redis_db_keys", GAUGE, "Keys in the database.", about.get("keys"), labels)
            out.add("redis_db_keys_expiring", GAUGE, "Keys with an expiry.", about.get("expires"), labels)
            seconds = float(about.get("avg_ttl", "0")) / 1000
            out.add("redis_db_avg_ttl_seconds", GAUGE, "Average time to live of those keys.", seconds, labels)


def _add_stream_metrics(out: Exposition, stream: StreamStats) -> None:
    labels = {"db": f"db{stream.database}", "stream": label(stream.key)}
    values: Iterable[Value] = (
        stream.length,
        stream.radix_keys,
        stream.radix_nodes,
        stream.group_count,
        id_milliseconds(stream.last_id),
        id_milliseconds(stream.max_deleted_id),
        id_milliseconds(stream.first_entry_id),
        id_milliseconds(stream.last_entry_id),
    )
    for (name, about), value in zip(STREAM_HELP.items(), values, strict=True):
        out.add(f"redis_{name}", GAUGE, about, value, labels)
    if stream.cold_entries:
        values = (stream.cold_entries, stream.cold_bytes, stream.cold_files)
        for (name, about), value in zip(COLD_HELP.items(), values, strict=True):
            out.add(f"headrace_{name}", GAUGE, about, value, labels)
    for group in stream.groups:
        _add_group_metrics(out, group, labels | {"group": label(group.name)})


def _add_group_metrics(out: Exposition, group: GroupStats, labels: Labels) -> None:
    values: Iterable[Value] = (
        group.consumer_count,
        group.pending,
        id_milliseconds(group.last_id),
        group.entries_read,
        group.lag,
    )
    for (name, about), value in zip(GROUP_HELP.items(), values, strict=True):
        out.add(f"redis_{name}", GAUGE, about, value, labels)
    for (name, about), value in zip(LOSS_HELP.items(), (group.lost_unread, group.lost_pending), strict=True):
        out.add(f"headrace_{name}", COUNTER, about, value, labels)
    oldest = None if group.oldest_pending_idle_ms is None else group.oldest_pending_idle_ms / 1000
    out.add(
        OLDEST_PENDING_METRIC, GAUGE, "Seconds since the first pending entry was delivered.", oldest, labels
    )
    for member in group.consumer_stats:
        theirs = labels | {"consumer": label(member.name)}
        for (name, about), value in zip(
            CONSUMER_HELP.items(), (member.pending, member.idle_ms / 1000), strict=True
        ):
            out.add(f"redis_{name}", GAUGE, about, value, theirs)


def parse_pairs(text: str) -> dict[str, str]:
    """Return text such as a=1,b=2 as a dictionary."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def is_number(text: str | None) -> bool:
    """Return whether the text is a number."""
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def id_milliseconds(entry_id: bytes | None) -> int | None:
    """Return the milliseconds of an ID, as redis_exporter reports it; None without an ID."""
    return int(entry_id.partition(b"-")[0]) if entry_id else None


def label(name: bytes) -> str:
    """Return a name as a label, with bytes that are not UTF-8 as escapes."""
    return name.decode(errors="backslashreplace")


def escape_label(text: str) -> str:
    """Return a label's value with escapes, to be put in quotes."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
