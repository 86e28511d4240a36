"""A real cluster: streams are found on their shards, and read whole while slots move and masters die."""

from __future__ import annotations

import pathlib
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import redis
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.archive.watermark import lowest_published_id, watermark_key
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers, servers_at
from headrace.errors import UsageError
from headrace.pipeline.loading.load_rows import load_rows
from headrace.pipeline.loading.loader import LoadIdentity
from headrace.pipeline.replaying.replay_entries import replay_entries
from headrace.pipeline.replaying.source import ReplaySource
from headrace.pipeline.trimming import trim_streams as trim_module
from headrace.pipeline.trimming.trim_streams import trim_streams
from headrace.positions.stream_state import last_ids, stream_states
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.group_progress import GroupProgress
from headrace.spark.source.planner import OffsetRange, nth_id, plan_ranges
from headrace.spark.source.range_reader import RangeReader
from headrace.spark.source.trigger_limits import AdmissionControl
from support.archives import publish
from support.redis_cluster import Cluster, Node
from support.waiting import wait_until

SCHEMA = StructType([StructField("_id", StringType()), StructField("n", LongType())])


@pytest.fixture(scope="module")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(running_cluster: Cluster) -> Cluster:
    """An empty cluster, all of whose nodes live."""
    running_cluster.client.flushall()
    return running_cluster


