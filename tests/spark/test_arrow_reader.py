"""Reads by XARROW give the same rows, losses and errors as reads by XRANGE."""

from __future__ import annotations

import logging
import os
import random

import pytest
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
)

from headrace.arrow.malformed import MalformedEntry
from headrace.errors import CommandError, ProtocolError, UsageError
from headrace.spark.decode.schema import DEFAULT_NAMES, ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source import arrow_reader
from headrace.spark.source.arrow_reader import (
    ArrowRangeReader,
    column_arguments,
    make_range_reader,
    parse_header,
    supports_arrow,
)
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.range_reader import RangeReader
from support.stream_server import StreamServer

ROUNDS = 60 if "HEADRACE_COMPILED" in os.environ else 12
LAST = "18446744073709551615-18446744073709551615"
COUNT = 23_000
NUMBERS = StructType([StructField("_id", StringType()), StructField("n", LongType())])
DEFAULT = StructType(
    [
        StructField(name, kind)
        for name, kind in zip(
            DEFAULT_NAMES,
            [StringType(), StringType(), TimestampType(), LongType(), MapType(StringType(), StringType())],
            strict=True,
        )
    ]
)
VALUES = [
    b"",
    b"0",
    b"1",
    b"-1",
    b"127",
    b"128",
    b"-4097",
    b"32768",
    b"8388608",
    b"-2147483649",
    b"007",
    b"+5",
    b"-0",
]
VALUES += [b"9007199254740993", b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808"]
VALUES += [
    b"9223372036854775",
    b"1e3",
    b"21.5",
    b"0.1234567890123456789",
    b"nan",
    b"-inf",
    b" 1",
    b"true",
    b"No",
]
VALUES += ["grüße 漢字".encode(), b"\xff", b"x" * 70, b"y\xc3" * 3000, b"12\n", b'"\\']
KINDS = [StringType(), BinaryType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType()]
KINDS += [DoubleType(), BooleanType(), TimestampType()]
RESERVED = {
    "_stream": StringType(),
    "_id": StringType(),
    "_timestamp": TimestampType(),
    "_sequence": LongType(),
    "_corrupt_record": StringType(),
}


def reader(server, part, schema=NUMBERS, **more):
    options = parse_options({"url": server.url, **more}, "batch")
    return make_range_reader(part, ColumnLayout(schema, options.timestamp_format), options)


def read(server: StreamServer, part: OffsetRange, schema: StructType, **more: str) -> tuple[list[str], str]:
    """The rows as text (for NaN is not itself), or those before an error, and the error."""
    rows = []
    made = reader(server, part, schema, **more)
    assert isinstance(made, ArrowRangeReader) == (more["fetch"] == "arrow")
    try:
        for batch in made.batches():
            batch.validate(full=True)
            columns = [c.cast("int64") if str(c.type).startswith("timestamp") else c for c in batch.columns]
            rows += [repr(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)]
    except (MalformedEntry, DataLoss) as error:
        return [], f"{type(error).__name__}: {error}"
    return rows, ""


def random_fields(rng: random.Random, usual: list[bytes]) -> list[bytes]:
    names = usual if rng.random() < 0.7 else [rng.choice(NAMES) for _ in range(rng.choice([1, 2, 3, 9, 40]))]
    return [word for name in names for word in (name, rng.choice(VALUES))]


NAMES = [b"a", b"b", b"c", b"12", b"", b"a long name", b"d\xff"]


def random_schema(rng: random.Random) -> StructType:
    names = rng.sample(["a", "b", "c", "12", "a long name", "none"], rng.randrange(1, 6))
    fields = [StructField(name, rng.choice(KINDS), rng.random() < 0.8) for name in names]
    for name in rng.sample(sorted(RESERVED), rng.randrange(4)):
        fields.append(StructField(name, RESERVED[name]))
    if rng.random() < 0.5:
        key, item = rng.choice([StringType(), BinaryType()]), BinaryType()
        item = rng.choice([StringType(), item]) if key == StringType() else item
        fields.append(StructField("_fields", MapType(key, item), rng.random() < 0.8))
    rng.shuffle(fields)
    return StructType(fields)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_xarrow_and_xrange_give_the_same_rows(headrace_server: StreamServer, seed: int) -> None:
    rng = random.Random(seed)
    client = headrace_server.client
    client.delete("s")
    ms, seq = 0, 0
    pipe = client.pipeline(transaction=False)
    usual = [rng.choice(NAMES) for _ in range(rng.randrange(1, 5))]
    huge = rng.random() < 0.1
    for n in range(rng.choice([0, 1, 40, 500])):
        ms, seq = (ms, seq + 1) if rng.random() < 0.5 else (ms + rng.randrange(1, 1000), rng.randrange(3))
        if huge and n == 20:
            ms, seq = 2**64 - 10**6, 2**63
        pipe.execute_command("XADD", "s", f"{ms}-{seq}", *random_fields(rng, usual))
    ids = pipe.execute()
    for entry_id in rng.sample(ids, len(ids) // 5):
        client.xdel("s", entry_id)
    schemas = [DEFAULT, *(random_schema(rng) for _ in range(6))]
    for schema in schemas:
        part = OffsetRange(
            "s", rng.choice([b"0-0", *ids]).decode(), rng.choice([LAST.encode(), *ids]).decode(), False
        )
        for mode in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
            more = {
                "mode": mode,
                "entriesPerFetch": rng.choice(["1", "7", "10000"]),
                "failOnDataLoss": "false",
            }
            assert read(headrace_server, part, schema, fetch="arrow", **more) == read(
                headrace_server, part, schema, fetch="resp", **more
            )


def test_the_server_is_asked_once_whether_it_supports_xarrow(
    stream_server: StreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = "headrace_version" in stream_server.client.info("server")
    part = OffsetRange("s", "0-0", LAST, False)
    assert isinstance(reader(stream_server, part), ArrowRangeReader) is ours
    monkeypatch.setattr(arrow_reader.Servers, "client", None)  # another request would fail
    assert isinstance(reader(stream_server, part), ArrowRangeReader) is ours
    assert type(reader(stream_server, part, fetch="resp")) is RangeReader
    assert not supports_arrow("cluster://nowhere.invalid:1")


def test_a_schema_that_needs_python_is_read_by_xrange(headrace_server: StreamServer) -> None:
    part = OffsetRange("s", "0-0", LAST, False)
    for kind in (DateType(), DecimalType(10, 2)):
        schema = StructType([StructField("d", kind)])
        assert column_arguments(ColumnLayout(schema, "epoch_ms")) is None
        assert type(reader(headrace_server, part, schema)) is RangeReader
        with pytest.raises(UsageError, match="a column that the server cannot fill"):
            reader(headrace_server, part, schema, fetch="arrow")
    times = StructType([StructField("t", TimestampType())])
    assert type(reader(headrace_server, part, times, timestampFormat="iso8601")) is RangeReader
    assert isinstance(reader(headrace_server, part, times, timestampFormat="epoch_s"), ArrowRangeReader)


@pytest.mark.parametrize("page", ["7", "100", "1000"])
def test_batches_join_without_a_gap_or_an_overlap(headrace_server: StreamServer, page: str) -> None:
    headrace_server.client.flushall()
    headrace_server.fill("s", 1000)
    for anchored in (False, True):
        made = reader(
            headrace_server, OffsetRange("s", "1000099-0", "1000899-0", anchored), entriesPerFetch=page
        )
        sizes, numbers = [], []
        for batch in made.batches():
            sizes.append(batch.num_rows)
            numbers += batch.column("n").to_pylist()
        assert numbers == list(range(100, 900)) and max(sizes) <= int(page)


def test_a_batch_of_large_entries_ends_before_its_count(headrace_server: StreamServer) -> None:
    client = headrace_server.client
    client.flushall()
    for n in range(30):
        client.xadd("s", {"n": n, "pad": "x" * 1_000_000}, id=f"{n + 1}-0")
    schema = StructType([StructField("n", LongType()), StructField("pad", StringType())])
    batches = list(reader(headrace_server, OffsetRange("s", "0-0", "30-0", False), schema).batches())
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(range(30))
    assert max(batch.num_rows for batch in batches) < 10


def test_trims_before_and_during_a_read_are_detected(
    headrace_server: StreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = headrace_server.client
    client.flushall()
    headrace_server.fill("s", 1000)
    client.xtrim("s", maxlen=500, approximate=False)
    part = OffsetRange("s", "1000099-0", "1000999-0", True)
    with pytest.raises(DataLoss, match=r"'s' after 1000099-0 .* first entry there is 1000500-0"):
        list(reader(headrace_server, part).batches())
    with caplog.at_level(logging.WARNING):
        made = list(reader(headrace_server, part, failOnDataLoss="false").batches())
    assert [n for b in made for n in b.column("n").to_pylist()] == list(range(500, 1000))
    assert "may have been trimmed" in caplog.text
    client.flushall()
    headrace_server.fill("s", COUNT)
    batches = reader(headrace_server, OffsetRange("s", "0-0", f"{1_000_000 + COUNT - 1}-0", False)).batches()
    next(batches)
    client.xtrim("s", maxlen=100, approximate=False)
    with pytest.raises(DataLoss):
        list(batches)


def test_a_deleted_anchor_is_no_loss_and_a_deleted_stream_is(headrace_server: StreamServer) -> None:
    headrace_server.client.flushall()
    headrace_server.fill("s", 1000)
    part = OffsetRange("s", "1000099-0", "1000999-0", True)
    headrace_server.client.xdel("s", "1000099-0")
    [batch] = reader(headrace_server, part).batches()
    assert batch.column("n").to_pylist() == list(range(100, 1000))
    headrace_server.client.delete("s")
    with pytest.raises(DataLoss, match="empty or deleted"):
        list(reader(headrace_server, part).batches())


def test_after_a_lost_connection_no_entry_is_read_twice(headrace_server: StreamServer) -> None:
    client = headrace_server.client
    client.flushall()
    headrace_server.fill("s", COUNT)
    made = reader(
        headrace_server, OffsetRange("s", "0-0", f"{1_000_000 + COUNT - 1}-0", False), entriesPerFetch="900"
    )
    seen = []
    for batch in made.batches():
        seen += batch.column("n").to_pylist()
        ours = client.client_id()
        for other in client.client_list():
            if int(other["id"]) != ours:
                client.client_kill_filter(_id=other["id"])
    assert seen == list(range(COUNT))
    assert len(client.client_list()) == 1


def test_error_replies_name_the_stream(headrace_server: StreamServer) -> None:
    headrace_server.client.set("text", "hello")
    with pytest.raises(CommandError, match=r"WRONGTYPE.*'text'"):
        list(reader(headrace_server, OffsetRange("text", "0-0", "5-0", False)).batches())


def test_a_header_is_parsed_only_when_it_is_complete() -> None:
    for head, last in ((b"*6\r\n$3\r\n5-1\r\n", "5-1"), (b"*6\r\n$-1\r\n", None)):
        whole = head + b":0\r\n:1\r\n:7\r\n:12\r\n$40\r\n"
        data = whole + b"\xff\xff\xff\xff\r\n\r\n"
        for n in range(len(data)):
            found = parse_header(data[:n])
            assert (found is not None) == (n >= len(whole))
            if found is not None:
                assert (
                    found.last_id,
                    found.anchor_lost,
                    found.has_more,
                    found.dropped_entries,
                    found.row_count,
                ) == (
                    last,
                    False,
                    True,
                    7,
                    12,
                )
                assert (found.message_bytes, found.message_offset) == (40, len(whole))
    assert parse_header(b"-ERR no") is None
    with pytest.raises(CommandError, match=r"^ERR no$"):
        parse_header(b"-ERR no\r\n")
    for bad in (
        b"*5\r\n$-1\r\n:0\r\n:0\r\n:0\r\n:0\r\n$4\r\n",
        b"*6\r\n$-1\r\n:0\r\n:0\r\n:-1\r\n:0\r\n$4\r\n",
    ):
        with pytest.raises(ProtocolError):
            parse_header(bad)
