"""Run SQL on the streams of a database with DuckDB, without Spark.

Each stream that a query names is a table. DuckDB asks for the columns and the times that it needs, and gets
them in batches. All scans of a query end at the same entry of a stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb  # noqa: F401 - so that one error says what to install
import pyarrow as pa

from headrace.api.arrow_batches import ArrowBatches
from headrace.api.backend import Backend
from headrace.api.codecs.arguments import encode_name
from headrace.columns.inferred_schema import inferred_schema
from headrace.columns.layout import ENTRY_COLUMNS, RESERVED_NAMES, ArrowLayout
from headrace.errors import CommandError, UsageError
from headrace.positions.entry_ids import START, U64_MAX, format_id, parse_id
from headrace.queries.duckdb_names import ambiguous_columns, check_no_nul
from headrace.queries.duckdb_session import duckdb_query_rows, resolve_case_conflicts
from headrace.queries.hints import no_stream_message, no_table_message
from headrace.queries.scans import MS_MAX, ScannedStream
from headrace.queries.sql_tokens import (
    DUCKDB_DIALECT,
    TABLE_NAME_PATTERN,
    identifiers,
    reads_whole_rows,
    unquoted,
    without_literals,
)

if TYPE_CHECKING:
    from headrace.api.archived_stream import ArchivedStream

SAMPLE_ENTRIES_PER_END = 200  # from each end of a stream


@dataclass(frozen=True)
class QueryTable:
    """A stream as a table.

    Attributes:
        stream: the name of the stream and of the table.
        fields: the names of the columns that are read from fields.
        schema: all columns.
        last_id: the last entry; None for an empty stream, or one that is only in the archive.
        archived: the part of the stream that is in the archive; None without an archive.
    """

    stream: str
    fields: tuple[str, ...]
    schema: pa.Schema
    last_id: bytes | None
    archived: ArchivedStream | None = None


def run_query(
    backend: Backend,
    list_streams: Callable[[], Iterable[str]],
    query: str,
    schemas: Mapping[str, pa.Schema],
    time_zone: str,
    archive: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> pa.Table:
    """Run a query, see Database.sql().

    list_streams: returns the names of all streams, for error messages.
    """
    reader = reading_backend(backend)
    if archive is None:
        names = streams_in_query(reader, list_streams, query)
        tables = [build_query_table(reader, name, schemas.get(name)) for name in names]
    else:
        from headrace.api.archived_stream import find_archived_stream, locate_and_read_archive

        # The archive is opened before the streams are looked at, so that it does not end after them.
        location, contents = locate_and_read_archive(archive, storage_options)
        names = streams_in_query(reader, list_streams, query, contents.archived_through)
        tables = []
        for name in names:
            archived = find_archived_stream(backend, location, contents, name)
            tables.append(build_query_table(reader, name, schemas.get(name), archived))
    unused = sorted(set(schemas) - {table.stream for table in tables})
    if unused:
        raise UsageError(f"schemas: the query names no stream {unused[0]!r}")
    data = {table.stream: StreamTable(reader, table, query) for table in tables}
    with duckdb_query_rows(query, data, tables, time_zone, lambda: known_streams(list_streams)) as rows:
        return rows.read_all()


def reading_backend(backend: Backend) -> Backend:
    """Return the backend for requests that only read entries, which may be on a replica."""
    reader: Backend = getattr(backend, "reading_backend", backend)
    return reader


def streams_in_query(
    backend: Backend, list_streams: Callable[[], Iterable[str]], query: str, archived: Collection[str] = ()
) -> list[str]:
    """Return the existing and archived streams that a query names, in its order.

    Raises UsageError if there is none, or DuckDB cannot distinguish two of them.
    """
    # Some are not names, and the user may have no right to ask for them.
    words = identifiers(query, DUCKDB_DIALECT)
    replies = backend.request_all([(b"TYPE", encode_name(word)) for word in words])
    types = dict(zip(words, replies, strict=True))
    names = [word for word, kind in types.items() if kind == b"stream" or word in archived]
    names = resolve_case_conflicts(query, names, "use a query for each")
    if names:
        return names
    table = TABLE_NAME_PATTERN.search(without_literals(query, DUCKDB_DIALECT))
    if table is None:
        message = 'the query names no stream, as in: SELECT count(*) FROM "orders:eu"'
        raise UsageError(no_table_message(query, message))
    name = unquoted(table[1])
    if isinstance(types.get(name), CommandError):
        raise types[name]
    raise UsageError(no_stream_message(name, [*known_streams(list_streams), *archived]))


def known_streams(list_streams: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names of all streams; none if the user may not list them."""
    try:
        return list(list_streams())
    except CommandError:
        return []


