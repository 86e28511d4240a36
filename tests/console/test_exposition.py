"""Metrics of a real redis-server, as Prometheus parses them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from headrace.cli.commands.top import request_sender
from headrace.console.exposition import escape_label, exposition
from headrace.console.server_stats import ServerStats, StreamStats, collect_stats


def test_a_redis_server_has_the_same_metrics(client, server_url: str):
    for n in range(1, 21):
        client.xadd("orders", {"a": n}, id=f"{n}-0")
    client.xgroup_create("orders", "billing", "5-0")  # whose lag a server cannot tell
    with request_sender(server_url) as ask:
        stats = collect_stats(ask)
    families = {f.name: f for f in text_string_to_metric_families(exposition(stats))}
    (length,) = families["redis_stream_length"].samples
    assert (length.labels, length.value) == ({"db": "db0", "stream": "orders"}, 20)
    assert "redis_stream_group_messages_pending" in families and "redis_stream_group_lag" not in families
    calls = {s.labels["cmd"]: s.value for s in families["redis_commands"].samples}
    assert calls["xadd"] >= 20 and families["redis_commands"].type == "counter"
    latency = families["redis_latency_percentiles_usec"]
    assert {s.labels["quantile"] for s in latency.samples if s.labels["cmd"] == "xadd"} == {
        "50",
        "99",
        "99.9",
    }
    assert families["redis_rdb_last_bgsave_status"].samples[0].value == 1
    assert families["redis_start_time_seconds"].samples[0].value > 1.6e9


def test_names_with_the_same_text_give_one_series():
    streams = [StreamStats(0, name, 1, 2, 1, b"1-0") for name in (b"\xff", b"\\xff")]
    text = exposition(ServerStats(0.0, {}, streams))
    assert text.count("redis_stream_length{") == 1  # Prometheus would refuse all of it for two


def test_values_that_an_old_server_does_not_report_are_absent():
    stats = ServerStats(0.0, {"cmdstat_get": "calls=3,usec=12,usec_per_call=4.0"})
    text = exposition(stats)
    assert 'redis_commands_duration_seconds_total{cmd="get"} 1.2e-05' in text
    assert "rejected" not in text
    assert escape_label('a\\b"c\nd') == r"a\\b\"c\nd"
