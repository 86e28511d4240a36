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
"""
COUNTERS = """
    connections_received_total commands_processed_total rejected_connections_total net_input_bytes_total
    net_output_bytes_total expired_keys_total evicted_keys_total keyspace_hits_total keyspace_misses_total
    cpu_sys_seconds_total cpu_user_seconds_total
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


@pytest.fixture
def metrics(start) -> dict[tuple[str, frozenset], str]:
    """The kind of each metric that a server at work shows, by its name and labels."""
    running = start("--metrics-port", "free", "--appendonly", "yes")
    client = running.connect()
    for _ in range(3):
        client.request("XADD", "orders", "*", "item", "pear")
    client.request("SETEX", "soon", "100", "v")
    client.request("XGROUP", "CREATE", "orders", "billing", "0")
    client.request("XREADGROUP", "GROUP", "billing", "ann", "COUNT", "2", "STREAMS", "orders", ">")
    client.request("XADD", "orders", "nonsense", "f", "v")
    with urllib.request.urlopen(
        f"http://127.0.0.1:{running.server.metrics.port}/metrics", timeout=30
    ) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, frozenset(sample.labels.items())): family.type
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
