"""Convert the texts of fields to values of dates, times and decimals, in Arrow's little-endian form.

A converter takes the bytes of one field. It raises ValueError or ArithmeticError if they are malformed.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from dataclasses import dataclass

Converter = Callable[[bytes], bytes]

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
EXACT_CONTEXT = decimal.Context(prec=120, traps=[decimal.InvalidOperation, decimal.Overflow, decimal.Inexact])
INTEGER_PATTERN = re.compile(rb"[+-]?[0-9]{1,19}")  # as arrow.columns parses one


def iso_timestamp(text: bytes) -> bytes:
    """Convert ISO 8601 to microseconds since 1970, as UTC if it has no zone."""
    if text.isdigit() and len(text) > 8:  # Python takes the ninth character, whatever it is, for the T
        raise ValueError("a number")
    time = datetime.datetime.fromisoformat(text.decode("ascii"))
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return ((time - EPOCH) // datetime.timedelta(microseconds=1)).to_bytes(8, "little", signed=True)


def iso_date(text: bytes) -> bytes:
    """Convert YYYY-MM-DD to days since 1970."""
    day = datetime.date.fromisoformat(text.decode("ascii"))
    return (day - EPOCH.date()).days.to_bytes(4, "little", signed=True)


def slashed_date(text: bytes) -> bytes:
    """Convert YYYY/MM/DD to days since 1970."""
    if len(text) != 10 or text[4:8:3] != b"//":
        raise ValueError("no date with slashes")
    return iso_date(text.replace(b"/", b"-"))


@dataclass(frozen=True)
class DecimalConverter:
    """Converts a number to a decimal of this precision and scale."""

    precision: int
    scale: int

    def __call__(self, text: bytes) -> bytes:
        """Convert a number exactly. ValueError or ArithmeticError if it would be rounded, or does not fit."""
        if text.strip(b"0123456789+-.eE"):
            raise ValueError("no number")
        number = decimal.Decimal(text.decode("ascii"))
        if number and not -50 < number.adjusted() < 50:
            raise ValueError("out of range")
        scaled = number.scaleb(self.scale, EXACT_CONTEXT)
        whole = int(scaled)
        if whole != scaled or abs(whole) >= 10**self.precision:
            raise ValueError("does not fit")
        return whole.to_bytes(16, "little", signed=True)


@dataclass(frozen=True)
class ScaledIntegerConverter:
    """Multiplies an integer from `low` to `high` by `scale`, and returns 64 bits.

    Other texts are converted by `fallback_converter`.
    """

    low: int
    high: int
    scale: int
    fallback_converter: Converter

    def __call__(self, text: bytes) -> bytes:
        """Convert one text, with the same result as a column of arrow.columns with these settings."""
        number = int(text) if INTEGER_PATTERN.fullmatch(text) else None
        if number is None or not self.low <= number <= self.high:
            return self.fallback_converter(text)
        return (number * self.scale).to_bytes(8, "little", signed=True)
