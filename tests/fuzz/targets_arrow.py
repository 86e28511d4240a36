"""Fuzz targets: what the Spark reader gets from a server, pages of XRANGE and record batches of XARROW."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fuzz.driver import Target
from fuzz.targets_protocol import cut
from headrace.errors import HeadraceError
from headrace.resp.request import bulk
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.decode.schema import DEFAULT_NAMES, BatchBuilder, ColumnLayout
from headrace.spark.source.arrow_reader import ServerBatchReader, parse_header


def schema(*columns: tuple[str, DataType]) -> StructType:
    """The schema of these columns."""
    return StructType([StructField(name, kind) for name, kind in columns])


PAIRS = MapType(StringType(), StringType())
DEFAULT = schema(
    *zip(DEFAULT_NAMES, [StringType(), StringType(), TimestampType(), LongType(), PAIRS], strict=True)
)
TYPED = schema(
    ("_id", StringType()), ("a", LongType()), ("b", DoubleType()), ("c", BooleanType()), ("d", DateType()),
    ("e", DecimalType(9, 2)), ("t", TimestampType()), ("s", ShortType()), ("_corrupt_record", StringType()),
)  # fmt: skip
NESTED = schema(
    ("a", ArrayType(LongType())), ("b", StructType([StructField("x", StringType())])), ("_fields", PAIRS)
)
SENT = schema(
    ("_id", StringType()), ("a", LongType()), ("b", DoubleType()), ("c", StringType()), ("_fields", PAIRS)
)
PAIR = schema(("name", BinaryType()), ("value", BinaryType()))
EXACT = schema(("a", LongType()), ("t", TimestampType()), ("c", StringType()), ("_exact", ArrayType(PAIR)))
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
LAYOUTS = [
    ColumnLayout(DEFAULT, "epoch_ms"),
    ColumnLayout(TYPED, "epoch_ms"),
    ColumnLayout(TYPED, "iso8601"),
    ColumnLayout(NESTED, "epoch_s"),
    ColumnLayout(EXACT, "auto"),
]
FILLERS = [ServerBatchReader(ColumnLayout(each, "epoch_ms"), "orders") for each in (DEFAULT, SENT)]
VALUES = b"""1 -1 0 12.5 1e9 nan inf true false [1,2] {"x":"y"} null 2023-11-14 2023-11-14T22:13:20Z a b c
d e t s x 1-1 9223372036854775808 18446744073709551615-1 \xff"""


def rows_of(data: bytes, pieces: list[bytes]) -> list[dict[str, Any]]:
    """The rows of a page. The first byte says the schema, and what to do with values that do not fit it."""
    layout = LAYOUTS[data[0] % len(LAYOUTS)]
    mode = MODES[data[0] // 4 % len(MODES)]
    scanner = ReplyPageTokenizer()
    decoder = layout.new_decoder(scanner, "orders", mode)
    maker = BatchBuilder(layout, "orders")
    scanner.begin_page(b"1-1" if data[0] & 64 else b"")
    batches, whole = [], False
    for piece in pieces:
        if whole:
            break
        scanner.feed(bytearray(piece), len(piece))
        whole = scanner.scan()
        while not decoder.decode(2 if data[0] & 128 else 1 << 30, 1 << 30):
            batches.append(maker.take(decoder))
        if decoder.tracks_rows:
            batches.append(maker.take(decoder))
    batches.append(maker.take(decoder))
    for made in batches:
        made.validate(full=True)
    return [row for made in batches for row in made.to_pylist()]


def decode_page(data: bytes) -> set[Hashable]:
    """Rows that Arrow finds sound, the same however the bytes come."""
    if not data:
        return set()
    rows = rows_of(data, [data[1:]])
    assert repr(rows_of(data, cut(data[1:]))) == repr(rows)
    return {
        (data[0] % 12, min(len(rows), 4)),
        *((name, value is None) for row in rows[:3] for name, value in row.items()),
    }


def fill_batch(data: bytes) -> set[Hashable]:
    """The answer of XARROW that follows the first byte, which says the schema."""
    head = parse_header(data[1:])
    if head is None:
        return {"cut"}
    message = data[1 + head.message_offset : 1 + head.message_offset + head.message_bytes]
    if len(message) < head.message_bytes:
        return {("cut", head.anchor_lost, head.has_more)}
    batch = FILLERS[data[0] % 2].make_batch(head.row_count, pa.py_buffer(message))
    batch.serialize()  # reads it all
    return {(data[0] % 2, head.last_id is None, min(batch.num_rows, 5))}


PAGE_WORDS = [*map(bulk, VALUES.split()), b"*2\r\n", b"*4\r\n", b"*0\r\n", b"$-1\r\n", b"*1\r\n"]
HEAD_WORDS = [
    b"*6\r\n",
    b"$3\r\n1-1\r\n",
    b"$-1\r\n",
    b":0\r\n",
    b":1\r\n",
    b":3\r\n",
    b"-ERR x\r\n",
    bytes(8),
]
TARGETS = [
    Target("pages", decode_page, (HeadraceError,), PAGE_WORDS, executions=(100, 400)),
    Target("batches", fill_batch, (HeadraceError,), HEAD_WORDS, executions=(3000, 5000), size_max=3000),
]
