"""Archives made by Spark: several streams, typed fields, the watermark, merging of small files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis
from deltalake import DeltaTable
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from headrace.archive.creation import create_or_open
from headrace.archive.files import archived_through
from headrace.archive.location import archive_location
from headrace.archive.merging import merge_small_files
from headrace.archive.table import ArchiveTable
from headrace.archive.watermark import lowest_published_id
from headrace.columns.declarations import parse_schema
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archiving import archive_streams as archive_module
from headrace.pipeline.archiving.archive_streams import (
    archive_streams,
    batch_ranges,
    count_archive,
    run_tasks,
    source_options,
)
from headrace.pipeline.replaying.replay_entries import replay_entries
from headrace.pipeline.replaying.source import ReplaySource
from headrace.pipeline.spark_session.local_spark import local_spark
from headrace.pipeline.spark_session.query_progress import BatchProgress
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import trim_streams
from headrace.spark.source.planner import OffsetRange
from support.archives import counted_entries, files_in
from support.waiting import wait_until

pytestmark = [pytest.mark.whole, pytest.mark.slow]

HOUR = 3_600_000
STREAMS = ["007", "odd:a/b, c"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark("test", tmp_path_factory.mktemp("spark") / "log") as spark:
        yield spark


def fill(client: redis.Redis, stream: str, first: int, count: int) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n in range(first, first + count):
            pipe.xadd(stream, {"n": n, "name": f"n{n}"}, f"{n * HOUR}-1")
        pipe.execute()


def in_order(directory: Path) -> ArchiveTable:
    """Open an archive for its upkeep."""
    return create_or_open(archive_location(directory), None, "UTC")


def test_an_entry_without_an_exact_sequence_is_not_archived(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    client.xadd("s", {"n": 1}, f"1-{2**64 - 1}")
    with pytest.raises(HeadraceError, match=f"entry 1-{2**64 - 1}: its sequence does not fit a LONG"):
        archive_streams(spark, server_url, ["s"], tmp_path / "archive")
    assert files_in(tmp_path / "archive") == ()


def test_streams_are_archived_merged_trimmed_and_archived_further(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    for stream in STREAMS:
        fill(client, stream, 1, 100)
    batches: list[BatchProgress] = []
    assert (
        archive_streams(spark, server_url, STREAMS, directory, entries_per_batch=40, on_batch=batches.append)
        == 200
    )
    assert len(batches) > 3 and sum(batch.rows for batch in batches) == 200
    assert archived_through(archive_location(directory)) == dict.fromkeys(STREAMS, f"{100 * HOUR}-1")
    assert [lowest_published_id(client, stream) for stream in STREAMS] == [f"{100 * HOUR}-1"] * 2
    expected = {(stream, f"{n * HOUR}-1"): 1 for stream in STREAMS for n in range(1, 101)}
    assert counted_entries(directory) == expected

    before = len(files_in(directory))
    done = merge_small_files(in_order(directory))
    assert done.merged_files > done.replacement_files > 0
    assert len(files_in(directory)) == before - done.merged_files + done.replacement_files
    assert counted_entries(directory) == expected
    assert archived_through(archive_location(directory)) == dict.fromkeys(STREAMS, f"{100 * HOUR}-1")

    removed = [
        one.removed
        for one in trim_streams(server_url, STREAMS, retention=RetentionPolicy(allow_no_groups=True))
    ]
    assert removed == [99, 99]
    for stream in [*STREAMS, "new"]:
        fill(client, stream, 101, 60)
    assert archive_streams(spark, server_url, [*STREAMS, "new"], directory, entries_per_batch=20) == 180
    merge_small_files(in_order(directory))
    assert counted_entries(directory).total() == len(counted_entries(directory)) == 380
    assert count_archive(directory).entries == 380
    table = spark.createDataFrame(DeltaTable(directory).to_pyarrow_table())
    row = table.where("id = '3600000-1' AND stream = '007'").first()
    assert row is not None and row.fields == {"n": "1", "name": "n1"} and row.sequence == 1
    assert row.timestamp.timestamp() == 3600
    assert archive_streams(spark, server_url, STREAMS, directory) == 0


def test_a_day_that_several_tasks_wrote_has_one_file_and_no_other(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a program that reads the files without the log counts each entry once."""
    directory = tmp_path / "archive"
    fill(client, "s", 1, 100)
    monkeypatch.setattr(archive_module, "source_options", small_tasks)
    assert archive_streams(spark, server_url, "s", directory) == 100
    rows = {path: pq.read_metadata(path).num_rows for path in directory.rglob("*.parquet")}
    assert sum(rows.values()) == 100 and len(rows) == 5
    assert counted_entries(directory).total() == 100


def small_tasks(*arguments: Any) -> dict[str, str]:
    """Return the options of the source for tasks of ten entries."""
    return source_options(*arguments) | {"maxRecordsPerPartition": "10"}


