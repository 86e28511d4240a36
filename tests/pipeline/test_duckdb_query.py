"""SQL with DuckDB: the rows, the ranges that are read, names and errors, and the same rows as Spark."""

from __future__ import annotations

import datetime
import pathlib
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headrace
from headrace.cli.main import main
from headrace.cli.query.result_values import rows_of as rows_in_zone
from headrace.columns.declarations import parse_columns, parse_schema
from headrace.columns.layout import ENTRY_COLUMNS
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.querying.duckdb_query import run_sql
from headrace.pipeline.querying.spark_query import register_views, run_query
from headrace.pipeline.querying.spark_rows import record_batches
from headrace.pipeline.querying.stream_dataset import StreamDataset
from headrace.queries.scans import MS_MAX, TIME_TYPE, time_bounds
from headrace.queries.sql_tokens import quoted_for_duckdb
from support.archives import ArchiveMaker, Entry
from support.stream_server import StreamServer

FIRST = 1_577_836_800_000  # 2020-01-01
MINUTE = 60_000
SCHEMA = pa.schema([("_timestamp", TIME_TYPE), ("n", pa.int64())])


def entries(count: int, first: int = 0) -> list[Entry]:
    return [
        (f"{FIRST + n * MINUTE}-{n % 2}", {"n": n, "kind": "ab"[n % 2], "x": n / 4})
        for n in range(first, first + count)
    ]


@pytest.fixture
def archive(tmp_path: pathlib.Path) -> ArchiveMaker:
    """An archive of three days of a stream `s:1`, an entry a minute."""
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s:1", entries(3 * 1440), reached={"s:1": entries(1, 3 * 1440 - 1)[0][0]})
    return maker


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_an_id_that_is_too_large_for_its_columns_does_not_fail_a_query(stream_server: StreamServer) -> None:
    largest = f"{2**64 - 1}-{2**64 - 1}"
    stream_server.add("s", [("1-1", {"a": 1}), (f"1-{2**64 - 1}", {"a": 2}), (largest, {"a": 3})])
    assert rows_of(headrace.sql("SELECT count(*) FROM s", stream_server.url)) == [(3,)]
    found = headrace.sql("SELECT _id, _timestamp IS NULL, _sequence, a FROM s", stream_server.url)
    assert rows_of(found) == [
        ("1-1", False, 1, 1),
        (f"1-{2**64 - 1}", False, None, 2),
        (largest, True, None, 3),
    ]


def test_archive_and_stream_are_one_table(stream_server: StreamServer, archive: ArchiveMaker) -> None:
    total = 3 * 1440 + 500
    stream_server.add("s:1", entries(700, total - 700))
    stream_server.add("names", [("1-0", {"kind": "a", "called": "even"})])
    found = headrace.sql(
        'SELECT called, count(*), sum(n), min("s:1"._id) FROM `s:1` JOIN names ON names.kind = "s:1".kind '
        "WHERE \"s:1\"._timestamp >= '2020-01-01 10:00:00' GROUP BY called",
        stream_server.url,
        archive=archive.directory,
    )
    wanted = range(600, total, 2)
    assert rows_of(found) == [("even", len(wanted), sum(wanted), entries(1, 600)[0][0])]
    typed = headrace.sql(
        "SELECT n, _sequence FROM `s:1` WHERE _id = '1577836860000-1'",
        stream_server.url,
        archive=archive.directory,
        columns={"s:1": "n STRING"},
    )
    assert rows_of(typed) == [("1", 1)]
    pair = "SELECT count(*) FROM `s:1` a JOIN `s:1` b ON a.n = b.n + 1"
    assert rows_of(headrace.sql(pair, stream_server.url, archive=archive.directory)) == [(total - 1,)]


