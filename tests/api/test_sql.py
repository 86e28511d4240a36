"""db.sql(): DuckDB on streams, in a program, on Headrace and on Redis."""

from __future__ import annotations

import logging
import signal
import threading
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.api.arrow_batches import ArrowBatches
from headrace.errors import HeadraceError, UsageError

DAY_MS = 86_400_000


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.fixture
def orders(database: headrace.Database) -> headrace.Database:
    """A database with 600 orders, one a day since 1970-01-02."""
    stream = database.stream("orders")
    for n in range(1, 601):
        fields = {"customer": f"c{n % 3}", "cents": n, "day": f"2026-01-{n % 31 + 1:02}", "paid": "true"}
        stream.add(fields, id=f"{n * DAY_MS}-0")
    return database


def test_fields_are_columns_with_inferred_types(orders: headrace.Database) -> None:
    (first,) = orders.sql("SELECT * FROM orders ORDER BY cents LIMIT 1").to_pylist()
    assert first == {
        "_stream": "orders",
        "_id": f"{DAY_MS}-0",
        "_timestamp": datetime(1970, 1, 2, tzinfo=UTC),
        "_sequence": 0,
        "customer": "c1",
        "cents": 1,
        "day": date(2026, 1, 2),
        "paid": True,
    }
    total = orders.sql("SELECT customer, sum(cents)::BIGINT AS cents FROM orders GROUP BY ALL ORDER BY ALL")
    assert rows(total) == [("c0", 60300), ("c1", 59900), ("c2", 60100)]
    assert rows(orders.sql("SELECT count(*) FROM orders")) == [(600,)]


def test_only_the_needed_columns_and_times_are_read(
    orders: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[list[str], int]] = []
    iterate = ArrowBatches.__iter__

    def recorded(self: ArrowBatches) -> Any:
        for batch in iterate(self):
            read.append((batch.schema.names, batch.num_rows))
            yield batch

    monkeypatch.setattr(ArrowBatches, "__iter__", recorded)
    query = (
        "SELECT sum(cents)::BIGINT FROM orders WHERE _timestamp >= '1970-01-11' AND _timestamp < '1970-01-21'"
    )
    assert rows(orders.sql(query)) == [(sum(range(10, 20)),)]
    assert all(names == ["_timestamp", "cents"] for names, _ in read)
    assert 10 <= sum(count for _, count in read) <= 12
    east = orders.sql(
        "SELECT min(cents) FROM orders WHERE _timestamp >= '1970-01-11'", time_zone="Asia/Tokyo"
    )
    assert rows(east) == [(10,)]
    nothing = orders.sql("SELECT cents FROM orders WHERE _timestamp > '2200-01-01'")
    assert rows(nothing) == []


def test_several_streams_and_quoted_names(database: headrace.Database) -> None:
    database.stream("orders:eu").add({"id": 1, "who": "ann"}, id="1-0")
    database.stream('a "b"').add({"id": 1, "what": "pear"}, id="1-0")
    database.stream("select").add({"n": 5}, id="1-0")
    assert rows(database.sql('SELECT who, what FROM "orders:eu" JOIN "a ""b""" USING (id)')) == [
        ("ann", "pear")
    ]
    assert rows(database.sql("SELECT o.who FROM `orders:eu` o, `orders:eu` p WHERE o.id = p.id")) == [
        ("ann",)
    ]
    assert rows(database.sql('SELECT n FROM "select"')) == [(5,)]


def test_a_schema_sets_types(orders: headrace.Database) -> None:
    schema = pa.schema([("cents", pa.decimal128(9, 2)), ("none", pa.string()), ("_id", pa.string())])
    table = orders.sql("SELECT * FROM orders WHERE cents = 7", {"orders": schema})
    assert table.schema.names == ["_stream", "_id", "_timestamp", "_sequence", "cents", "none"]
    assert table.schema.field("cents").type == pa.decimal128(9, 2) and table.num_rows == 1
    with pytest.raises(UsageError, match="the query names no stream 'order'"):
        orders.sql("SELECT * FROM orders", {"order": schema})
    with pytest.raises(UsageError, match="the column n is uint8"):
        orders.sql("SELECT * FROM orders", {"orders": pa.schema([("n", pa.uint8())])})


def test_values_that_do_not_fit_are_counted(
    database: headrace.Database, caplog: pytest.LogCaptureFixture
) -> None:
    stream = database.stream("s")
    stream.add_many(
        {"n": "free" if n == 500 else n, "time": f"2026-03-01T12:00:{n % 60:02}Z"} for n in range(1000)
    )
    with caplog.at_level(logging.WARNING, "headrace.stream"):
        assert rows(database.sql("SELECT count(n), max(time) FROM s")) == [
            (999, datetime(2026, 3, 1, 12, 0, 59, tzinfo=UTC))
        ]
    assert caplog.messages == ["s: 1 value did not fit the column n and became null"]


