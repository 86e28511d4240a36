"""The names, labels and kinds of redis_exporter's metrics that dashboards and alerts ask for.

They stand here as redis_exporter's own tables (exporter/exporter.go) have them: what it makes of
INFO's fields, of commands, of databases and, with check-streams, of streams.
"""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

GAUGES = """
    up uptime_in_seconds process_id start_time_seconds connected_clients blocked_clients config_maxclients
    memory_used_bytes memory_used_rss_bytes memory_used_peak_bytes memory_max_bytes loading_dump_file
    rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_timestamp_seconds rdb_last_bgsave_status
    rdb_last_bgsave_duration_sec rdb_current_bgsave_duration_sec aof_enabled aof_rewrite_in_progress
    aof_rewrite_scheduled aof_last_rewrite_duration_sec aof_current_rewrite_duration_sec
    aof_last_bgrewrite_status aof_last_write_status aof_current_size_bytes aof_base_size_bytes
    pubsub_channels pubsub_patterns connected_slaves
    io_threads_active tracking_clients clients_in_timeout_table pubsub_clients watching_clients
    total_watched_keys total_blocking_keys total_blocking_keys_on_nokey
    client_recent_max_input_buffer_bytes client_recent_max_output_buffer_bytes max_clients
    memory_used_overhead_bytes memory_used_startup_bytes memory_used_dataset_bytes
    allocator_allocated_bytes allocator_active_bytes allocator_resident_bytes allocator_frag_ratio
    allocator_frag_bytes allocator_rss_ratio allocator_rss_bytes mem_fragmentation_ratio
    mem_fragmentation_bytes mem_clients_slaves mem_clients_normal mem_not_counted_for_eviction_bytes
    mem_total_replication_buffers_bytes mem_overhead_db_hashtable_rehashing_bytes memory_used_lua_bytes
    memory_used_vm_eval_bytes memory_used_scripts_eval_bytes number_of_cached_scripts number_of_functions
    number_of_libraries memory_used_vm_functions_bytes memory_used_scripts_bytes
    memory_used_functions_bytes memory_used_vm_total lazyfree_pending_objects active_defrag_running
    defrag_hits defrag_misses defrag_key_hits defrag_key_misses migrate_cached_sockets_total
    expired_stale_percentage config_maxmemory total_system_memory_bytes async_loading
    rdb_last_cow_size_bytes rdb_saves_total rdb_last_load_expired_keys rdb_last_load_loaded_keys
    aof_last_cow_size_bytes aof_pending_rewrite aof_buffer_length aof_pending_bio_fsync
    module_fork_in_progress module_fork_last_cow_size aof_delayed_fsync pubsubshard_channels
    latest_fork_usec tracking_total_keys tracking_total_items tracking_total_prefixes master_repl_offset
    second_repl_offset replication_backlog_bytes repl_backlog_is_active repl_backlog_first_byte_offset
    repl_backlog_history_bytes slave_expires_tracked_keys replica_resyncs_full
    replica_partial_resync_accepted replica_partial_resync_denied slowlog_length slowlog_last_id
    last_slow_execution_duration_seconds
"""
COUNTERS = """
    connections_received_total commands_processed_total rejected_connections_total net_input_bytes_total
    net_output_bytes_total expired_keys_total evicted_keys_total keyspace_hits_total keyspace_misses_total
    cpu_sys_seconds_total cpu_user_seconds_total
    expired_subkeys_total expired_time_cap_reached_total evicted_clients_total evicted_scripts_total
    cpu_sys_children_seconds_total cpu_user_children_seconds_total cpu_sys_main_thread_seconds_total
    cpu_user_main_thread_seconds_total unexpected_error_replies total_error_replies
    dump_payload_sanitizations io_threaded_reads_processed io_threaded_writes_processed
    client_query_buffer_limit_disconnections_total client_output_buffer_limit_disconnections_total
    acl_access_denied_auth_total acl_access_denied_cmd_total acl_access_denied_key_total
    acl_access_denied_channel_total
"""
STREAM = {"db": "db0", "stream": "orders"}
GROUP = STREAM | {"group": "billing"}
CONSUMER = GROUP | {"consumer": "ann"}
LABELLED = {
    "commands_total": ("counter", {"cmd": "xadd"}),
    "commands_duration_seconds_total": ("counter", {"cmd": "xadd"}),
    "commands_rejected_calls_total": ("counter", {"cmd": "xadd"}),
    "commands_failed_calls_total": ("counter", {"cmd": "xadd"}),
    "errors_total": ("counter", {"err": "ERR"}),
    "commands_latencies_usec_bucket": ("histogram", {"cmd": "xadd", "le": "+Inf"}),
    "commands_latencies_usec_count": ("histogram", {"cmd": "xadd"}),
    "commands_latencies_usec_sum": ("histogram", {"cmd": "xadd"}),
    "config_client_output_buffer_limit_bytes": ("gauge", {"class": "pubsub", "limit": "hard"}),
    "config_client_output_buffer_limit_overcome_seconds": ("gauge", {"class": "normal", "limit": "soft"}),
    "latency_spike_last": ("gauge", {"event_name": "command"}),
    "latency_spike_duration_seconds": ("gauge", {"event_name": "command"}),
    "db_keys": ("gauge", {"db": "db0"}),
    "db_keys_expiring": ("gauge", {"db": "db0"}),
    "db_avg_ttl_seconds": ("gauge", {"db": "db0"}),
    "stream_length": ("gauge", STREAM),
    "stream_radix_tree_keys": ("gauge", STREAM),
    "stream_radix_tree_nodes": ("gauge", STREAM),
    "stream_groups": ("gauge", STREAM),
    "stream_group_consumers": ("gauge", GROUP),
    "stream_group_messages_pending": ("gauge", GROUP),
    "stream_group_consumer_messages_pending": ("gauge", CONSUMER),
    "stream_group_consumer_idle_seconds": ("gauge", CONSUMER),
}


