"""Every Arrow type has one documented text, or a reason why a value has none."""

from __future__ import annotations

import datetime
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headrace.columns.value_texts import date_text, plain_value, texts_and_reasons
from headrace.errors import UsageError
from headrace.spark.sink.arrow_cells import field_cells

DOCS = Path(__file__).parents[2] / "docs" / "pipeline.md"
INT64_MAX = 2**63 - 1


def texts(column: pa.Array, form: str = "iso8601") -> list[Any]:
    found, wrong = texts_and_reasons(column, form)
    assert wrong == {}
    values = (found.cast(pa.string()) if not pa.types.is_float64(found.type) else found).to_pylist()
    return [repr(value) if isinstance(value, float) else value for value in values]


def uuids() -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16)))


def bool8() -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))


UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
UNION = pa.UnionArray.from_sparse(
    pa.array([0, 1, 2, 0], pa.int8()),
    [pa.array(["x", None, None, None]), pa.array([0, 7, 0, 0]), pa.array([0.0, 0.0, 0.5, 0.0])],
)
CASES: list[tuple[pa.Array, list[str | None]]] = [
    (pa.array([True, None, False]), ["true", None, "false"]),
    (pa.array([-128, 127], pa.int8()), ["-128", "127"]),
    (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    (pa.array([0.1, 1e22, float("nan"), float("-inf")]), ["0.1", "1e+22", "nan", "-inf"]),
    (pa.array([0.1, 3.4028235e38, None], pa.float32()), ["0.1", "3.4028235e+38", None]),
    (pa.array([0.1, 6e-8, 2.0, None], pa.float16()), ["0.1", "6e-08", "2.0", None]),
    (
        pa.array([Decimal("0E-10"), Decimal("1E-7"), None], pa.decimal128(20, 10)),
        ["0.0000000000", "0.0000001000", None],
    ),
    (pa.array([Decimal("12E3")], pa.decimal128(5, -2)), ["12000"]),
    (pa.array([Decimal("-0.5"), Decimal(0)], pa.decimal256(60, 9)), ["-0.500000000", "0.000000000"]),
    (
        pa.array([0, 2_932_897, -719_529, -735_525], pa.date32()),
        ["1970-01-01", "+10000-01-01", "-0001-12-31", "-0044-03-15"],
    ),
    (
        pa.array([-719_163, None, 2**31 - 1, -(2**31)], pa.date32()),
        ["0000-12-31", None, "+5881580-07-11", "-5877641-06-23"],
    ),
    (pa.array([86_400_000 * 2_932_897, 0], pa.date64()), ["+10000-01-01", "1970-01-01"]),
    (pa.array([0, 86_399], pa.time32("s")), ["00:00:00", "23:59:59"]),
    (pa.array([1, 86_400_000], pa.time32("ms")), ["00:00:00.001", "24:00:00.000"]),
    (pa.array([1, None, 86_400_000_000], pa.time64("us")), ["00:00:00.000001", None, "24:00:00.000000"]),
    (pa.array([86_400 * 10**9], pa.time64("ns")), ["24:00:00.000000000"]),
    (pa.array([1_583_064_000], pa.timestamp("s")), ["2020-03-01T12:00:00"]),
    (pa.array([1_583_064_000_000], pa.timestamp("ms", "Europe/Berlin")), ["2020-03-01T12:00:00.000Z"]),
    (
        pa.array([253_402_300_800_000_000, -1], pa.timestamp("us")),
        ["+10000-01-01T00:00:00.000000", "1969-12-31T23:59:59.999999"],
    ),
    (pa.array([INT64_MAX, None], pa.timestamp("us", "UTC")), ["+294247-01-10T04:00:54.775807Z", None]),
    (pa.array([-INT64_MAX], pa.timestamp("ns")), ["1677-09-21T00:12:43.145224193"]),
    (pa.array([-INT64_MAX], pa.timestamp("s")), ["-292277022657-01-27T08:29:53"]),
    (pa.array([0, 93_784, -3600], pa.duration("s")), ["PT0S", "P1DT2H3M4S", "-PT1H"]),
    (pa.array([93_784_500, None], pa.duration("ms")), ["P1DT2H3M4.5S", None]),
    (pa.array([1], pa.duration("ns")), ["PT0.000000001S"]),
    (
        pa.array([(14, 3, 5), (1, -2, 0), (-1, 0, 0), None], pa.month_day_nano_interval()),
        ["P14M3DT0.000000005S", "P1M-2D", "-P1M", None],
    ),
    (uuids(), [UUID, None]),
    (bool8(), ["true", "false", None]),
    (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'])), ['{"a": 1}']),
    (pa.array(["ü", None], pa.string_view()), ["ü", None]),
    (pa.array([None, None], pa.null()), [None, None]),
    (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    (
        pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([2_932_897, 0], pa.date32())),
        ["+10000-01-01", "+10000-01-01", "1970-01-01"],
    ),
    (UNION, ["x", "7", "0.5", None]),
    (pa.array([[1.5, float("nan"), None], None]), ['[1.5,"nan",null]', None]),
    (pa.array([[Decimal("0E-10")]], pa.list_(pa.decimal128(20, 10))), ["[0.0000000000]"]),
    (pa.array([[2**31 - 1]], pa.list_(pa.date32())), ['["+5881580-07-11"]']),
    (
        pa.array(
            [{"t": 86_400_000_000, "d": 1}], pa.struct([("t", pa.time64("us")), ("d", pa.duration("s"))])
        ),
        ['{"t":"24:00:00.000000","d":"PT1S"}'],
    ),
    (pa.array([{"item": "tea", "count": 2}]), ['{"item":"tea","count":2}']),
    (pa.ListArray.from_arrays([0, 2], uuids()), [f'["{UUID}",null]']),
    (pa.ListArray.from_arrays([0, 3], bool8()), ["[true,false,null]"]),
    (pa.ListArray.from_arrays([0, 4], UNION), ['["x",7,0.5,null]']),
]


@pytest.mark.parametrize(("column", "expected"), CASES, ids=[str(column.type) for column, _ in CASES])
def test_each_type_has_its_text(column: pa.Array, expected: list[str | None]) -> None:
    assert texts(column) == expected
    assert texts(column.slice(1)) == expected[1:]


def test_the_documented_texts_are_those_that_are_written() -> None:
    table = DOCS.read_text().partition("| type of Arrow |")[2].partition("\n\n")[0]
    shown = {text for line in table.splitlines()[2:] for text in re.findall("`([^`]*)`", line.split("|")[2])}
    written = {text for _, expected in CASES for text in expected}
    assert len(shown) > 20 and shown <= written


def test_days_are_written_as_python_writes_them() -> None:
    r = random.Random(3)
    first, last = datetime.date.min.toordinal(), datetime.date.max.toordinal()
    epoch = datetime.date(1970, 1, 1).toordinal()
    for day in [first, last, *(r.randrange(first, last) for _ in range(5000))]:
        assert date_text(day - epoch) == datetime.date.fromordinal(day).isoformat()


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_are_written_as_python_writes_them(unit: str) -> None:
    r = random.Random(4)
    ticks = {"s": 1, "ms": 1000, "us": 1_000_000}[unit]
    first, last = -62_135_596_800 * ticks, 253_402_300_800 * ticks - 1
    values = [first, last, *(r.randrange(first, last) for _ in range(2000))]
    epoch = datetime.datetime(1970, 1, 1)
    precision = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[unit]
    expected = [
        (epoch + datetime.timedelta(microseconds=v * (1_000_000 // ticks))).isoformat(timespec=precision)
        for v in values
    ]
    assert texts(pa.array(values, pa.timestamp(unit))) == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("iso8601:T3Z", ["+292277026596-12-04T15:30:07.000Z", "1969-12-31T23:59:59.000Z"]),
        ("iso8601: 0+01:00", ["+292277026596-12-04 16:30:07+01:00", "1970-01-01 00:59:59+01:00"]),
        (
            "iso8601:T6-02:30",
            ["+292277026596-12-04T13:00:07.000000-02:30", "1969-12-31T21:29:59.000000-02:30"],
        ),
    ],
)
def test_times_far_away_are_written_in_each_style(form: str, expected: list[str]) -> None:
    assert texts(pa.array([INT64_MAX, -1], pa.timestamp("s")), form) == expected


def test_a_style_with_fewer_digits_rounds_down() -> None:
    assert texts(pa.array([-1, 1999], pa.timestamp("us")), "iso8601:T3Z") == [
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00.001Z",
    ]
    assert texts(pa.array([1_999_999], pa.timestamp("ns")), "iso8601:T0") == ["1970-01-01T00:00:00"]


OPAQUE = pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "bignum", "DuckDB"), pa.array([b"\x80"]))
WITHOUT_TEXT: list[tuple[pa.Array, str, str]] = [
    (pa.array([[b"ok"], [b"\xff"], None]), "iso8601", "the bytes b'\\xff' in an array"),
    (pa.array([[b"ok"], [b"\xff"]]).cast(pa.list_(pa.string()), safe=False), "iso8601", "the bytes b'\\xff'"),
    (pa.array([0, -1, 2], pa.time64("us")), "iso8601", "a time of day of -1 us, which is not within a day"),
    (pa.array([0, 1], pa.date64()), "iso8601", "a date that has a time of day"),
    (pa.array([0, INT64_MAX], pa.timestamp("s")), "epoch_ms", "too far from 1970"),
]


@pytest.mark.parametrize(("column", "form", "reason"), WITHOUT_TEXT)
def test_a_value_without_text_is_found_by_its_row(column: pa.Array, form: str, reason: str) -> None:
    found, wrong = texts_and_reasons(column, form)
    assert list(wrong) == [1] and reason in wrong[1]
    assert found.is_valid().to_pylist()[:2] == [True, False]
    with pytest.raises(UsageError, match="The column f holds, in row 2 of a batch, "):
        field_cells("f", column, form)


def test_a_type_with_the_internal_bytes_of_a_program_is_rejected() -> None:
    for column in (OPAQUE, pa.ListArray.from_arrays([0, 1], OPAQUE)):
        _, wrong = texts_and_reasons(column, "iso8601")
        assert "which has no text: convert it in the source" in wrong[0]


def test_a_value_is_shown_whatever_it_is() -> None:
    broken = pa.array([b"\xff"]).view(pa.string())
    far = pa.array([2**31 - 1], pa.date32())
    shown = [plain_value(column, 0) for column in (broken, OPAQUE, WITHOUT_TEXT[0][0].slice(1), far)]
    assert shown[0] == "\\xff" and shown[3] == "+5881580-07-11"
    assert all(isinstance(value, str) for value in shown)
    assert [plain_value(pa.array([1.5, None]), row) for row in (0, 1)] == [1.5, None]


def test_all_types_of_duckdb_have_a_text() -> None:
    table = duckdb.sql("SELECT * FROM test_all_types()").to_arrow_table()
    without = set()
    for name, column in zip(table.column_names, table.columns, strict=True):
        found, wrong = texts_and_reasons(column.combine_chunks(), "iso8601")
        if wrong:
            without.add(name)
            continue
        assert not any("out of range" in str(value) for value in found.to_pylist())
        assert found.is_valid().to_pylist() == [True, True, False]
    assert without <= {"bignum", "varint"}  # opaque: internal bytes of DuckDB
