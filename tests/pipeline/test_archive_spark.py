"""Archives made by Spark: several streams, typed fields, the watermark, compaction, the old layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import redis
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archive import archive, count_archive, parse_schema
from headrace.pipeline.archive_metadata import archive_lock
from headrace.pipeline.compaction import compact_archive
from headrace.pipeline.local_spark import local_spark
from headrace.pipeline.trim import trim
from headrace.pipeline.trim_horizon import RetentionPolicy
from headrace.pipeline.watermark import archived_through, published_id
from headrace.spark.archive.files import archived_files, committed_files

pytestmark = [pytest.mark.whole, pytest.mark.slow]

HOUR = 3_600_000
STREAMS = ["007", "odd:a/b, c"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark("test", tmp_path_factory.mktemp("spark") / "log") as spark:
        spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
        yield spark


def fill(client: redis.Redis, stream: str, first: int, count: int) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n in range(first, first + count):
            pipe.xadd(stream, {"n": n, "name": f"n{n}"}, f"{n * HOUR}-1")
        pipe.execute()


def ids(directory: Path) -> list[tuple[str, str]]:
    """Return the valid entries of the archive in order, read without Spark."""
    return sorted(
        (file.stream, entry)
        for file in archived_files(directory)
        for entry in pq.read_table(file.path, columns=["id"], partitioning=None).column("id").to_pylist()
    )


def test_streams_are_archived_compacted_trimmed_and_archived_further(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    for stream in STREAMS:
        fill(client, stream, 1, 100)
    assert archive(spark, server_url, STREAMS, directory, entries_per_batch=40) == 200
    assert count_archive(spark, directory).distinct == 200
    assert archived_through(directory) == dict.fromkeys(STREAMS, f"{100 * HOUR}-1")
    assert [published_id(client, stream) for stream in STREAMS] == [f"{100 * HOUR}-1"] * 2
    expected = sorted((stream, f"{n * HOUR}-1") for stream in STREAMS for n in range(1, 101))
    assert ids(directory) == expected

    before = len(committed_files(directory))
    done = compact_archive(directory)
    assert done.before > done.after > 0
    assert len(committed_files(directory)) == before - done.before + done.after
    assert ids(directory) == expected
    assert count_archive(spark, directory).entries == count_archive(spark, directory).distinct == 200

    removed = [
        one.removed for one in trim(server_url, STREAMS, retention=RetentionPolicy(allow_no_groups=True))
    ]
    assert removed == [99, 99]
    for stream in [*STREAMS, "new"]:
        fill(client, stream, 101, 60)
    assert archive(spark, server_url, [*STREAMS, "new"], directory, entries_per_batch=20) == 180
    compact_archive(directory)
    table = spark.read.parquet(str(directory))
    assert table.count() == 380 and count_archive(spark, directory).distinct == 380
    row = table.where("id = '3600000-1'").first()
    assert row is not None and row.fields == {"n": "1", "name": "n1"} and row.sequence == 1
    assert row.timestamp.timestamp() == 3600
    assert archive(spark, server_url, STREAMS, directory) == 0


def test_values_that_do_not_fit_their_typed_column_are_kept_exactly(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    client.xadd("s", {"n": "1", "more": "x"}, "1-0")
    client.xadd("s", {"n": "many"}, "2-0")
    fields = parse_schema("n INT")
    assert archive(spark, server_url, "s", directory, fields=fields) == 2
    rows = {row.id: row for row in spark.read.parquet(str(directory)).collect()}
    assert rows["1-0"].n == 1 and [each.name for each in rows["1-0"]._exact] == [b"n", b"more"]
    assert rows["2-0"].n is None and [each.value for each in rows["2-0"]._exact] == [b"many"]
    with pytest.raises(UsageError, match="with other fields"):
        archive(spark, server_url, "s", directory)
    with pytest.raises(UsageError, match="'Date' cannot be a column"):
        archive(spark, server_url, "s", tmp_path / "other", fields=parse_schema("Date STRING"))
    with archive_lock(directory), pytest.raises(HeadraceError, match="by another process"):
        archive(spark, server_url, "s", directory, fields=fields)


def test_an_archive_of_one_stream_in_the_old_layout_is_continued(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    (directory / "_headrace").mkdir(parents=True)
    (directory / "_headrace" / "stream.json").write_text('{"stream": "s", "fields": null}')
    fill(client, "s", 1, 30)
    assert archive(spark, server_url, "s", directory) == 30
    fill(client, "s", 31, 5)
    assert archive(spark, server_url, "s", directory) == 5
    assert {path.name.partition("=")[0] for path in directory.iterdir()} == {
        "date", "_headrace", "_spark_metadata",
    }  # fmt: skip
    assert archived_through(directory) == {"s": f"{35 * HOUR}-1"}
    assert count_archive(spark, directory).distinct == 35
    with pytest.raises(UsageError, match="of stream 's' only"):
        archive(spark, server_url, ["s", "t"], directory)


def test_entries_trimmed_before_they_were_archived_are_reported(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    directory = tmp_path / "archive"
    fill(client, "s", 1, 10)
    archive(spark, server_url, "s", directory)
    fill(client, "s", 11, 10)
    client.xtrim("s", minid=f"{15 * HOUR}-1", approximate=False)
    with pytest.raises(HeadraceError, match=r"the query failed: [^\[]*'s'"):
        archive(spark, server_url, "s", directory)
    assert published_id(client, "s") == f"{10 * HOUR}-1"
    assert archive(spark, server_url, "s", directory, fail_on_loss=False) == 6
