"""The column _exact contains an entry if and only if the other columns do not represent it exactly."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import UsageError
from headrace.resp.request import bulk
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.decode.schema import BatchBuilder, ColumnLayout

EXAMPLES = 400 if "HEADRACE_COMPILED" in os.environ else 60
PAIR = StructType([StructField("name", BinaryType()), StructField("value", BinaryType())])
EXACT = StructField("_exact", ArrayType(PAIR))
STRINGS = StructField("_fields", MapType(StringType(), StringType()))
BYTES = StructField("_fields", MapType(BinaryType(), BinaryType()))
Entry = tuple[bytes, list[bytes]]


def page(entries: list[Entry]) -> bytes:
    """What a server answers to XRANGE."""
    parts = [b"*%d\r\n" % len(entries)]
    for entry_id, words in entries:
        parts += [b"*2\r\n", bulk(entry_id), b"*%d\r\n" % len(words), *map(bulk, words)]
    return b"".join(parts)


def exact(
    entries: list[Entry], *fields: StructField, mode: str = "PERMISSIVE", batch: int = 1 << 30
) -> list[list[bytes] | None]:
    """For each entry the words in its `_exact`, or None."""
    scanner = ReplyPageTokenizer()
    layout = ColumnLayout(StructType([*fields, EXACT]), "epoch_ms")
    decoder = layout.new_decoder(scanner, "orders", mode)
    maker = BatchBuilder(layout, "orders")
    data = page(entries)
    scanner.begin_page(b"")
    scanner.feed(bytearray(data), len(data))
    assert scanner.scan()
    batches = []
    while not decoder.decode(batch, 1 << 30):
        batches.append(maker.take(decoder))
    batches.append(maker.take(decoder))
    found: list[list[bytes] | None] = []
    for made in batches:
        made.validate(full=True)
        for kept in made.column("_exact").to_pylist():
            words = None if kept is None else [word for pair in kept for word in pair.values()]
            found.append(words)
    return found


def is_kept(text: bytes, kind: DataType, comment: str = "") -> bool:
    """Whether an entry of one field with that text is kept beside a column of the type."""
    metadata = {"comment": comment} if comment else {}
    [found] = exact([(b"1-0", [b"v", text])], StructField("v", kind, True, metadata))
    assert found in (None, [b"v", text])
    return found is not None


@pytest.mark.parametrize(
    ("kind", "same", "other"),
    [
        (LongType(), [b"7", b"-7", b"0", b"9223372036854775807"], [b"007", b"+1", b"-0", b"x", b"", b"1.0"]),
        (IntegerType(), [b"7"], [b"2147483648"]),
        (DoubleType(), [b"1.5", b"-0.0", b"1e+300", b"inf", b"nan"], [b"1.50", b"1e3", b"7", b"NaN", b".5"]),
        (FloatType(), [b"1.5"], [b"0.1234567890123", b"1.50"]),
        (BooleanType(), [b"true", b"false"], [b"True", b"1", b"yes", b"no"]),
        (DateType(), [b"2026-03-01"], [b"20260301", b"2026-02-30"]),
        (DecimalType(9, 2), [b"1.50", b"-0.01"], [b"1.5", b"1.500", b"1.234"]),
        (TimestampType(), [b"1700000000000", b"-1"], [b"01700000000000", b"2026-03-01T12:00:00Z"]),
        (ArrayType(LongType()), [b"[1,2]"], [b"[1, 2]", b"[1,2] ", b"["]),
        (StringType(), [b"", b"x", "grüße".encode()], [b"\xff", b"\xed\xa0\x80"]),
        (BinaryType(), [b"", b"\xff\x00"], []),
    ],
)
def test_an_entry_is_kept_if_a_value_would_be_written_differently(
    kind: DataType, same: list[bytes], other: list[bytes]
) -> None:
    assert [text for text in same if is_kept(text, kind)] == []
    assert [text for text in other if not is_kept(text, kind)] == []


@pytest.mark.parametrize(
    ("comment", "same", "other"),
    [
        ("iso8601:T0Z", b"2026-03-01T12:00:00Z", b"2026-03-01T12:00:00.5Z"),
        ("iso8601:T3Z", b"2026-03-01T12:00:00.250Z", b"2026-03-01T12:00:00.250123Z"),
        ("iso8601:T6", b"2026-03-01T12:00:00.250001", b"2026-03-01T12:00:00"),
        ("iso8601: 0", b"1969-12-31 23:59:59", b"1969-12-31T23:59:59"),
        ("iso8601:T0+05:30", b"2026-03-01T00:10:00+05:30", b"2026-03-01T00:10:00+01:00"),
        ("iso8601:T0-03:00", b"2026-03-01T23:10:00-03:00", b"not a time"),
        ("epoch_s", b"1700000000", b"2026-03-01T12:00:00Z"),
        ("auto", b"1700000000000", b"2026-03-01T12:00:00Z"),
    ],
)
def test_the_comment_of_a_column_sets_the_format_of_its_times(
    comment: str, same: bytes, other: bytes
) -> None:
    assert not is_kept(same, TimestampType(), comment)
    assert is_kept(other, TimestampType(), comment)


def test_further_reordered_and_repeated_fields_keep_the_entry() -> None:
    columns = [StructField("a", LongType()), StructField("b", StringType())]
    entries = [
        (b"1-0", [b"a", b"1", b"b", b"x"]),
        (b"2-0", [b"b", b"x", b"a", b"1"]),
        (b"3-0", [b"a", b"1", b"b", b"x", b"c", b""]),
        (b"4-0", [b"a", b"0", b"a", b"1", b"b", b"x"]),
        (b"5-0", [b"b", b"x"]),
        (b"6-0", []),
    ]
    kept = [None, entries[1][1], entries[2][1], entries[3][1], None, None]
    assert exact(entries, *columns) == kept
    assert exact(entries, *columns, batch=1) == kept


def test_an_entry_is_kept_if_a_map_has_bytes_or_repeated_names() -> None:
    entries = [
        (b"1-0", [b"b", b"1", b"a", b"\\xff"]),
        (b"2-0", [b"b", b"\xff"]),
        (b"3-0", [b"\xff", b"b"]),
        (b"4-0", [b"a", b"1", b"a", b"1"]),
        (b"5-0", [b"", b""]),
    ]
    assert exact(entries, STRINGS) == [None, entries[1][1], entries[2][1], entries[3][1], None]
    assert exact(entries, BYTES) == [None, None, None, entries[3][1], None]
    assert exact(entries) == [words for _, words in entries]
    assert exact(entries, STRINGS, mode="DROPMALFORMED") == [None, entries[3][1], None]


def test_entries_of_a_run_are_compared_one_by_one() -> None:
    columns = [StructField("n", LongType()), StructField("t", StringType())]
    entries = [(b"%d-0" % n, [b"n", b"%d" % n, b"t", b"x" * (n % 5)]) for n in range(1, 3000)]
    odd = {
        700: [b"n", b"007", b"t", b""],
        1500: [b"n", b"many", b"t", b""],
        2222: [b"n", b"1", b"t", b"\xff"],
    }
    for n, words in odd.items():
        entries[n] = (entries[n][0], words)
    for batch in (1 << 30, 100):
        found = exact(entries, *columns, batch=batch)
        assert {n: words for n, words in enumerate(found) if words is not None} == odd


def test_the_column_must_be_nullable_and_of_its_type() -> None:
    with pytest.raises(UsageError, match="_exact must be nullable"):
        ColumnLayout(StructType([StructField("_exact", ArrayType(PAIR), False)]), "epoch_ms")
    with pytest.raises(UsageError, match="_exact must be ARRAY<STRUCT<NAME:BINARY,VALUE:BINARY>>"):
        ColumnLayout(StructType([StructField("_exact", StringType())]), "epoch_ms")


words = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"a", b"b", b"1", b"01", b"1.5", b"1.50", b"true", b"[1]", b"2026-03-01", b"1e3"]),
)
pairs = st.lists(st.tuples(words, words), max_size=8)
columns = st.dictionaries(
    st.sampled_from(["a", "b", "1", ""]),
    st.sampled_from([LongType(), DoubleType(), StringType(), BooleanType(), DateType(), BinaryType()]),
    max_size=4,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(pairs, max_size=12), columns)
def test_an_entry_is_kept_unless_the_sink_would_write_it_again(
    entries: list[list[tuple[bytes, bytes]]], kinds: dict[str, Any]
) -> None:
    data = [(b"%d-0" % (n + 1), [word for pair in each for word in pair]) for n, each in enumerate(entries)]
    fields = [StructField(name, kind) for name, kind in kinds.items()]
    plain = {
        LongType(): lambda t: b"%d" % int(t),
        DoubleType(): lambda t: repr(float(t)).encode(),
        BooleanType(): lambda t: {b"true": b"true", b"false": b"false"}[t],
    }
    for (_, given_words), kept in zip(data, exact(data, *fields), strict=True):
        assert kept in (None, given_words)
        if kept is not None:
            continue
        names = [name.encode() for name in kinds]
        found = given_words[::2]
        assert found == [name for name in names if name in found]  # no other names, in order, each once
        for name, text in zip(found, given_words[1::2], strict=True):
            write = plain.get(kinds[name.decode()])
            assert write is None or write(text) == text
