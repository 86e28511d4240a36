"""The source in a real Spark session: exact counts, restarts, limits, schemas and lost data."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark import spark_child
from support.stream_server import StreamServer
from support.waiting import wait_until

pytestmark = pytest.mark.whole


def batch(spark: SparkSession, server: StreamServer, schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("headrace").option("url", server.url).option("subscribe", "s")
    return (reader.schema(schema) if schema else reader).options(**options).load()


class Query:
    """A streaming query to Parquet that can be run again from its checkpoint."""

    def __init__(self, spark: SparkSession, server: StreamServer, folder: pathlib.Path) -> None:
        self.spark = spark
        self.server = server
        self.folder = folder

    def start(self, *, now: bool = True, **options: str) -> Any:
        options = {"subscribe": "s", "startingOffsets": "earliest", **options}
        frame = self.spark.readStream.format("headrace").option("url", self.server.url)
        rows = frame.schema("_stream STRING, _id STRING, n LONG").options(**options).load()
        writer = rows.writeStream.format("parquet").option("path", str(self.folder / "out"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, **options: str) -> list[int]:
        """Read all that is there; the rows of each micro-batch that had any."""
        query = self.start(**options)
        assert query.awaitTermination(60), "AvailableNow does not end"
        return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    def numbers(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.folder / "out")).select("n").collect()
        return sorted(row.n for row in rows)


@pytest.fixture
def query(spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path) -> Query:
    return Query(spark, stream_server, tmp_path)


def test_a_batch_read_has_every_entry_once_in_several_tasks(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    stream_server.fill("s", 30_000)
    frame = batch(spark, stream_server, minPartitions="4")
    assert frame.schema.simpleString() == (
        "struct<stream:string,id:string,timestamp:timestamp,sequence:bigint,fields:map<string,string>>"
    )
    assert frame.rdd.getNumPartitions() == 4
    [row] = frame.selectExpr(
        "count(*) AS all",
        "count(DISTINCT id) AS ids",
        "sum(int(fields['n'])) AS total",
        "max(timestamp) AS last",
    ).collect()
    assert (row.all, row.ids, row.total) == (30_000, 30_000, sum(range(30_000)))
    assert row.last.isoformat() == "1970-01-01T00:17:09.999000"


def test_a_batch_read_of_nothing_is_empty(spark: SparkSession, stream_server: StreamServer) -> None:
    assert batch(spark, stream_server).count() == 0


def test_a_batch_read_goes_from_after_one_id_up_to_another(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    stream_server.fill("s", 100)
    frame = batch(
        spark,
        stream_server,
        "n LONG",
        startingOffsets='{"s": "1000009-0"}',
        endingOffsets='{"s": "1000019-0"}',
    )
    assert [row.n for row in frame.orderBy("n").collect()] == list(range(10, 20))


def test_a_schema_makes_typed_columns_and_bad_values_null(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    stream_server.fill("s", 10)
    stream_server.client.xadd("s", {"n": "many", "half": "1.5"})
    schema = "_stream STRING, n INT, half DOUBLE, none STRING, _corrupt_record STRING"
    rows = batch(spark, stream_server, schema).orderBy("half", "n").collect()
    assert len(rows) == 11 and {row._stream for row in rows} == {"s"}
    assert [row.n for row in rows if row.half == 1.5] == [None, 3]
    assert [row._corrupt_record is not None for row in rows].count(True) == 1
    assert batch(spark, stream_server, schema, mode="DROPMALFORMED").count() == 10
    with pytest.raises(Exception, match="field 'n' is missing or does not fit"):
        batch(spark, stream_server, schema, mode="FAILFAST").collect()


def test_a_wrong_option_fails_with_its_name(spark: SparkSession, stream_server: StreamServer) -> None:
    with pytest.raises(Exception, match="Did you mean startingOffsets"):
        batch(spark, stream_server, startingOffset="earliest").count()


def test_a_stream_is_read_with_sql_by_its_format_name(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    stream_server.fill("s", 5)
    options = f"OPTIONS (url '{stream_server.url}', subscribe 's')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING headrace {options}")
    assert spark.sql("SELECT sum(fields['n']) AS n FROM v").first()[0] == 10


def test_every_micro_batch_respects_the_limit_and_the_query_continues(query: Query) -> None:
    query.server.fill("s", 1000)
    assert query.run(maxOffsetsPerTrigger="300") == [300, 300, 300, 100]
    query.server.fill("s", 500, first=1000)
    assert query.run(minPartitions="4") == [500]
    assert query.run() == []
    assert query.numbers() == list(range(1500))


def test_streams_that_appear_later_are_read_from_their_beginning(query: Query) -> None:
    query.server.fill("s", 100)
    query.run(subscribe="s,t")
    query.server.fill("t", 100, first=100)
    query.server.fill("u", 100, first=200)
    query.run(subscribe="s,t,u")
    assert query.numbers() == list(range(300))


def test_a_query_that_starts_at_latest_keeps_its_start_without_data(
    query: Query,
) -> None:
    query.server.fill("s", 100)
    assert query.run(startingOffsets="latest") == []
    query.server.fill("s", 50, first=100)
    assert query.run(startingOffsets="latest") == [50]
    assert query.numbers() == list(range(100, 150))


def test_entries_of_a_failed_first_batch_are_read_by_the_next_run(query: Query) -> None:
    seen: list[int] = []
    broken = True

    def sink(rows: DataFrame, batch: int) -> None:
        numbers = [row.n for row in rows.collect()]
        if numbers and broken:
            raise RuntimeError("the sink is broken")
        seen.extend(numbers)

    def start() -> Any:
        frame = query.spark.readStream.format("headrace").option("url", query.server.url)
        writer = frame.option("subscribe", "s").schema("n LONG").load().writeStream.foreachBatch(sink)
        return writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()

    query.server.fill("s", 10)
    running = start()
    wait_until(lambda: running.lastProgress)
    query.server.fill("s", 29, first=10)
    with pytest.raises(Exception, match="the sink is broken"):
        running.awaitTermination(60)
    broken = False
    query.server.fill("s", 1, first=39)
    running = start()
    running.processAllAvailable()
    running.stop()
    assert sorted(seen) == list(range(10, 40))


def test_a_query_that_is_stopped_and_started_has_every_entry_once(query: Query) -> None:
    query.server.fill("s", 500)
    running = query.start(now=False, maxOffsetsPerTrigger="100")
    wait_until(lambda: running.lastProgress and running.lastProgress["batchId"] >= 2)
    running.stop()
    query.server.fill("s", 500, first=500)
    running = query.start(now=False)
    query.server.fill("s", 500, first=1000)
    running.processAllAvailable()
    running.stop()
    assert query.numbers() == list(range(1500))


@pytest.mark.mainly("headrace")
def test_a_killed_driver_loses_and_repeats_no_entry(query: Query) -> None:
    query.server.fill("s", 20_000)
    child = subprocess.Popen(
        [sys.executable, spark_child.__file__, query.server.url, str(query.folder), "500"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    commits = query.folder / "checkpoint" / "commits"
    try:
        wait_until(lambda: commits.exists() and len([n for n in os.listdir(commits) if n.isdigit()]) >= 4)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert sum(query.run(maxOffsetsPerTrigger="4000")) < 20_000, "the child had done nothing"
    assert query.numbers() == list(range(20_000))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_entries_trimmed_between_two_runs_fail_the_query_or_are_skipped(query: Query, fail: str) -> None:
    query.server.fill("s", 100)
    query.run()
    query.server.fill("s", 100, first=100)
    query.server.client.xtrim("s", maxlen=30, approximate=False)
    if fail == "true":
        with pytest.raises(Exception, match="may have been trimmed before they were read"):
            query.run()
    assert query.run(failOnDataLoss="false") == [30]
    assert query.numbers() == [*range(100), *range(170, 200)]


def test_a_stream_is_copied_to_another_by_batch_and_by_streaming(
    spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    stream_server.fill("s", 3000)
    schema = "_id STRING, n LONG, half DOUBLE"
    frame = batch(spark, stream_server, schema, minPartitions="1")
    frame.drop("_id").write.format("headrace").option("url", stream_server.url).option("stream", "copy").mode(
        "append"
    ).save()
    assert stream_server.client.xlen("copy") == 3000
    reader = spark.readStream.format("headrace").option("url", stream_server.url).option("subscribe", "copy")
    rows = reader.option("startingOffsets", "earliest").schema(schema).load()
    writer = rows.writeStream.format("headrace").option("url", stream_server.url).option("stream", "again")
    writer = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
    assert writer.start().awaitTermination(60)
    again = [fields for _, fields in stream_server.client.xrange("again")]
    assert sorted(int(fields[b"n"]) for fields in again) == list(range(3000))
    assert all(float(fields[b"half"]) == int(fields[b"n"]) / 2 for fields in again)
