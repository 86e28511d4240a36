"""Arrow columns of any type, with nulls and as slices, are encoded as XADD requests."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import random
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import UsageError
from headrace.spark.sink.arrow_cells import field_cells, map_cells
from headrace.spark.sink.encoder import ArrowCells, XaddEncoder
from spark.request_parser import parse_requests

UTC = datetime.UTC


def written(column: pa.Array, form: str = "epoch_ms") -> list[bytes | None]:
    """The texts that a column's values become; a second column keeps rows of nulls from being empty."""
    encoder = XaddEncoder()
    always = field_cells("k", pa.array(["x"] * len(column)), form)
    encoder.set_batch(len(column), [field_cells("f", column, form), always], None)
    encoder.set_prefix([b"XADD", b"s"])
    assert encoder.encode(None, 0, len(column), 1 << 40) == len(column)
    texts: list[bytes | None] = []
    for words in parse_requests(encoder.take()):
        assert words[:3] == [b"XADD", b"s", b"*"] and words[-2:] == [b"k", b"x"]
        assert len(words) == 5 or (len(words) == 7 and words[3] == b"f")
        texts.append(words[4] if len(words) == 7 else None)
    return texts


def test_values_are_written_as_the_source_reads_them() -> None:
    noon = datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999900, tzinfo=UTC)
    assert written(pa.array([1, None, -5])) == [b"1", None, b"-5"]
    assert written(pa.array([True, None, False])) == [b"true", None, b"false"]
    assert written(pa.array([noon, before], pa.timestamp("us", "UTC"))) == [b"1500", b"-1"]
    assert written(pa.array([noon], pa.timestamp("us", "UTC")), "epoch_s") == [b"1"]
    assert written(pa.array([noon], pa.timestamp("us", "UTC")), "iso8601") == [b"1970-01-01T00:00:01.500000Z"]
    assert written(pa.array([noon.replace(tzinfo=None)], pa.timestamp("ms")), "iso8601") == [
        b"1970-01-01T00:00:01.500"
    ]
    assert written(pa.array([datetime.date(2024, 2, 29)])) == [b"2024-02-29"]
    assert written(pa.array([b"\xff", "ü".encode()])) == [b"\xff", "ü".encode()]
    assert written(pa.array([None, None], pa.null())) == [None, None]
    assert written(pa.array([1.5, None], pa.float32())) == [b"1.5", None]
    assert written(pa.array([b"ab", None, b"cd"], pa.binary(2))) == [b"ab", None, b"cd"]


def test_decimals_are_exact() -> None:
    texts = ["1.50", "-0.01", "12345678901234567890.12", "0.00"]
    assert written(pa.array([decimal.Decimal(t) for t in texts], pa.decimal128(38, 2))) == [
        t.encode() for t in texts
    ]


def test_nested_values_are_json() -> None:
    assert written(pa.array([[1, 2], None, []])) == [b"[1,2]", None, b"[]"]
    column = pa.array([{"a": 1, "b": "ü"}, None])
    assert [t and json.loads(t) for t in written(column)] == [{"a": 1, "b": "ü"}, None]
    inner = pa.array([[("a", 1.5)]], pa.map_(pa.string(), pa.float64()))
    assert [json.loads(t or b"") for t in written(inner)] == [{"a": 1.5}]


MAKERS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any], Callable[[Any], bytes]]] = {
    "string": (pa.string(), lambda r: "ü" * r.randrange(4) + "x" * r.randrange(200), str.encode),
    "large_string": (pa.large_string(), lambda r: "y" * r.randrange(20), str.encode),
    "string_view": (pa.string_view(), lambda r: "z" * r.randrange(30), str.encode),
    "binary": (pa.binary(), lambda r: r.randbytes(r.randrange(20)), bytes),
    "large_binary": (pa.large_binary(), lambda r: r.randbytes(r.randrange(20)), bytes),
    "boolean": (pa.bool_(), lambda r: r.random() < 0.5, lambda v: b"true" if v else b"false"),
    "double": (pa.float64(), lambda r: r.uniform(-1e6, 1e6), lambda v: repr(v).encode()),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda r: f"d{r.randrange(5)}", str.encode),
}
for _bits in (8, 16, 32, 64):
    MAKERS[f"int{_bits}"] = (
        getattr(pa, f"int{_bits}")(),
        lambda r, b=_bits: r.choice([-(1 << b - 1), (1 << b - 1) - 1, 0, -1, r.randrange(1 << b - 1)]),
        lambda v: b"%d" % v,
    )
    MAKERS[f"uint{_bits}"] = (
        getattr(pa, f"uint{_bits}")(),
        lambda r, b=_bits: r.choice([0, (1 << b) - 1, r.randrange(1 << b)]),
        lambda v: b"%d" % v,
    )


