"""Columns that the sink could only write with a loss are rejected with the way to keep their values."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, VariantVal, YearMonthIntervalType

from headrace.errors import UsageError
from headrace.spark.options import parse_options
from headrace.spark.sink.sender import write_batches
from headrace.spark.sink.writer import HeadraceStreamWriter, HeadraceWriter
from support.stream_server import StreamServer

WHOLE = datetime.datetime(2024, 1, 1, 0, 0, 0, 123000)
FINE = datetime.datetime(2024, 1, 1, 0, 0, 0, 123456)
VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
NO_NAMES = b"\x01\x00\x00"  # the metadata of a variant without field names


def stored(server: StreamServer, column: pa.Array, **options: str) -> list[bytes | None]:
    server.client.delete("s")
    table = pa.table({"n": list(range(len(column))), "t": column})
    write_batches(table, server.url, "s", **options)
    return [fields.get(b"t") for _, fields in server.client.xrange("s")]


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_microseconds_are_cut_only_if_the_option_says_so(
    stream_server: StreamServer, unit: str, zone: str | None
) -> None:
    kind = pa.timestamp(unit, zone)
    whole, fine = (pa.array([time, None], kind) for time in (WHOLE, FINE))
    assert stored(stream_server, whole) == [b"1704067200123", None]
    for form in (fine, fine.dictionary_encode()):
        with pytest.raises(UsageError, match=r"column t holds, in row 1 .* 2024-01-01T00:00:00\.123456"):
            stored(stream_server, form)
        assert not stream_server.client.exists("s")
    assert stored(stream_server, fine, timestampFormat="epoch_ms") == [b"1704067200123", None]
    [kept, _] = stored(stream_server, fine, timestampFormat="iso8601")
    assert kept is not None and kept.startswith(b"2024-01-01T00:00:00.123456")
    before_1970 = pa.array([datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)], kind)
    with pytest.raises(UsageError, match="1969-12-31"):
        stored(stream_server, before_1970)


def test_a_variant_is_written_as_json(stream_server: StreamServer) -> None:
    values = [{"value": b"\x0c\x01", "metadata": NO_NAMES}, None, {"value": b"\x04", "metadata": NO_NAMES}]
    assert str(VariantVal(b"\x0c\x01", NO_NAMES)) == "1"
    assert stored(stream_server, pa.array(values, VARIANT)) == [b"1", None, b"true"]
    lists = pa.array([[values[0], values[2]], [None]], pa.list_(VARIANT))
    assert stored(stream_server, lists) == [b"[1,true]", b"[null]"]
    plain = pa.struct([pa.field("value", pa.string()), pa.field("metadata", pa.string())])
    assert stored(stream_server, pa.array([{"value": "a", "metadata": "b"}], plain)) == [
        b'{"value":"a","metadata":"b"}'
    ]


@pytest.mark.parametrize("kind", [HeadraceWriter, HeadraceStreamWriter])
def test_a_type_that_spark_cannot_pass_is_named(kind: type[HeadraceWriter | HeadraceStreamWriter]) -> None:
    columns = StructType([StructField("n", LongType()), StructField("span", YearMonthIntervalType())])
    options = parse_options({"stream": "s"}, "sink")
    with pytest.raises(UsageError, match=r"column span is INTERVAL .*: write it as text, with CAST\(span"):
        kind(options, columns, False)
