"""Rows as the bytes of requests."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UsageError
from headrace.pipeline.requests import pack
from headrace.resp.parser import RequestParser


def requests_in(data: bytes) -> list[list[bytes]]:
    """What a server reads from the bytes."""
    parser = RequestParser()
    parser.feed(data)
    return list(iter(parser.next, None))


def words(rows: pa.RecordBatch, **options: Any) -> list[list[bytes]]:
    ids = [b"%d-0" % (number + 1) for number in range(rows.num_rows)]
    return requests_in(bytes(pack(b"s", ids, rows, **options).body))


def test_a_row_is_an_xadd_with_its_fields_in_order_and_nulls_left_out() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["x", None, ""], "bé": [1, 2, None]})
    assert words(rows) == [
        [b"XADD", b"s", b"1-0", b"a", b"x", "bé".encode(), b"1"],
        [b"XADD", b"s", b"2-0", "bé".encode(), b"2"],
        [b"XADD", b"s", b"3-0", b"a", b""],
    ]


def test_the_answer_is_what_a_transaction_of_them_answers() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["x", "y"]})
    request = pack(b"s", [b"1-0", b"12-345"], rows)
    assert request.answer == b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$3\r\n1-0\r\n$6\r\n12-345\r\n"
    assert (request.rows, request.first_id, request.last_id) == (2, "1-0", "12-345")


def test_maxlen_trims_as_it_goes() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["x"]})
    assert words(rows, maxlen=1000) == [[b"XADD", b"s", b"MAXLEN", b"~", b"1000", b"1-0", b"a", b"x"]]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([-12], pa.int8()), b"-12"),
        (pa.array([2**64 - 1], pa.uint64()), b"18446744073709551615"),
        (pa.array([0.1]), b"0.1"),
        (pa.array([1e300]), b"1e+300"),
        (pa.array([True]), b"true"),
        (pa.array([decimal.Decimal("1.50")]), b"1.50"),
        (pa.array([b"\x00\xff"]), b"\x00\xff"),
        (pa.array(["long"], pa.large_string()), b"long"),
        (pa.array(["coded"]).dictionary_encode(), b"coded"),
        (pa.array([datetime.date(2013, 1, 2)]), b"2013-01-02"),
        (pa.array([1], pa.timestamp("s")), b"1970-01-01T00:00:01"),
        (pa.array([1], pa.timestamp("us", "Europe/Berlin")), b"1970-01-01T00:00:00.000001Z"),
        (pa.array([{"a": 1, "b": [2, None]}]), b'{"a": 1, "b": [2, null]}'),
        (pa.array([[("a", 1), ("é", 2)]], pa.map_(pa.string(), pa.int32())), '{"a": 1, "é": 2}'.encode()),
        (pa.array([[b"raw"]]), b'["raw"]'),
        (pa.array(["seen"], pa.string_view()), b"seen"),
    ],
)
def test_every_type_has_its_text(column: pa.Array, text: bytes) -> None:
    rows = pa.RecordBatch.from_arrays([column], ["v"])
    assert words(rows) == [[b"XADD", b"s", b"1-0", b"v", text]]


def test_a_row_of_nothing_is_refused_with_its_place() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["x", None], "b": pa.nulls(2)})
    with pytest.raises(UsageError, match=r"row 2 .* has no value"):
        words(rows)


values = st.one_of(st.none(), st.binary(max_size=300))
tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(values, min_size=width, max_size=width), min_size=1)
)


@given(tables, st.integers(0, 3))
def test_any_bytes_arrive_as_they_are_also_from_a_slice(table: list[list[bytes | None]], start: int) -> None:
    names = [f"f{place}" for place in range(len(table[0]))]
    table = [row for row in table if any(value is not None for value in row)][start:]
    if not table:
        return
    padding = [[b"?"] * len(names)] * start
    columns = [pa.array(column, pa.binary()) for column in zip(*padding, *table, strict=True)]
    rows = pa.RecordBatch.from_arrays(columns, names).slice(start)
    expected = [
        [b"XADD", b"s", b"%d-0" % (number + 1)]
        + [
            word
            for name, value in zip(names, row, strict=True)
            if value is not None
            for word in (name.encode(), value)
        ]
        for number, row in enumerate(table)
    ]
    assert words(rows) == expected