@pytest.mark.parametrize("name", MAKERS)
def test_slices_and_nulls_of_every_type_are_encoded(name: str) -> None:
    kind, make, text = MAKERS[name]
    r = random.Random(name)
    for nulls in (0.0, 0.3, 1.0):
        values = [None if r.random() < nulls else make(r) for _ in range(100)]
        column = pa.array(values, kind)
        for start, rows in ((0, 100), (1, 99), (7, 20), (64, 36), (13, 0)):
            expected = [None if v is None else text(v) for v in values[start : start + rows]]
            assert written(column.slice(start, rows)) == expected


def test_doubles_are_written_as_repr_writes_them() -> None:
    r = random.Random(5)
    numbers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        1e-4,
        9.9e-5,
        1e15,
        1e16,
        999999999999999.9,
        2.5e-5,
        0.3,
        1e22,
        123456.789,
    ]
    numbers += [math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 2**53 + 2.0]
    numbers += [round(r.uniform(-1000, 1000), r.randrange(9)) for _ in range(3000)]
    numbers += [round(r.uniform(-1, 1) * 10 ** r.randrange(-6, 17), r.randrange(9)) for _ in range(3000)]
    numbers += [struct.unpack("<d", r.randbytes(8))[0] for _ in range(3000)]
    numbers += [math.nextafter(n, math.inf) for n in numbers]
    assert written(pa.array(numbers, pa.float64())) == [repr(n).encode() for n in numbers]


def test_a_map_becomes_fields_also_when_it_is_a_slice() -> None:
    rows = [[("a", "1"), ("b", None)], None, [("c", "3"), ("d", "4")], [], [("e", "")]]
    column = pa.array(rows, pa.map_(pa.string(), pa.string()))
    always = pa.array(["x"] * len(rows))
    for start in range(len(rows)):
        encoder = XaddEncoder()
        rest = len(rows) - start
        encoder.set_batch(
            rest, [map_cells(column.slice(start)), field_cells("k", always.slice(start), "epoch_ms")], None
        )
        encoder.encode(None, 0, rest, 1 << 40)
        seen = [words[1:-2] for words in parse_requests(encoder.take())]
        assert seen == [
            [w.encode() for k, v in row or [] if v is not None for w in (k, v)] for row in rows[start:]
        ]


def test_rows_can_be_selected_and_a_chunk_ends_at_its_size() -> None:
    encoder = XaddEncoder()
    column = pa.array([str(i) * 100 for i in range(10)])
    encoder.set_batch(
        10, [field_cells("f", column, "epoch_ms")], field_cells("", pa.array([None, "5-1"] * 5), "epoch_ms")
    )
    encoder.set_prefix([b"XADD", b"s", b"MAXLEN", b"~", b"5"])
    assert encoder.encode([9, 0, 3, 4], 1, 4, 1 << 40) == 4
    seen = parse_requests(encoder.take())
    assert [w[-1][:1] for w in seen] == [b"0", b"3", b"4"]
    assert [w[:6] for w in seen] == [[b"XADD", b"s", b"MAXLEN", b"~", b"5", i] for i in (b"*", b"5-1", b"*")]
    assert encoder.encode(None, 0, 10, 200) == 2
    assert len(parse_requests(encoder.take())) == 2
    with pytest.raises(ValueError, match="out of range"):
        encoder.encode([0, 10], 0, 2, 1000)
    with pytest.raises(ValueError, match="out of range"):
        encoder.encode(None, 5, 11, 1000)