def test_only_the_files_of_the_time_range_are_opened(
    stream_server: StreamServer, archive: ArchiveMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_parquet = type(archive.location).open_parquet

    def noted(location: object, path: str) -> object:
        opened.append(path)
        return open_parquet(location, path)  # type: ignore[arg-type]

    monkeypatch.setattr(type(archive.location), "open_parquet", noted)
    columns = {"": "n INT"}
    hour = "_timestamp BETWEEN '2020-01-02 03:00:00' AND '2020-01-02 03:59:59'"
    found = headrace.sql(
        f"SELECT count(*), min(n) FROM `s:1` WHERE {hour}",
        stream_server.url,
        archive=archive.directory,
        columns=columns,
    )
    assert rows_of(found) == [(60, 1440 + 180)]
    assert {path.split("/")[1] for path in opened} == {"date=2020-01-02"}
    opened.clear()
    later = "SELECT count(*) FROM `s:1` WHERE _timestamp > '2021-01-01'"
    found = headrace.sql(later, stream_server.url, archive=archive.directory, columns=columns)
    assert rows_of(found) == [(0,)] and not opened


def test_times_are_those_of_the_zone(stream_server: StreamServer) -> None:
    stream_server.add("s", entries(1440))
    sql = "SELECT count(*) FROM s WHERE _timestamp < '2020-01-01 02:00:00'"
    assert rows_of(headrace.sql(sql, stream_server.url)) == [(120,)]
    assert rows_of(headrace.sql(sql, stream_server.url, time_zone="Europe/Berlin")) == [(60,)]
    day = "SELECT max(CAST(_timestamp AS DATE)) FROM s"
    assert rows_of(headrace.sql(day, stream_server.url)) == [(datetime.date(2020, 1, 1),)]
    assert rows_of(headrace.sql(day, stream_server.url, time_zone="Asia/Tokyo")) == [
        (datetime.date(2020, 1, 2),)
    ]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT knd FROM s", r"^DuckDB: there is no column 'knd'; did you mean `kind`\?"),
        ("SELECT * FROM s JOIN other USING (n)", "^there is no stream 'other'"),
        ("SELECT * FROM S2", "there is no stream 'S2'|names no existing stream"),
        ("SELECT FROM WHERE s", "^DuckDB: Parser Error: "),
        ("SELECT n FROM s; SELECT n FROM s", "^one statement is expected, not 2$"),
        ("MERGE INTO s USING s t ON s.n = t.n WHEN MATCHED THEN DELETE", "^a query only reads, so MERGE is"),
        ("SHOW TABLES", r"^SHOW TABLES: use headrace query, or in Python Database\.streams\(\)$"),
        ("SELECT CAST(kind AS INT) FROM s", "^DuckDB: Conversion Error: "),
        ("SELECT * FROM s, 'no-such-file.csv'", "^DuckDB: "),
        ("SELECT * FROM s, read_csv('/etc/passwd')", "^DuckDB: .*disabled"),
        ("COPY s TO '/tmp/never.csv'", "^DuckDB: .*disabled"),
        ("SET enable_external_access = true; SELECT * FROM s", "one statement"),
        ("SELECT * FROM s UNION SELECT * FROM range(3) WHERE getenv('HOME') = ''", "^DuckDB: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(stream_server: StreamServer, sql: str, message: str) -> None:
    stream_server.add("s", entries(10))
    with pytest.raises(HeadraceError, match=message) as error:
        headrace.sql(sql, stream_server.url)
    assert "\n" not in str(error.value)


def test_a_field_with_the_name_of_a_keyword_is_hinted_at(stream_server: StreamServer) -> None:
    stream_server.add("s", [("1-0", {"order": 1, "table": 2, "n": 3})])
    with pytest.raises(UsageError, match=r"between double quotes: order, table$"):
        headrace.sql("SELECT order FROM s", stream_server.url)
    assert rows_of(headrace.sql('SELECT "order", `table` FROM s', stream_server.url)) == [(1, 2)]


def test_names_that_differ_in_case_need_spark(stream_server: StreamServer) -> None:
    stream_server.add("s", [("1-0", {"n": 1, "N": 2})])
    with pytest.raises(UsageError, match=r"^N, n: two names differ only in case; --engine spark"):
        headrace.sql("SELECT * FROM s", stream_server.url)


def test_streams_whose_names_differ_in_case_are_not_confused(stream_server: StreamServer) -> None:
    stream_server.add("Orders", [("1-0", {"n": 1})])
    stream_server.add("orders", [("1-0", {"n": 2})])
    with pytest.raises(UsageError, match=r"^Orders, orders: two names differ only in case.*--engine spark"):
        headrace.sql("SELECT n FROM Orders UNION ALL SELECT n FROM orders", stream_server.url)
    for name, n in (("Orders", 1), ("orders", 2)):
        found = headrace.sql(f'SELECT orders.n FROM "{name}" AS orders', stream_server.url)
        assert rows_of(found) == [(n,)]


def test_a_field_name_with_a_nul_character_is_an_error(stream_server: StreamServer) -> None:
    stream_server.add("s", [("1-0", {"a\0b": 1, "a": 2})])
    with pytest.raises(UsageError, match=r"^'a.x00b': DuckDB cuts the name of a column"):
        headrace.sql("SELECT * FROM s", stream_server.url)
    assert rows_of(headrace.sql("SELECT a FROM s", stream_server.url)) == [(2,)]


def test_what_ends_a_read_is_the_error_of_the_query(
    stream_server: StreamServer, archive: ArchiveMaker
) -> None:
    for path in archive.directory.rglob("date=2020-01-02/*.parquet"):
        path.unlink()
    with pytest.raises(HeadraceError, match=r"date=2020-01-02/.* is missing. Run the command again"):
        headrace.sql(
            "SELECT count(*) FROM `s:1`", stream_server.url, archive=archive.directory, columns={"": "n INT"}
        )


def test_a_query_with_a_limit_stops_reading(stream_server: StreamServer) -> None:
    stream_server.fill("s", 20_000)
    read = 0

    class Counting(StreamDataset):
        def read(self, columns: list[str], first_ms: int, last_ms: int) -> Iterator[pa.RecordBatch]:
            nonlocal read
            for batch in super().read(columns, first_ms, last_ms):
                read += batch.num_rows
                yield batch

    data = Counting(stream_server.url, "s", parse_schema("n INT"))
    connection = duckdb.connect()
    connection.register("s", data)
    assert connection.sql("SELECT n FROM s LIMIT 3").fetchall() == [(0,), (1,), (2,)]
    connection.close()
    assert 3 <= read <= 20_000


@pytest.mark.parametrize(
    "sql",
    [
        "FROM t",
        "TABLE t",
        "SELECT t.* FROM t",
        "SELECT unnest(t) FROM t",
        "WITH u AS (FROM t) SELECT unnest(u) FROM u",
        "SELECT COLUMNS('.*') FROM t",
    ],
)
def test_rows_are_whole_also_where_the_query_names_no_column(stream_server: StreamServer, sql: str) -> None:
    stream_server.add("t", [("1-0", {"n": 1, "x": "a"})])
    found = headrace.sql(sql, stream_server.url)
    assert found.drop(["_timestamp"]).to_pylist() == [
        {"_stream": "t", "_id": "1-0", "_sequence": 0, "n": 1, "x": "a"}
    ]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT n FROM \"it's\" WHERE k = 'a\\' AND n < 5 AND k <> ' '", [(1,)]),
        ('SELECT "it\'s".n, m FROM "it\'s", `he\'s "it"`', [(1, 2)]),
        ("SELECT n, $$ 'k $$ FROM \"it's\" /* it's */ -- it's", [(1, " 'k ")]),
        ('SELECT m FROM "he\'s ""it"""', [(2,)]),
        ('SELECT x.n FROM "it\'s" x NATURAL JOIN "it\'s" y', [(1,)]),
        ('SELECT x.n FROM "it\'s" x NATURAL JOIN `he\'s "it"` y', []),
    ],
)
def test_quotes_within_names_and_literals_are_understood(
    stream_server: StreamServer, sql: str, found: list[object]
) -> None:
    stream_server.add("it's", [("1-0", {"n": 1, "k": "a\\"})])
    stream_server.add('he\'s "it"', [("1-0", {"m": 2, "k": "b"})])
    assert rows_of(headrace.sql(sql, stream_server.url)) == found


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("SELECT `a:b`", 'SELECT "a:b"'),
        ("SELECT `a``b` || 'no `quotes` here'", "SELECT \"a`b\" || 'no `quotes` here'"),
        ('SELECT `a"b` -- `c`', 'SELECT "a""b" -- `c`'),
        ('SELECT `a` /* `b` */, "c`d`"', 'SELECT "a" /* `b` */, "c`d`"'),
        ("SELECT '\\', `a`, '`b`'", "SELECT '\\', \"a\", '`b`'"),
        ("SELECT e'\\'`b`', $$'`c`$$, `a`", "SELECT e'\\'`b`', $$'`c`$$, \"a\""),
    ],
)
def test_backticks_become_double_quotes(sql: str, same: str) -> None:
    assert quoted_for_duckdb(sql) == same


