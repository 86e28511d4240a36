"""Rows become entries that the source reads back as the same rows."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType
from stream_server import StreamServer

from headrace.errors import CommandError, UsageError
from headrace.spark.options import parse_options
from headrace.spark.writer import Encoder, HeadraceWriter, texts


def schema(**kinds: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def written(server: StreamServer, columns: dict[str, list[object]], kinds: StructType, **options: str) -> int:
    writer = HeadraceWriter(parse_options({"url": server.url, **options}, "sink"), kinds, False)
    return writer.write(iter([pa.RecordBatch.from_pydict(columns)])).entries


def test_values_are_written_as_the_source_reads_them() -> None:
    noon = datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.UTC)
    assert texts(pa.array([1, None, -5])) == [b"1", None, b"-5"]
    assert texts(pa.array([0.1, 1e300])) == [b"0.1", b"1e+300"]
    assert texts(pa.array([True, False])) == [b"true", b"false"]
    assert texts(pa.array([noon], pa.timestamp("us", "UTC"))) == [b"1500"]
    assert texts(pa.array([datetime.date(2024, 2, 29)])) == [b"2024-02-29"]
    assert texts(pa.array([decimal.Decimal("1.50")])) == [b"1.50"]
    assert texts(pa.array([b"\xff", "ü".encode()])) == [b"\xff", "ü".encode()]
    assert texts(pa.array([[1, 2], None])) == [b"[1, 2]", None]


def test_every_column_is_a_field_and_a_null_is_left_out(stream_server: StreamServer) -> None:
    columns = {"a": ["x", None, "z"], "n": [1, 2, None], "_id": ["5-1", "5-2", "6-0"]}
    kinds = schema(a=StringType(), n=LongType(), _id=StringType())
    assert written(stream_server, columns, kinds, stream="out") == 3
    assert stream_server.client.xrange("out") == [
        (b"5-1", {b"a": b"x", b"n": b"1"}),
        (b"5-2", {b"n": b"2"}),
        (b"6-0", {b"a": b"z"}),
    ]


def test_rows_may_name_their_stream_and_bring_a_map_of_fields(stream_server: StreamServer) -> None:
    columns = {
        "_stream": ["one", "two"],
        "_fields": pa.array([[("a", "1"), ("b", "2")], [("c", "3")]], pa.map_(pa.string(), pa.string())),
    }
    kinds = schema(_stream=StringType(), _fields=MapType(StringType(), StringType()))
    assert written(stream_server, columns, kinds) == 2
    assert stream_server.client.xrange("one")[0][1] == {b"a": b"1", b"b": b"2"}
    assert stream_server.client.xrange("two")[0][1] == {b"c": b"3"}


def test_many_rows_keep_their_order_over_chunks(stream_server: StreamServer) -> None:
    assert written(stream_server, {"n": list(range(5001))}, schema(n=LongType()), stream="out") == 5001
    numbers = [int(fields[b"n"]) for _, fields in stream_server.client.xrange("out")]
    assert numbers == list(range(5001))


def test_a_stream_is_trimmed_while_it_is_written(stream_server: StreamServer) -> None:
    written(stream_server, {"n": list(range(5000))}, schema(n=LongType()), stream="out", maxLength="1000")
    assert 1000 <= stream_server.client.xlen("out") < 1300


def test_what_cannot_be_written_is_refused_with_a_reason(stream_server: StreamServer) -> None:
    one = {"n": [1]}
    with pytest.raises(UsageError, match="Say where to write"):
        written(stream_server, one, schema(n=LongType()))
    with pytest.raises(UsageError, match="_id must be STRING"):
        Encoder(schema(_id=LongType()), parse_options({"stream": "s"}, "sink"))
    with pytest.raises(UsageError, match="nothing but nulls"):
        written(stream_server, {"n": pa.array([None], pa.int64())}, schema(n=LongType()), stream="s")
    with pytest.raises(UsageError, match="append"):
        HeadraceWriter(parse_options({"stream": "s"}, "sink"), schema(n=LongType()), True)
    stream_server.client.set("text", "x")
    with pytest.raises(CommandError, match="WRONGTYPE"):
        written(stream_server, one, schema(n=LongType()), stream="text")
