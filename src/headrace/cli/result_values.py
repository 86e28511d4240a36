"""The values of a query's rows, as text and as JSON: the same for both engines.

a time with a zone       2024-10-27 02:30:00+02:00, so that both instants of a doubled hour differ;
                         without an offset in UTC
a list, struct or map    JSON, with the names of a struct
decimals                 all digits, never an exponent
NaN, infinities          in JSON the texts "NaN", "Infinity", "-Infinity": JSON has no such numbers
"""

from __future__ import annotations

import datetime
import math
import zoneinfo
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import Row
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from headrace.console.escaping import json_text

UTC = "UTC"


def spark_rows(rows: Iterable[Sequence[Any]], schema: StructType, time_zone: str) -> Iterator[list[Any]]:
    """Yield rows of Spark with structs as dicts, and times with the zone that PySpark leaves out."""
    zone = zoneinfo.ZoneInfo(time_zone)
    kinds = [field.dataType for field in schema]
    for row in rows:
        yield [_from_spark(value, kind, zone) for value, kind in zip(row, kinds, strict=True)]


def _from_spark(value: Any, kind: DataType, zone: zoneinfo.ZoneInfo) -> Any:
    if value is None:
        return None
    if isinstance(kind, TimestampType):
        return value.replace(tzinfo=zone)  # it is a local time, and `fold` says which of two
    if isinstance(kind, StructType):
        pairs = zip(kind.fields, value, strict=True)
        return {field.name: _from_spark(each, field.dataType, zone) for field, each in pairs}
    if isinstance(kind, ArrayType):
        return [_from_spark(each, kind.elementType, zone) for each in value]
    if isinstance(kind, MapType):
        return {
            _from_spark(key, kind.keyType, zone): _from_spark(each, kind.valueType, zone)
            for key, each in value.items()
        }
    return value


def as_json(value: Any) -> Any:
    """Return a value that JSON can represent."""
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        return {_key(name): as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
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
    if isinstance(value, dict | list | Row):
        return json_text(as_json(value))
    if isinstance(value, Decimal):
        return format(value, "f")  # str() would write an exponent: 0E-10
    return str(value)


def _key(value: Any) -> str:
    """Return the key of a map as JSON's text of it."""
    found = as_json(value)
    return found if isinstance(found, str) else json_text(found)


def _is_utc(value: datetime.datetime) -> bool:
    return getattr(value.tzinfo, "key", None) == UTC or value.tzinfo is datetime.UTC
