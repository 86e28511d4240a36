"""Columns for undeclared fields, proposed from some entries, old and new: of archives and queries.

    every value is written as        the column is
    true, false                      BOOLEAN
    a whole number, not 007 or +1    BIGINT, or STRING if one does not fit
    a number                         DOUBLE
    2013-01-31                       DATE
    2013-01-31T12:00:00Z             TIMESTAMP, and the column's comment says how its times are spelled
    anything else                    STRING

A field whose name cannot be a column's is left out. An entry that the columns do not give back as it was, as
one with such a field, or with a value that comes later and does not fit, is kept whole by the archive.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.errors import UsageError
from headrace.spark.decode.schema import RESERVED_COLUMNS
from headrace.spark.decode.time_formats import infer_style, is_iso

SAMPLE = 1000
WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,18}")
NUMBER = re.compile(rb"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,3})?")
DATE = re.compile(rb"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
BIGINT_LIMIT = 1 << 63

# Columns of the archive, and names that the Spark source has reserved. Spark does not tell case apart.
ARCHIVE_COLUMNS = {"stream", "date", "id", "timestamp", "sequence", *RESERVED_COLUMNS}


def sample_both_ends(
    servers: Servers, streams: Iterable[str], entries: int
) -> dict[str, list[Mapping[bytes, bytes]] | Exception]:
    """By stream the fields of so many of its entries, half of them its first, half its last; none twice."""
    half = -(-entries // 2)

    def put(pipe: Any, stream: str) -> None:
        pipe.xrange(stream_key(stream), count=half)
        pipe.xrevrange(stream_key(stream), count=half)

    found: dict[str, list[Mapping[bytes, bytes]] | Exception] = {}
    for stream, (first, last) in servers.request_many(streams, put).items():
        refused = next((answer for answer in (first, last) if isinstance(answer, Exception)), None)
        found[stream] = refused or list(dict([*first, *reversed(last)]).values())
    return found


def sample_entries(url: str, streams: Iterable[str], entries: int = SAMPLE) -> list[Mapping[bytes, bytes]]:
    """The same of all streams together. UsageError if one cannot be read."""
    servers = Servers(url, reconnect_timeout=0)
    found: list[Mapping[bytes, bytes]] = []
    try:
        for stream, fields in sample_both_ends(servers, streams, entries).items():
            if isinstance(fields, Exception):
                raise UsageError(f"stream {stream!r} cannot be sampled: {fields}")
            found += fields
    finally:
        servers.close()
    return found


def field_types(entries: Iterable[Mapping[bytes, bytes]]) -> dict[bytes, str]:
    """The type of each field, in the order in which they first come."""
    kinds: dict[bytes, str] = {}
    for entry in entries:
        for name, value in entry.items():
            kinds[name] = common_type(kinds.get(name), value_type(value))
    return kinds


def infer_columns(entries: Collection[Mapping[bytes, bytes]]) -> str:
    """Propose columns in SQL for the fields of some entries, in the order in which they first come.

    Raises:
        UsageError: if there is no field, or none whose name can be a column's.
    """
    kinds = field_types(entries)
    if not kinds:
        raise UsageError("there are no entries to infer fields from; say them in --fields")
    refused = unusable_names(kinds)
    columns = [column_of(name, kind, entries) for name, kind in kinds.items() if name not in refused]
    if not columns:
        raise UsageError(
            "none of the fields can be a column: leave out --fields to archive all fields as one map"
        )
    return ", ".join(columns)


def unusable_names(names: Iterable[bytes]) -> dict[bytes, str]:
    """Which names of fields cannot be those of columns, and why not."""
    refused: dict[bytes, str] = {}
    folded: dict[str, str] = {}
    for raw in names:
        name = raw.decode(errors="replace")
        if "\ufffd" in name or not name.isprintable() or not name:
            refused[raw] = "is not printable text"
        elif name.lower() in ARCHIVE_COLUMNS:
            refused[raw] = "is the name of a column of the archive"
        elif (other := folded.setdefault(name.lower(), name)) != name:
            refused[raw] = f"differs only in case from {other!r}"
    return refused


def column_of(name: bytes, kind: str, entries: Iterable[Mapping[bytes, bytes]]) -> str:
    """The declaration of one column; of times with the spelling that most of them have."""
    declared = f"{quote_identifier(name.decode())} {kind}"
    if kind != "TIMESTAMP":
        return declared
    styles = Counter(infer_style(entry[name]) for entry in entries if name in entry)
    return f"{declared} COMMENT '{styles.most_common(1)[0][0]}'"


def lacks_time_format(columns: StructType) -> bool:
    """Whether there is a column of times whose comment does not say how they are spelled."""
    return any(isinstance(f.dataType, TimestampType) and "comment" not in f.metadata for f in columns)


def with_time_formats(columns: StructType, entries: Collection[Mapping[bytes, bytes]]) -> StructType:
    """The columns, those of times in ISO 8601 with the spelling that most of some entries have.

    A column that has a comment is left as it is.
    """
    found = []
    for field in columns:
        name = field.name.encode()
        times = [entry[name] for entry in entries if name in entry and is_iso(entry[name])]
        if times and isinstance(field.dataType, TimestampType) and "comment" not in field.metadata:
            [(spelling, _)] = Counter(map(infer_style, times)).most_common(1)
            field = StructField(field.name, field.dataType, field.nullable, {"comment": spelling})
        found.append(field)
    return StructType(found)


def value_type(value: bytes) -> str:
    """The narrowest type that holds a value."""
    if value in (b"true", b"false"):
        return "BOOLEAN"
    if WHOLE.fullmatch(value):
        return "BIGINT" if -BIGINT_LIMIT <= int(value) < BIGINT_LIMIT else "STRING"
    if NUMBER.fullmatch(value):
        return "DOUBLE"
    if DATE.fullmatch(value):
        return "DATE"
    return "TIMESTAMP" if is_iso(value) else "STRING"


def common_type(one: str | None, other: str) -> str:
    """The type that holds what both hold."""
    if one is None or one == other:
        return other
    return "DOUBLE" if {one, other} == {"BIGINT", "DOUBLE"} else "STRING"


def quote_identifier(name: str) -> str:
    """A column's name as SQL takes any."""
    return "`" + name.replace("`", "``") + "`"
