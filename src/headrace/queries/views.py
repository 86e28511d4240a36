"""Find the streams that a query in SQL names, and their columns. Each becomes a view with the stream's name.

The caller can declare the columns of a stream. Columns that are not declared come from an archive with typed
columns and from a sample of entries, unless the declaration excludes others. Each view also has _stream, _id,
_timestamp and _sequence. Only columns that the query names are read. A field named id or date has the column
id or date, with or without an archive: the archive's own columns of these names are not fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headrace.archive.files import EXACT_COLUMN, Archive, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.rows import has_fields_map
from headrace.client.servers import Servers, servers_at
from headrace.client.stream_names import stream_key
from headrace.columns.declarations import DeclaredColumns
from headrace.columns.inferred_schema import fields_without_column, inferred_schema
from headrace.columns.layout import ENTRY_COLUMNS
from headrace.errors import UsageError
from headrace.positions.stream_state import stream_states
from headrace.queries.field_sample import sample_fields
from headrace.queries.hints import no_table_message
from headrace.queries.sql_tokens import (
    SPARK_DIALECT,
    TABLE_NAME_PATTERN,
    Dialect,
    identifiers,
    reads_whole_rows,
    unquoted,
    without_literals,
)
from headrace.suggestions import suggestion_suffix

NON_FIELD_COLUMNS = {"id", "timestamp", "sequence", "_corrupt_record", EXACT_COLUMN}  # columns of an archive
ALL_COLUMNS_INFERRED = DeclaredColumns(pa.schema([]), infers_others=True)


@dataclass(frozen=True)
class TableColumns:
    """The columns for the fields of a stream.

    Attributes:
        fields: All fields that a query can name.
        sampled_entry_count: The number of entries from which types were inferred; 0 if none was inferred.
        inferred_names: The names of the fields whose types were inferred.
        hidden_names: Field names of the sample that cannot be columns.
        unread_file_count: The number of archived files that the sample has no entry of.
    """

    fields: pa.Schema
    sampled_entry_count: int = 0
    inferred_names: frozenset[str] = frozenset()
    hidden_names: tuple[str, ...] = ()
    unread_file_count: int = 0


@dataclass(frozen=True)
class StreamView:
    """The view of a stream.

    Attributes:
        stream: The stream's name, and the view's.
        columns: The columns that the query names.
        table_columns: All columns that a query can name, and how they were determined.
        removed_entry_count: The number of entries that were added to the stream and that the view lacks: they
            were trimmed or deleted, and no archive is read.
    """

    stream: str
    columns: pa.Schema
    table_columns: TableColumns
    removed_entry_count: int = 0

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields."""
        return tuple(self.table_columns.fields.names)


def find_views(
    sql: str,
    url: str | None,
    *,
    archive: str | os.PathLike[str] | ArchiveLocation | None = None,
    fields: Mapping[str, DeclaredColumns] | None = None,
    dialect: Dialect = SPARK_DIALECT,
) -> list[StreamView]:
    """Return a view for each stream that a query names, in the order in which it names them.

    Args:
        sql: The query.
        url: The server; None to read only the archive.
        archive: An archive; its entries and the live ones are one view.
        fields: Columns by stream; those under "" are for all other streams. Others are inferred.
        dialect: The SQL of the query.

    Raises:
        UsageError: if the query names no stream.
        HeadraceError: if the server is not reachable.
    """
    declared = fields or {}
    location = None if archive is None else archive_location(archive)
    contents = None if location is None else read_archive(location)
    views = []
    with optional_servers(url) as servers:
        names = streams_in_query(sql, servers, contents, dialect)
        removed = {} if servers is None or contents is not None else removed_entry_counts(servers, names)
        for name in names:
            table = table_columns(servers, contents, name, declared)
            used = used_columns(sql, table.fields, dialect)
            views.append(StreamView(name, used, table, removed.get(name, 0)))
    return views


