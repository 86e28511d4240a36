"""Convert fields that contain JSON to lists, maps and structs, like Spark's from_json, but strictly.

    list<int32>                    [1, 2]
    map<string, double>            {"a": 1.5}
    struct<at: date32, n: int64>   {"at": "2024-01-01", "more": true}     n is missing, more is ignored

A text that is not JSON, or contains a value of another type, is malformed as a whole. Times are in ISO 8601,
or numbers in the unit of the time format. Dates are in ISO 8601. Decimals may be texts. A string accepts any
value as its JSON. So the source can read what the sink writes for such columns.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.columns.json_text import json_text

UTC = datetime.UTC
INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
NON_FINITE_WORDS = ("nan", "inf", "-inf")  # as the sink writes them: JSON has no such numbers
INTEGER_PATTERN = re.compile("0|-?[1-9][0-9]*")
STACK_MARGIN = 50  # frames of Python that the check may use less than the conversion
EPOCH_UNITS_PER_SECOND = {"epoch_ms": 1000, "epoch_s": 1}

JsonValueReader = Callable[[Any], Any]


@dataclass(frozen=True)
class NestedConverter:
    """Converts texts to values of one type; picklable."""

    kind: pa.DataType
    time_format: str
    nullable: bool = True

    def __call__(self, text: str | bytes) -> Any:
        """Return a value that Arrow converts to the type.

        Raises:
            ValueError, ArithmeticError: if the text is malformed.
        """
        try:
            if isinstance(text, bytes):  # the decoder's check, stricter than the conversion of the text later
                return self._read_with_stack_margin(text.decode(), STACK_MARGIN)
            value = json.loads(text, parse_float=decimal.Decimal)
            return _reader(self.kind, EPOCH_UNITS_PER_SECOND.get(self.time_format, 1000), self.nullable)(
                value
            )
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def _read_with_stack_margin(self, text: str, frames: int) -> Any:
        """Read with `frames` more frames on the stack: what passes the check can be converted later."""
        return self._read_with_stack_margin(text, frames - 1) if frames else self(text)


def is_nested(kind: pa.DataType) -> bool:
    """Return whether a type is a list, a map or a struct."""
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind))


def unreadable_part(kind: pa.DataType) -> pa.DataType | None:
    """Return a part of a type that cannot be read from JSON, such as a map with other keys; or None."""
    if pa.types.is_list(kind):
        return unreadable_part(kind.value_type)
    if pa.types.is_struct(kind):
        return next((part for field in kind if (part := unreadable_part(field.type)) is not None), None)
    if pa.types.is_map(kind):
        has_key = kind.key_type == pa.string() or kind.key_type in INTEGER_BITS
        return unreadable_part(kind.item_type) if has_key else kind
    return kind if _scalar_reader(kind, 1) is None else None


@functools.cache
def _reader(kind: pa.DataType, per_second: int, nullable: bool) -> JsonValueReader:
    """Return a function that converts values of Python's json module to values of a type."""
    read = _value_reader(kind, per_second)

    def read_or_null(value: Any) -> Any:
        if value is not None:
            return read(value)
        if not nullable:
            raise ValueError("a null")
        return None

    return read_or_null


def _value_reader(kind: pa.DataType, per_second: int) -> JsonValueReader:
    if pa.types.is_list(kind):
        element = _reader(kind.value_type, per_second, kind.value_field.nullable)
        return lambda value: [element(each) for each in _expected(value, list)]
    if pa.types.is_map(kind):
        key = _key_reader(kind.key_type)
        item = _reader(kind.item_type, per_second, kind.item_field.nullable)
        return lambda value: [(key(k), item(v)) for k, v in _expected(value, dict).items()]
    if pa.types.is_struct(kind):
        members = [(field.name, _reader(field.type, per_second, field.nullable)) for field in kind]
        return lambda value: {name: read(_expected(value, dict).get(name)) for name, read in members}
    scalar = _scalar_reader(kind, per_second)
    assert scalar is not None, f"{kind} cannot be read from JSON"
    return scalar


def _scalar_reader(kind: pa.DataType, per_second: int) -> JsonValueReader | None:
    if kind == pa.string():
        return _text
    if kind in INTEGER_BITS:
        return functools.partial(_integer, bits=INTEGER_BITS[kind])
    if kind == pa.bool_():
        return lambda value: _expected(value, bool)
    if kind in (pa.float32(), pa.float64()):
        return _float
    if pa.types.is_decimal128(kind):
        return functools.partial(_decimal, precision=kind.precision, scale=kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return functools.partial(_time, per_second=per_second, is_naive=kind.tz is None)
    if kind == pa.date32():
        return lambda value: datetime.date.fromisoformat(_expected(value, str))
    if kind == pa.binary():
        return lambda value: _expected(value, str).encode()
    return None


def _expected(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError("a value of another type")
    return value


def _key_reader(kind: pa.DataType) -> JsonValueReader:
    if kind == pa.string():
        return _text
    bits = INTEGER_BITS[kind]

    def read(text: str) -> int:
        if not INTEGER_PATTERN.fullmatch(text):  # one spelling for each number, so no key is there twice
            raise ValueError("no integer")
        return _integer(int(text), bits)

    return read


def _integer(value: Any, bits: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a value of another type")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError("no such integer")
    return value


def _text(value: Any) -> str:
    """Return a text unchanged; anything else as its JSON."""
    text = value if isinstance(value, str) else json_text(value)
    text.encode()  # raises for half of a surrogate pair
    return text


def _float(value: Any) -> float:
    if isinstance(value, bool | list | dict) or (isinstance(value, str) and value not in NON_FINITE_WORDS):
        raise ValueError("no number")
    return float(value)


@functools.cache
def _exact_context(precision: int) -> decimal.Context:
    return decimal.Context(prec=precision, traps=[decimal.Inexact, decimal.InvalidOperation])


def _decimal(value: Any, precision: int, scale: int) -> decimal.Decimal:
    """Return the exact number. It is malformed if it would have to be rounded, or does not fit."""
    if isinstance(value, bool | list | dict | float):
        raise ValueError("no number")
    number = decimal.Decimal(value)
    if not number.is_finite():  # Python accepts "NaN", which is not a value of the type
        raise ValueError("no number")
    return number.quantize(decimal.Decimal(1).scaleb(-scale), context=_exact_context(precision))


def _time(value: Any, per_second: int, is_naive: bool) -> datetime.datetime:
    if isinstance(value, int) and not isinstance(value, bool):
        whole = datetime.timedelta(microseconds=value * (1_000_000 // per_second))
        time = datetime.datetime(1970, 1, 1, tzinfo=UTC) + whole
    else:
        time = datetime.datetime.fromisoformat(_expected(value, str))
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time.replace(tzinfo=None) if is_naive else time
