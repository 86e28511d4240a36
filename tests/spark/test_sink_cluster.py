"""Writing to a real cluster: each stream on its shard, once, while slots move and masters die."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.client.servers import Servers
from headrace.spark import Marker, write_batches
from headrace.spark.sink import sender
from headrace.spark.sink.exactly_once import ConfirmedRowsLost
from headrace.spark.sink.overwrite import StreamReplacement
from support.redis_cluster import Cluster

MARKER = Marker("q", 0, 4)


@pytest.fixture
def cluster(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(sender, "CHUNK_ROWS", 10)
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def numbers(cluster: Cluster, stream: str) -> list[int]:
    return [int(fields[b"n"]) for _, fields in cluster.client.xrange(stream)]


def test_streams_of_all_shards_are_written_once_while_one_moves(cluster: Cluster) -> None:
    streams = [cluster.stream_of(master, f"{name}") for master in cluster.masters for name in ("a", "b")]
    rows = [{"_stream": streams[n % 6], "n": n} for n in range(600)]
    giver, taker = cluster.masters[0], cluster.masters[1]
    moving = streams[0]
    slot = int(cluster.client.keyslot(moving))

    def begin() -> None:
        taker.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(giver))
        giver.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(taker))
        for key in giver.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            giver.client.execute_command("MIGRATE", "127.0.0.1", taker.port, key, 0, 5000)

    def end() -> None:
        for node in cluster.masters:
            node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(taker))

    timer = threading.Timer(0.5, end)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 600, 60):
            if start == 180:
                begin()
                timer.start()
            yield pa.RecordBatch.from_pylist(rows[start : start + 60])

    assert write_batches(batches(), cluster.url, None, MARKER) == 600
    timer.join()
    for i, stream in enumerate(streams):
        assert numbers(cluster, stream) == list(range(i, 600, 6)), stream
    assert cluster.client.get_node_from_key(moving).port == taker.port
    again = pa.RecordBatch.from_pylist(rows)
    assert write_batches([again], cluster.url, None, MARKER) == 0
    assert write_batches([again], cluster.url, None) == 600
    assert numbers(cluster, moving) == 2 * list(range(0, 600, 6))
    replacement = StreamReplacement(Servers(cluster.url), moving, "x")
    cluster.client.xadd(replacement.temporary_stream, {"n": 7})
    replacement.set_expiry()
    replacement.commit(1)
    assert numbers(cluster, moving) == [7] and cluster.client.ttl(moving) == -1


def test_a_write_continues_at_the_replica_after_its_master_died(cluster: Cluster) -> None:
    stream = cluster.stream_of(cluster.masters[0])

    def batches(kill: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, 400, 100):
            yield pa.RecordBatch.from_pydict({"n": list(range(start, start + 100))})
            if kill and start == 100:
                cluster.masters[0].wait_for(cluster.replica)
                cluster.masters[0].kill()

    try:
        write_batches(batches(True), cluster.url, stream, MARKER)
    except ConfirmedRowsLost:  # the replica lacked what was just confirmed: the task's next attempt
        write_batches(batches(False), cluster.url, stream, MARKER)
    assert numbers(cluster, stream) == list(range(400))
