"""The source's options in a real Spark session: what only Spark itself can call, report or push down."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.spark import progress
from support.stream_server import StreamServer
from support.waiting import wait_until

pytestmark = pytest.mark.whole

SWITCH = "spark.sql.python.filterPushdown.enabled"


class Query:
    """A streaming query that collects numbers, and can be run again from its checkpoint."""

    def __init__(self, spark: SparkSession, server: StreamServer, folder: pathlib.Path) -> None:
        self.spark = spark
        self.server = server
        self.checkpoint = str(folder / "checkpoint")
        self.batches: list[list[int]] = []
        self.fails = False

    def start(self, *, now: bool = False, **options: str) -> Any:
        reader = self.spark.readStream.format("headrace").option("url", self.server.url).options(**options)
        writer = reader.schema("n LONG").load().writeStream.foreachBatch(self.take)
        writer = writer.option("checkpointLocation", self.checkpoint)
        return (writer.trigger(availableNow=True) if now else writer).start()

    def take(self, rows: DataFrame, batch: int) -> None:
        numbers = sorted(row.n for row in rows.collect())
        if self.fails and numbers:
            raise RuntimeError("the sink is broken")
        if numbers:
            self.batches.append(numbers)

    def run(self, **options: str) -> list[int]:
        """Read all that is there; how many rows each micro-batch of this run had."""
        before = len(self.batches)
        assert self.start(now=True, **options).awaitTermination(60), "AvailableNow does not end"
        return [len(batch) for batch in self.batches[before:]]

    @property
    def numbers(self) -> list[int]:
        return sorted(n for batch in self.batches for n in batch)


@pytest.fixture
def query(spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path) -> Query:
    return Query(spark, stream_server, tmp_path)


@pytest.mark.parametrize("switch", ["true", "false"])
def test_rows_are_the_same_with_and_without_pushdown(
    spark: SparkSession, stream_server: StreamServer, switch: str
) -> None:
    stream_server.fill("a", 1000)
    stream_server.fill("b", 1000)
    spark.conf.set(SWITCH, switch)
    try:
        rows = (
            spark.read.format("headrace").option("url", stream_server.url).option("subscribe", "a,b").load()
        )
        before = stream_server.client.info("stats")["total_net_output_bytes"]
        few = rows.where("stream = 'a' AND timestamp >= timestamp_millis(1000990) AND fields['n'] != '995'")
        found = sorted(int(row.fields["n"]) for row in few.collect())
        assert found == [n for n in range(990, 1000) if n != 995]
        sent = stream_server.client.info("stats")["total_net_output_bytes"] - before
        assert (sent < 20_000) == (switch == "true"), f"{sent} bytes came"
        assert rows.where("id = '1000500-0'").count() == 2
        assert rows.where("stream IN ('b', 'none')").count() == 1000
        few.explain()
        options = f"OPTIONS (url '{stream_server.url}', subscribe 'b')"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING headrace {options}")
        early = spark.sql("SELECT count(*) FROM v WHERE timestamp < timestamp_millis(1000010)")
        assert early.first() == (10,)
    finally:
        spark.conf.unset(SWITCH)


def test_streams_that_appear_while_a_query_runs_are_read(query: Query) -> None:
    query.server.fill("s1", 10)
    running = query.start(
        subscribePattern=r"s\d", startingOffsets="earliest", discoveryInterval="100ms", groupId="g"
    )
    wait_until(lambda: len(query.numbers) == 10)
    query.server.fill("s2", 10, first=10)
    query.server.fill("other", 10, first=20)
    wait_until(lambda: len(query.numbers) == 20)
    running.processAllAvailable()
    running.stop()
    assert query.numbers == list(range(20))
    assert query.run(subscribePattern=r"s\d", groupId="g") == []


def test_progress_is_in_the_report_and_in_the_group(query: Query) -> None:
    query.server.fill("s", 1000)
    options = {"subscribe": "s", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "400", "groupId": "g"}
    running = query.start(now=True, **options)
    assert running.awaitTermination(60)
    reports = [progress(report) for report in running.recentProgress if report["numInputRows"]]
    assert [(r.entries, r.lag) for r in reports if r] == [(400, 600), (400, 200), (200, 0)]
    last = reports[0] and reports[0].streams["s"]
    assert last and (last.read_to, last.last_id, last.lag_seconds) == ("1000399-0", "1000999-0", 0.6)
    assert last.lag_bytes and last.lag_bytes > 600
    [group] = query.server.client.xinfo_groups("s")
    assert (group["last-delivered-id"], group["lag"]) == (b"1000999-0", 0), "also of the last batch"


def test_available_now_respects_its_limits_and_ends(query: Query) -> None:
    query.server.fill("s", 500)
    query.server.fill("t", 100, first=500)
    options = {"subscribe": "s,t", "startingTimestamp": "0", "minOffsetsPerTrigger": "1000"}
    sizes = query.run(**options, maxOffsetsPerTrigger="1000", minPartitions="3")
    assert sizes == [600]
    query.server.fill("s", 100, first=600)
    sizes = query.run(subscribe="s,t", maxBytesPerTrigger="1k")
    assert sum(sizes) == 100 and len(sizes) > 1
    assert query.numbers == [*range(600), *range(600, 700)]


def test_a_failed_batch_is_read_again_completely(query: Query) -> None:
    query.server.fill("s", 100)
    query.fails = True
    options = {"subscribe": "s", "startingTimestamp": "1000010"}
    options |= {"groupId": "g", "acknowledgeOnCommit": "true"}
    with pytest.raises(Exception, match="the sink is broken"):
        query.run(**options)
    assert query.server.client.xinfo_groups("s")[0]["last-delivered-id"] < b"1000010"
    query.fails = False
    query.server.fill("s", 10, first=100)
    assert sum(query.run(**options)) == 100
    assert query.numbers == list(range(10, 110))


def test_nested_columns_and_wrong_options_in_spark(spark: SparkSession, stream_server: StreamServer) -> None:
    stream_server.client.xadd("s", {"tags": '["a", "b"]', "at": '{"x": 1, "y": [0.5]}'})
    stream_server.client.xadd("s", {"tags": "none"})

    def load(schema: str = "", **options: str) -> DataFrame:
        reader = spark.read.format("headrace").option("url", stream_server.url).option("subscribe", "s")
        return (reader.schema(schema) if schema else reader).options(**options).load()

    schema = "tags ARRAY<STRING>, at STRUCT<x: INT, y: ARRAY<DOUBLE>>, _corrupt_record STRING"
    good, bad = load(schema).orderBy("_corrupt_record").collect()
    assert (good.tags, good.at.x, good.at.y, good._corrupt_record) == (["a", "b"], 1, [0.5], None)
    assert bad.tags is None and bad._corrupt_record is not None
    with pytest.raises(Exception, match="Did you mean subscribePattern"):
        load(subscribePatern="x").count()
    with pytest.raises(Exception, match="names S, which is not read"):
        load(startingOffsets='{"S": "earliest"}').count()


def test_an_idle_query_asks_at_most_ten_times_a_second(query: Query) -> None:
    running = query.start(subscribe="s", startingOffsets="earliest")
    query.server.fill("s", 1)
    wait_until(lambda: query.numbers)
    running.processAllAvailable()
    seen = [query.server.client.info("stats")["total_commands_processed"]]
    began = time.monotonic()
    time.sleep(2)
    seen.append(query.server.client.info("stats")["total_commands_processed"])
    seconds = time.monotonic() - began
    query.server.fill("s", 1, first=1)
    wait_until(lambda: query.numbers == [0, 1])
    running.stop()
    polls = (seen[1] - seen[0] - 1) / 2  # each is a look at the stream, and a wait at its end
    assert 0 < polls <= 10 * seconds
