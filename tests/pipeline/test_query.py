"""The streams that a query names, and their columns, without Spark."""

from __future__ import annotations

import pathlib
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.archive.files import read_archive
from headrace.archive.sampling import SAMPLE_FILES
from headrace.cli.main import main
from headrace.client.servers import Servers
from headrace.columns.declarations import parse_schema, type_name
from headrace.columns.inferred_schema import inferred_schema
from headrace.columns.layout import ENTRY_COLUMNS
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.querying.spark_query import register_views
from headrace.queries.field_sample import sample_fields
from headrace.queries.sql_tokens import DUCKDB_DIALECT, SPARK_DIALECT, identifiers, reads_whole_rows
from headrace.queries.views import archived_columns, streams_in_query, used_columns
from support.archives import ArchiveMaker
from support.stream_server import StreamServer

DAY_MS = 86_400_000


def test_identifiers_exclude_string_literals_and_comments() -> None:
    sql = "SELECT a, `b``c:d`, 'it''s not' FROM x -- nor this\n WHERE y = 'z\\'' AND a > 1"
    assert identifiers(sql) == ["SELECT", "a", "b`c:d", "FROM", "x", "WHERE", "y", "AND", "1"]


def test_a_backslash_escapes_only_in_spark() -> None:
    sql = r"SELECT 'a\', b, 'c'"
    assert identifiers(sql, DUCKDB_DIALECT) == ["SELECT", "b"]
    assert identifiers(sql, SPARK_DIALECT) == ["SELECT", "c"]


@pytest.mark.parametrize(
    ("sql", "whole"),
    [
        ("SELECT * FROM s", True),
        ("SELECT count(*), 'a*b', `c*d` FROM s", False),
        ("SELECT a FROM s NATURAL JOIN t", True),
        ("TABLE s", True),
        ("FROM s |> WHERE a = 1", True),
        ("SELECT extract(hour FROM _timestamp) FROM s", False),
    ],
)
def test_spark_reads_whole_rows_only_where_sql_needs_them(sql: str, whole: bool) -> None:
    assert reads_whole_rows(sql, SPARK_DIALECT) == whole


