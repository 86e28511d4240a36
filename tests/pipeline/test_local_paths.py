"""Paths of archives and files: URLs of other file systems are rejected before anything is read or written."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from headrace.archive.local_paths import local_path
from headrace.archive.location import archive_location
from headrace.cli.main import main
from headrace.errors import UsageError
from headrace.pipeline.archiving.archive_streams import archive_streams
from headrace.pipeline.querying.spark_query import register_views
from headrace.pipeline.replaying.source import ReplaySource
from headrace.pipeline.trimming.trim_streams import trim_streams
from headrace.spark.options import parse_options


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("orders", "orders"),
        ("/srv/orders", "/srv/orders"),
        ("a:b/c", "a:b/c"),
        ("dir/s3://x", "dir/s3:/x"),
        ("file:///srv/a%20b", "/srv/a b"),
        ("file://localhost/srv/orders", "/srv/orders"),
        ("file:/srv/orders", "/srv/orders"),
        ("FILE:///srv/orders", "/srv/orders"),
        (Path("file:///srv/orders"), "/srv/orders"),
        (Path("C:/orders"), "C:/orders"),
    ],
)
def test_local_paths_and_file_urls_are_accepted(given: str | Path, path: str) -> None:
    assert local_path(given) == Path(path)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("s3://bucket/x", "s3://bucket/x: s3:// is not supported"),
        (Path("s3://bucket/x"), "s3:// is not supported"),
        ("S3A://bucket/x", "s3a:// is not supported"),
        ("hdfs:/x", "hdfs:// is not supported"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss:// is not supported"),
        ("https://example.org/x.csv", "https:// is not supported"),
        ("file://other/srv/x", "'other' is not this machine"),
        ("", "path is empty"),
    ],
)
def test_other_urls_are_rejected_with_what_to_do(given: str | Path, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        local_path(given)


@pytest.mark.parametrize(
    "arguments",
    [
        ["archive", "--stream", "s", "--to", "hdfs://bucket/x"],
        ["trim", "--stream", "s", "--archive", "hdfs://bucket/x"],
        ["query", "SELECT * FROM s", "--archive", "hdfs://bucket/x"],
        ["replay", "--stream", "s", "--into", "t", "--archive", "hdfs://bucket/x"],
        ["load", "hdfs://bucket/x.csv", "--stream", "s"],
    ],
)
def test_every_job_rejects_an_unsupported_url_in_one_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hdfs:" / "bucket" / "x").mkdir(parents=True)  # an earlier version wrote there
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "hdfs:// is not supported; give a " in error
    assert error.count("\n") == 1
    assert list((tmp_path / "hdfs:" / "bucket" / "x").iterdir()) == []


def test_python_functions_and_the_spark_option_reject_an_unsupported_url() -> None:
    no_spark = cast(SparkSession, None)  # the location is looked at first
    with pytest.raises(UsageError, match="hdfs:// is not supported"):
        archive_streams(no_spark, "redis://127.0.0.1:1", "s", "hdfs://bucket/x")
    with pytest.raises(UsageError, match="hdfs:// is not supported"):
        register_views(no_spark, "SELECT * FROM s", "redis://127.0.0.1:1", archive="hdfs://bucket/x")
    with pytest.raises(UsageError, match="hdfs:// is not supported"):
        trim_streams("redis://127.0.0.1:1", ["s"], archive=Path("hdfs://bucket/x"))
    with pytest.raises(UsageError, match="hdfs:// is not supported"):
        ReplaySource("s", None, "hdfs://bucket/x").last_id()
    with pytest.raises(UsageError, match="hdfs:// is not supported"):
        parse_options({"archive": "hdfs://bucket/x"}, "batch")
    assert parse_options({"archive": "file:///srv/x"}, "batch").archive == "/srv/x"


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("s3://bucket/a b/x/", "s3://bucket/a b/x"),
        (Path("s3://bucket/x"), "s3://bucket/x"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("file:///srv/x", "/srv/x"),
    ],
)
def test_an_archive_is_a_directory_or_in_an_object_store(given: str | Path, uri: str) -> None:
    location = archive_location(given)
    assert location.uri == uri
    assert archive_location(location.uri) == location


def test_only_the_library_gets_an_encoded_url() -> None:
    location = archive_location("s3://bucket/a b/100%/\u00fc=1")
    assert location.deltalake_uri == "s3://bucket/a%20b/100%25/%C3%BC=1"
    assert archive_location("/a b/100%").deltalake_uri == "/a b/100%"


def test_options_are_for_object_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    found = archive_location("s3://bucket/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "timeout": "1s"})
    options = found.storage_options() or {}
    assert (options["AWS_ALLOW_HTTP"], options["timeout"], options["aws_conditional_put"]) == (
        "true",
        "1s",
        "etag",
    )
    with pytest.raises(UsageError, match="takes no options"):
        archive_location("/srv/x", {"AWS_REGION": "eu-west-1"})
    with pytest.raises(UsageError, match="names no bucket"):
        archive_location("s3://")