def build_query_table(
    backend: Backend, name: str, schema: pa.Schema | None, archived: ArchivedStream | None = None
) -> QueryTable:
    """Describe the table of a stream for a query, without its data.

    Its columns are those of `schema`. If `schema` is None, they are the columns of the archive, and further
    columns that are inferred from a sample of the entries.
    """
    key = encode_name(name)
    start = b"-" if archived is None else archived.live_start
    sampled = b"%d" % SAMPLE_ENTRIES_PER_END
    first, last = backend.request_all(
        [
            (b"XRANGE", key, start, b"+", b"COUNT", sampled),
            (b"XREVRANGE", key, b"+", start, b"COUNT", sampled),
        ]
    )
    for reply in (first, last):
        if isinstance(reply, CommandError):
            raise reply
    if schema is None:
        entries = dict([*first, *reversed(last)])  # none twice
        sample: list[Mapping[bytes, bytes]] = [
            dict(zip(words[::2], words[1::2], strict=True)) for words in entries.values()
        ]
        columns = []
        if archived is not None:
            columns = [field for field in archived.columns() if field.name.lower() not in RESERVED_NAMES]
            sample += archived.sample()
        known = {field.name for field in columns}
        columns += [field for field in inferred_schema(sample) if field.name not in known]
    else:
        columns = [field for field in ArrowLayout(schema).schema if field.name not in ENTRY_COLUMNS.names]
    fields = tuple(field.name for field in columns)
    last_id = last[0][0] if last else None
    return QueryTable(name, fields, pa.schema([*ENTRY_COLUMNS, *columns]), last_id, archived)


class StreamTable(ScannedStream):
    """A stream as a data set. Raises UsageError if the query names columns that DuckDB cannot distinguish."""

    def __init__(self, backend: Backend, table: QueryTable, query: str) -> None:
        self._backend = backend
        self._table = table
        whole = reads_whole_rows(query, DUCKDB_DIALECT)
        words = {word.lower() for word in identifiers(query, DUCKDB_DIALECT, functions=False)}
        names = table.schema.names
        # DuckDB may need a named column also for a condition that it does not pass on.
        self._named = {name for name in names if whole or name.lower() in words}
        ambiguous = ambiguous_columns(names)
        check_no_nul(sorted(self._named), "read such fields with to_arrow()")
        if confused := sorted(self._named & ambiguous):
            raise UsageError(
                f"{', '.join(confused)}: other columns differ only in case, which DuckDB ignores; read such "
                "fields with to_arrow()"
            )
        super().__init__(pa.schema([field for field in table.schema if field.name not in ambiguous]))

    def read(self, columns: list[str], first_ms: int, last_ms: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a time range, with these columns and those that the query names.

        Args:
            columns: the columns to yield at least.
            first_ms: the first time of an entry, in Unix milliseconds.
            last_ms: the last one, which is included; MS_MAX: to the end of the stream.
        """
        needed = self._named.union(columns)
        fields = [field for field in self.schema if field.name in needed] or [self.schema.field("_sequence")]
        if first_ms > last_ms:
            return
        schema, archived = pa.schema(fields), self._table.archived
        if archived is not None:
            after = START if first_ms == 0 else format_id((first_ms - 1, U64_MAX))
            upto = None if last_ms == MS_MAX else format_id((last_ms, U64_MAX))
            yield from archived.batches(schema, after, upto)
        end = self._table.last_id
        if end is None or last_ms < first_live_ms(archived):
            return
        if last_ms < MS_MAX and int(end.partition(b"-")[0]) > last_ms:
            end = b"%d" % last_ms  # to the last entry of this millisecond
        start = b"-" if archived is None else archived.live_start
        if first_ms > first_live_ms(archived):
            start = b"%d" % first_ms
        key = encode_name(self._table.stream)
        yield from ArrowBatches(self._backend, key, schema, start, end, None)
        if archived is not None:
            archived.check_anchor()


def first_live_ms(archived: ArchivedStream | None) -> int:
    """Return the first millisecond whose entries may be read from the stream, not from the archive."""
    return 0 if archived is None else parse_id(archived.archived_through)[0]