def removed_entry_counts(servers: Servers, streams: Iterable[str]) -> dict[str, int]:
    """Return how many entries of each stream were trimmed or deleted; 0 if the server does not count them."""
    states = stream_states(servers, streams)
    return {name: max(0, (state.entries_added or 0) - state.length) for name, state in states.items()}


@contextmanager
def optional_servers(url: str | None) -> Iterator[Servers | None]:
    """Yield the servers at a URL; None without one, if only an archive is read."""
    if url is None:
        yield None
        return
    with servers_at(url) as servers:
        yield servers


def table_columns(
    servers: Servers | None, contents: Archive | None, stream: str, declared: Mapping[str, DeclaredColumns]
) -> TableColumns:
    """Return the columns of a stream.

    They are the declared ones and, if other fields are inferred, those of its archive and of a sample.

    A column of the archive has the archive's type. A field that is no column of the archive, such as a new
    one of the live stream, gets its type from a sample.
    """
    columns = declared.get(stream, declared.get("", ALL_COLUMNS_INFERRED))
    if not columns.infers_others:
        return TableColumns(columns.schema)
    archived = None if contents is None else archived_columns(contents, stream)
    own = set(columns.schema.names)
    known = [*columns.schema, *(column for column in archived or () if column.name not in own)]
    names = {column.name for column in known}
    sample = sample_fields(servers, contents, stream)
    more = [column for column in inferred_schema(sample.entries) if column.name not in names]
    return TableColumns(
        pa.schema([*known, *more]),
        len(sample.entries) if more else 0,
        frozenset(column.name for column in more),
        fields_without_column(sample.entries),
        sample.unread_file_count,
    )


def streams_in_query(
    sql: str, servers: Servers | None, contents: Archive | None, dialect: Dialect
) -> list[str]:
    """Return the streams that the SQL names, in order. Raises UsageError if there is none."""
    words = identifiers(sql, dialect)
    key_types = servers.request_each(words, lambda pipe, word: pipe.type(stream_key(word))) if servers else {}
    archived = {file.stream for file in contents.files} if contents else set()
    names = [word for word in words if key_types.get(word) == b"stream" or word in archived]
    if not names:
        table = TABLE_NAME_PATTERN.search(without_literals(sql, dialect))
        if table is not None:
            name = unquoted(table[1])
            if hint := suggestion_suffix(
                name, [*archived, *(servers.matching_streams(".*") if servers else ())]
            ):
                raise UsageError(f"there is no stream {name!r}{hint}")
        kind = "existing" if servers else "archived"
        message = (
            f"the query names no {kind} stream; put a name that is more than letters, digits and _ between "
            "backticks, as in SELECT * FROM `orders:eu`"
        )
        raise UsageError(no_table_message(sql, message))
    return names


def archived_columns(contents: Archive, stream: str) -> pa.Schema | None:
    """Return a stream's typed columns; None if the archive has a map of fields, or lacks the stream."""
    if has_fields_map(contents.columns) or all(file.stream != stream for file in contents.files):
        return None
    return pa.schema([each for each in contents.columns if each.name not in NON_FIELD_COLUMNS])


def used_columns(sql: str, columns: pa.Schema, dialect: Dialect = SPARK_DIALECT) -> pa.Schema:
    """Return the columns that the SQL names, including those of every entry; all if it reads whole rows."""
    every = with_entry_columns(columns)
    if reads_whole_rows(sql, dialect):
        return every
    words = {word.lower() for word in identifiers(sql, dialect, functions=False)}
    named = [column for column in every if column.name.lower() in words]
    return pa.schema(named or [ENTRY_COLUMNS.field("_sequence")])


def with_entry_columns(columns: pa.Schema) -> pa.Schema:
    """Return the columns of every entry and those of the fields."""
    own = {name.lower() for name in ENTRY_COLUMNS.names}
    return pa.schema([*ENTRY_COLUMNS, *(each for each in columns if each.name.lower() not in own)])