# redis_exporter leaves out _total here; the parser of prometheus_client puts it there.
WITHOUT_TOTAL = """
    unexpected_error_replies total_error_replies dump_payload_sanitizations io_threaded_reads_processed
    io_threaded_writes_processed
"""


def as_written(name: str) -> str:
    """The name of a sample as the server writes it."""
    written = name.removesuffix("_total")
    return written if written.removeprefix("redis_") in WITHOUT_TOTAL.split() else name


@pytest.fixture
def metrics(start) -> dict[tuple[str, frozenset], str]:
    """The kind of each metric that a server at work shows, by its name and labels."""
    settings = ["--latency-monitor-threshold", "1", "--enable-debug-command", "yes"]
    running = start("--metrics-port", "free", "--appendonly", "yes", *settings)
    client = running.connect()
    client.request("DEBUG", "SLEEP", "0.002")
    for _ in range(3):
        client.request("XADD", "orders", "*", "item", "pear")
    client.request("SETEX", "soon", "100", "v")
    client.request("XGROUP", "CREATE", "orders", "billing", "0")
    client.request("XREADGROUP", "GROUP", "billing", "ann", "COUNT", "2", "STREAMS", "orders", ">")
    client.request("XADD", "orders", "nonsense", "f", "v")
    with urllib.request.urlopen(
        f"http://127.0.0.1:{running.server.parts.metrics.port}/metrics", timeout=30
    ) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (as_written(sample.name), frozenset(sample.labels.items())): family.type
        for family in families
        for sample in family.samples
    }


def test_what_info_says_has_the_names_that_redis_exporter_gives_it(metrics):
    wanted = {(f"redis_{name}", frozenset()): "gauge" for name in GAUGES.split()}
    wanted |= {(f"redis_{name}", frozenset()): "counter" for name in COUNTERS.split()}
    assert {key: metrics.get(key) for key in wanted} == wanted


def test_commands_databases_and_streams_have_its_names_and_labels(metrics):
    wanted = {(f"redis_{name}", frozenset(labels.items())): kind for name, (kind, labels) in LABELLED.items()}
    assert {key: metrics.get(key) for key in wanted} == wanted
    about = [dict(labels) for name, labels in metrics if name == "redis_instance_info"]
    assert set(about[0]) >= {"role", "redis_version", "redis_mode", "os", "tcp_port", "run_id", "process_id"}
