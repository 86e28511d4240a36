"""Names of streams: any bytes, as text and back; in directories of archives; in options of the source."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.client.stream_names import normalize_name, stream_key, stream_name
from headrace.pipeline.shared.stream_selection import select_streams, total_length
from headrace.spark.options import parse_options
from headrace.spark.sink.writer import HeadraceWriter
from headrace.spark.source.reader import HeadraceReader
from support.stream_server import StreamServer

ROWS = StructType([StructField("_stream", StringType()), StructField("n", LongType())])
ODD = [
    b"",
    b"\xff",
    b"a\xffb\\",
    rb"a\xff",
    rb"a\x5cxff",
    rb"\x\xff",
    b"\0",
    b"a\nb",
    b"a,b",
    b" ",
    b"x" * 70_000,
]


@given(st.binary(max_size=20) | st.lists(st.sampled_from([b"\\", b"x", b"5c", b"\xff", b"f"])).map(b"".join))
def test_a_name_has_one_text_and_is_restored_from_it(raw: bytes) -> None:
    text = stream_name(raw)
    assert stream_key(text) == raw and normalize_name(text) == text
    text.encode()  # it can be written as UTF-8


@given(st.text(max_size=20))
def test_text_without_escapes_is_its_own_name(text: str) -> None:
    if "\\x" not in text:
        assert stream_name(text.encode()) == text


def test_bytes_of_the_command_line_become_escapes() -> None:
    assert normalize_name("a\udcff") == "a\\xff" and stream_key("a\udcff") == b"a\xff"
    assert normalize_name("\\x41") == "A"


def test_streams_with_unusual_names_are_read(stream_server: StreamServer) -> None:
    for n, raw in enumerate(ODD):
        stream_server.client.xadd(raw, {"n": n}, "5-0")
    expected = {stream_name(raw): n for n, raw in enumerate(ODD)}
    for options in ({"subscribePattern": ".*"}, {"assign": json.dumps(list(expected))}):
        for fetch in ("resp", "auto"):
            chosen = parse_options({"url": stream_server.url, "fetch": fetch, **options}, "batch")
            reader = HeadraceReader(chosen, ROWS)
            rows = [
                row
                for part in reader.partitions()
                for batch in reader.read(part)
                for row in batch.to_pylist()
            ]
            assert {row["_stream"]: row["n"] for row in rows} == expected


def test_batches_of_a_stream_with_a_long_name_are_small(stream_server: StreamServer) -> None:
    name = "x" * 10_000_000
    for n in range(5):
        stream_server.client.xadd(name, {"n": n}, f"{n + 1}-0")
    for fetch in ("resp", "auto"):
        options = {"url": stream_server.url, "fetch": fetch, "assign": json.dumps([name])}
        reader = HeadraceReader(parse_options(options, "batch"), ROWS)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(range(5))
        assert max(batch.num_rows for batch in batches) == 1


def test_rows_are_written_to_streams_of_any_name(stream_server: StreamServer) -> None:
    schema = StructType([StructField("_stream", StringType()), StructField("n", LongType())])
    names = ["\\xff", "\\x41", "A", rb"\x5cxff".decode(), "\\xff"]
    batch = pa.RecordBatch.from_pydict({"_stream": names, "n": list(range(5))})
    for options in ({}, {"delivery": "exactly-once", "queryId": "q"}):
        stream_server.client.flushall()
        writer = HeadraceWriter(parse_options({"url": stream_server.url, **options}, "sink"), schema, False)
        writer.commit([writer.write(iter([batch]))])
        found = {
            raw: [int(fields[b"n"]) for _, fields in stream_server.client.xrange(raw)]
            for raw in (b"\xff", b"A", rb"\xff")
        }
        assert found == {b"\xff": [0, 4], b"A": [1, 2], rb"\xff": [3]}


def test_a_stream_of_any_name_can_be_overwritten(stream_server: StreamServer) -> None:
    schema = StructType([StructField("n", LongType())])
    stream_server.client.xadd(b"a\xff", {"n": 1})
    options = parse_options({"url": stream_server.url, "stream": "a\\xff"}, "sink")
    writer = HeadraceWriter(options, schema, True)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"n": [7, 8]})]))])
    assert [fields for _, fields in stream_server.client.xrange(b"a\xff")] == [{b"n": b"7"}, {b"n": b"8"}]
    assert set(stream_server.client.scan_iter(_type="stream")) == {b"a\xff"}


def test_commands_find_streams_of_any_name(stream_server: StreamServer) -> None:
    for raw in (b"a\xff", b"a\nb", b""):
        stream_server.client.xadd(raw, {"n": 1})
    url = stream_server.url
    assert select_streams(url, ("a\udcff", "a\\xff", ""), None) == ["a\\xff", ""]
    assert select_streams(url, (), ".*") == ["", "a\nb", "a\\xff"]
    assert select_streams(url, (), r"a\\xff") == ["a\\xff"]
    assert total_length(url, ["a\\xff", "a\nb", ""]) == 3
