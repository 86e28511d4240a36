"""Infer the columns of a table in SQL from the fields of a sample of entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from headrace.columns.declarations import parse_schema
from headrace.columns.layout import RESERVED_NAMES
from headrace.columns.value_types import field_types


def inferred_schema(sample: Iterable[Mapping[bytes, bytes]]) -> pa.Schema:
    """Return columns for the fields of a sample; none for a name that is not UTF-8, or is reserved."""
    return pa.schema(
        [
            parse_schema(f"x {declaration}").field(0).with_name(name)
            for field, declaration in field_types(sample).items()
            if (name := column_name(field))
        ]
    )


def fields_without_column(sample: Iterable[Mapping[bytes, bytes]]) -> tuple[str, ...]:
    """Return the field names of a sample that cannot be columns: they are reserved, or not UTF-8."""
    names = dict.fromkeys(name for entry in sample for name in entry)
    return tuple(name.decode(errors="backslashreplace") for name in names if not column_name(name))


def column_name(field: bytes) -> str:
    """Return the name of the column of a field; empty if it is not UTF-8, or is reserved."""
    try:
        name = field.decode()
    except UnicodeDecodeError:
        return ""
    return "" if name.lower() in RESERVED_NAMES else name
