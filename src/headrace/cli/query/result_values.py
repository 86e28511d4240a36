"""Format the values of a query's rows as text and as JSON, the same for both engines.

a time with a zone       2024-10-27 02:30:00+02:00, so that both instants of a doubled hour differ;
                         without an offset in UTC
a year before 1 or       text, with a sign of the year: +10000-01-01 00:00:00
after 9999
a list, struct or map    JSON, with the names of a struct
decimals                 all digits, never an exponent
NaN, infinities          in JSON the texts "NaN", "Infinity", "-Infinity": JSON has no such numbers
"""

from __future__ import annotations

import datetime
import json
import math
import zoneinfo
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.value_texts import to_encodable
from headrace.console.escaping import json_text
from headrace.pipeline.shared.interrupts import raise_if_interrupted

UTC_NAME = "UTC"
HUGEINT_ARROW_TYPE = pa.decimal128(38, 0)  # what sum() of integers returns in DuckDB
LOCAL_TIME_FORMAT = "iso8601: 6"  # a blank between date and time, six digits of the fraction, no zone


def rows_of(batches: Iterable[pa.RecordBatch], time_zone: str) -> Iterator[Sequence[Any]]:
    """Yield the rows of record batches, with times in a zone; KeyboardInterrupt after a signal."""
    zone = zoneinfo.ZoneInfo(time_zone)
    for batch in batches:
        raise_if_interrupted()
        yield from zip(*(_column_values(column, zone) for column in batch.columns), strict=True)


def _column_values(column: pa.Array, zone: zoneinfo.ZoneInfo) -> list[Any]:
    """Return the values of a column: DuckDB's HUGEINT as int, times that datetime cannot hold as text."""
    if column.type == HUGEINT_ARROW_TYPE:
        return [None if value is None else int(value) for value in column.to_pylist()]
    try:
        return [_in_zone(value, zone) for value in column.to_pylist(maps_as_pydicts="lossy")]
    except OverflowError:
        return [_value_or_text(value, zone) for value in column]


def _value_or_text(value: pa.Scalar, zone: zoneinfo.ZoneInfo) -> Any:
    """Return a value in which times that Python's datetime cannot hold are text."""
    try:
        return _in_zone(value.as_py(maps_as_pydicts="lossy"), zone)
    except OverflowError:
        single = pa.repeat(value, 1)
    if pa.types.is_timestamp(single.type) and single.type.tz:
        single = pc.local_timestamp(single.cast(pa.timestamp(single.type.unit, zone.key)))
    [text] = to_encodable(single, LOCAL_TIME_FORMAT).to_pylist()
    if pa.types.is_nested(single.type):
        return json.loads(text)
    return text.removesuffix(".000000")


def _in_zone(value: Any, zone: zoneinfo.ZoneInfo) -> Any:
    """Return a value in which all times that have a zone are in `zone`, also within lists and maps."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(zone)
    if isinstance(value, dict):
        return {name: _in_zone(each, zone) for name, each in value.items()}
    return [_in_zone(each, zone) for each in value] if isinstance(value, list) else value


def to_json_value(value: Any) -> Any:
    """Return a value that JSON can represent."""
    if isinstance(value, dict):
        return {_key(name): to_json_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [to_json_value(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bool | int | float) or value is None:
        return value
    return as_text(value)


def as_text(value: Any) -> str:
    """Return the text of a value: bytes that are not UTF-8 as \\xNN, nested values as JSON."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return str(value.replace(tzinfo=None) if _is_utc(value) else value)
    if isinstance(value, dict | list):
        return json_text(to_json_value(value))
    if isinstance(value, Decimal):
        return format(value, "f")  # str() would write an exponent: 0E-10
    return str(value)


def _key(value: Any) -> str:
    """Return a key of a map as the name of a JSON member."""
    found = to_json_value(value)
    return found if isinstance(found, str) else json_text(found)


def _is_utc(value: datetime.datetime) -> bool:
    return getattr(value.tzinfo, "key", None) == UTC_NAME or value.tzinfo is datetime.UTC
