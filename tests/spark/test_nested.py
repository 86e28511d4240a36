"""Arrays, maps and structs are read from JSON; values that do not fit are malformed."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from headrace.columns.nested_from_json import NestedConverter
from headrace.errors import HeadraceError, UsageError
from headrace.resp.request import bulk
from headrace.spark.decode.arrow_decoder import ArrowDecoder
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.decode.schema import BatchBuilder, ColumnLayout
from headrace.spark.sink.arrow_cells import field_cells, to_encodable

INTS = ArrayType(LongType())
POINT = StructType([StructField("x", DoubleType()), StructField("name", StringType())])
EVERYTHING = StructType(
    [
        StructField("b", ByteType()),
        StructField("l", LongType()),
        StructField("d", DecimalType(10, 2)),
        StructField("f", DoubleType()),
        StructField("t", BooleanType()),
        StructField("s", StringType()),
        StructField("y", BinaryType()),
        StructField("day", DateType()),
        StructField("at", TimestampType()),
        StructField("local", TimestampNTZType()),
        StructField("list", ArrayType(POINT)),
        StructField("map", MapType(IntegerType(), INTS)),
    ]
)


def rows(texts: list[bytes | None], kind: Any, mode: str = "PERMISSIVE", nullable: bool = True) -> list[Any]:
    """What the column v, and the one of corrupt records, become of entries whose field v has these texts."""
    schema = StructType([StructField("v", kind, nullable), StructField("_corrupt_record", StringType())])
    layout = pickle.loads(pickle.dumps(ColumnLayout(schema, "epoch_ms")))
    page = b"*%d\r\n" % len(texts)
    for n, text in enumerate(texts):
        words = [b"n", b"1"] if text is None else [b"v", text]
        page += b"*2\r\n" + bulk(b"%d-0" % (n + 1)) + b"*2\r\n" + b"".join(map(bulk, words))
    scanner = ReplyPageTokenizer()
    decoder = ArrowDecoder(scanner, layout.new_columns(), "orders", mode)
    scanner.begin_page(b"")
    scanner.feed(bytearray(page), len(page))
    assert scanner.scan()
    decoder.decode(1000, 1 << 20)
    batch = BatchBuilder(layout, "orders").batch(*decoder.take())
    batch.validate(full=True)
    return [(row["v"], row["_corrupt_record"]) for row in batch.to_pylist()]


def test_arrays_maps_and_structs_are_read_from_json() -> None:
    assert rows([b"[1, 2, null]", None, b"null", b"[]"], INTS) == [
        ([1, 2, None], None),
        (None, None),
        (None, None),
        ([], None),
    ]
    assert rows([b'{"a": [1], "b": []}'], MapType(StringType(), INTS)) == [([("a", [1]), ("b", [])], None)]
    assert rows([b'{"x": 1, "more": [2]}'], POINT) == [({"x": 1.0, "name": None}, None)]


def test_a_string_takes_any_value_as_its_json() -> None:
    texts = [v for v, _ in rows([b'["a", 1, 1.50, true, {"k": ["\\u00e4"]}]'], ArrayType(StringType()))]
    assert texts == [["a", "1", "1.50", "true", '{"k":["\u00e4"]}']]


def test_a_string_keeps_all_digits_of_a_number() -> None:
    digits = b"0.12345678901234567890123"
    kind = ArrayType(StringType())
    assert [v for v, _ in rows([b"[%b]" % digits, b'[{"a":[%b]}]' % digits], kind)] == [
        [digits.decode()],
        [f'{{"a":[{digits.decode()}]}}'],
    ]


def test_what_the_sink_writes_for_infinities_is_read() -> None:
    [(values, corrupt)] = rows([b'["nan","inf","-inf",1.5]'], ArrayType(DoubleType()))
    assert math.isnan(values[0]) and values[1:] == [math.inf, -math.inf, 1.5] and corrupt is None


@pytest.mark.parametrize("shape", ["[%s]", '{"a":%s}'])
def test_text_near_the_limit_of_nesting_is_read_or_malformed(shape: str) -> None:
    """What passes the decoder's check must not fail when it is converted."""
    outcomes = set()
    for depth in range(850, 1010, 3):
        text = "1"
        for _ in range(depth):
            text = shape % text
        [(value, corrupt)] = rows([f"[{text}]".encode()], ArrayType(StringType()))
        outcomes.add(value is None)
        assert (value is None) == (corrupt is not None)
    assert True in outcomes


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"[1", INTS),
        (b"\xef\xbb\xbf[1]", INTS),
        ("[1]".encode("utf-16-le"), INTS),
        ("[1]".encode("utf-32"), INTS),
        (b'{"01": 1}', MapType(IntegerType(), LongType())),
        (b'{" 7 ": 1}', MapType(IntegerType(), LongType())),
        (b'{"1_0": 1}', MapType(IntegerType(), LongType())),
        (b"", INTS),
        (b"{}", INTS),
        (b"[1.5]", INTS),
        (b"[true]", INTS),
        (b'["1"]', INTS),
        (b"[9223372036854775808]", INTS),
        (b"[128]", ArrayType(ByteType())),
        (b"[1]", POINT),
        (b'{"x": "1"}', POINT),
        (b'{"x": true}', POINT),
        (b'{"name": "\\ud800"}', POINT),
        (b'{"a": 1}', MapType(IntegerType(), LongType())),
        (b"[1.234]", ArrayType(DecimalType(10, 2))),
        (b"[123]", ArrayType(DecimalType(4, 2))),
        (b'["x"]', ArrayType(DecimalType(4, 2))),
        (b'["NaN"]', ArrayType(DecimalType(4, 2))),
        (b'["sNaN"]', ArrayType(DecimalType(4, 2))),
        (b'["-Infinity"]', ArrayType(DecimalType(4, 2))),
        (b'["yesterday"]', ArrayType(DateType())),
        (b'["yesterday"]', ArrayType(TimestampType())),
        (b"[1e400000]", ArrayType(TimestampType())),
        (b"[99999999999999999999]", ArrayType(TimestampType())),
        (b"[null]", ArrayType(LongType(), containsNull=False)),
        (b'{"a": null}', MapType(StringType(), LongType(), valueContainsNull=False)),
        (b"\xff", INTS),
        (b"[" * 100_000, INTS),
    ],
)
def test_values_that_do_not_fit_are_malformed(text: bytes, kind: Any) -> None:
    [(value, corrupt)] = rows([text], kind)
    assert value is None
    assert json.loads(corrupt)["id"] == "1-0"
    assert rows([text, b"null"], kind, "DROPMALFORMED") == [(None, None)]
    with pytest.raises(HeadraceError, match="1-0: field 'v'"):
        rows([text], kind, "FAILFAST")


