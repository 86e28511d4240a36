"""The decoder makes the same rows however the bytes are split, and rejects malformed bytes."""

from __future__ import annotations

import json
import math
import os
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from headrace.arrow.malformed import MalformedEntry
from headrace.errors import CommandError, HeadraceError, ProtocolError, UsageError
from headrace.resp.request import bulk
from headrace.spark.decode.arrow_decoder import ArrowDecoder
from headrace.spark.decode.page_tokenizer import ReplyPageTokenizer
from headrace.spark.decode.schema import BatchBuilder, ColumnLayout

EXAMPLES = 400 if "HEADRACE_COMPILED" in os.environ else 60
Entry = tuple[bytes, list[bytes]]

DEFAULT = StructType(
    [
        StructField("stream", StringType()),
        StructField("id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("sequence", LongType()),
        StructField("fields", MapType(StringType(), StringType())),
    ]
)
ID = StructField("_id", StringType())


def page(entries: list[Entry]) -> bytes:
    parts = [b"*%d\r\n" % len(entries)]
    for entry_id, words in entries:
        parts += [b"*2\r\n", bulk(entry_id), b"*%d\r\n" % len(words), *map(bulk, words)]
    return b"".join(parts)


def decode(
    data: bytes,
    schema: StructType,
    mode: str = "PERMISSIVE",
    timestamps: str = "epoch_ms",
    pieces: int = 1 << 30,
    batch: int = 1 << 30,
) -> list[dict[str, Any]]:
    """The rows of one page that arrives in pieces of so many bytes."""
    scanner = ReplyPageTokenizer()
    layout = ColumnLayout(schema, timestamps)
    decoder = ArrowDecoder(scanner, layout.new_columns(), "orders", mode)
    maker = BatchBuilder(layout, "orders")
    batches = []
    whole = False
    scanner.begin_page(b"")
    for at in range(0, len(data), pieces):
        assert not whole
        piece = bytearray(data[at : at + pieces])
        scanner.feed(piece, len(piece))
        whole = scanner.scan()
        while not decoder.decode(batch, 1 << 30):
            batches.append(maker.batch(*decoder.take()))
    batches.append(maker.batch(*decoder.take()))
    assert whole
    for made in batches:
        made.validate(full=True)
    return [row for made in batches for row in made.to_pylist()]


def value(text: bytes, kind: Any, **options: str) -> Any:
    """What a column of that type makes of a field's text."""
    schema = StructType([StructField("v", kind)])
    return decode(page([(b"1-1", [b"v", text])]), schema, **options)[0]["v"]


def test_without_a_schema_a_row_is_the_parts_of_the_id_and_all_fields() -> None:
    [row] = decode(page([(b"1500-7", [b"item", b"pear", b"price", b"3.5"])]), DEFAULT)
    assert row["stream"] == "orders" and row["id"] == "1500-7" and row["sequence"] == 7
    assert row["timestamp"].timestamp() == 1.5
    assert row["fields"] == [("item", "pear"), ("price", "3.5")]


def test_a_schema_picks_fields_by_name_and_a_missing_field_is_null() -> None:
    schema = StructType([StructField("b", StringType()), ID, StructField("a", LongType())])
    entries = [(b"1-1", [b"a", b"1", b"b", b"x"]), (b"2-0", [b"c", b"?", b"b", b"y"]), (b"3-0", [])]
    assert decode(page(entries), schema) == [
        {"b": "x", "_id": "1-1", "a": 1},
        {"b": "y", "_id": "2-0", "a": None},
        {"b": None, "_id": "3-0", "a": None},
    ]


def test_each_entry_can_have_its_fields_in_another_order() -> None:
    schema = StructType([StructField(name, StringType()) for name in "abc"])
    rng = random.Random(5)
    entries, expected = [], []
    for n in range(50):
        names = rng.sample("abcdefgh", rng.randrange(8))
        entries.append((b"%d-0" % (n + 1), [w for x in names for w in (x.encode(), f"{x}{n}".encode())]))
        expected.append({x: f"{x}{n}" if x in names else None for x in "abc"})
    assert decode(page(entries), schema) == expected


def test_the_last_value_of_a_repeated_field_counts() -> None:
    entries = page([(b"1-1", [b"a", b"1", b"b", b"2", b"a", b"3"])])
    assert decode(entries, DEFAULT)[0]["fields"] == [("b", "2"), ("a", "3")]
    assert decode(entries, StructType([StructField("a", LongType())])) == [{"a": 3}]


def test_the_last_value_of_a_repeated_field_counts_among_many_fields() -> None:
    words = [w for n in range(100) for w in (b"f%d" % (n % 30), b"%d" % n)]
    fields = decode(page([(b"1-1", words)]), DEFAULT)[0]["fields"]
    assert dict(fields) == {f"f{n % 30}": str(n) for n in range(100)} and len(fields) == 30


MIXED = StructType(
    [
        StructField("_timestamp", TimestampType()),
        StructField("n", LongType()),
        StructField("_fields", MapType(StringType(), StringType())),
        StructField("name", StringType()),
        StructField("x", DoubleType()),
        StructField("_corrupt_record", StringType()),
        StructField("few", ByteType()),
        StructField("_sequence", LongType()),
        ID,
    ]
)
FIELDS_ALONE = StructType([StructField("n", LongType()), StructField("name", StringType())])
ODD_WORDS = [b"", b"12", b"-7", b"1.5", b"1e3", b"300", b"text", b"a longer text than 16 bytes", b"\xff"]
ODD_NAMES = [b"n", b"name", b"x", b"few", b"other", b"\xff"]


def usual_entry(n: int) -> Entry:
    words = [
        b"n",
        b"%d" % n,
        b"name",
        b"name of %d" % n**2,
        b"x",
        b"%.3f" % (n / 7),
        b"few",
        b"%d" % (n % 100),
    ]
    return b"%d-%d" % (1_700_000_000_000 + 997 * n, n % 3 * n), words


@pytest.mark.parametrize("oddity", [0.0, 0.003, 0.1])
@pytest.mark.parametrize("schema", [DEFAULT, MIXED, FIELDS_ALONE], ids=["default", "mixed", "fields"])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_an_entry_gives_the_same_row_in_a_run_and_alone(oddity: float, schema: StructType, mode: str) -> None:
    rng = random.Random(f"{oddity} {len(schema)}")
    entries = []
    shape = 4
    for n in range(3000 if "HEADRACE_COMPILED" in os.environ else 1000):
        entry_id, words = usual_entry(n)
        if rng.random() < 0.005:
            shape = rng.randrange(5)
        words = words[: 2 * shape]
        if rng.random() < oddity:
            if rng.random() < 0.3:
                entry_id = rng.choice([b"%d-1" % n, b"0-%d" % (n + 1), b"007-%d" % n])
            for _ in range(rng.randrange(3)):
                words += [rng.choice(ODD_NAMES), rng.choice(ODD_WORDS)]
            if words:
                words[rng.randrange(len(words))] = rng.choice(ODD_WORDS)
        entries.append((entry_id, words))
    alone = [row for entry in entries for row in decode(page([entry]), schema, mode)]
    assert decode(page(entries), schema, mode) == alone
    assert decode(page(entries), schema, mode, pieces=4001, batch=700) == alone


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (b"127", ByteType(), 127),
        (b"128", ByteType(), None),
        (b"-32768", ShortType(), -32768),
        (b"-32769", ShortType(), None),
        (b"+2147483647", IntegerType(), 2147483647),
        (b"2147483648", IntegerType(), None),
        (b"9223372036854775807", LongType(), 2**63 - 1),
        (b"-9223372036854775808", LongType(), -(2**63)),
        (b"9223372036854775808", LongType(), None),
        (b"-9223372036854775809", LongType(), None),
        (b"99999999999999999999999", LongType(), None),
        (b"-0", LongType(), 0),
        (b"", LongType(), None),
        (b"-", LongType(), None),
        (b"1.0", LongType(), None),
        (b" 1", LongType(), None),
        (b"1_0", LongType(), None),
        (b"TRUE", BooleanType(), True),
        (b"0", BooleanType(), False),
        (b"maybe", BooleanType(), None),
        (b"\xff\x00", BinaryType(), b"\xff\x00"),
        (b"\xff\x00", StringType(), None),
        ("grüße 漢字 🌊".encode(), StringType(), "grüße 漢字 🌊"),
        (b"\xed\xa0\x80", StringType(), None),
        (b"\xf4\x90\x80\x80", StringType(), None),
        (b"12345678\xc3", StringType(), None),
        (b"2.50", DoubleType(), 2.5),
        (b"-.5", DoubleType(), -0.5),
        (b"1e3", DoubleType(), 1000.0),
        (b"0.1", DoubleType(), 0.1),
        (b"123456789012345678901234567890", DoubleType(), 123456789012345678901234567890.0),
        (b"-inf", DoubleType(), -math.inf),
        (b"Infinity", DoubleType(), math.inf),
        (b".", DoubleType(), None),
        (b"1.2.3", DoubleType(), None),
        (b"1_0.5", DoubleType(), None),
        (b" 1.5", DoubleType(), None),
        (b"0x10", DoubleType(), None),
        (b"1.5", FloatType(), 1.5),
        (b"1e300", FloatType(), math.inf),
    ],
)
def test_a_text_that_does_not_fit_its_column_is_null(text: bytes, kind: Any, expected: Any) -> None:
    assert value(text, kind) == expected


