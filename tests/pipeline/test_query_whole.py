"""SQL on streams and archives, and loads from Spark's sources, with Spark."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from headrace.cli.query.result_values import as_text, rows_of
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.loading.spark_import import load_from_spark
from headrace.pipeline.querying.spark_errors import query_errors_explained
from headrace.pipeline.querying.spark_query import follow_query, register_views, run_query
from headrace.pipeline.querying.spark_rows import record_batches
from headrace.pipeline.shared import interrupts
from support.archives import ArchiveMaker, Entry
from support.stream_server import StreamServer

pytestmark = pytest.mark.whole

FIRST = 1_577_836_800_000  # 2020-01-01


def entries(count: int) -> list[Entry]:
    return [(f"{FIRST + n * 60_000}-0", {"n": n, "kind": "ab"[n % 2]}) for n in range(count)]


def test_a_query_reads_archive_and_live_stream(
    spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    some = entries(5000)
    maker = ArchiveMaker(tmp_path / "archive")
    maker.add("s:1", some[:3000])
    stream_server.add("s:1", some[2000:])
    stream_server.add("names", [("1-0", {"kind": "a", "called": "even"})])
    sql = (
        "SELECT called, count(*) AS many, sum(n) AS total FROM `s:1` JOIN names USING (kind) "
        "WHERE `s:1`._timestamp >= '2020-01-01 10:00:00' GROUP BY called"
    )
    for pushing in ("true", "false"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushing)
        tables = register_views(spark, sql, stream_server.url, archive=maker.directory)
        assert [(t.stream, t.columns.names) for t in tables] == [
            ("s:1", ["_timestamp", "n", "kind"]),
            ("names", ["_timestamp", "kind", "called"]),
        ]
        wanted = [n for n in range(600, 5000) if n % 2 == 0]
        assert run_query(spark, sql).collect() == [Row(called="even", many=len(wanted), total=sum(wanted))]
    with pytest.raises(UsageError, match="Spark"):
        run_query(spark, "SELECT FROM WHERE")
    typo = "SELECT knd FROM names"
    with pytest.raises(UsageError, match=r"`knd`.*did you mean `kind`.; names has kind, called$"):
        run_query(spark, typo, register_views(spark, typo, stream_server.url))
    typo = "SELECT * FROM names JOIN nams USING (kind)"
    with pytest.raises(UsageError, match=r"Spark: there is no stream 'nams'; did you mean 'names'\?$"):
        run_query(spark, typo, register_views(spark, typo, stream_server.url), ["names"])
    with pytest.raises(UsageError, match=r"^there is no stream 'nams'; did you mean 'names'\?$"):
        register_views(spark, "SELECT * FROM nams", stream_server.url)
    wrong = "SELECT CAST(called AS INT) FROM names"
    found = run_query(spark, wrong, register_views(spark, wrong, stream_server.url))
    with (
        pytest.raises(HeadraceError, match=r"the query failed: \[CAST_INVALID_INPUT\].*SQLSTATE: 22018$"),
        query_errors_explained(),
    ):
        list(record_batches(found))


def test_fields_with_reserved_names_do_not_break_a_query(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    names = ["_exact", "_fields", "_Corrupt_Record", "_id", "n"]
    stream_server.add("s", [("1-0", dict.fromkeys(names, 7))])
    sql = "SELECT * FROM s"
    [row] = run_query(spark, sql, register_views(spark, sql, stream_server.url)).collect()
    assert row.asDict().keys() == {"_stream", "_id", "_timestamp", "_sequence", "n"}
    assert row.n == 7


def test_fields_that_differ_in_case_are_different_columns(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    stream_server.add("s", [("1-0", {"n": 1, "N": 2})])
    sql = "SELECT N, n FROM s"
    try:
        found = run_query(spark, sql, register_views(spark, sql, stream_server.url)).collect()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert found == [Row(N=2, n=1)]


def test_a_followed_aggregation_reports_its_whole_result_after_each_batch(
    spark: SparkSession, stream_server: StreamServer
) -> None:
    stream_server.add("s", entries(100))
    sql = "SELECT kind, count(*) AS many FROM s GROUP BY kind ORDER BY kind"
    register_views(spark, sql, stream_server.url, following=True)
    seen: list[list[tuple[object, ...]]] = []

    def show(names: list[str], batches: Iterable[pa.RecordBatch], whole: bool) -> None:
        assert whole and names == ["kind", "many"]
        seen.append(list(rows_of(batches, "UTC")))
        if len(seen) == 1:
            stream_server.client.xadd("s", {"n": 1, "kind": "b"})
        else:
            interrupts.record_signal(2, None)  # as a signal would

    try:
        with pytest.raises(KeyboardInterrupt):
            follow_query(run_query(spark, sql), 10, show)
    finally:
        interrupts._interrupted.clear()
    assert seen[0] == [("a", 50), ("b", 50)]
    assert seen[1] == [("a", 50), ("b", 51)]


def test_a_followed_query_reports_each_row_once(spark: SparkSession, stream_server: StreamServer) -> None:
    stream_server.add("s", entries(200))
    register_views(spark, "SELECT n FROM s", stream_server.url, following=True)
    seen: list[int] = []

    def show(names: list[str], batches: Iterable[pa.RecordBatch], whole: bool) -> None:
        assert not whole
        seen.extend(n for [n] in rows_of(batches, "UTC"))
        if len(seen) == 200:
            stream_server.client.xadd("s", {"n": 200, "kind": "a"})
        elif len(seen) > 200:
            interrupts.record_signal(2, None)

    try:
        with pytest.raises(KeyboardInterrupt):
            follow_query(run_query(spark, "SELECT n FROM s"), None, show)
    finally:
        interrupts._interrupted.clear()
    assert sorted(seen) == list(range(201))


def test_every_value_of_spark_is_returned(spark: SparkSession) -> None:
    sql = """
        SELECT timestamp_seconds(-62135596800) AS t, timestamp_seconds(253402300800) AS t,
               DATE '0001-01-01' AS d, date_add(DATE '9999-12-31', 1) AS e,
               TIMESTAMP_NTZ '2024-01-01 00:00:00.5' AS n, INTERVAL '1-2' YEAR TO MONTH AS y,
               array(INTERVAL '3' MONTH) AS ys, INTERVAL '1 02:00' DAY TO MINUTE AS i,
               parse_json('{"a": [1, null]}') AS v, named_struct('q', 1, 'w', map('k', 0.5D)) AS s,
               1.50 AS c, X'ff' AS b
    """
    batches = list(record_batches(run_query(spark, sql)))
    assert batches[0].schema.names == ["t", "t", "d", "e", "n", "y", "ys", "i", "v", "s", "c", "b"]
    [row] = rows_of(batches, "UTC")
    assert [as_text(value) for value in row] == [
        "0001-01-01 00:00:00",
        "+10000-01-01 00:00:00",
        "0001-01-01",
        "+10000-01-01",
        "2024-01-01 00:00:00.500000",
        "INTERVAL '1-2' YEAR TO MONTH",
        """["INTERVAL '3' MONTH"]""",
        "1 day, 2:00:00",
        '{"a":[1,null]}',
        '{"q": 1, "w": {"k": 0.5}}',
        "1.50",
        "\\xff",
    ]
    assert list(record_batches(run_query(spark, "SELECT 1 WHERE false"))) == []
    ordered = record_batches(run_query(spark, "SELECT id FROM range(50000) ORDER BY id DESC"))
    assert [n for [n] in rows_of(ordered, "UTC")] == list(range(49_999, -1, -1))


def test_any_source_of_spark_is_loaded(
    spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    path = str(tmp_path / "rows")
    times = "timestamp_seconds(1577836800 + (id * 7919) % 1000) AS at"
    spark.range(3000).selectExpr("id AS n", times).write.orc(path)
    told: list[int] = []
    options = {"path": path}
    url, client = stream_server.url, stream_server.client
    assert (
        load_from_spark(spark, "orc", options, url, "a", time_column_name="at", on_progress=told.append)
        == 3000
    )
    rows = client.xrange("a")
    assert sorted(int(f[b"n"]) for _, f in rows) == list(range(3000))
    assert all(
        int(i.split(b"-")[0]) == FIRST + int(f[b"n"]) * 7919 % 1000 * 1000 and f[b"at"].endswith(b"Z")
        for i, f in rows
    )
    assert load_from_spark(spark, "orc", {}, url, "b", path=path, job="once") == 3000
    assert load_from_spark(spark, "orc", {}, url, "b", path=path, job="once") == 0
    stream_server.client.delete("b")
    assert load_from_spark(spark, "orc", {}, url, "b", path=path, job="once") == 3000
    stream_server.client.delete("b")
    stream_server.client.xadd("b", {"other": 1})
    with pytest.raises(HeadraceError, match=r"3,000 rows of the job 'once' were written .* only 1 entry"):
        load_from_spark(spark, "orc", {}, url, "b", path=path, job="once")
    others: list[int] = []

    def produce(rows: int) -> None:
        client.xadd("d", {"other": 1})
        others.append(rows)

    assert load_from_spark(spark, "orc", {}, url, "d", path=path, on_progress=produce) == 3000
    assert others and client.xlen("d") == 3000 + len(others), "entries of others are not counted"
    assert client.keys("*headrace-load*") == client.keys("*load-*") == []
    with pytest.raises(UsageError, match="no column 'when'"):
        load_from_spark(spark, "orc", options, url, "c", time_column_name="when")


def test_a_rate_holds_and_an_interrupt_ends_the_load(
    spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path
) -> None:
    path = str(tmp_path / "rows")
    spark.range(100_000).selectExpr("id AS n").write.orc(path)

    def watch(rows: int) -> None:
        if rows >= 1000 and not interrupts._interrupted.is_set():
            interrupts.record_signal(2, None)

    threads = set(threading.enumerate())
    try:
        with pytest.raises(KeyboardInterrupt):
            load_from_spark(
                spark, "orc", {"path": path}, stream_server.url, "a", rate=2000, on_progress=watch
            )
    finally:
        interrupts._interrupted.clear()
    there = [int(fields[b"n"]) for _, fields in stream_server.client.xrange("a")]
    assert 1000 <= len(there) < 100_000 and there == list(range(len(there)))
    # py4j starts threads when the JVM collects something.
    left = [each for each in threading.enumerate() if each not in threads and "py4j" not in each.name.lower()]
    assert not [each for each in left if "ClientServerConnection" not in repr(getattr(each, "_target", ""))]
