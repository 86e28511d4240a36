"""Infer columns for undeclared fields of archives and queries from a sample of entries.

The type of a field is that of all its values (columns/value_types). A field whose name cannot be a column
name is left out. The archive's column _exact keeps the entries that the columns cannot represent: those with
such a field, or with a later value that does not fit its column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.columns.time_formats import infer_style, is_iso
from headrace.columns.value_types import field_types
from headrace.errors import UsageError
from headrace.spark.decode.schema import RESERVED_COLUMNS

SAMPLE_ENTRIES = 1000  # of each stream

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


def quote_identifier(name: str) -> str:
    """Return a column's name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
