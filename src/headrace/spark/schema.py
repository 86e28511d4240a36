"""Rows: which column of a Spark schema is read from what, and Arrow batches of exactly that schema.

Without a schema a row is

    stream STRING, id STRING, timestamp TIMESTAMP, sequence LONG, fields MAP<STRING, STRING>

With a schema of the user's every column is the field of the same name (case matters), but for six reserved
names, which start with an underscore so that they are never in the way of a field:

    _stream STRING    _id STRING    _timestamp TIMESTAMP    _sequence LONG
    _fields MAP<STRING, STRING> or MAP<BINARY, BINARY>      _corrupt_record STRING

So `.schema("id STRING, price DOUBLE")` reads two fields called id and price, and
`.schema("_id STRING, price DOUBLE")` the entry's ID and one field. A field that an entry lacks is null.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.arrow.columns import Column
from headrace.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

DEFAULT_SCHEMA = "stream STRING, id STRING, timestamp TIMESTAMP, sequence LONG, fields MAP<STRING, STRING>"
DEFAULT_NAMES = ["stream", "id", "timestamp", "sequence", "fields"]

Buffers = tuple[int, "bytearray | None", bytearray, bytearray]

# Reserved column: what the decoder calls it, the types it may have. The stream is not the decoder's affair.
RESERVED = {
    "_stream": ("stream", ("string",)),
    "_id": ("id", ("string",)),
    "_timestamp": ("timestamp", ("timestamp", "timestamp_ntz")),
    "_sequence": ("sequence", ("bigint",)),
    "_fields": ("fields", ("map<string,string>", "map<binary,binary>")),
    "_corrupt_record": ("corrupt", ("string",)),
}
INTEGER_WIDTHS = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
REAL_WIDTHS = {"float": 4, "double": 8}
TIME_SCALES = {"epoch_ms": 1000, "epoch_s": 1000000}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EXACTLY = decimal.Context(prec=120, traps=[decimal.InvalidOperation, decimal.Overflow])


@dataclass(frozen=True)
class Spec:
    """How one column is made. kind: one of arrow.columns.Column, "nested" or "stream"; its settings.

    What is nested is JSON in texts, until the batch is made.
    """

    kind: str
    name: str
    settings: dict[str, Any]

    def column(self) -> Column:
        """Fresh buffers for the decoder."""
        kind = "text" if self.kind == "nested" else self.kind
        return Column(kind, self.name.encode(), **self.settings)


class Layout:
    """The columns of one read. Picklable; made on the driver, so a bad schema fails before any task runs."""

    def __init__(self, schema: StructType, timestamp_format: str) -> None:
        self.schema = schema
        is_default = schema.names == DEFAULT_NAMES and schema.simpleString() == (
            "struct<stream:string,id:string,timestamp:timestamp,sequence:bigint,fields:map<string,string>>"
        )
        self.specs: list[Spec] = []
        for field in schema.fields:
            reserved = f"_{field.name}" if is_default else field.name
            if reserved in RESERVED:
                self.specs.append(_reserved(reserved, field.dataType, field.nullable))
            else:
                self.specs.append(_typed(field.name, field.dataType, field.nullable, timestamp_format))
        names = [spec.name for spec in self.specs if spec.name]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UsageError(f"The schema names {', '.join(sorted(twice))} twice.")

    def columns(self) -> list[Column]:
        """Fresh columns for a decoder."""
        return [spec.column() for spec in self.specs if spec.kind != "stream"]


class BatchMaker:
    """Makes the record batches of one stream out of what its decoder gives."""

    def __init__(self, layout: Layout, stream: str) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._layout = layout
        self._stream = stream
        self._schema = to_arrow_schema(layout.schema, timezone="UTC")

    def batch(self, rows: int, buffers: list[Buffers]) -> pa.RecordBatch:
        """The rows as one batch, on the decoder's own memory."""
        import pyarrow as pa

        rest = iter(buffers)
        pairs = buffers[-2:]  # a map's keys and items come last
        arrays = []
        for spec, field in zip(self._layout.specs, self._schema, strict=True):
            if spec.kind == "stream":
                arrays.append(pa.repeat(pa.scalar(self._stream, field.type), rows))
            elif spec.kind == "nested":
                arrays.append(_nested_array(field.type, rows, next(rest), spec.settings["convert"]))
            elif spec.kind == "fields":
                arrays.append(_map_array(field.type, rows, next(rest), pairs))
            else:
                arrays.append(_array(field.type, rows, next(rest)))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(kind: pa.DataType, rows: int, buffers: Buffers) -> pa.Array:
    import pyarrow as pa

    nulls, validity, offsets, values = buffers
    parts = [pa.py_buffer(validity) if validity is not None else None]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        parts.append(pa.py_buffer(offsets))
    parts.append(pa.py_buffer(values))
    return pa.Array.from_buffers(kind, rows, parts, nulls)


