"""Infer columns for undeclared fields of archives and queries from a sample of entries.

    every value of the field         type of the column
    true, false                      BOOLEAN
    an integer, not 007 or +1        BIGINT, or STRING if one does not fit
    a number, nan, inf               DOUBLE
    2013-01-31                       DATE
    2013/01/31                       DATE; the column's comment states this format
    2013-01-31T12:00:00Z             TIMESTAMP; the column's comment states the format of its times
    anything else                    STRING
    empty, NA, N/A, n/a, null, NULL  the type of the other values, in which they are null; alone STRING

A field whose name cannot be a column name is left out. The archive's column _exact keeps the entries that
the columns cannot represent: those with such a field, or with a later value that does not fit its column.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.columns.time_formats import SLASHED_DATE, infer_style, is_iso
from headrace.errors import UsageError
from headrace.pipeline.field_order import merge_orders
from headrace.spark.decode.schema import RESERVED_COLUMNS

SAMPLE_ENTRIES = 1000  # of each stream
INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
DECIMAL = re.compile(rb"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,3})?")
NOT_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
MISSING_WORDS = {b"", b"NA", b"N/A", b"n/a", b"null", b"NULL"}
MISSING = "MISSING"  # the type of a field that only had such words so far
DATE = re.compile(rb"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
WITH_SLASHES = re.compile(rb"[0-9]{4}/(0[1-9]|1[0-2])/(0[1-9]|[12][0-9]|3[01])")
DATE_WITH_SLASHES = f"DATE COMMENT '{SLASHED_DATE}'"
BIGINT_LIMIT = 1 << 63

# Columns of the archive, and names that the Spark source reserves, in lower case: Spark ignores case.
ARCHIVE_COLUMNS = {"stream", "date", "id", "timestamp", "sequence", *RESERVED_COLUMNS}


def sample_both_ends(
    servers: Servers, streams: Iterable[str], entries: int
) -> dict[str, list[Mapping[bytes, bytes]] | Exception]:
    """Read a sample of each stream: half of the entries from its beginning, half from its end, none twice.

    Args:
        servers: The servers.
        streams: The streams' names.
        entries: The number of entries of each stream.

    Returns:
        By stream the fields of its sampled entries, or the error of a stream that cannot be read.
    """
    half = -(-entries // 2)

    def enqueue(pipe: Any, stream: str) -> None:
        pipe.xrange(stream_key(stream), count=half)
        pipe.xrevrange(stream_key(stream), count=half)

    found: dict[str, list[Mapping[bytes, bytes]] | Exception] = {}
    for stream, (first, last) in servers.request_many(streams, enqueue).items():
        error = next((reply for reply in (first, last) if isinstance(reply, Exception)), None)
        found[stream] = error or list(dict([*first, *reversed(last)]).values())
    return found


def sample_entries(
    url: str, streams: Iterable[str], entries: int = SAMPLE_ENTRIES
) -> list[Mapping[bytes, bytes]]:
    """Read a sample of several streams.

    Args:
        url: The server.
        streams: The streams' names.
        entries: The number of entries of each stream.

    Returns:
        The fields of the sampled entries of all streams.

    Raises:
        UsageError: if a stream cannot be read.
    """
    found: list[Mapping[bytes, bytes]] = []
    with Servers(url, reconnect_timeout=0) as servers:
        for stream, fields in sample_both_ends(servers, streams, entries).items():
            if isinstance(fields, Exception):
                raise UsageError(f"stream {stream!r} cannot be sampled: {fields}")
            found += fields
    return found


def field_types(entries: Iterable[Mapping[bytes, bytes]]) -> dict[bytes, str]:
    """Return the type of each field, in the order that the entries have them.

    An entry whose fields are in another order than the columns is kept whole a second time, in _exact.
    """
    types: dict[bytes, str] = {}
    orders: dict[tuple[bytes, ...], None] = {}
    for entry in entries:
        orders[tuple(entry)] = None
        for name, value in entry.items():
            types[name] = common_type(types.get(name), value_type(value))
    return {name: "STRING" if types[name] == MISSING else types[name] for name in merge_orders(orders)}


def infer_columns(entries: Collection[Mapping[bytes, bytes]]) -> str:
    """Infer columns in SQL for the fields of some entries, in the order that the entries have them.

    Raises:
        UsageError: if there is no field, or none whose name can be a column name.
    """
    types = field_types(entries)
    if not types:
        raise UsageError("there are no entries to infer fields from; declare them with --fields")
    unusable = unusable_names(types)
    columns = [
        column_declaration(name, kind, entries) for name, kind in types.items() if name not in unusable
    ]
    if not columns:
        raise UsageError(
            "no field name can be a column name; leave out --fields to archive all fields as one map"
        )
    return ", ".join(columns)


def unusable_names(names: Iterable[bytes]) -> dict[bytes, str]:
    """Return the field names that cannot be column names, each with the reason."""
    unusable: dict[bytes, str] = {}
    folded: dict[str, str] = {}
    for raw in names:
        name = raw.decode(errors="replace")
        if "\ufffd" in name or not name.isprintable() or not name:
            unusable[raw] = "is not printable text"
        elif name.lower() in ARCHIVE_COLUMNS:
            unusable[raw] = "is the name of a column of the archive"
        elif (other := folded.setdefault(name.lower(), name)) != name:
            unusable[raw] = f"differs only in case from {other!r}"
    return unusable


def column_declaration(name: bytes, kind: str, entries: Iterable[Mapping[bytes, bytes]]) -> str:
    """Return the declaration of one column in SQL; a column of times gets their most frequent format."""
    declared = f"{quote_identifier(name.decode())} {kind}"
    if kind != "TIMESTAMP":
        return declared
    styles = Counter(infer_style(entry[name]) for entry in entries if name in entry)
    return f"{declared} COMMENT '{styles.most_common(1)[0][0]}'"


def lacks_time_format(columns: StructType) -> bool:
    """Return whether there is a column of times without a comment that states their format."""
    return any(isinstance(f.dataType, TimestampType) and "comment" not in f.metadata for f in columns)


def with_time_formats(columns: StructType, entries: Collection[Mapping[bytes, bytes]]) -> StructType:
    """Return the columns; those of times in ISO 8601 get the most frequent format of the entries as comment.

    A column that has a comment stays as it is.
    """
    found = []
    for field in columns:
        name = field.name.encode()
        times = [entry[name] for entry in entries if name in entry and is_iso(entry[name])]
        if times and isinstance(field.dataType, TimestampType) and "comment" not in field.metadata:
            [(time_format, _)] = Counter(map(infer_style, times)).most_common(1)
            field = StructField(field.name, field.dataType, field.nullable, {"comment": time_format})
        found.append(field)
    return StructType(found)


def value_type(value: bytes) -> str:
    """Return the narrowest type that holds a value."""
    if value in (b"true", b"false"):
        return "BOOLEAN"
    if INTEGER.fullmatch(value):
        return "BIGINT" if -BIGINT_LIMIT <= int(value) < BIGINT_LIMIT else "STRING"
    if value in MISSING_WORDS:
        return MISSING
    if DECIMAL.fullmatch(value) or NOT_FINITE.fullmatch(value):
        return "DOUBLE"
    if DATE.fullmatch(value):
        return "DATE"
    if WITH_SLASHES.fullmatch(value):
        return DATE_WITH_SLASHES
    return "TIMESTAMP" if is_iso(value) else "STRING"


def common_type(one: str | None, other: str) -> str:
    """Return the type that holds the values of both types."""
    if one is None or one in (other, MISSING):
        return other
    if other == MISSING:
        return one
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else "STRING"


def quote_identifier(name: str) -> str:
    """Return a column's name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