def moment(ms: int) -> pa.Scalar:
    return pa.scalar(ms * 1000, TIME_TYPE)


@given(st.integers(1, 10**13), st.integers(1, 10**13))
def test_the_bounds_of_a_time_range_are_exact(first: int, last: int) -> None:
    time = ds.field("_timestamp")
    assert time_bounds(time >= moment(first), SCHEMA) == (first, MS_MAX)
    assert time_bounds(time <= moment(last), SCHEMA) == (0, last)
    low, high = min(first, last), max(first, last)
    both = (time >= moment(low)) & (time <= moment(high)) & (ds.field("n") > 3)
    assert time_bounds(both, SCHEMA) == (low, high)
    assert time_bounds(time == moment(low), SCHEMA) == (low, low)


@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_no_row_that_a_filter_selects_is_outside_of_its_bounds(
    choose: random.Random, times: list[int]
) -> None:
    condition = random_condition(choose, 3)
    first, last = time_bounds(condition, SCHEMA)
    table = pa.table(
        {
            "_timestamp": pa.array([t * 1000 for t in times], pa.int64()).cast(TIME_TYPE),
            "n": pa.array(range(len(times)), pa.int64()),
        }
    )
    for row in table.filter(condition).column("_timestamp").cast(pa.int64()).to_pylist():
        assert first <= row // 1000 <= last