def test_streams_are_found_by_name_on_the_server_and_in_the_archive(
    stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    stream_server.client.xadd("orders", {"n": 1})
    stream_server.client.xadd("a:b", {"n": 1})
    stream_server.client.set("text", "1")
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("old", [("5-0", {"n": 1})])
    servers = Servers(stream_server.url)
    sql = "SELECT text FROM orders JOIN `a:b` USING (n) JOIN old USING (n) WHERE t = 'a:b'"
    assert streams_in_query(sql, servers, read_archive(maker.location), SPARK_DIALECT) == [
        "orders",
        "a:b",
        "old",
    ]
    assert streams_in_query(sql, servers, None, SPARK_DIALECT) == ["orders", "a:b"]
    with pytest.raises(UsageError, match="names no existing stream"):
        streams_in_query("SELECT 'orders' FROM text", servers, None, SPARK_DIALECT)
    servers.close()


def test_an_unreachable_server_is_reported_at_once() -> None:
    spark = cast(SparkSession, None)  # it is not asked: the server is, first
    with pytest.raises(HeadraceError, match=r"127\.0\.0\.1:1: .*refused; is a server running there"):
        register_views(spark, "SELECT * FROM orders", "redis://127.0.0.1:1")


def test_columns_of_a_query_are_inferred_as_those_of_an_archive() -> None:
    sample = [
        {b"n": b"1", b"x": b"2", b"day": b"2013-01-31", b"yes": b"true", b"code": b"007", b"_ID": b"1"},
        {b"n": b"-20", b"x": b"2.5", b"day": b"2013-02-01", b"yes": b"false", b"none": b"", b"\xff": b"1"},
    ]
    found = {column.name: type_name(column.type) for column in inferred_schema(sample)}
    assert found == {
        "n": "bigint", "x": "double", "day": "date", "yes": "boolean", "code": "string", "none": "string",
    }  # fmt: skip


def test_a_sample_has_both_ends_and_the_archive(stream_server: StreamServer, tmp_path: pathlib.Path) -> None:
    stream_server.fill("s", 1000)
    stream_server.client.xadd("s", {"late": "x"})
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s", [("5-0", {"early": "y"})])
    servers = Servers(stream_server.url)
    assert set(inferred_schema(sample_fields(servers, None, "s").entries).names) == {
        "n",
        "name",
        "half",
        "late",
    }
    held = read_archive(maker.location)
    assert set(inferred_schema(sample_fields(servers, held, "s").entries).names) == {
        "n",
        "name",
        "half",
        "late",
        "early",
    }
    assert inferred_schema(sample_fields(servers, None, "missing").entries).names == []
    assert len(sample_fields(servers, None, "s").entries) == 400
    stream_server.client.xtrim("s", maxlen=300, approximate=False)
    assert len(sample_fields(servers, None, "s").entries) == 300
    servers.close()


@pytest.mark.parametrize("count", [1, 3, 30])
def test_a_sample_has_entries_of_several_files_up_to_the_last(tmp_path: pathlib.Path, count: int) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    for day in range(count):
        rows = [(f"{day * DAY_MS + n}-0", {"n": n, f"of_{day}": "x"}) for n in range(300)]
        rows.append((f"{day * DAY_MS + 300}-0", {f"last_{day}": "x"}))
        maker.add("s", rows, group_rows=300)
    sample = sample_fields(None, read_archive(maker.location), "s")
    names = inferred_schema(sample.entries).names
    assert {"n", "of_0", f"last_{count - 1}"} <= set(names)
    assert len([name for name in names if name.startswith("of_")]) == min(count, SAMPLE_FILES)
    assert sample.unread_file_count == max(0, count - SAMPLE_FILES)


def test_a_query_names_files_that_were_not_sampled(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker = ArchiveMaker(tmp_path / "archive")
    for day in range(SAMPLE_FILES + 3):
        maker.add("s", [(f"{day * DAY_MS}-0", {"n": day})])
    words = ["query", "SELECT sum(n) FROM s", "--archive", str(maker.directory), "--archive-only", "--csv"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1] == str(sum(range(SAMPLE_FILES + 3)))
    assert f"s: n bigint (from {SAMPLE_FILES} entries; 3 archived files not sampled" in err


def test_a_query_says_that_entries_were_trimmed(
    stream_server: StreamServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(5):
        stream_server.client.xadd("s", {"n": n})
    words = ["query", "SELECT sum(n) FROM s", "--url", stream_server.url, "--csv"]
    assert main(words) == 0 and "trimmed" not in capsys.readouterr().err
    stream_server.client.xtrim("s", maxlen=2, approximate=False)
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1] == "7"
    assert "s: 3 entries added earlier, then trimmed or deleted, not read (--archive reads archived" in err


def test_the_columns_of_a_typed_archive_are_read_from_its_files(tmp_path: pathlib.Path) -> None:
    maker = ArchiveMaker(tmp_path / "archive", pa.schema([("n", pa.int32())]))
    maker.add("s", [("5-0", {"n": 1})])
    found = archived_columns(read_archive(maker.location), "s")
    assert found == pa.schema([("n", pa.int32())])
    assert archived_columns(read_archive(maker.location), "other") is None
    maps = ArchiveMaker(tmp_path / "maps")
    maps.add("s", [("5-0", {"n": 1})])
    assert archived_columns(read_archive(maps.location), "s") is None


def test_only_columns_that_the_query_names_are_read() -> None:
    columns = parse_schema("n BIGINT, Delay BIGINT, other BIGINT")
    for sql, names in [
        ("SELECT n, avg(delay) FROM s GROUP BY n", ["n", "Delay"]),
        ("SELECT count(*) FROM s", ["_sequence"]),
        ("SELECT count( * ), _id FROM s WHERE x = 'other'", ["_id"]),
        ("SELECT * FROM s", [*ENTRY_COLUMNS.names, "n", "Delay", "other"]),
        ("SELECT s.* FROM s", [*ENTRY_COLUMNS.names, "n", "Delay", "other"]),
    ]:
        assert used_columns(sql, columns).names == names