@settings(max_examples=EXAMPLES)
@given(st.floats(allow_nan=False) | st.integers(-(10**18), 10**18).map(lambda n: n / 1000))
def test_every_double_is_read_back_exactly(number: float) -> None:
    assert value(repr(number).encode(), DoubleType()) == number


def test_times_dates_and_decimals() -> None:
    assert value(b"1500", TimestampType()).timestamp() == 1.5
    assert value(b"2", TimestampType(), timestamps="epoch_s").timestamp() == 2
    iso = value(b"1970-01-01T02:00:00.25+02:00", TimestampType(), timestamps="iso8601")
    assert iso.timestamp() == 0.25
    assert value(b"1711121101530", TimestampType(), timestamps="iso8601") is None, (
        "milliseconds, not the year 1711"
    )
    assert value(b"0.1" + b"0" * 118 + b"1", DecimalType(10, 1)) is None, "no digit is lost"
    assert value(b"1969-12-31", DateType()).isoformat() == "1969-12-31"
    assert value(b"1969-12-32", DateType()) is None
    assert str(value(b"-12.3", DecimalType(10, 2))) == "-12.30"
    assert value(b"12.345", DecimalType(10, 2)) is None
    assert value(b"1e999999999", DecimalType(10, 2)) is None
    assert str(value(b"9" * 38, DecimalType(38, 0))) == "9" * 38