def random_condition(choose: random.Random, depth: int) -> ds.Expression:
    if depth and choose.random() < 0.7:
        left, right = (random_condition(choose, depth - 1) for _ in range(2))
        return choose.choice([left & right, left | right, ~left])
    value = moment(choose.randrange(50))
    time = ds.field("_timestamp")
    return choose.choice(
        [
            time < value,
            time <= value,
            time > value,
            time >= value,
            time == value,
            time != value,
            time.is_null(),
            time.is_valid(),
            time.isin([value, moment(choose.randrange(50))]),
            ds.field("n") > choose.randrange(20),
            pc.scalar(choose.random() < 0.5),
        ]
    )


def test_a_query_without_a_time_column_has_no_bounds() -> None:
    assert time_bounds(ds.field("n") > 3, pa.schema([("n", pa.int64())])) == (0, MS_MAX)
    assert time_bounds(None, SCHEMA) == (0, MS_MAX)


QUERIES = [
    "SELECT count(*), sum(n), min(x), max(kind) FROM `s:1`",
    "SELECT kind, count(*) AS c FROM `s:1` GROUP BY kind ORDER BY kind NULLS FIRST",
    "SELECT _id, _sequence, n FROM `s:1` WHERE n % 97 = 0 ORDER BY _id",
    "SELECT n FROM `s:1` WHERE _timestamp >= '2020-01-03 20:00:00' AND kind = 'a' ORDER BY n",
    "SELECT n, x FROM `s:1` ORDER BY n DESC NULLS LAST LIMIT 7",
    "SELECT a.n FROM `s:1` a JOIN `s:1` b ON a.n = b.n * 2 WHERE b.kind = 'b' ORDER BY a.n",
    "SELECT count(DISTINCT kind), avg(x) FROM `s:1` WHERE n BETWEEN 100 AND 4500",
    "SELECT sum(n) OVER (ORDER BY n ROWS 2 PRECEDING) AS s FROM `s:1` WHERE n < 20 ORDER BY n",
    "WITH t AS (SELECT n + 1 AS m FROM `s:1` WHERE kind = 'b') SELECT count(*) FROM t WHERE m > 10",
]


@pytest.mark.whole
@pytest.mark.slow
def test_both_engines_return_the_same_rows(
    spark: SparkSession, stream_server: StreamServer, archive: ArchiveMaker
) -> None:
    stream_server.add("s:1", [*entries(700, 3 * 1440 - 200), ("1900000000000-0", {"n": "many", "x": 7})])
    fields = {"": parse_columns("n INT, kind STRING, x DOUBLE")}
    for sql in QUERIES:
        register_views(spark, sql, stream_server.url, archive=archive.directory, fields=fields)
        by_spark = [tuple(row) for row in run_query(spark, sql).collect()]
        with run_sql(sql, stream_server.url, archive=archive.directory, fields=fields) as result:
            assert rows_of(result.rows.read_all()) == by_spark, sql
        assert by_spark


