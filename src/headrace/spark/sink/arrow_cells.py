"""Convert Arrow arrays to ArrowCells for the encoder, by type.

Most types are read in place. Arrow converts rare types, dates, decimals and ISO times to texts first.
Arrays, maps and structs become JSON, value by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.resp.request import bulk
from headrace.spark.decode.nested_json import nested_texts
from headrace.spark.decode.time_formats import parse_style
from headrace.spark.sink.encoder import ArrowCells

if TYPE_CHECKING:
    import pyarrow as pa

# Units per second: of Arrow types, and of written times.
UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
EPOCHS = {"epoch_ms": 1000, "epoch_s": 1, "auto": 1000}


def field_cells(name: str, column: pa.Array, timestamp_format: str) -> ArrowCells:
    """Return the cells of a column of any type, to be written to the field `name`."""
    import pyarrow as pa

    column = encodable(column, timestamp_format)
    kind = column.type
    types = pa.types
    field = bulk(name.encode())
    if types.is_null(kind):
        return _make_cells("boolean", field, pa.array([None] * len(column), pa.bool_()))
    if types.is_boolean(kind):
        return _make_cells("boolean", field, column)
    if types.is_integer(kind):
        return _make_cells(
            "integer", field, column, width=kind.bit_width // 8, signed=types.is_signed_integer(kind)
        )
    if types.is_float64(kind):
        return _make_cells("real", field, column)
    if types.is_timestamp(kind):
        scale = UNITS[kind.unit] // EPOCHS[timestamp_format]
        return _make_cells("integer", field, column, scale=scale)
    if types.is_fixed_size_binary(kind):
        return _make_cells("fixed", field, column, width=kind.byte_width)
    wide = types.is_large_string(kind) or types.is_large_binary(kind)
    return _make_cells("text", field, column, width=8 if wide else 4)


def map_cells(column: pa.MapArray) -> ArrowCells:
    """Return the cells of a map of texts, whose pairs become fields."""
    keys = field_cells("", column.keys, "epoch_ms")
    items = field_cells("", column.items, "epoch_ms")
    return _make_cells("map", b"", column, width=4, keys=keys, items=items)


def _make_cells(form: str, field: bytes, column: pa.Array, **settings: Any) -> ArrowCells:
    buffers = column.buffers()
    offsets = buffers[1] if form in ("text", "map") else None
    values = {"text": buffers[2:3], "map": []}.get(form, buffers[1:2])
    validity = buffers[0] if column.null_count else None
    return ArrowCells(
        form, field, column.offset, len(column), validity, offsets, values[0] if values else None, **settings
    )


def encodable(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Convert a column to a type that the encoder reads: with the same values, or their texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if types.is_dictionary(kind):
        return encodable(column.dictionary_decode(), timestamp_format)
    if types.is_run_end_encoded(kind):
        return encodable(pc.run_end_decode(column), timestamp_format)
    if types.is_nested(kind):
        return pa.array(nested_texts(column, lambda leaf: encodable(leaf, "iso8601")), pa.string())
    if types.is_timestamp(kind):
        return _time_column(column, timestamp_format)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if _is_read_directly(kind):
        return column
    if types.is_float16(kind):
        column = column.cast(pa.float32())
    if types.is_floating(column.type):
        # The shortest decimal of the narrow number, then formatted like all doubles.
        return column.cast(pa.string()).cast(pa.float64())
    try:
        return column.cast(pa.string())
    except pa.ArrowNotImplementedError:
        return pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())


def _is_read_directly(kind: pa.DataType) -> bool:
    from pyarrow import types

    texts = types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind)
    texts = texts or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    numbers = types.is_integer(kind) or types.is_boolean(kind) or types.is_float64(kind)
    return bool(texts or numbers or types.is_null(kind))


def _time_column(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Convert times to a unit that is at least as fine as the written one, or to ISO 8601 texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    spelling = parse_style(timestamp_format)
    if spelling is not None:
        times = column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us"))
        times = pc.add(times, pa.scalar(spelling.shift, pa.duration("us")))
        times = times.cast(pa.timestamp(spelling.unit), safe=False)
        return pc.strftime(times, spelling.pattern + spelling.zone)
    if timestamp_format != "iso8601":
        return column.cast(pa.timestamp("ms", kind.tz)) if kind.unit == "s" else column
    if kind.tz is None:
        return pc.strftime(column, "%Y-%m-%dT%H:%M:%S")
    return pc.strftime(column.cast(pa.timestamp(kind.unit, "UTC")), "%Y-%m-%dT%H:%M:%SZ")


def time_texts(column: pa.Array, timestamp_format: str) -> pa.Array:
    """Return the texts that times are written as."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if timestamp_format in EPOCHS:
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        return pc.divide(micros, 1_000_000 // EPOCHS[timestamp_format]).cast(pa.string())
    return _time_column(column, timestamp_format)
