r"""Specify how a column of an Arrow type is read from a field: the kind of decoder, settings and converter.

    string, binary, bool                     as they are
    int8 ... int64, float32, float64         decimal numbers that fit
    timestamp[us], with or without a zone    numbers or ISO 8601, as its time format says
    date32, decimal128                       converted by Python, value by value
    list, map, struct                        JSON, converted by Python

A missing field is null, and so is a value that does not fit the type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.arrow.columns import Column
from headrace.columns import converters
from headrace.columns.nested_from_json import NestedConverter, is_nested, unreadable_part
from headrace.columns.time_formats import SLASHED_DATE_FORMAT

TIME_SCALES = {"epoch_ms": 1000, "epoch_s": 1000000, "auto": 1000}
REAL_WIDTHS = {pa.float32(): 4, pa.float64(): 8}
INTEGER_WIDTHS = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}
SIMPLE_KINDS = {pa.string(): "text", pa.binary(): "binary", pa.bool_(): "boolean"}


@dataclass(frozen=True)
class ColumnSpec:
    """How one column is made.

    kind         a kind of arrow.columns.Column, or "nested" (decoded as JSON texts), "stream" or "exact"
    settings     further arguments of that Column
    time_format  the format of times
    """

    kind: str
    name: str
    settings: dict[str, Any]
    time_format: str = "epoch_ms"

    def new_column(self) -> Column:
        """Return a new column for a decoder."""
        kind = "text" if self.kind == "nested" else self.kind
        return Column(kind, self.name.encode(), **self.settings)


def column_comment(field: pa.Field) -> str:
    """Return the comment of a column, which may state the format of its times; empty without one."""
    comment: bytes = (field.metadata or {}).get(b"comment", b"")
    return comment.decode(errors="replace")


def field_spec(name: str, kind: pa.DataType, nullable: bool, time_format: str) -> ColumnSpec | None:
    """Return how a column of a type is read from the field `name`; None for a type that cannot be read."""
    settings: dict[str, Any] = {"nullable": nullable}
    if is_nested(kind) and unreadable_part(kind) is None:
        settings["convert"] = NestedConverter(kind, time_format, nullable)
        return ColumnSpec("nested", name, settings, time_format)
    if kind in SIMPLE_KINDS:
        return ColumnSpec(SIMPLE_KINDS[kind], name, settings, time_format)
    if kind in INTEGER_WIDTHS:
        bits = 8 * INTEGER_WIDTHS[kind] - 1
        settings |= {"width": INTEGER_WIDTHS[kind], "low": -(1 << bits), "high": (1 << bits) - 1}
        return ColumnSpec("integer", name, settings, time_format)
    if kind in REAL_WIDTHS:
        return ColumnSpec("real", name, settings | {"width": REAL_WIDTHS[kind]}, time_format)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        if time_format not in TIME_SCALES:
            settings |= {"width": 8, "convert": converters.iso_timestamp}
            return ColumnSpec("converted", name, settings, time_format)
        scale = TIME_SCALES[time_format]
        limit = ((1 << 63) - 1) // scale
        settings |= {"scale": scale, "low": -limit, "high": limit}
        if time_format == "auto":
            settings["convert"] = converters.iso_timestamp
        return ColumnSpec("integer", name, settings, time_format)
    if kind == pa.date32():
        convert = converters.slashed_date if time_format == SLASHED_DATE_FORMAT else converters.iso_date
        return ColumnSpec("converted", name, settings | {"width": 4, "convert": convert}, time_format)
    if pa.types.is_decimal128(kind):
        to_decimal = converters.DecimalConverter(kind.precision, kind.scale)
        return ColumnSpec("converted", name, settings | {"width": 16, "convert": to_decimal}, time_format)
    return None
