"""Streams as Arrow tables: to_arrow() and arrow_batches(), in a program, on Headrace and on Redis."""

from __future__ import annotations

import json
import logging
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import headrace
from headrace.api import arrow_batches
from headrace.columns.batch_assembler import BatchAssembler, EncodedColumns
from headrace.columns.layout import ArrowLayout
from headrace.errors import CodecError, ProtocolError, UsageError, WrongType
from support.headrace_server import headrace_server
from support.waiting import wait_until

MAP = pa.map_(pa.string(), pa.string())
ORDERS = pa.schema([("_id", pa.string()), ("customer", pa.string()), ("cents", pa.int64())])


def add_all(database: headrace.Database, entries: list[dict[Any, Any]], name: str | bytes = "orders") -> Any:
    stream = database.stream(name)
    for n, fields in enumerate(entries, 1):
        stream.add(fields, id=f"{n}-0")
    return stream


def column(database: headrace.Database, kind: pa.DataType, *values: Any, comment: str = "") -> pa.Table:
    """Read entries with one field as a column of this type."""
    metadata = {"comment": comment} if comment else None
    stream = add_all(database, [{"f": value} for value in values], f"of {kind} {comment}")
    return stream.to_arrow(pa.schema([pa.field("f", kind, metadata=metadata)]))


def test_without_a_schema_there_are_an_id_and_a_map(database: headrace.Database) -> None:
    stream = add_all(database, [{"customer": "ann", "cents": 5}, {"note": b"\xff", b"\xfe": "x"}, {"a": ""}])
    table = stream.to_arrow()
    assert table.schema.equals(pa.schema([("_id", pa.string()), ("_fields", MAP)]))
    assert table.to_pylist() == [
        {"_id": "1-0", "_fields": [("customer", "ann"), ("cents", "5")]},
        {"_id": "2-0", "_fields": [("note", r"\xff"), (r"\xfe", "x")]},
        {"_id": "3-0", "_fields": [("a", "")]},
    ]
    exact = stream.to_arrow(pa.schema([("_fields", pa.map_(pa.binary(), pa.binary()))]))
    assert exact.column("_fields")[1].as_py() == [(b"note", b"\xff"), (b"\xfe", b"x")]