@pytest.mark.slow
def test_both_engines_return_the_local_times_of_a_zone(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    stream_server.add("t", [(f"{n}-0", {"moment": f"2026-0{n}-29T01:30:00Z"}) for n in (1, 3, 7, 9)])
    sql = "SELECT moment, _id FROM t ORDER BY _id"
    with run_sql(sql, stream_server.url, zone="Europe/Berlin") as result:
        found = list(rows_in_zone(result.rows, "Europe/Berlin"))
    assert [row[0].hour for row in found] == [2, 3, 3, 3]
    register_views(spark, sql, stream_server.url)
    result = record_batches(run_query(spark, sql))
    assert list(rows_in_zone(result, "Europe/Berlin")) == found


def exact(**fields: str) -> dict[str, object]:
    """An entry that is whole in `_exact`."""
    pairs = [{"name": name.encode(), "value": value.encode()} for name, value in fields.items()]
    return {**fields, "_exact": pairs}


@pytest.fixture
def typed_archive(tmp_path: pathlib.Path) -> ArchiveMaker:
    """An archive with the column `total` alone, of a stream with fields `id` and `date`, and with `gone`."""
    maker = ArchiveMaker(tmp_path / "typed", pa.schema([("total", pa.string())]))
    fields = exact(id="k1", date="2024-01-01", total="5", gone="g")
    maker.add("s", [("1-1", fields), ("2-1", {"total": "7"})], reached={"s": "2-1"})
    return maker


def test_a_typed_archive_hides_no_field(stream_server: StreamServer, typed_archive: ArchiveMaker) -> None:
    stream_server.add("s", [("3-1", {"id": "k3", "date": "2024-01-03", "total": "6", "refund": "3"})])

    def found(sql: str) -> list[tuple[object, ...]]:
        return rows_of(headrace.sql(sql, stream_server.url, archive=typed_archive.directory))

    days = datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)
    assert found("SELECT _id, id, date, total, gone, refund FROM s ORDER BY _id") == [
        ("1-1", "k1", days[0], "5", "g", None),
        ("2-1", None, None, "7", None, None),
        ("3-1", "k3", days[1], "6", None, 3),
    ]
    names = headrace.sql("SELECT * FROM s", stream_server.url, archive=typed_archive.directory).column_names
    assert names == [*ENTRY_COLUMNS.names, "total", "id", "date", "refund", "gone"]
    assert found("SELECT count(*) FROM s WHERE id = 'k1'") == [(1,)]