def test_the_mode_decides_about_malformed_entries() -> None:
    kinds = [ID, StructField("n", LongType())]
    entries = page([(b"1-1", [b"n", b"1"]), (b"2-1", [b"n", b"x"]), (b"3-1", [b"n", b"3"])])
    schema = StructType(kinds)
    assert [r["n"] for r in decode(entries, schema)] == [1, None, 3]
    assert [r["n"] for r in decode(entries, schema, "DROPMALFORMED")] == [1, 3]
    with pytest.raises(MalformedEntry, match=r"stream 'orders', entry 2-1: field 'n'"):
        decode(entries, schema, "FAILFAST")
    rows = decode(entries, StructType([*kinds, StructField("_corrupt_record", StringType())]))
    assert [r["_corrupt_record"] for r in rows][::2] == [None, None]
    assert json.loads(rows[1]["_corrupt_record"]) == {"id": "2-1", "fields": {"n": "x"}}


def test_a_column_that_is_not_nullable_never_gets_a_null() -> None:
    schema = StructType([StructField("n", LongType(), nullable=False)])
    entries = page([(b"1-1", [b"n", b"1"]), (b"2-1", [b"m", b"1"])])
    with pytest.raises(MalformedEntry, match="entry 2-1"):
        decode(entries, schema)
    assert decode(entries, schema, "DROPMALFORMED") == [{"n": 1}]