def test_values_that_do_not_fit_their_typed_column_are_kept_exactly(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    client.xadd("s", {"n": "1", "more": "x"}, "1-0")
    client.xadd("s", {"n": "many"}, "2-0")
    fields = parse_schema("n INT")
    assert archive_streams(spark, server_url, "s", directory, fields=fields) == 2
    rows = {row.id: row for row in spark.read.parquet(str(directory)).collect()}
    assert rows["1-0"].n == 1 and [each.name for each in rows["1-0"]._exact] == [b"n", b"more"]
    assert rows["2-0"].n is None and [each.value for each in rows["2-0"]._exact] == [b"many"]
    with pytest.raises(UsageError, match="with other fields"):
        archive_streams(spark, server_url, "s", directory)
    with pytest.raises(UsageError, match="'Date' cannot be a column"):
        archive_streams(spark, server_url, "s", tmp_path / "other", fields=parse_schema("Date STRING"))


def test_ranges_are_grouped_by_their_entries() -> None:
    ranges = [OffsetRange(stream, "0-0", f"{n + 1}-0", False) for stream in "abc" for n in range(4)]
    groups = batch_ranges(ranges, {"a": 400, "b": 4, "c": 40_000}, 250)
    assert [len(group) for group in groups] == [2, 2 + 4, 1, 1, 1, 1]
    assert [part for group in groups for part in group] == ranges
    assert batch_ranges([], {}, 10) == []


def test_a_field_that_is_added_later_becomes_a_column(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    client.xadd("s", {"n": "1", "more": "x"}, "1-0")
    archive_streams(spark, server_url, "s", directory, fields=parse_schema("n INT"))
    client.xadd("s", {"n": "2", "more": "y"}, "2-0")
    assert archive_streams(spark, server_url, "s", directory, fields=parse_schema("n INT, more STRING")) == 1
    assert DeltaTable(directory).to_pyarrow_table().sort_by("id").column("more").to_pylist() == [None, "y"]
    rows = spark.read.format("headrace").option("url", server_url).option("archive", str(directory))
    found = rows.schema("_id STRING, n INT, more STRING").load().orderBy("_id").collect()
    assert [tuple(row) for row in found] == [("1-0", 1, "x"), ("2-0", 2, "y")]
    replay_entries(ReplaySource("s", None, directory), server_url, "t", name="x")
    assert client.xrange("t") == client.xrange("s")


def test_entries_trimmed_before_they_were_archived_are_reported(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    fill(client, "s", 1, 10)
    archive_streams(spark, server_url, "s", directory)
    fill(client, "s", 11, 10)
    client.xtrim("s", minid=f"{15 * HOUR}-1", approximate=False)
    with pytest.raises(HeadraceError, match=r"'s'.* failOnDataLoss"):
        archive_streams(spark, server_url, "s", directory)
    assert lowest_published_id(client, "s") == f"{10 * HOUR}-1"
    assert archive_streams(spark, server_url, "s", directory, fail_on_loss=False) == 6


def test_after_the_table_was_set_back_no_lost_entry_is_trimmed(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    fill(client, "s", 1, 10)
    archive_streams(spark, server_url, "s", directory)
    version = DeltaTable(directory).version()
    fill(client, "s", 11, 10)
    archive_streams(spark, server_url, "s", directory)
    assert lowest_published_id(client, "s") == f"{20 * HOUR}-1"
    DeltaTable(directory).restore(version)
    client.xtrim("s", minid=f"{15 * HOUR}-1", approximate=False)
    with pytest.raises(HeadraceError, match="trimmed"):
        archive_streams(spark, server_url, "s", directory)
    assert lowest_published_id(client, "s") == f"{10 * HOUR}-1"
    [result] = trim_streams(server_url, ["s"], retention=RetentionPolicy(allow_no_groups=True))
    assert (result.removed, result.remaining) == (0, 6)
    assert archive_streams(spark, server_url, "s", directory, fail_on_loss=False) == 6
    assert lowest_published_id(client, "s") == f"{20 * HOUR}-1"
    assert counted_entries(directory).total() == 16


def waiting_writer(begun: Path, end: Path) -> Any:
    """Return a writer of ranges that creates a file, and waits for another one. Tasks can unpickle it."""

    class Writer:
        def write(self, part: object) -> list[object]:
            begun.touch()
            while not end.exists():
                time.sleep(0.01)
            return [part]

    return Writer()


def test_an_interrupt_cancels_the_tasks_of_the_archive_and_no_other_job(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive_begun, other_begun, end = (tmp_path / name for name in ("archive", "other", "end"))
    other = waiting_writer(other_begun, end)
    found: list[object] = []

    def run_other() -> None:
        found.extend(spark.sparkContext.parallelize([1], 1).flatMap(other.write).collect())

    def interrupt() -> None:
        if archive_begun.exists():
            raise KeyboardInterrupt

    thread = InheritableThread(target=run_other)
    thread.start()
    try:
        wait_until(other_begun.exists)
        monkeypatch.setattr(archive_module, "raise_if_interrupted", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_tasks(
                spark, waiting_writer(archive_begun, end).write, [OffsetRange("s", "0-0", "1-0", False)]
            )
    finally:
        end.touch()
        thread.join()
    assert found == [1]
