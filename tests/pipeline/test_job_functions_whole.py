"""headrace.pipeline.archive, and load with a format, in a Spark session of the caller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

import headrace.pipeline
from headrace.cli.main import main
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline import ArchiveResult, BatchProgress
from headrace.pipeline.archiving import job as archive_job
from headrace.spark import DataLoss
from support.archives import counted_entries

pytestmark = pytest.mark.whole

DAY = 86_400_000


def fill(client: redis.Redis, stream: str, first: int, count: int) -> None:
    for n in range(first, first + count):
        client.xadd(stream, {"n": n, "name": f"n{n}"}, id=f"{n * DAY // 10}-0")


def test_archive_returns_its_counts_and_leaves_the_session(
    tmp_path: Path,
    spark: SparkSession,
    server_url: str,
    client: redis.Redis,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fill(client, "orders.a", 1, 30)
    fill(client, "orders.b", 1, 5)
    client.xadd("orders.b", {"n": "many"}, id=f"{DAY}-0")
    batches: list[BatchProgress] = []
    done = headrace.pipeline.archive(
        pattern=r"orders\..*",
        to=tmp_path / "archive",
        url=server_url,
        fields="n INT, name STRING",
        batch=10,
        spark=spark,
        on_progress=batches.append,
    )
    assert (done.archived, done.kept_exact_count, done.deleted, done.entries) == (36, 1, 0, 36)
    assert done.days == 4 and done.columns is not None and "`n` INT" in done.columns
    assert sum(batch.rows for batch in batches) == 36 and len(batches) > 1
    assert counted_entries(tmp_path / "archive").total() == 36
    assert spark.range(3).count() == 3, "the caller's session is still open"
    assert "Starting Spark" not in "".join(capfd.readouterr())


def test_the_next_archive_adds_what_is_new_in_the_session_of_the_process(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def archive(**more: Any) -> ArchiveResult:
        return headrace.pipeline.archive("s", to=str(tmp_path / "archive"), url=server_url, **more)

    fill(client, "s", 1, 25)
    assert archive(spark=spark).archived == 25
    fill(client, "s", 26, 5)
    assert archive().archived == 5
    monkeypatch.setattr(archive_job, "job_spark", no_spark)
    again = archive(keep="1d")
    assert (again.archived, again.deleted, again.entries, again.days) == (0, 30, 0, 0)
    words = ["--stream", "s", "--to", str(tmp_path / "archive"), "--url", server_url]
    assert main(["archive", *words]) == 0, "the command has the same archive"


def test_an_archive_that_continues_adds_new_entries_until_it_is_stopped(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    fill(client, "s", 1, 20)
    stop = headrace.Stop()
    archived = 0

    def on_progress(batch: BatchProgress) -> None:
        nonlocal archived
        archived += batch.rows
        if archived == 20:
            fill(client, "s", 21, 5)
        if archived == 25:
            stop.set()

    done = headrace.pipeline.archive(
        "s",
        to=tmp_path / "archive",
        url=server_url,
        every=0.1,
        stop=stop,
        spark=spark,
        on_progress=on_progress,
    )
    assert (done.archived, done.entries) == (25, 25)
    assert counted_entries(tmp_path / "archive").total() == 25


def test_a_released_archive_no_longer_keeps_entries(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    fill(client, "s", 1, 20)
    headrace.pipeline.archive("s", to=tmp_path / "old", url=server_url, spark=spark)
    fill(client, "s", 21, 5)
    headrace.pipeline.archive("s", to=tmp_path / "new", url=server_url, spark=spark)
    with pytest.raises(UsageError, match="no archive 'other'"):
        headrace.pipeline.release("other", "s", url=server_url)
    [kept] = headrace.pipeline.trim("s", url=server_url, no_groups_ok=True, dry_run=True)
    assert headrace.pipeline.release(tmp_path / "old", "s", url=server_url) == ["s"]
    [free] = headrace.pipeline.trim("s", url=server_url, no_groups_ok=True, dry_run=True)
    assert free.removed == kept.removed + 5


def no_spark(*arguments: Any) -> Any:
    raise AssertionError("Spark is not needed")


def test_loss_before_the_archive_is_an_error_that_names_the_option(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    fill(client, "s", 1, 20)
    headrace.pipeline.archive("s", to=tmp_path / "archive", url=server_url, spark=spark)
    fill(client, "s", 21, 20)
    client.xtrim("s", maxlen=5, approximate=False)
    with pytest.raises(DataLoss, match="Use --allow-loss"):
        headrace.pipeline.archive("s", to=tmp_path / "archive", url=server_url, spark=spark)
    done = headrace.pipeline.archive(
        "s", to=tmp_path / "archive", url=server_url, spark=spark, allow_loss=True
    )
    assert (done.archived, done.entries) == (5, 25)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "no streams given"),
        ({"streams": "missing"}, "there is no stream 'missing'"),
        ({"streams": "s", "sample": 5}, "--sample is for --fields infer"),
        ({"streams": "s", "fields": "infer", "sample": 1}, "--sample: 1 is too low"),
        ({"streams": "s", "batch": 0}, "--batch: 0 is too low"),
        ({"streams": "s", "time_zone": "Atlantis"}, "unknown time zone 'Atlantis'"),
        ({"streams": "s", "keep": "soon"}, "not a duration"),
        ({"streams": "s", "every": 0}, "--every: expected a number above 0"),
        ({"streams": "s", "stop": headrace.Stop()}, "stop is for a job that continues"),
        ({"streams": "s", "storage_options": {"A": "b"}}, "is a directory, which takes no options"),
        ({"streams": "s", "fields": "id INT"}, "the archive has its own column of that name"),
    ],
)
def test_wrong_arguments_of_an_archive_are_usage_errors(
    tmp_path: Path, server_url: str, client: redis.Redis, wrong: dict[str, Any], message: str
) -> None:
    client.xadd("s", {"n": 1})
    with pytest.raises(UsageError, match=message):
        headrace.pipeline.archive(to=tmp_path / "archive", url=server_url, **wrong)
    assert not (tmp_path / "archive").exists()


def test_a_format_is_loaded_in_the_session_of_the_caller(
    tmp_path: Path, spark: SparkSession, server_url: str, client: redis.Redis
) -> None:
    (tmp_path / "rows.csv").write_text("n,name\n" + "".join(f"{n},n{n}\n" for n in range(50)))

    def load(**more: Any) -> int:
        done = headrace.pipeline.load(
            tmp_path / "rows.csv",
            stream="s",
            url=server_url,
            format="csv",
            options={"header": "true"},
            job="rows-1",
            spark=spark,
            **more,
        )
        return done.added

    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert load(rate=1000) == 50
    assert load(rate=1000) == 0, "a repeated load of the same name adds only the missing rows"
    assert sorted(int(fields["n"]) for _, fields in client.xrange("s")) == list(range(50))
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == before
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    with pytest.raises(HeadraceError, match=r"Spark: .*DATA_SOURCE_NOT_FOUND"):
        headrace.pipeline.load(stream="s", url=server_url, format="nonsense", spark=spark)
