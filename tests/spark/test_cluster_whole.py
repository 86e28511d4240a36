"""Real Spark on a real cluster: streams of three shards in one query, while the master of one dies."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import redis
from pyspark.sql import SparkSession

from support.redis_cluster import Cluster

pytestmark = pytest.mark.whole

COUNT = 6000


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def add(cluster: Cluster, stream: str, numbers: range) -> None:
    owner = cluster.client.get_node_from_key(stream)
    pipe = redis.Redis(port=owner.port).pipeline(transaction=False)
    for n in numbers:
        pipe.xadd(stream, {"n": n}, id=f"{n + 1}-0")
    pipe.execute()


def test_a_query_reads_all_shards_and_survives_the_loss_of_a_master(
    spark: SparkSession, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    streams = [cluster.stream_of(master) for master in cluster.masters]
    for stream in streams:
        add(cluster, stream, range(COUNT))
    cluster.masters[0].wait_for(cluster.replica)
    reader = {"url": cluster.url, "subscribe": ",".join(streams), "minPartitions": "6"}
    schema = "_stream STRING, n LONG"
    batch = spark.read.format("headrace").options(**reader).schema(schema).load()
    assert batch.rdd.getNumPartitions() == 6
    assert {(r._stream, r["count"]) for r in batch.groupBy("_stream").count().collect()} == {
        (stream, COUNT) for stream in streams
    }
    rows = spark.readStream.format("headrace").options(**reader, startingOffsets="earliest")
    query = (
        rows.option("maxOffsetsPerTrigger", "4000")
        .schema(schema)
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    while not query.recentProgress:
        assert query.isActive, query.exception()
    cluster.masters[0].kill()
    for stream in streams[1:]:
        add(cluster, stream, range(COUNT, COUNT + 100))
    query.processAllAvailable()
    query.stop()
    found = spark.read.parquet(str(tmp_path / "out"))
    whole = found.groupBy("_stream").agg({"n": "sum", "*": "count"}).collect()
    counts = dict.fromkeys(streams, COUNT + 100) | {streams[0]: COUNT}
    assert {(r._stream, r["count(1)"], r["sum(n)"]) for r in whole} == {
        (stream, count, sum(range(count))) for stream, count in counts.items()
    }