def test_columns_have_the_types_of_the_schema(database: headrace.Database) -> None:
    fields = {"t": "ä", "b": b"\xff", "i": -7, "f": "1.5", "yes": "true", "day": "2026-03-01", "d": "1.25"}
    stream = add_all(database, [{**fields, "at": 1_772_366_400_000}, {"at": "2026-03-01T12:00:00+01:00"}])
    schema = pa.schema(
        [
            ("_stream", pa.string()),
            ("_timestamp", pa.timestamp("us", "UTC")),
            ("_sequence", pa.int64()),
            ("t", pa.string()),
            ("b", pa.binary()),
            ("i", pa.int8()),
            ("f", pa.float32()),
            ("yes", pa.bool_()),
            ("day", pa.date32()),
            ("d", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", "UTC")),
        ],
        metadata={"kept": "yes"},
    )
    table = stream.to_arrow(schema)
    assert table.schema.equals(schema, check_metadata=True)
    first, second = table.to_pylist()
    when = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert list(first.values()) == [
        "orders",
        datetime.fromtimestamp(0.001, UTC),
        0,
        "ä",
        b"\xff",
        -7,
        1.5,
        True,
        date(2026, 3, 1),
        Decimal("1.25"),
        when,
    ]
    assert second["at"] == when.replace(hour=11) and second["day"] is None and second["d"] is None


def test_each_time_format_is_read(database: headrace.Database) -> None:
    kind = pa.timestamp("us", "UTC")
    when = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert column(database, kind, 1_772_366_400, comment="epoch_s").to_pylist() == [{"f": when}]
    texts = ["2026-03-01T12:00:00Z", 1_772_366_400_000]
    assert column(database, kind, *texts, comment="iso8601").to_pylist() == [{"f": when}, {"f": None}]
    assert column(database, kind, *texts, comment="epoch_ms").to_pylist() == [{"f": None}, {"f": when}]
    assert column(database, kind, *texts).to_pylist() == [{"f": when}, {"f": when}]
    assert column(database, pa.timestamp("us"), *texts[:1]).to_pylist() == [{"f": when.replace(tzinfo=None)}]
    assert column(database, pa.date32(), "2026/03/01", comment="yyyy/mm/dd").to_pylist() == [
        {"f": date(2026, 3, 1)}
    ]


@pytest.mark.parametrize("kind", [pa.int64(), pa.date32(), pa.timestamp("us"), pa.decimal128(5, 1)])
def test_values_that_do_not_fit_are_null_and_counted(
    database: headrace.Database, kind: pa.DataType, caplog: pytest.LogCaptureFixture
) -> None:
    stream = add_all(database, [{"f": "no"}, {"f": b"\xff"}, {"other": 1}, {"f": "nor this"}])
    schema = pa.schema([("f", kind)], metadata={"mine": "1"})
    with caplog.at_level(logging.WARNING, "headrace.stream"):
        table = stream.to_arrow(schema)
    assert table.column("f").null_count == 4
    assert table.schema.metadata[b"mine"] == b"1"
    assert json.loads(table.schema.metadata[b"headrace.misfits"]) == {"f": 3}
    assert caplog.messages == ["orders: 3 values did not fit the column f and became null"]
    batches = stream.arrow_batches(schema)
    assert batches.misfits == {}
    for _ in range(2):
        assert sum(batch.num_rows for batch in batches) == 4
        assert batches.misfits == {"f": 3}


def test_entries_with_escapes_are_counted(
    database: headrace.Database, caplog: pytest.LogCaptureFixture
) -> None:
    stream = add_all(database, [{"f": b"\xff"}, {"f": "x"}])
    with caplog.at_level(logging.WARNING, "headrace.stream"):
        assert stream.to_arrow().schema.metadata == {b"headrace.misfits": b'{"_fields": 1}'}
    assert caplog.messages[0].startswith("orders: 1 entry with bytes that are not UTF-8")


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.date32(), pa.timestamp("us")])
def test_a_column_that_is_not_nullable_rejects_them(database: headrace.Database, kind: pa.DataType) -> None:
    schema = pa.schema([pa.field("f", kind, nullable=False)])
    good = {pa.date32(): "2026-03-01"}.get(kind, "5")
    assert add_all(database, [{"f": good}], "good").to_arrow(schema).num_rows == 1
    for bad in ({"f": b"\xff"}, {"other": 1}):
        stream = add_all(database, [{"f": good}, bad], f"of {list(bad)}")
        with pytest.raises(CodecError, match=r"entry 2-0: field 'f' is missing or does not fit.* nullable"):
            stream.to_arrow(schema)


@pytest.mark.parametrize("kind", [pa.int64(), pa.date32()])
def test_the_whole_entry_is_in_the_corrupt_record(database: headrace.Database, kind: pa.DataType) -> None:
    stream = add_all(database, [{"f": "no", "g": "1"}, {"g": "2"}])
    table = stream.to_arrow(pa.schema([("f", kind), ("_corrupt_record", pa.string())]))
    assert table.column("_corrupt_record").to_pylist() == [
        '{"id": "1-0", "fields": {"f": "no", "g": "1"}}',
        None,
    ]


LINES = pa.list_(pa.struct([("item", pa.string()), ("cents", pa.int32())]))


def test_lists_maps_and_structs_are_read_from_json(database: headrace.Database) -> None:
    texts = ['[{"item":"pear","cents":40},{"item":"cup"}]', "[]", "null", "no", '[{"item":"a","cents":"b"}]']
    table = column(database, LINES, *texts)
    assert table.column("f").to_pylist() == [
        [{"item": "pear", "cents": 40}, {"item": "cup", "cents": None}],
        [],
        None,
        None,
        None,
    ]
    assert table.schema.metadata == {b"headrace.misfits": b'{"f": 2}'}
    counts = column(database, pa.map_(pa.string(), pa.int64()), '{"a":1,"b":null}')
    assert counts.column("f").to_pylist() == [[("a", 1), ("b", None)]]
    required = pa.schema([pa.field("f", LINES, nullable=False)])
    for bad in ("null", "no"):
        stream = add_all(database, [{"f": "[]"}, {"f": bad}], f"of {bad}")
        with pytest.raises(CodecError, match="entry 2-0: field 'f' is missing or does not fit"):
            stream.to_arrow(required)
        assert stream.to_arrow(required, count=1).to_pylist() == [{"f": []}]


