"""Infer the type of a field from a sample of its values.

every value of the field         type of the column
true, false                      BOOLEAN
an integer, not 007 or +1        BIGINT, or STRING if one does not fit
a number, nan, inf               DOUBLE
2013-01-31                       DATE
2013/01/31                       DATE; the column's comment states this format
2013-01-31T12:00:00Z             TIMESTAMP; the column's comment states the format of its times
anything else                    STRING
empty, NA, N/A, n/a, null, NULL  the type of the other values, in which they are null; alone STRING
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headrace.columns.field_order import merge_orders
from headrace.columns.time_formats import SLASHED_DATE_FORMAT, is_lossless_iso

INTEGER_PATTERN = re.compile(rb"0|-?[1-9][0-9]{0,18}")
DECIMAL_PATTERN = re.compile(rb"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,3})?")
NON_FINITE_PATTERN = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
MISSING_WORDS = {b"", b"NA", b"N/A", b"n/a", b"null", b"NULL"}
MISSING_TYPE = "MISSING"  # the type of a field that only had such words so far
DATE_PATTERN = re.compile(rb"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
SLASHED_DATE_PATTERN = re.compile(rb"[0-9]{4}/(0[1-9]|1[0-2])/(0[1-9]|[12][0-9]|3[01])")
SLASHED_DATE_TYPE = f"DATE COMMENT '{SLASHED_DATE_FORMAT}'"
BIGINT_LIMIT = 1 << 63


def field_types(entries: Iterable[Mapping[bytes, bytes]]) -> dict[bytes, str]:
    """Return the type of each field, in an order that as few entries as possible contradict.

    An archive keeps all fields of an entry with another order a second time, in the column `_exact`.
    """
    types: dict[bytes, str] = {}
    orders: dict[tuple[bytes, ...], None] = {}
    for entry in entries:
        orders[tuple(entry)] = None
        for name, value in entry.items():
            types[name] = common_type(types.get(name), value_type(value))
    return {name: "STRING" if types[name] == MISSING_TYPE else types[name] for name in merge_orders(orders)}


def value_type(value: bytes) -> str:
    """Return the narrowest type that holds a value."""
    if value in (b"true", b"false"):
        return "BOOLEAN"
    if INTEGER_PATTERN.fullmatch(value):
        return "BIGINT" if -BIGINT_LIMIT <= int(value) < BIGINT_LIMIT else "STRING"
    if value in MISSING_WORDS:
        return MISSING_TYPE
    if DECIMAL_PATTERN.fullmatch(value) or NON_FINITE_PATTERN.fullmatch(value):
        return "DOUBLE"
    if DATE_PATTERN.fullmatch(value):
        return "DATE"
    if SLASHED_DATE_PATTERN.fullmatch(value):
        return SLASHED_DATE_TYPE
    return "TIMESTAMP" if is_lossless_iso(value) else "STRING"


def common_type(one: str | None, other: str) -> str:
    """Return the type that holds the values of both types; `other` if `one` is None."""
    if one is None or one in (other, MISSING_TYPE):
        return other
    if other == MISSING_TYPE:
        return one
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else "STRING"