def test_bytes_that_are_not_utf8_are_escaped_in_a_map_of_strings() -> None:
    entries = page([(b"1-1", [b"a", b"x\xff", b"\xc3", b"y"]), (b"2-1", [b"a", b"b"])])
    assert [r["fields"] for r in decode(entries, DEFAULT)] == [
        [("a", "x\\xff"), ("\\xc3", "y")],
        [("a", "b")],
    ]
    for key, item, words in (
        (BinaryType(), BinaryType(), [(b"a", b"x\xff"), (b"\xc3", b"y")]),
        (StringType(), BinaryType(), [("a", b"x\xff"), ("\\xc3", b"y")]),
    ):
        schema = StructType([StructField("_fields", MapType(key, item))])
        assert decode(entries, schema)[0]["_fields"] == words


def test_bytes_that_are_not_utf8_are_malformed_in_the_stricter_modes() -> None:
    entries = page([(b"1-1", [b"a", b"\xff"]), (b"2-1", [b"a", b"b"]), (b"3-1", [b"\xff", b"c"])])
    assert [r["id"] for r in decode(entries, DEFAULT, "DROPMALFORMED")] == ["2-1"]
    with pytest.raises(MalformedEntry, match="entry 1-1: a name or value is not UTF-8"):
        decode(entries, DEFAULT, "FAILFAST")
    binary = StructType([StructField("_fields", MapType(StringType(), BinaryType()))])
    assert [r["_fields"] for r in decode(entries, binary, "DROPMALFORMED")] == [
        [("a", b"\xff")],
        [("a", b"b")],
    ]


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=40)), max_size=20))
def test_escapes_are_the_same_as_those_of_backslashreplace(pairs: list[tuple[bytes, bytes]]) -> None:
    shown = {
        name.decode(errors="backslashreplace"): value.decode(errors="backslashreplace")
        for name, value in pairs
    }
    [row] = decode(page([(b"1-1", [word for pair in pairs for word in pair])]), DEFAULT)
    names = [name for name, _ in row["fields"]]
    assert dict(row["fields"]) == shown and len(names) == len(set(names))


def test_a_part_of_an_id_that_is_too_large_for_its_column_is_malformed() -> None:
    entry_id = b"%d-%d" % (2**64 - 1, 2**64 - 1)
    entries = page([(entry_id, [b"a", b"1"]), (b"1-1", [b"a", b"2"])])
    [far, near] = decode(entries, DEFAULT)
    assert (far["id"], far["timestamp"], far["sequence"]) == (entry_id.decode(), None, None)
    assert (near["id"], near["sequence"]) == ("1-1", 1)
    sequence = StructType([StructField("_sequence", LongType())])
    assert decode(entries, sequence) == [{"_sequence": None}, {"_sequence": 1}]
    assert decode(entries, sequence, "DROPMALFORMED") == [{"_sequence": 1}]
    with pytest.raises(MalformedEntry, match="does not fit a TIMESTAMP"):
        decode(entries, DEFAULT, "FAILFAST")
    with pytest.raises(MalformedEntry, match="does not fit a LONG"):
        decode(entries, StructType([StructField("_sequence", LongType(), nullable=False)]))
    assert decode(entries, StructType([ID]))[0] == {"_id": entry_id.decode()}


def test_errors_say_why_a_schema_cannot_be_read() -> None:
    with pytest.raises(UsageError, match="_sequence must be BIGINT"):
        ColumnLayout(StructType([StructField("_sequence", StringType())]), "epoch_ms")
    with pytest.raises(UsageError, match="tags is VARIANT"):
        ColumnLayout(StructType([StructField("tags", VariantType())]), "epoch_ms")


names = st.sampled_from([b"a", b"b", b"c", b"", b"long name"])
entries_of = st.lists(
    st.lists(st.tuples(names, st.binary(max_size=20)), max_size=6).map(lambda p: [w for x in p for w in x]),
    max_size=12,
).map(lambda many: [(b"%d-%d" % (n + 1, n), words) for n, words in enumerate(many)])


