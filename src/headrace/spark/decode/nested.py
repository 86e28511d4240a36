"""Convert fields that contain JSON to arrays, maps and structs, like Spark's from_json, but strictly.

    ARRAY<INT>                     [1, 2]
    MAP<STRING, DOUBLE>            {"a": 1.5}
    STRUCT<at: DATE, n: LONG>      {"at": "2024-01-01", "more": true}     n is missing, more is ignored

A text that is not JSON, or contains a value of another type, is malformed as a whole. Times are in ISO 8601,
or numbers in the unit of timestampFormat. Dates are in ISO 8601. Decimals may be texts. A STRING accepts any
value as its JSON. So the source can read what the sink writes for such columns.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import json
import re
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as kinds

from headrace.errors import UsageError
from headrace.spark.decode.nested_json import json_text

UTC = datetime.UTC
INTEGERS: dict[type[kinds.DataType], int] = {
    kinds.ByteType: 8,
    kinds.ShortType: 16,
    kinds.IntegerType: 32,
    kinds.LongType: 64,
}
SCALAR_TYPES = (
    kinds.BooleanType,
    kinds.FloatType,
    kinds.DoubleType,
    kinds.DecimalType,
    kinds.BinaryType,
    kinds.DateType,
    kinds.TimestampType,
    kinds.TimestampNTZType,
    *INTEGERS,
)
NOT_FINITE = ("nan", "inf", "-inf")  # as the sink writes them: JSON has no such numbers
INTEGER_FORM = re.compile("0|-?[1-9][0-9]*")
MARGIN = 50  # frames of Python that the check may use less than the conversion
PER_SECOND = {"epoch_ms": 1000, "epoch_s": 1}


@dataclass(frozen=True)
class NestedConverter:
    """Converts texts to values of one type; picklable."""

    kind: kinds.DataType
    timestamp_format: str
    nullable: bool = True

    def __call__(self, text: str | bytes) -> Any:
        """Return a value that Arrow converts to the type. Malformed: ValueError or ArithmeticError."""
        try:
            if isinstance(text, bytes):  # the decoder's check, stricter than the conversion of the text later
                return self._read_deeper(text.decode(), MARGIN)
            return self._read(json.loads(text, parse_float=decimal.Decimal), self.kind, self.nullable)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def _read_deeper(self, text: str, frames: int) -> Any:
        """Read with so many more frames on the stack: what passes the check can be converted later."""
        return self._read_deeper(text, frames - 1) if frames else self(text)

    def _read(self, value: Any, kind: kinds.DataType, nullable: bool) -> Any:
        if value is None:
            if not nullable:
                raise ValueError("a null")
            return None
        if isinstance(kind, kinds.ArrayType):
            _expect(value, list)
            return [self._read(each, kind.elementType, kind.containsNull) for each in value]
        if isinstance(kind, kinds.MapType):
            _expect(value, dict)
            pairs = value.items()
            return [
                (_key(k, kind.keyType), self._read(v, kind.valueType, kind.valueContainsNull))
                for k, v in pairs
            ]
        if isinstance(kind, kinds.StructType):
            _expect(value, dict)
            return {f.name: self._read(value.get(f.name), f.dataType, f.nullable) for f in kind.fields}
        if isinstance(kind, kinds.TimestampType | kinds.TimestampNTZType):
            return self._time(value, isinstance(kind, kinds.TimestampNTZType))
        return _scalar(value, kind)

    def _time(self, value: Any, naive: bool) -> datetime.datetime:
        per_second = PER_SECOND.get(self.timestamp_format, 1000)
        if isinstance(value, int) and not isinstance(value, bool):
            whole = datetime.timedelta(microseconds=value * (1_000_000 // per_second))
            time = datetime.datetime(1970, 1, 1, tzinfo=UTC) + whole
        else:
            _expect(value, str)
            time = datetime.datetime.fromisoformat(value)
            time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        return time.replace(tzinfo=None) if naive else time


def check_nested_type(name: str, kind: kinds.DataType) -> None:
    """Raise UsageError if a part of the type cannot be read from JSON."""
    if isinstance(kind, kinds.ArrayType):
        check_nested_type(name, kind.elementType)
    elif isinstance(kind, kinds.StructType):
        for field in kind.fields:
            check_nested_type(name, field.dataType)
    elif isinstance(kind, kinds.MapType):
        if type(kind.keyType) not in (kinds.StringType, *INTEGERS):
            raise UsageError(
                f"The column {name} has a map with {kind.keyType.simpleString().upper()} keys: use STRING."
            )
        check_nested_type(name, kind.valueType)
    elif type(kind) not in (kinds.StringType, *SCALAR_TYPES):
        raise UsageError(
            f"The column {name} contains {kind.simpleString().upper()}, which cannot be read from JSON: read "
            "it as a STRING and convert it in Spark."
        )


def _expect(value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError("a value of another type")


def _key(text: str, kind: kinds.DataType) -> Any:
    if isinstance(kind, kinds.StringType):
        return _text(text)
    if not INTEGER_FORM.fullmatch(text):  # one spelling for each number, so no key is there twice
        raise ValueError("no integer")
    return _integer(int(text), INTEGERS[type(kind)])


def _integer(value: Any, bits: int) -> int:
    _expect(value, int)
    if isinstance(value, bool) or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError("no such integer")
    return int(value)


def _text(value: Any) -> str:
    """Return a text unchanged; anything else as its JSON."""
    text = value if isinstance(value, str) else json_text(value)
    text.encode()  # raises for half of a surrogate pair
    return text


def _scalar(value: Any, kind: kinds.DataType) -> Any:
    if isinstance(kind, kinds.StringType):
        return _text(value)
    if type(kind) in INTEGERS:
        return _integer(value, INTEGERS[type(kind)])
    if isinstance(kind, kinds.BooleanType):
        _expect(value, bool)
        return value
    if isinstance(kind, kinds.FloatType | kinds.DoubleType):
        if isinstance(value, bool | list | dict) or (isinstance(value, str) and value not in NOT_FINITE):
            raise ValueError("no number")
        return float(value)
    if isinstance(kind, kinds.DecimalType):
        return _decimal(value, kind)
    _expect(value, str)
    return value.encode() if isinstance(kind, kinds.BinaryType) else datetime.date.fromisoformat(value)


@functools.cache
def _exactly(precision: int) -> decimal.Context:
    return decimal.Context(prec=precision, traps=[decimal.Inexact, decimal.InvalidOperation])


def _decimal(value: Any, kind: kinds.DecimalType) -> decimal.Decimal:
    """Return the exact number. It is malformed if it would have to be rounded, or does not fit."""
    if isinstance(value, bool | list | dict | float):
        raise ValueError("no number")
    number = decimal.Decimal(value)
    if not number.is_finite():  # Python accepts "NaN", which is not a value of the type
        raise ValueError("no number")
    return number.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_exactly(kind.precision))