def test_all_scans_end_at_the_same_entry(
    database: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = database.stream("s")
    stream.add({"n": 1})
    iterate = ArrowBatches.__iter__

    def adding(self: ArrowBatches) -> Any:
        stream.add({"n": 2})
        return iterate(self)

    monkeypatch.setattr(ArrowBatches, "__iter__", adding)
    assert rows(database.sql("SELECT a.n FROM s a, s b")) == [(1,)]
    assert len(stream) >= 2


def test_an_empty_stream_has_the_entrys_columns(database: headrace.Database) -> None:
    database.stream("s").group("g", create=True)
    assert rows(database.sql("SELECT count(*) FROM s")) == [(0,)]
    assert rows(database.sql("SELECT _id FROM s")) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM ordrs", "^there is no stream 'ordrs'.*orders"),
        ("SELECT * FROM orders JOIN odrers USING (cents)", "^there is no stream 'odrers'.*orders"),
        ("SELECT 1", "^the query names no stream"),
        ("SELECT cent FROM orders", r"^DuckDB: there is no column 'cent'; did you mean `cents`\?"),
        ("SELECT FROM WHERE orders", "^DuckDB: Parser Error: "),
        ("SELECT 1 FROM orders; SELECT 2 FROM orders", "^one statement is expected, not 2$"),
        ("INSERT INTO orders VALUES (1)", "^a query only reads, so INSERT is not possible"),
        ("CREATE TABLE few AS SELECT * FROM orders", "^a query only reads, so CREATE is not possible"),
        ("WITH few AS (FROM orders) DELETE FROM orders", "^a query only reads, so DELETE is not possible"),
        ("SHOW TABLES", r"^SHOW TABLES: use headrace query, or in Python Database\.streams\(\)$"),
        ("SELECT CAST(customer AS INT) FROM orders", "^DuckDB: Conversion Error: "),
        ("SELECT * FROM orders, read_csv('/etc/passwd')", "^DuckDB: .*disabled"),
    ],
)
def test_errors_are_one_line(orders: headrace.Database, query: str, message: str) -> None:
    with pytest.raises(HeadraceError, match=message) as error:
        orders.sql(query)
    assert "\n" not in str(error.value)


def test_names_that_differ_in_case_are_an_error(database: headrace.Database) -> None:
    database.stream("s").add({"n": 1, "N": 2, "m": 3})
    with pytest.raises(UsageError, match=r"N, n: other columns differ only in case.*to_arrow"):
        database.sql("SELECT n FROM s")
    assert rows(database.sql("SELECT m FROM s")) == [(3,)]


@pytest.mark.parametrize(
    "query",
    [
        'SELECT x FROM "Orders" UNION ALL SELECT x FROM "orders"',
        "SELECT a.x, b.x FROM Orders a, orders b",
        "PIVOT Orders ON orders USING sum(x)",  # several statements for DuckDB, so it is not known
    ],
)
def test_streams_whose_names_differ_in_case_are_an_error(database: headrace.Database, query: str) -> None:
    for name in ("Orders", "orders"):
        database.stream(name).add({"x": name})
    with pytest.raises(UsageError, match=r"^Orders, orders: two names differ only in case"):
        database.sql(query)


@pytest.mark.parametrize(
    "query",
    [
        'SELECT x FROM "{}"',
        'SELECT orders.x FROM "{}" AS orders, other AS "OTHER"',
        'WITH "ORDERS" AS (SELECT * FROM "{}") SELECT x FROM Orders',
        "SELECT x FROM `{}` WHERE 'orders' <> 'Orders' AND orders = 7",
    ],
)
def test_a_name_that_is_no_table_does_not_change_which_stream_is_read(
    database: headrace.Database, query: str
) -> None:
    database.stream("other").add({"y": 1})
    for name in ("Orders", "orders", "ORDERS"):
        database.stream(name).add({"x": name, "orders": 7})
    for name in ("Orders", "orders"):
        assert rows(database.sql(query.format(name))) == [(name,)]


def test_a_column_whose_name_has_a_nul_character_is_an_error(database: headrace.Database) -> None:
    database.stream("s").add({"a\0b": 1, "a": 2, "c": 3})
    for query in ("SELECT * FROM s", 'SELECT "a\0b" FROM s'):
        with pytest.raises(UsageError, match=r"^'a.x00b': DuckDB cuts the name.*to_arrow"):
            database.sql(query)
    assert rows(database.sql("SELECT a, c FROM s")) == [(2, 3)]
    schema = pa.schema([("a\0b", pa.int64())])
    with pytest.raises(UsageError, match="DuckDB cuts the name"):
        database.sql("SELECT * FROM s", {"s": schema})


def test_an_error_of_a_scan_is_the_error_of_the_query(database: headrace.Database) -> None:
    database.stream("s").add({"n": "x"}, id="1-0")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(HeadraceError, match="stream 's', entry 1-0: field 'n' is missing or does not fit"):
        database.sql("SELECT n FROM s", {"s": schema})


def test_ctrl_c_ends_a_query_while_duckdb_computes(
    orders: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    starting = threading.Lock()  # threads of DuckDB read the four tables at once
    iterate = ArrowBatches.__iter__

    def with_timer(self: ArrowBatches) -> Any:
        with starting:
            if timer.ident is None:
                timer.start()
        return iterate(self)

    monkeypatch.setattr(ArrowBatches, "__iter__", with_timer)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    names = "orders a, orders b, orders c, orders d"  # 1.3e11 rows
    try:
        with pytest.raises(KeyboardInterrupt):
            orders.sql(f"SELECT sum(sin(a.cents * b.cents + c.cents * d.cents)) FROM {names}")
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert rows(orders.sql("SELECT count(*) FROM orders")) == [(600,)]


def test_a_query_in_another_thread_is_a_query(orders: headrace.Database) -> None:
    found = []
    thread = threading.Thread(target=lambda: found.extend(rows(orders.sql("SELECT max(cents) FROM orders"))))
    thread.start()
    thread.join()
    assert found == [(600,)]