def test_a_null_is_malformed_in_a_column_that_is_not_nullable() -> None:
    with pytest.raises(HeadraceError, match="field 'v'"):
        rows([b"null"], INTS, nullable=False)


def test_the_source_reads_nested_columns_that_the_sink_wrote() -> None:
    value = {
        "b": -128,
        "l": 2**63 - 1,
        "d": decimal.Decimal("12345678.90"),
        "f": 0.1,
        "t": True,
        "s": 'x "y" \u00e4',
        "y": b"raw",
        "day": datetime.date(2024, 2, 29),
        "at": datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=datetime.UTC),
        "local": datetime.datetime(2024, 2, 29, 12),
        "list": [{"x": 1.5, "name": "a"}, None],
        "map": [(7, [1, 2]), (8, None)],
    }
    from pyspark.sql.pandas.types import to_arrow_type

    column = pa.array([value], to_arrow_type(EVERYTHING, timezone="UTC"))
    assert field_cells("v", column, "epoch_ms") is not None
    [text] = to_encodable(column, "epoch_ms").to_pylist()
    assert rows([text.encode()], EVERYTHING) == [(value, None)]


def test_numbers_are_times_in_the_format_of_the_option() -> None:
    at = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    times, naive = pa.list_(pa.timestamp("us", "UTC")), pa.list_(pa.timestamp("us"))
    assert NestedConverter(times, "epoch_ms")("[1700000000000]") == [at]
    assert NestedConverter(times, "epoch_s")("[1700000000]") == [at]
    assert NestedConverter(naive, "iso8601")('["2023-11-14T23:13:20+01:00"]') == [at.replace(tzinfo=None)]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ArrayType(VariantType()), "VARIANT"),
        (VariantType(), "VARIANT, which cannot be read from a field"),
        (MapType(DoubleType(), LongType()), "keys: use STRING"),
        (StructType([StructField("a", MapType(BooleanType(), LongType()))]), "keys: use STRING"),
    ],
)
def test_unsupported_nested_types_are_rejected_before_the_read(kind: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ColumnLayout(StructType([StructField("v", kind)]), "epoch_ms")