def test_a_range_and_a_count_limit_the_rows(database: headrace.Database) -> None:
    stream = add_all(database, [{"n": n} for n in range(10)])

    def numbers(**limits: Any) -> list[int]:
        table = stream.to_arrow(pa.schema([("n", pa.int64())]), **limits)
        return table.column("n").to_pylist()

    assert numbers() == list(range(10))
    assert numbers(start="3-0", end="5-0") == [2, 3, 4]
    assert numbers(start="9", end=None, count=5) == [8, 9]
    assert numbers(count=3) == [0, 1, 2]
    assert numbers(count=0) == numbers(start="11-0") == numbers(start="5-0", end="4-0") == []
    assert numbers(end=datetime.fromtimestamp(0.002, UTC)) == [0, 1]
    with pytest.raises(UsageError, match="count"):
        numbers(count=-1)


def test_a_stream_that_does_not_exist_has_no_rows(database: headrace.Database) -> None:
    assert database.stream("none").to_arrow(ORDERS).equals(ORDERS.empty_table())
    database.execute("SET", "text", "x")
    with pytest.raises(WrongType):
        database.stream("text").to_arrow()


def test_entries_that_are_added_later_are_not_read(database: headrace.Database) -> None:
    stream = add_all(database, [{"n": n} for n in range(3)])
    batches = stream.arrow_batches(pa.schema([("n", pa.int64())]))
    stream.add({"n": 3})
    assert [pa.table(batches).num_rows for _ in range(2)] == [3, 3]
    assert pa.table(stream.arrow_batches()).num_rows == 4


def test_libraries_read_the_batches(database: headrace.Database) -> None:
    orders = add_all(database, [{"customer": f"c{n % 3}", "cents": n} for n in range(300)])
    batches = orders.arrow_batches(ORDERS)
    expected = [{"_id": f"{n + 1}-0", "customer": f"c{n % 3}", "cents": n} for n in range(300)]
    assert pa.table(batches).to_pylist() == expected
    assert polars.DataFrame(batches).to_dicts() == expected
    assert polars.from_arrow(orders.to_arrow(ORDERS)).to_dicts() == expected
    assert pandas.DataFrame.from_records(expected).equals(pa.table(batches).to_pandas())
    total = "SELECT customer, sum(cents)::BIGINT FROM batches GROUP BY ALL ORDER BY ALL"
    assert duckdb.sql(total).fetchall() == [("c0", 14850), ("c1", 14950), ("c2", 15050)]
    assert pa.RecordBatchReader.from_stream(batches).schema == ORDERS == batches.schema
    assert repr(batches) == "ArrowBatches('orders', _id, customer, cents)"


def test_an_error_in_a_stream_of_batches_reaches_the_consumer(database: headrace.Database) -> None:
    stream = add_all(database, [{"f": "no"}])
    batches = stream.arrow_batches(pa.schema([pa.field("f", pa.int64(), nullable=False)]))
    with pytest.raises(Exception, match="entry 1-0: field 'f' is missing or does not fit its column"):
        pa.table(batches)


def test_many_entries_are_read_in_batches(database: headrace.Database) -> None:
    stream = database.stream("many")
    stream.add_many(
        {"n": n, "text": "x" * (n % 50), "day": f"2026-03-{n % 28 + 1:02}"} for n in range(50_000)
    )
    schema = pa.schema([("n", pa.int64()), ("text", pa.string()), ("day", pa.date32())])
    sizes = [batch.num_rows for batch in stream.arrow_batches(schema)]
    assert sum(sizes) == 50_000 and max(sizes) <= 20_000 and len(sizes) >= 3
    table = stream.to_arrow(schema)
    assert table.column("n").to_pylist() == list(range(50_000))
    assert table.column("day")[-1].as_py() == date(2026, 3, 49_999 % 28 + 1)
    assert stream.to_arrow(schema, count=21_000).num_rows == 21_000


