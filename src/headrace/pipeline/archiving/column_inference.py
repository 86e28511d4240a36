"""Infer columns for undeclared fields of archives and queries from a sample of entries.

A field gets the type that fits all its sampled values (columns/value_types). A field whose name cannot be a
column name is left out. The archive's column _exact keeps the entries that the columns cannot represent:
entries with such a field, or with a later value that does not fit its column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa

from headrace.archive.rows import ARCHIVE_COLUMNS
from headrace.client.servers import Servers
from headrace.columns.declarations import quote_identifier
from headrace.columns.layout import RESERVED_NAMES
from headrace.columns.specs import column_comment
from headrace.columns.time_formats import infer_style, is_lossless_iso
from headrace.columns.value_types import field_types
from headrace.errors import UsageError
from headrace.queries.field_sample import sample_both_ends

SAMPLE_ENTRIES = 1000  # of each stream
TIMESTAMP_TYPE = pa.timestamp("us", "UTC")

# Columns of the archive, and reserved names, in lower case: Spark ignores case.
RESERVED_COLUMN_NAMES = {*ARCHIVE_COLUMNS, *RESERVED_NAMES}


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


def infer_columns_sql(entries: Collection[Mapping[bytes, bytes]]) -> str:
    """Infer columns in SQL for the fields of some entries, in the order that the entries have them.

    Raises:
        UsageError: if there is no field, or none whose name can be a column name.
    """
    types = field_types(entries)
    if not types:
        raise UsageError("there are no entries to infer fields from; declare them with --fields")
    unusable = reasons_by_unusable_name(types)
    columns = [
        column_declaration(name, kind, entries) for name, kind in types.items() if name not in unusable
    ]
    if not columns:
        raise UsageError(
            "no field name can be a column name; leave out --fields to archive all fields as one map"
        )
    return ", ".join(columns)


def reasons_by_unusable_name(names: Iterable[bytes]) -> dict[bytes, str]:
    """Return the field names that cannot be column names, each with the reason."""
    unusable: dict[bytes, str] = {}
    folded: dict[str, str] = {}
    for raw in names:
        name = raw.decode(errors="replace")
        if "\ufffd" in name or not name.isprintable() or not name:
            unusable[raw] = "is not printable text"
        elif name.lower() in RESERVED_COLUMN_NAMES:
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


def lacks_time_format(columns: pa.Schema) -> bool:
    """Return whether there is a column of times without a comment that states their format."""
    return any(each.type == TIMESTAMP_TYPE and not column_comment(each) for each in columns)


def with_time_formats(columns: pa.Schema, entries: Collection[Mapping[bytes, bytes]]) -> pa.Schema:
    """Add to each column of ISO 8601 times a comment that states the most frequent format of the entries.

    A column that has a comment is not changed.
    """
    found = []
    for field in columns:
        name = field.name.encode()
        times = [entry[name] for entry in entries if name in entry and is_lossless_iso(entry[name])]
        if times and field.type == TIMESTAMP_TYPE and not column_comment(field):
            [(time_format, _)] = Counter(map(infer_style, times)).most_common(1)
            field = field.with_metadata({"comment": time_format})
        found.append(field)
    return pa.schema(found)