@pytest.fixture
def doomed_cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    """A cluster whose nodes the test may kill."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def fill(cluster: Cluster, stream: str, count: int) -> None:
    node = cluster.client.get_node_from_key(stream)
    pipe = redis.Redis(port=node.port).pipeline(transaction=False)
    for n in range(count):
        pipe.xadd(stream, {"n": n}, id=f"{1_000_000 + n}-0")
    pipe.execute()


def batches(url: str, stream: str, count: int, **options: str) -> Iterator[Any]:
    part = OffsetRange(stream, "0-0", f"{1_000_000 + count - 1}-0", False)
    return RangeReader(
        part, ColumnLayout(SCHEMA, "epoch_ms"), parse_options({"url": url, **options}, "batch")
    ).batches()


def numbers(batch: Any) -> list[int]:
    return [int(n) for n in batch.column("n").to_pylist()]


def test_streams_of_all_shards_are_planned_and_read(cluster: Cluster) -> None:
    streams = [cluster.stream_of(node) for node in cluster.masters]
    for n, stream in enumerate(streams):
        fill(cluster, stream, 100 * (n + 1))
    servers = pickle.loads(pickle.dumps(Servers(cluster.url)))
    assert len({servers.owner_node_name(stream) for stream in streams}) == 3
    ends = last_ids(servers, [*streams, "none"])
    assert ends == {s: f"{1_000_000 + 100 * (n + 1) - 1}-0" for n, s in enumerate(streams)}
    options = parse_options({"url": cluster.url, "minPartitions": "6"}, "batch")
    parts = plan_ranges(servers, {}, ends, options)
    assert len(parts) == 6 and {part.stream for part in parts} == set(streams)
    read: dict[str, list[int]] = {s: [] for s in streams}
    for part in parts:
        for batch in RangeReader(part, ColumnLayout(SCHEMA, "epoch_ms"), options).batches():
            read[part.stream] += numbers(batch)
    assert read == {s: list(range(100 * (n + 1))) for n, s in enumerate(streams)}
    admission = AdmissionControl(servers, options, EntryNumbers())
    cut = admission.limit_batch({}, ends, stream_states(servers, ends), ReadMaxRows(60))
    assert sum(len(cluster.client.xrange(s, max=i)) for s, i in cut.items()) == 60


def test_all_requests_to_a_shard_share_one_pipeline(cluster: Cluster) -> None:
    streams = [f"t{n}" for n in range(60)]
    for stream in streams:
        fill(cluster, stream, 1)
    servers = Servers(cluster.url)
    assert set(stream_states(servers, streams)) == set(streams)
    before = [node.client.info("stats")["total_connections_received"] for node in cluster.masters]
    assert set(stream_states(servers, streams)) == set(streams)
    after = [node.client.info("stats")["total_connections_received"] for node in cluster.masters]
    assert after == before, "the connections of the first questions serve the next"
    servers.close()


def test_streams_are_found_on_every_shard_by_pattern_and_type(cluster: Cluster) -> None:
    streams = {f"orders-{n}" for n in range(50)}
    for stream in [*streams, "orders-", "other-1"]:
        fill(cluster, stream, 1)
    cluster.client.set("orders-99", "text")
    assert set(Servers(cluster.url).matching_streams(r"orders-\d+")) == streams
    assert Servers(cluster.url).matching_streams("orders") == []


def test_waiting_ends_with_the_first_new_entry_and_with_the_timeout(cluster: Cluster) -> None:
    streams = {cluster.stream_of(node): "0-0" for node in cluster.masters}
    servers = Servers(cluster.url)
    assert servers.wait_for_entries(streams, 50), "streams of several slots cannot be waited for"
    first = dict(list(streams.items())[:1])
    assert not servers.wait_for_entries(first, 50)
    fill(cluster, next(iter(first)), 1)
    assert servers.wait_for_entries(first, 60_000)


def test_a_single_node_of_a_cluster_is_rejected(cluster: Cluster) -> None:
    url = f"redis://127.0.0.1:{cluster.masters[0].port}"
    stream = cluster.stream_of(cluster.masters[1])
    with pytest.raises(UsageError, match=r"use cluster://"):
        last_ids(Servers(url), [stream])
    with pytest.raises(UsageError, match=r"use cluster://"):
        list(batches(url, stream, 1))


def move(cluster: Cluster, slot: int, source: Node, target: Node, keys: list[str]) -> Iterator[str]:
    """Move a slot from master to master, stopping at each step."""
    source_id, target_id = cluster.id(source), cluster.id(target)
    target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    for key in keys:
        source.client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
    yield "asking"
    for node in (target, source):
        node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", target_id)
    yield "moved"


def test_a_stream_is_read_completely_while_it_moves_to_another_node(cluster: Cluster) -> None:
    source, target = cluster.masters[1:]
    stream = cluster.stream_of(source)
    slot = int(cluster.client.keyslot(stream))
    count = 25_000
    upto = f"{1_000_000 + count - 1}-0"
    fill(cluster, stream, count)
    servers = Servers(cluster.url)
    for giver, taker in ((source, target), (target, source)):
        owner = servers.owner_node_name(stream)
        assert owner.endswith(str(giver.port))
        steps = move(cluster, slot, giver, taker, [stream])
        reading = batches(cluster.url, stream, count, entriesPerFetch="300")
        seen = numbers(next(reading))  # from the old node, which replies ASK from now on
        late = batches(cluster.url, stream, count, entriesPerFetch="300")
        late_seen = numbers(next(late))  # to this one it will answer MOVED
        assert next(steps) == "asking"
        assert last_ids(servers, [stream]) == {stream: upto}
        assert nth_id(servers, stream, "0-0", upto, 1500) == "1001499-0"
        seen += numbers(next(reading))  # from the new node, which needs ASKING
        assert next(steps) == "moved"
        seen += [n for batch in reading for n in numbers(batch)]
        late_seen += [n for batch in late for n in numbers(batch)]
        assert seen == late_seen == list(range(count))
        assert last_ids(servers, [stream]) == {stream: upto}
        assert nth_id(servers, stream, "0-0", upto, 1500) == "1001499-0"
        assert servers.owner_node_name(stream).endswith(str(taker.port))


def test_a_read_continues_at_the_replica_after_its_master_died(doomed_cluster: Cluster) -> None:
    cluster = doomed_cluster
    victim, count = cluster.masters[0], 40_000
    stream = cluster.stream_of(victim)
    fill(cluster, stream, count)
    victim.wait_for(cluster.replica)
    servers = Servers(cluster.url)
    ends = last_ids(servers, [stream])
    reading = batches(cluster.url, stream, count, entriesPerFetch="2000")
    seen = numbers(next(reading))
    assert 0 < len(seen) < count
    victim.kill()
    for batch in reading:
        seen += numbers(batch)
    assert seen == list(range(count))
    assert cluster.replica.client.info("replication")["role"] == "master"
    assert last_ids(servers, [stream]) == ends
    assert nth_id(servers, stream, "0-0", ends[stream], count // 2) == f"{1_000_000 + count // 2 - 1}-0"
    assert servers.matching_streams(".*") == [stream]


def test_a_read_waits_for_a_missing_shard_up_to_the_timeout(doomed_cluster: Cluster) -> None:
    cluster = doomed_cluster
    victim = cluster.masters[1]
    stream = cluster.stream_of(victim)
    fill(cluster, stream, 10)
    victim.kill()
    wait_until(lambda: not cluster.ok(cluster.masters[0]), "the cluster to notice")
    servers = Servers(cluster.url, reconnect_timeout=0)
    with pytest.raises(CONNECTION_ERRORS):
        last_ids(servers, [stream])
    with pytest.raises(CONNECTION_ERRORS):
        servers.open_raw(stream)
    victim.start()
    assert last_ids(Servers(cluster.url), [stream]) == {}, "it kept nothing on disk"
    with pytest.raises(redis.ConnectionError):
        Servers("redis://127.0.0.1:1", reconnect_timeout=0).open_raw("s")


def test_a_load_writes_stream_and_marker_to_the_owning_master(cluster: Cluster) -> None:
    rows = pa.record_batch({"n": [1, 2, 3]})
    with Servers(cluster.url, reconnect_timeout=0) as link:
        for node in cluster.masters:
            stream = cluster.stream_of(node)
            assert not last_ids(link, [stream])
            job = LoadIdentity("job")
            assert load_rows([rows.slice(0, 2)], None, link, stream, job=job).added_rows == 2
            report = load_rows([rows], None, link, stream, job=job, resume=True)
            assert (report.added_rows, report.skipped) == (1, 2) and link.client().xlen(stream) == 3


def give(cluster: Cluster, stream: str) -> None:
    """A stream of 100 entries of which 60 are archived, and the group g has acknowledged 40."""
    fill(cluster, stream, 100)
    publish(cluster.client, stream, "1000059-0")
    cluster.client.xgroup_create(stream, "g", "0")
    read = cluster.client.xreadgroup("g", "c", {stream: ">"}, count=50)
    cluster.client.xack(stream, "g", *[id for id, _ in read[0][1][:40]])


def test_streams_of_all_shards_are_trimmed(cluster: Cluster) -> None:
    streams = [cluster.stream_of(node) for node in cluster.masters]
    for stream in streams:
        give(cluster, stream)
    for dry in (True, False):
        done = trim_streams(cluster.url, streams, dry_run=dry)
        assert [(one.stream, one.removed, one.remaining) for one in done] == [(s, 40, 60) for s in streams]
        assert [cluster.client.xlen(stream) for stream in streams] == ([100] * 3 if dry else [60] * 3)
        assert all(one.reasons[0].startswith("group g: 10 pending, oldest 1000040-0") for one in done)


def test_jobs_continue_while_a_stream_moves(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = cluster.masters[1:]
    stream = cluster.stream_of(source, "jobs")
    give(cluster, stream)
    servers = Servers(cluster.url)
    servers.client().ping()
    old = Servers(cluster.url)
    old.client().ping()
    options = parse_options({"url": cluster.url, "subscribe": stream, "groupId": "spark"}, "stream")
    progress = GroupProgress(options, EntryNumbers())
    progress.publish({stream: "1000009-0"})
    steps = move(
        cluster, int(cluster.client.keyslot(stream)), source, target, [stream, watermark_key(stream)]
    )
    assert next(steps) == "asking"
    assert lowest_published_id(servers.client(), stream) == "1000059-0"
    progress.publish({stream: "1000019-0"})
    raised = threading.Thread(
        target=lambda: servers.with_retries(lambda: publish(servers.client(), stream, "1000069-0"))
    )
    raised.start()  # a transaction, which waits for the end of the move
    assert trim_streams(cluster.url, [stream])[0].removed == 19
    with monkeypatch.context() as patched:  # nor is it trimmed meanwhile where no script does it
        patched.setattr(trim_module, "RETRY_SECONDS", 0.0)
        patched.setattr(trim_module, "SCRIPTS_UNAVAILABLE_ERRORS", ("",))
        patched.setattr(trim_module, "TRIM_SCRIPT", "which is none")
        cluster.client.xgroup_destroy(stream, "spark")
        [held] = trim_streams(cluster.url, [stream])
        assert (held.removed, held.remaining) == (0, 81) and "change too fast" in held.reasons[0]
    progress.publish({stream: "1000029-0"})
    assert raised.is_alive()
    assert next(steps) == "moved"
    raised.join(20)
    assert lowest_published_id(old.client(), stream) == "1000069-0"
    progress.publish({stream: "1000049-0"})
    [spark] = [one for one in target.client.xinfo_groups(stream) if one["name"] == b"spark"]
    assert spark["last-delivered-id"] == b"1000049-0"
    assert trim_streams(cluster.url, [stream])[0].remaining == 60
    progress.close()


def test_jobs_on_a_node_say_that_there_is_a_cluster(cluster: Cluster) -> None:
    url = f"redis://127.0.0.1:{cluster.masters[0].port}"
    stream = cluster.stream_of(cluster.masters[1])
    fill(cluster, stream, 1)
    with pytest.raises(UsageError, match="use cluster://"):
        trim_streams(url, [stream])
    with pytest.raises(UsageError, match="use cluster://"):
        replay_entries(ReplaySource(stream, url, None), url, "copy", name="r")
    with pytest.raises(UsageError, match="use cluster://"), servers_at(url) as servers:
        servers.client().xlen(stream)
    servers = Servers(url)
    with pytest.raises(UsageError, match="use cluster://"):
        servers.with_retries(lambda: publish(servers.client(), stream, "1-0"))