def test_a_reader_may_stop_early(database: headrace.Database) -> None:
    stream = database.stream("many")
    stream.add_many({"n": n} for n in range(50_000))
    for batch in stream.arrow_batches():
        assert batch.num_rows
        break
    assert len(stream) == 50_000


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([]), "has no columns"),
        (pa.schema([("n", pa.int64()), ("n", pa.int8())]), "the column n twice"),
        (pa.schema([("n", pa.uint8())]), "the column n is uint8: a field can be read as string"),
        (pa.schema([("n", pa.timestamp("ms"))]), r"the column n is timestamp\[ms\]"),
        (pa.schema([("n", pa.list_(pa.uint8()))]), "the column n is list"),
        (pa.schema([("n", pa.map_(pa.binary(), pa.int8()))]), "the column n is map"),
        (pa.schema([("_id", pa.int64())]), "the column _id must be string, not int64"),
        (pa.schema([("_timestamp", pa.int64())]), r"_timestamp must be timestamp\[us\], not int64"),
        (pa.schema([("_fields", pa.string())]), "_fields must be map<string, string>, .*, not string"),
        (pa.schema([("_exact", pa.binary())]), "_exact is only for Spark"),
        (pa.schema([pa.field("_corrupt_record", pa.string(), nullable=False)]), "must be nullable"),
        ({"n": "int"}, "must be a pyarrow.Schema"),
    ],
)
def test_a_schema_that_cannot_be_read_is_rejected(db: headrace.Database, schema: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        db.stream("orders").to_arrow(schema)


def test_the_name_of_the_stream_may_be_the_only_column(database: headrace.Database) -> None:
    stream = add_all(database, [{"n": 1}, {"n": 2}], b"a\xff")
    assert stream.to_arrow(pa.schema([("_stream", pa.string())])).to_pylist() == 2 * [{"_stream": r"a\xff"}]


@pytest.mark.parametrize(
    "reply",
    [
        EncodedColumns(1, [0, 0, 7], b""),
        EncodedColumns(1, [], b""),
        EncodedColumns(1, [], b"no message"),
        EncodedColumns(1, [], b"\xff\xff\xff\xff\x08\x00\x00\x00" + bytes(16)),
    ],
)
def test_a_malformed_reply_is_an_error(reply: EncodedColumns) -> None:
    layout = ArrowLayout(pa.schema([("at", pa.timestamp("us")), ("n", pa.int8())]))
    with pytest.raises(ProtocolError):
        BatchAssembler(layout, b"s", is_untrusted=True).assemble_converted(reply)


VALUES = [
    "",
    "0",
    "-5",
    "127",
    "1e3",
    "nan",
    "ä",
    b"\xff\x00",
    "true",
    "2026-03-01",
    "1772366400000",
    "9" * 25,
]
FIELD_KINDS = [pa.string(), pa.binary(), pa.bool_(), pa.int8(), pa.int64(), pa.float64(), pa.date32()]
FIELD_KINDS += [pa.list_(pa.int8()), pa.decimal128(10, 2), pa.timestamp("us"), pa.timestamp("us", "UTC")]


def test_both_ways_of_reading_give_the_same_rows(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    stream = db.stream("s")
    for n in range(400):
        names = rng.sample(["a", "b", "c", "d"], rng.randrange(1, 5))
        stream.add({name: rng.choice(VALUES) for name in names}, id=f"{n + 1}-{n % 3}")
    for _ in range(30):
        kinds = {name: rng.choice(FIELD_KINDS) for name in "abcx"}
        schema = pa.schema([("_id", pa.string()), *kinds.items(), ("_fields", MAP), ("_stream", pa.string())])
        encoded = stream.to_arrow(schema)
        with monkeypatch.context() as patch:
            patch.setattr(arrow_batches.ArrowBatches, "_server_encoded_batches", no_xarrow)
            paged = stream.to_arrow(schema)
        assert encoded.schema.equals(paged.schema, check_metadata=True)
        # As texts: NaN is not equal to itself.
        assert str(encoded.to_pylist()) == str(paged.to_pylist())


def no_xarrow(self: object, *_: object) -> Any:
    raise headrace.errors.NotSupported()


def test_a_user_without_xarrow_reads_by_xrange(headrace_url: str) -> None:
    with headrace.connect(headrace_url) as db:
        db.execute("FLUSHALL")
        stream = add_all(db, [{"customer": "ann", "cents": 5}])
        expected = stream.to_arrow(ORDERS)
        db.execute("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+xrange", "+xrevrange")
        with headrace.connect(headrace_url.replace("redis://", "redis://reader:secret@")) as reader:
            assert reader.stream("orders").to_arrow(ORDERS).equals(expected)
        db.execute("ACL", "DELUSER", "reader")


def test_cold_entries_are_read(tmp_path: Path) -> None:
    numbers = pa.schema([("number", pa.int64())])
    expected = list(range(20_000))
    options = ("--appendonly", "yes", "--stream-hot-memory", "100kb")
    with (
        headrace_server(tmp_path, *options) as port,
        headrace.connect(f"redis://127.0.0.1:{port}") as db,
    ):
        stream = db.stream("s")
        stream.add_many({"number": n} for n in expected)
        wait_until(lambda: b"cold_entries:0\r" not in db.execute("INFO", "memory"))
        assert stream.to_arrow(numbers).column("number").to_pylist() == expected
    with headrace.open(tmp_path) as db:
        assert db.stream("s").to_arrow(numbers).column("number").to_pylist() == expected
