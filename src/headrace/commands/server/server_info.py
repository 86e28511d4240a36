"""INFO: statistics of the server, in sections of name:value lines with Redis's names.

The engine's own fields are here. The server interface adds its own, which replace those of the same name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import cython

from headrace.commands.call import Call
from headrace.commands.server.info_order import sort_fields
from headrace.commands.spec import Command
from headrace.keyspace.blocking import Blocking
from headrace.plurals import human_bytes
from headrace.streams.stream import Stream
from headrace.version import __version__

InfoFields = list[tuple[str, object]]

BUILD_ID = hashlib.sha256(f"headrace {__version__}".encode()).hexdigest()[:16]
LRU_CLOCK_MAX = (1 << 24) - 1  # Redis's clock of seconds wraps there
# What does not exist here: background freeing, defragmentation, sampled expiry, threads for clients.
ABSENT_STATS = """
    expired_subkeys expired_time_cap_reached_count latest_fork_usec total_forks
    migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits active_defrag_misses
    active_defrag_key_hits active_defrag_key_misses total_active_defrag_time current_active_defrag_time
    io_threaded_reads_processed io_threaded_writes_processed io_threaded_total_prefetch_batches
    io_threaded_total_prefetch_entries
"""


def server(call: Call) -> InfoFields:
    """Return the fields of the server section."""
    return [
        ("redis_version", call.server.redis_version),
        ("redis_git_sha1", "00000000"),
        ("redis_git_dirty", 0),
        ("redis_build_id", BUILD_ID),
        ("headrace_version", __version__),
        ("redis_mode", "standalone"),
        ("server_time_usec", call.now * 1000 + call.server.sub_ms_microseconds()),
        ("lru_clock", call.now // 1000 & LRU_CLOCK_MAX),
        ("io_threads_active", 0),
    ]


def clients(call: Call) -> InfoFields:
    """Return the fields of the clients section."""
    engine = call.engine
    sessions = engine.clients.values()
    blocking = call.keyspace.blocking
    return [
        ("connected_clients", sum(not session.is_replica for session in sessions)),
        ("cluster_connections", 0),
        ("blocked_clients", blocking.count - len(engine.write_gate.paused_sessions)),
        ("tracking_clients", len(engine.tracking.active_states)),
        ("pubsub_clients", sum(session.subscription_count > 0 for session in sessions)),
        ("watching_clients", sum(session.watch is not None for session in sessions)),
        ("clients_in_timeout_table", len(blocking.deadlines)),
        ("total_watched_keys", sum(len(d.watched_keys.watches) for d in call.keyspace.databases)),
        ("total_blocking_keys", len(blocking.queues)),
        ("total_blocking_keys_on_nokey", group_reader_key_count(blocking)),
    ]


def group_reader_key_count(blocking: Blocking) -> int:
    """Return the number of keys on which an XREADGROUP is blocked: deleting such a key unblocks it."""
    return sum(
        any(waiter.command_name == b"xreadgroup" for one in wait_classes.values() for waiter in one)
        for wait_classes in blocking.queues.values()
    )


def no_fields(call: Call) -> InfoFields:
    """Return no fields: only the server interface has fields for the section."""
    return []


def memory(call: Call) -> InfoFields:
    """Return the engine's fields of the memory section: those of scripts and functions."""
    scripts = call.engine.scripts
    texts = sum(map(len, call.keyspace.libraries.values()))
    total = scripts.text_bytes + texts + scripts.lua_bytes
    return [
        ("used_memory_vm_eval", scripts.lua_bytes),
        ("used_memory_lua", scripts.lua_bytes),
        ("used_memory_scripts_eval", scripts.text_bytes),
        ("number_of_cached_scripts", len(scripts.scripts)),
        ("number_of_functions", scripts.function_count()),
        ("number_of_libraries", len(call.keyspace.libraries)),
        ("used_memory_vm_functions", 0),
        ("used_memory_vm_total", scripts.lua_bytes),
        ("used_memory_functions", texts),
        ("used_memory_scripts", total),
        ("used_memory_lua_human", human_bytes(scripts.lua_bytes)),
        ("used_memory_vm_total_human", human_bytes(scripts.lua_bytes)),
        ("used_memory_scripts_human", human_bytes(total)),
    ]


def persistence(call: Call) -> InfoFields:
    """Return the fields of the persistence section."""
    return [
        ("loading", 0),
        ("async_loading", 0),
        ("rdb_changes_since_last_save", call.keyspace.changes),
        ("rdb_bgsave_in_progress", 0),
        ("aof_enabled", 0),
        ("aof_rewrite_in_progress", 0),
    ]


def calls_of(call: Call, name: bytes) -> int:
    """Return how often the command of this name was called."""
    return sum(row.calls for row in call.engine.stats.rows if row.command.name == name)


def stats(call: Call) -> InfoFields:
    """Return the fields of the stats section: counters since the start or CONFIG RESETSTAT."""
    keyspace = call.keyspace
    counted = call.engine.stats
    return [
        ("total_connections_received", counted.connection_count),
        ("total_commands_processed", counted.command_count),
        ("expired_keys", keyspace.expired_count),
        ("expired_stale_perc", "0.00"),
        ("evicted_keys", 0),
        ("evicted_entries", call.engine.write_gate.eviction.evicted_entries),
        ("evicted_clients", 0),
        ("evicted_scripts", call.engine.scripts.evicted_count),
        ("keyspace_hits", keyspace.hits),
        ("keyspace_misses", keyspace.misses),
        ("pubsub_channels", len(call.engine.pubsub.channel_subscribers)),
        ("pubsub_patterns", len(call.engine.pubsub.pattern_subscribers)),
        ("pubsubshard_channels", len(call.engine.pubsub.shard_channel_subscribers)),
        ("tracking_total_keys", len(call.engine.tracking.readers)),
        ("tracking_total_items", call.engine.tracking.item_count),
        ("tracking_total_prefixes", len(call.engine.tracking.broadcasts)),
        ("unexpected_error_replies", 0),
        ("total_error_replies", counted.error_reply_count),
        (
            "dump_payload_sanitizations",
            sum(row.calls for row in counted.rows if row.command.name == b"restore"),
        ),
        *((name, 0) for name in ABSENT_STATS.split()),
        *call.server.replication.info_stats_fields(),
        *(("acl_access_denied_" + name, n) for name, n in call.engine.auth.acl_log.denied_counts.items()),
    ]


