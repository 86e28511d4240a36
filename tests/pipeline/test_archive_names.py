"""Archives of streams of any name and of recreated streams, with Spark."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.archive.creation import create_or_open
from headrace.archive.files import archived_through
from headrace.archive.location import archive_location
from headrace.archive.merging import merge_small_files
from headrace.archive.watermark import lowest_published_id
from headrace.client.stream_names import stream_name
from headrace.errors import HeadraceError
from headrace.pipeline.archiving.archive_streams import archive_streams, count_archive
from headrace.pipeline.querying.spark_query import register_views, run_query
from headrace.pipeline.replaying.replay_entries import replay_entries
from headrace.pipeline.replaying.source import ReplaySource
from headrace.pipeline.spark_session.local_spark import utf8_locale
from headrace.pipeline.trimming.horizon import RetentionPolicy
from headrace.pipeline.trimming.trim_streams import trim_streams
from support.archives import counted_entries
from support.stream_server import StreamServer

pytestmark = [pytest.mark.whole, pytest.mark.slow]

DAY = 86_400_000
ANYTHING = RetentionPolicy(allow_no_groups=True)
NAMES = [
    b"plain", b"", b"\xff\xfe", b"a\0b", b"x" * 249, b"y" * 249, b"__HIVE_DEFAULT_PARTITION__",
    "naïve".encode(), "nai\u0308ve".encode(), b" ", b"trail ", b"\t", b"a\nb", b"..", b"a/b:c=d%e", b"%41",
    rb"\x41", rb"\xff", rb"a\b",
    "日本".encode(), b"a,b", b"null", b"007", b"{t}[1]^*?", b"'\"`$", b"\x01\x7f",
    b"abc~" + b"0" * 32, b"A", b"a", b"z" * 3000,
]  # fmt: skip
STREAMS = sorted(map(stream_name, NAMES))


def fill(server: StreamServer, first: int, count: int) -> None:
    pipe = server.client.pipeline(transaction=False)
    for raw in NAMES:
        for n in range(first, first + count):
            pipe.xadd(raw, {"n": n, "of": raw[:10].hex()}, f"{n * DAY}-1")
    pipe.execute()


@pytest.mark.mainly("headrace")
def test_streams_of_any_name_are_archived_and_replayed(
    spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    url, directory = stream_server.url, tmp_path / "archive"
    fill(stream_server, 1, 4)
    all_of_them = 4 * len(NAMES)
    assert archive_streams(spark, url, STREAMS, directory, entries_per_batch=50) == all_of_them
    expected = {(stream, f"{n * DAY}-1"): 1 for stream in STREAMS for n in range(1, 5)}
    assert counted_entries(directory) == expected
    assert archived_through(archive_location(directory)) == dict.fromkeys(STREAMS, f"{4 * DAY}-1")
    assert (directory / "stream=plain").is_dir() and count_archive(directory).entries == all_of_them
    table = DeltaTable(directory).to_pyarrow_table(columns=["stream"])
    assert {stream or "" for stream in table.column("stream").to_pylist()} == set(STREAMS)

    trimmed = trim_streams(url, STREAMS, retention=ANYTHING)
    assert [(one.stream, one.removed, one.remaining) for one in trimmed] == [
        (stream, 3, 1) for stream in STREAMS
    ]
    fill(stream_server, 5, 2)
    assert archive_streams(spark, url, STREAMS, directory, entries_per_batch=20) == 2 * len(NAMES)
    fill(stream_server, 7, 1)
    merge_small_files(create_or_open(archive_location(directory), None, "UTC"))
    rows = spark.read.format("headrace").option("url", url).option("archive", str(directory)).load().collect()
    found = sorted((row.stream, int(row.fields["n"])) for row in rows)
    assert found == sorted((stream, n) for stream in STREAMS for n in range(1, 8))

    for raw in NAMES:
        source = ReplaySource(stream_name(raw), url, directory)
        assert replay_entries(source, url, "again", name=stream_name(raw)[:50], keep_ids=False).added == 7
        assert [fields[b"of"] for _, fields in stream_server.client.xrange("again")] == [
            raw[:10].hex().encode()
        ] * 7
        stream_server.client.delete("again")


@pytest.mark.mainly("redis")
def test_streams_of_odd_names_are_tables_of_sql(
    spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    directory = tmp_path / "archive"
    fill(stream_server, 1, 2)
    archive_streams(spark, stream_server.url, STREAMS, directory)
    fill(stream_server, 3, 1)
    for stream in STREAMS:
        quoted = stream.replace("`", "``")
        for held, many in ((None, 3), (directory, 3)):
            if not stream:
                continue  # SQL has no empty names
            sql = f"SELECT n, _stream FROM `{quoted}`"
            register_views(spark, sql, stream_server.url, archive=held)
            assert sorted(map(tuple, run_query(spark, sql).collect())) == [
                (n + 1, stream) for n in range(many)
            ]


def test_streams_that_differ_in_case_are_two_tables(spark: SparkSession, stream_server: StreamServer) -> None:
    stream_server.add("orders", [("1-0", {"n": 1})])
    stream_server.add("Orders", [("1-0", {"n": 2}), ("2-0", {"n": 3})])
    sql = "SELECT (SELECT count(*) FROM orders) AS one, (SELECT count(*) FROM Orders) AS two"
    try:
        register_views(spark, sql, stream_server.url)
        assert list(map(tuple, run_query(spark, sql).collect())) == [(1, 2)]
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", None])
def test_a_jvm_can_write_any_characters_into_paths(
    locale: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    if locale:
        monkeypatch.setenv("LC_ALL", locale)
    with utf8_locale():
        shown = subprocess.run(
            ["java", "-XshowSettings:properties", "-version"], capture_output=True, check=True
        )
    assert b"sun.jnu.encoding = UTF-8" in shown.stderr
    assert os.environ.get("LC_ALL") == locale


def test_a_recreated_stream_is_archived_again_and_never_trimmed_too_far(
    spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    url, directory, client = stream_server.url, tmp_path / "archive", stream_server.client
    stream_server.fill("s", 100)
    assert archive_streams(spark, url, "s", directory) == 100
    client.delete("s")
    stream_server.fill("s", 150, first=0)
    client.xdel("s", "1000000-0")
    client.xadd("s", {"n": 150}, "2000000-0")
    client.delete("s")
    stream_server.add("s", [(f"{1_000_000 + n}-0", {"n": -n}) for n in range(150)])
    [held] = trim_streams(url, ["s"], retention=ANYTHING)
    assert held.removed == 0 and "an earlier stream of this name" in held.reasons[0]
    [held] = trim_streams(url, ["s"], archive=directory, retention=ANYTHING)
    assert held.removed == 0 and "an earlier stream of this name" in held.reasons[0]
    for _ in range(2):
        with pytest.raises(HeadraceError, match="deleted and recreated"):
            archive_streams(spark, url, "s", directory)
    assert archive_streams(spark, url, "s", directory, fail_on_loss=False) == 150
    assert counted_entries(directory).total() == 250
    assert (
        lowest_published_id(client, "s") == "1000149-0" == archived_through(archive_location(directory))["s"]
    )
    stream_server.fill("s", 5, first=150)
    rows = spark.read.format("headrace").option("url", url).option("archive", str(directory))
    assert rows.load().count() == 255
    [done] = trim_streams(url, ["s"], retention=ANYTHING)
    assert (done.removed, done.remaining) == (149, 6)

    client.delete("s")
    stream_server.add("s", [(f"{n + 1}-0", {"n": n}) for n in range(40)])
    assert archive_streams(spark, url, "s", directory, fail_on_loss=False) == 40
    assert lowest_published_id(client, "s") == "40-0", "the watermark follows the stream that is there"
    [done] = trim_streams(url, ["s"], retention=ANYTHING)
    assert (done.removed, done.remaining) == (39, 1)
    assert rows.load().count() == 290