def test_a_row_of_only_nulls_is_rejected() -> None:
    encoder = XaddEncoder()
    encoder.set_batch(1, [field_cells("f", pa.array([None], pa.int64()), "epoch_ms")], None)
    with pytest.raises(UsageError, match="All columns of a row are null"):
        encoder.encode(None, 0, 1, 1000)


@pytest.mark.parametrize(
    ("form", "buffers", "settings"),
    [
        ("text", (None, bytes(8), b""), {"width": 4}),
        ("text", (None, bytes(8), b""), {"width": 3}),
        ("integer", (None, None, bytes(15)), {"width": 8}),
        ("integer", (None, None, bytes(99)), {"width": 9}),
        ("real", (None, None, bytes(15)), {}),
        ("boolean", (None, None, b""), {}),
        ("boolean", (b"", None, b"a"), {}),
        ("map", (None, bytes(12), None), {"width": 4}),
    ],
)
def test_buffers_that_are_too_small_are_rejected(form: str, buffers: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ArrowCells(form, b"", 0, 2, *buffers, **settings)


def test_offsets_out_of_range_are_rejected() -> None:
    for offsets in ((0, 5, 3), (0, 1, 99), (3, 2, 4), (0, 0xFFFFFFFF, 4)):
        encoder = XaddEncoder()
        raw = struct.pack("<3I", *offsets)
        encoder.set_batch(2, [ArrowCells("text", b"", 0, 2, None, raw, b"abcd", width=4)], None)
        with pytest.raises(ValueError, match="past its bytes"):
            encoder.encode(None, 0, 2, 1000)
    raw = struct.pack("<2q", 0, -1)
    encoder = XaddEncoder()
    encoder.set_batch(1, [ArrowCells("text", b"", 0, 1, None, raw, b"abcd", width=8)], None)
    with pytest.raises(ValueError, match="negative offset"):
        encoder.encode(None, 0, 1, 1000)


@pytest.mark.parametrize("kind", [pa.list_view, pa.large_list_view])
def test_list_views_are_written_whole(kind: Callable[[pa.DataType], pa.DataType]) -> None:
    values = [[1], None, [2, 3], []]
    assert written(pa.array(values, kind(pa.int32()))) == [b"[1]", None, b"[2,3]", b"[]"]
    assert written(pa.array(values, kind(pa.int32()))[2:]) == [b"[2,3]", b"[]"]


def test_inner_bytes_that_are_not_text_are_rejected() -> None:
    texts = pa.list_(pa.binary())
    assert written(pa.array([["ü".encode()], [None]], texts)) == ['["ü"]'.encode(), b"[null]"]
    with pytest.raises(UsageError, match="not UTF-8"):
        written(pa.array([[b"\xff"]], texts))


@pytest.mark.parametrize("text", ["MAXLEN", "", "-", "$", "NOMKSTREAM", "\uff11-1"])
def test_an_id_that_xadd_would_take_for_an_option_is_rejected(text: str) -> None:
    encoder = XaddEncoder()
    ids = pa.array(["5-1", text])
    encoder.set_batch(
        2, [field_cells("0", pa.array(["*", "*"]), "epoch_ms")], field_cells("_id", ids, "epoch_ms")
    )
    encoder.set_prefix([b"XADD", b"s"])
    with pytest.raises(UsageError, match="is not an entry ID"):
        encoder.encode(None, 0, 2, 1 << 40)


def test_an_id_of_fixed_size_is_checked_too() -> None:
    encoder = XaddEncoder()
    ids = pa.array([b"5-1111", b"MAXLEN"], pa.binary(6))
    encoder.set_batch(
        2, [field_cells("0", pa.array(["*", "*"]), "epoch_ms")], field_cells("_id", ids, "epoch_ms")
    )
    encoder.set_prefix([b"XADD", b"s"])
    with pytest.raises(UsageError, match="'MAXLEN' is not an entry ID"):
        encoder.encode(None, 0, 2, 1 << 40)