@settings(max_examples=EXAMPLES)
@given(entries_of, st.integers(1, 50), st.integers(1, 5))
def test_rows_do_not_depend_on_how_the_bytes_arrive(entries: list[Entry], pieces: int, batch: int) -> None:
    schema = StructType(
        [ID, StructField("a", BinaryType()), StructField("_fields", MapType(BinaryType(), BinaryType()))]
    )
    rows = decode(page(entries), schema, pieces=pieces, batch=batch)
    expected = []
    for entry_id, words in entries:
        pairs = dict(zip(words[::2], words[1::2], strict=True))
        expected.append((entry_id.decode(), pairs.get(b"a"), pairs))
    assert [(r["_id"], r["a"], dict(r["_fields"])) for r in rows] == expected


def test_the_anchor_is_omitted_and_a_lost_anchor_is_detected() -> None:
    def scanned(anchor: bytes, entries: list[Entry]) -> tuple[ReplyPageTokenizer, int]:
        scanner = ReplyPageTokenizer()
        decoder = ArrowDecoder(scanner, [], "orders")
        scanner.begin_page(anchor)
        data = bytearray(page(entries))
        scanner.feed(data, len(data))
        assert scanner.scan()
        assert decoder.decode(100, 1 << 30)
        return scanner, decoder.row_count

    entries: list[Entry] = [(b"5-1", [b"a", b"1"]), (b"6-1", [b"a", b"1"])]
    scanner, rows = scanned(b"5-1", entries)
    assert (scanner.anchor_lost, scanner.last_id, rows) == (False, b"6-1", 1)
    scanner, rows = scanned(b"4-1", entries)
    assert (scanner.anchor_lost, scanner.last_id, rows) == (True, b"6-1", 2)
    assert scanned(b"4-1", [])[0].anchor_lost
    assert not scanned(b"", entries)[0].anchor_lost


@pytest.mark.parametrize(
    "data",
    [
        b"+OK\r\n",
        b"*x\r\n",
        b"*-1\r\n",
        b"*1\r\n*3\r\n$3\r\n1-1\r\n*0\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*1\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\naX\r\n",
        b"*1\r\n*2\r\n$3\r\n1.1\r\n*0\r\n",
        b"*1\r\n*2\r\n$22\r\n99999999999999999999-1\r\n*0\r\n",
        b"*1\r\n*2\r\n$99999999999\r\n",
        b"*1\r\n*2\r\n$4000000000\r\n",
        b"*1\r\n*2\r\n$3\r\n1-1\r\n*4000000000\r\n",
        b"*1\r\n*2\r\n$\r\n",
        b"*1\rX",
    ],
)
def test_bytes_that_are_not_a_page_raise_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data, DEFAULT)


def test_an_error_of_the_server_is_raised_unchanged() -> None:
    with pytest.raises(CommandError, match=r"^WRONGTYPE Operation"):
        decode(b"-WRONGTYPE Operation against a key\r\n", DEFAULT)


@settings(max_examples=EXAMPLES * 3)
@given(entries_of, st.data())
def test_hostile_bytes_give_rows_or_a_protocol_error(entries: list[Entry], data: st.DataObject) -> None:
    whole = bytearray(page(entries))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from(list(b"$*-+:\r\n0129\xff") + [0]))
    cut = data.draw(st.integers(1, len(whole)))
    reserved = [StructField(f"_{f.name}", f.dataType) for f in DEFAULT.fields]
    schema = StructType([*reserved, StructField("a", DoubleType()), StructField("b", LongType())])
    scanner = ReplyPageTokenizer()
    decoder = ArrowDecoder(scanner, ColumnLayout(schema, "epoch_ms").new_columns(), "orders")
    try:
        scanner.begin_page(data.draw(st.sampled_from([b"", b"1-0"])))
        for piece in (whole[:cut], whole[cut:]):
            scanner.feed(piece, len(piece))
            scanner.scan()
            assert decoder.decode(1 << 30, 1 << 40)
        decoder.take()
    except HeadraceError:
        pass