def test_what_a_query_does_not_show_is_named(
    stream_server: StreamServer, typed_archive: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    stream_server.add("s", [("3-1", {"total": "6", "refund": "3", "_id": "x"})])
    words = ["--archive", str(typed_archive.directory), "--url", stream_server.url]
    assert main(["query", "SELECT * FROM s", *words]) == 0
    error = " ".join(capsys.readouterr().err.split())
    assert "refund bigint" in error and "total string" not in error and "from 2 entries" in error
    assert "s: no columns for the fields _id: their names are reserved or not UTF-8" in error
    assert main(["query", "SELECT total FROM s", *words]) == 0
    assert capsys.readouterr().err == ""
    assert main(["query", "DESCRIBE s", *words, "--csv"]) == 0
    described = capsys.readouterr().out
    assert "total,string,column of the archive" in described
    assert "refund,bigint,inferred from 2 entries" in described and "id,string,inferred" in described


def test_the_metadata_columns_are_all_there(stream_server: StreamServer) -> None:
    stream_server.add("s", entries(2))
    found = headrace.sql("SELECT * FROM s", stream_server.url)
    assert found.column_names == [*ENTRY_COLUMNS.names, "n", "kind", "x"]
    assert found.to_pylist()[1] == {
        "_stream": "s",
        "_id": f"{FIRST + MINUTE}-1",
        "_timestamp": datetime.datetime(2020, 1, 1, 0, 1, tzinfo=datetime.UTC),
        "_sequence": 1,
        "n": 1,
        "kind": "b",
        "x": 0.25,
    }


UNREACHABLE = "redis://127.0.0.1:1"
PROGRAM = [sys.executable, "-m", "headrace"]


@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
def test_an_archive_is_queried_without_its_server(archive: ArchiveMaker, engine: str) -> None:
    command = [
        *PROGRAM,  # a process of its own: this one may have a Spark session already
        "query",
        "--archive",
        str(archive.directory),
        "--url",
        UNREACHABLE,
        "--engine",
        engine,
        "--csv",
    ]
    sql = "SELECT count(*) AS c, count(x) AS x, max(n) AS n FROM `s:1`"
    queried = subprocess.run([*command, "--archive-only", sql], capture_output=True, text=True, check=True)
    assert queried.stdout == "c,x,n\n4320,4320,4319\n"
    refused = subprocess.run([*command, sql], capture_output=True, text=True)
    assert refused.returncode != 0
    assert "--archive-only" in refused.stderr  # rows may be missing, so it is not chosen silently


def test_the_tables_of_an_archive_are_listed_without_its_server(
    archive: ArchiveMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["query", "--archive", str(archive.directory), "--url", UNREACHABLE, "--archive-only", "--csv"]
    assert main([*command, "SHOW TABLES"]) == 0
    last = entries(1, 3 * 1440 - 1)[0][0]
    assert capsys.readouterr().out == f"table,archived,archived_through\ns:1,{3 * 1440},{last}\n"
    assert main([*command, "DESCRIBE `s:1`"]) == 0
    assert "inferred from" in capsys.readouterr().out
    assert main([*command, "SELECT * FROM s:2"]) == 2
    assert "no archived stream" in capsys.readouterr().err


def test_python_reads_an_archive_without_a_server(archive: ArchiveMaker) -> None:
    assert rows_of(headrace.sql('SELECT count(*) FROM "s:1"', None, archive=archive.directory)) == [(4320,)]
    with pytest.raises(UsageError, match="needs an archive"):
        headrace.sql("SELECT 1", None)


def test_the_type_of_one_column_is_set_and_the_others_are_inferred(stream_server: StreamServer) -> None:
    rows = [("1-1", {"carrier": "UA", "delay": "2"}), ("2-1", {"carrier": "AA", "delay": "NA"})]
    stream_server.add("s", rows)

    def types(columns: dict[str, str]) -> list[tuple[object, ...]]:
        sql = "SELECT typeof(carrier), typeof(delay), delay::VARCHAR FROM s ORDER BY _id"
        return rows_of(headrace.sql(sql, stream_server.url, columns=columns))

    assert types({}) == [("VARCHAR", "BIGINT", "2"), ("VARCHAR", "BIGINT", None)]
    assert types({"s": "infer, delay INT"}) == [("VARCHAR", "INTEGER", "2"), ("VARCHAR", "INTEGER", None)]
    assert types({"": "infer, delay STRING"})[1] == ("VARCHAR", "VARCHAR", "NA")


def test_an_error_says_how_to_declare_only_some_columns(
    stream_server: StreamServer, capsys: pytest.CaptureFixture[str]
) -> None:
    stream_server.add("s", [("1-1", {"carrier": "UA", "delay": "2"})])
    command = ["query", "SELECT carrier, delay FROM s", "--url", stream_server.url, "--csv", "--fields"]
    assert main([*command, "delay INT"]) == 2
    assert "--fields 'infer, …'" in capsys.readouterr().err
    assert main([*command, "infer, delay INT"]) == 0
    assert capsys.readouterr().out == "carrier,delay\nUA,2\n"


def test_ctrl_c_ends_the_command_while_duckdb_computes(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream_server.add("s", entries(600))
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main_thread, signal.SIGINT))
    starting = threading.Lock()  # threads of DuckDB read the four tables at once

    class WithTimer(StreamDataset):
        def read(self, columns: list[str], first_ms: int, last_ms: int) -> Iterator[pa.RecordBatch]:
            with starting:
                if timer.ident is None:
                    timer.start()
            return super().read(columns, first_ms, last_ms)

    monkeypatch.setattr("headrace.pipeline.querying.duckdb_query.StreamDataset", WithTimer)
    query = "SELECT sum(sin(a.n * b.n + c.n * d.n)) FROM s a, s b, s c, s d"  # 1.3e11 rows
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["query", query, "--url", stream_server.url]) == 130
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.strip().endswith("headrace: interrupted")
    assert main(["query", "SELECT count(*) FROM s", "--url", stream_server.url, "--csv"]) == 0
    assert capsys.readouterr().out == "count_star()\n600\n"