def replication(call: Call) -> InfoFields:
    """Return the fields of the replication section."""
    return call.server.replication.info()


def commandstats(call: Call) -> InfoFields:
    """Return for each requested command: calls, time in microseconds, rejected and failed calls."""
    return [
        (
            f"cmdstat_{row.command.name.decode()}",
            f"calls={row.calls},usec={row.total_ns // 1000},"
            f"usec_per_call={row.total_ns / 1000 / max(row.calls, 1):.2f},"
            f"rejected_calls={row.rejected_calls},failed_calls={row.failed_calls}",
        )
        for row in call.engine.stats.rows
        if row.calls or row.rejected_calls
    ]


def errorstats(call: Call) -> InfoFields:
    """Return how often each error code was sent."""
    return [
        (f"errorstat_{code.decode('utf-8', 'replace')}", f"count={count}")
        for code, count in call.engine.stats.errors_by_code.items()
    ]


def latencystats(call: Call) -> InfoFields:
    """Return for each timed command the percentiles of its duration in microseconds."""
    settings = call.keyspace.settings
    if not settings.latency_tracking:
        return []
    return [
        (
            f"latency_percentiles_usec_{row.command.name.decode()}",
            ",".join(
                f"p{percent:g}={row.latency_histogram.percentile(percent) / 1000:.3f}"
                for percent in settings.latency_percentiles
            ),
        )
        for row in call.engine.stats.rows
        if row.latency_histogram is not None
    ]


def cluster(call: Call) -> InfoFields:
    """Return the fields of the cluster section: there is no cluster."""
    return [("cluster_enabled", 0)]


def keyspace(call: Call) -> InfoFields:
    """Return the databases that hold keys; avg_ttl is in milliseconds."""
    fields: InfoFields = []
    for database in call.keyspace.databases:
        keys = database.size()
        if not keys:
            continue
        times = database.expiry_times
        ttl = max(0, times.sum_of_times // len(times) - call.now) if len(times) else 0
        expires = len(times) - database.count_due()
        fields.append((f"db{database.index}", f"keys={keys},expires={expires},avg_ttl={ttl}"))
    return fields


def key_order_waiting_count(stream: Stream) -> int:
    """Return how many entries wait for others of their key, by the rule ORDERED-BY."""
    orders = [group.pending.key_order for group in stream.groups()]
    return sum(order.waiting_count for order in orders if order is not None)


def rule_figures(call: Call) -> InfoFields:
    """Return what the rules of the present streams have done; empty if no stream has rules."""
    found = list(call.keyspace.rule_registry.streams.values())
    if not found:
        return []
    return [
        ("rules_streams", sum(one.stream.may_have_rules for one in found)),
        ("rules_streams_with_work", len(call.keyspace.rule_registry.backlog)),
        ("rules_removed_entries", sum(one.removed_count for one in found)),
        ("rules_dead_letters", sum(one.dead_letter_count for one in found)),
        ("rules_rejected_entries", sum(one.rejected_count for one in found)),
        ("rules_waiting_entries", sum(key_order_waiting_count(one.stream) for one in found)),
        ("scheduled_entries", sum(one.stream.length for one in found if one.schedule is not None)),
    ]


# In the order shown: name, title, function, shown by default.
SECTIONS: list[tuple[str, str, Callable[[Call], InfoFields], bool]] = [
    ("server", "Server", server, True),
    ("clients", "Clients", clients, True),
    ("memory", "Memory", memory, True),
    ("persistence", "Persistence", persistence, True),
    ("stats", "Stats", stats, True),
    ("replication", "Replication", replication, True),
    ("cpu", "CPU", no_fields, True),
    ("modules", "Modules", no_fields, True),
    ("commandstats", "Commandstats", commandstats, False),
    ("errorstats", "Errorstats", errorstats, True),
    ("latencystats", "Latencystats", latencystats, False),
    ("cluster", "Cluster", cluster, True),
    ("keyspace", "Keyspace", keyspace, True),
    ("rules", "Rules", rule_figures, True),
]


def run_info(call: Call) -> None:
    """INFO: reply with the named sections, `default` if none is named; `all` and `everything` name all."""
    asked = {word.decode("utf-8", "replace").lower() for word in call.argv[1:]} or {"default"}
    everything = bool(asked & {"all", "everything"})
    blocks = []
    for name, title, figures, by_default in SECTIONS:
        if everything or name in asked or (by_default and "default" in asked):
            fields = sort_fields(name, dict(figures(call)) | dict(call.server.info(name)))
            if name == "rules" and not fields:
                continue
            blocks.append(f"# {title}\r\n" + "".join(f"{k}:{v}\r\n" for k, v in fields.items()))
    call.reply.verbatim("\r\n".join(blocks).encode("utf-8", "replace"))


COMMANDS = [
    Command(
        "info",
        -1,
        run_info,
        "loading stale",
        tips="nondeterministic_output request_policy:all_shards response_policy:special",
        group="server",
        summary="Returns figures about the server.",
        syntax="[section [section ...]]",
        categories="dangerous",
    )
]
