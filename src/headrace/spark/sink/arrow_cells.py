"""Convert Arrow arrays to ArrowCells for the encoder, by type.

Texts, bytes, integers, doubles and times since 1970 are read in place. All other types become texts first
(value_texts).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.columns.value_texts import (
    EPOCH_UNITS_PER_SECOND,
    UNITS_PER_SECOND,
    texts_and_reasons,
    to_encodable,
)
from headrace.errors import UsageError
from headrace.resp.request import bulk
from headrace.spark.sink.encoder import ArrowCells

if TYPE_CHECKING:
    import pyarrow as pa


def field_cells(name: str, column: pa.Array, timestamp_format: str) -> ArrowCells:
    """Return the cells of a column of any type, to be written to the field `name`.

    Raises:
        UsageError: if a value has no text. Its message names the column and the row of the batch.
    """
    import pyarrow as pa

    try:
        column = to_encodable(column, timestamp_format)
    except UsageError as error:
        _, wrong = texts_and_reasons(column, timestamp_format)
        row = min(wrong)
        raise UsageError(f"The column {name} holds, in row {row + 1} of a batch, {wrong[row]}.") from error
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
        scale = UNITS_PER_SECOND[kind.unit] // EPOCH_UNITS_PER_SECOND[timestamp_format]
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