def _map_array(kind: pa.MapType, rows: int, buffers: Buffers, pairs: list[Buffers]) -> pa.Array:
    import pyarrow as pa

    nulls, validity, offsets, _ = buffers
    count = len(pairs[0][2]) // 4 - 1
    children = [_array(kind.key_type, count, pairs[0]), _array(kind.item_type, count, pairs[1])]
    entries = pa.Array.from_buffers(
        pa.struct([kind.key_field, kind.item_field]), count, [None], 0, children=children
    )
    parts = [pa.py_buffer(validity) if validity is not None else None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, rows, parts, nulls, children=[entries])


def _nested_array(kind: pa.DataType, rows: int, buffers: Buffers, read: Callable[[str], Any]) -> pa.Array:
    """The texts were read once already, to see whether they are malformed."""
    import pyarrow as pa

    texts = _array(pa.string(), rows, buffers).to_pylist()
    return pa.array([None if text is None else read(text) for text in texts], kind)


def _reserved(name: str, kind: DataType, nullable: bool) -> Spec:
    role, types = RESERVED[name]
    if kind.simpleString() not in types:
        raise UsageError(
            f"The column {name} must be {' or '.join(types).upper()}, not {kind.simpleString().upper()}."
        )
    if role == "corrupt" and not nullable:
        raise UsageError("The column _corrupt_record must be nullable: good entries have none.")
    settings: dict[str, Any] = {"nullable": nullable}
    if role == "fields":
        settings["utf8"] = kind.simpleString() == "map<string,string>"
    return Spec(role, "", settings)


def _typed(name: str, kind: DataType, nullable: bool, timestamp_format: str) -> Spec:
    settings: dict[str, Any] = {"nullable": nullable}
    said = kind.simpleString()
    if said in ("string", "binary"):
        return Spec("text" if said == "string" else "binary", name, settings)
    if said in INTEGER_WIDTHS:
        bits = 8 * INTEGER_WIDTHS[said] - 1
        settings |= {"width": INTEGER_WIDTHS[said], "low": -(1 << bits), "high": (1 << bits) - 1}
        return Spec("integer", name, settings)
    if said in REAL_WIDTHS:
        return Spec("real", name, settings | {"width": REAL_WIDTHS[said]})
    if said == "boolean":
        return Spec("boolean", name, settings)
    if said in ("timestamp", "timestamp_ntz") and timestamp_format in TIME_SCALES:
        scale = TIME_SCALES[timestamp_format]
        limit = ((1 << 63) - 1) // scale
        return Spec("integer", name, settings | {"scale": scale, "low": -limit, "high": limit})
    if said in ("timestamp", "timestamp_ntz"):
        return Spec("converted", name, settings | {"width": 8, "convert": _iso_timestamp})
    if said == "date":
        return Spec("converted", name, settings | {"width": 4, "convert": _iso_date})
    if said.startswith("decimal("):
        return Spec("converted", name, settings | {"width": 16, "convert": _decimal(kind)})
    if said.startswith(("array<", "map<", "struct<")):
        from headrace.spark import nested

        nested.check(name, kind)
        return Spec("nested", name, settings | {"convert": nested.Nested(kind, timestamp_format, nullable)})
    raise UsageError(
        f"The column {name} is {said.upper()}, which headrace cannot read from a field. Read it as a STRING "
        "and convert it in Spark."
    )


def _iso_timestamp(text: bytes) -> bytes:
    """ISO 8601 as microseconds since 1970; UTC when it names no zone."""
    time = datetime.datetime.fromisoformat(text.decode("ascii"))
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return ((time - EPOCH) // datetime.timedelta(microseconds=1)).to_bytes(8, "little", signed=True)


def _iso_date(text: bytes) -> bytes:
    """YYYY-MM-DD as days since 1970."""
    day = datetime.date.fromisoformat(text.decode("ascii"))
    return (day - EPOCH.date()).days.to_bytes(4, "little", signed=True)


@dataclass(frozen=True)
class _DecimalConverter:
    precision: int
    scale: int

    def __call__(self, text: bytes) -> bytes:
        """Exactly the number that stands there: what would have to be rounded is malformed."""
        if text.strip(b"0123456789+-.eE"):
            raise ValueError("no number")
        number = decimal.Decimal(text.decode("ascii"))
        if number and not -50 < number.adjusted() < 50:
            raise ValueError("out of range")
        scaled = number.scaleb(self.scale, EXACTLY)
        whole = int(scaled)
        if whole != scaled or abs(whole) >= 10**self.precision:
            raise ValueError("does not fit")
        return whole.to_bytes(16, "little", signed=True)


def _decimal(kind: Any) -> Callable[[bytes], bytes]:
    return _DecimalConverter(kind.precision, kind.scale)
