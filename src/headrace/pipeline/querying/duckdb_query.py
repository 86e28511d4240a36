"""Run SQL on streams and archives with DuckDB, in this process: the first row comes within a second.

Each stream that a query names is a table of its name (queries/views). DuckDB scans it as a data set
(stream_dataset), which reads only the columns and the time range that the query needs. The SQL is DuckDB's.
Names may be quoted as in Spark, too: `orders:eu` or "orders:eu".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headrace.archive.location import ArchiveLocation, archive_location
from headrace.columns.declarations import DeclaredColumns, parse_columns
from headrace.errors import UsageError
from headrace.pipeline.querying.stream_dataset import StreamDataset
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.queries.duckdb_names import ambiguous_columns, check_no_nul, names_equal_except_case
from headrace.queries.duckdb_session import duckdb_query_rows, resolve_case_conflicts
from headrace.queries.interruptible import QueryRows
from headrace.queries.sql_tokens import DUCKDB_DIALECT
from headrace.queries.views import StreamView, find_views, with_entry_columns
from headrace.spark.options import DEFAULT_URL

DUCKDB_MISSING_MESSAGE = (
    "SQL needs the package duckdb: pip install 'headrace[sql]', or headrace query --engine spark"
)
CASE_SENSITIVE_ENGINE_HINT = "--engine spark distinguishes upper and lower case"


@dataclass(frozen=True)
class QueryResult:
    """The result of a query.

    Attributes:
        views: The tables that the query reads.
        rows: Its rows, which are read while they are computed.
    """

    views: tuple[StreamView, ...]
    rows: QueryRows


def sql(
    query: str,
    url: str | None = DEFAULT_URL,
    *,
    archive: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    time_zone: str = "UTC",
) -> pa.Table:
    """Run a query in SQL over streams and archives, with DuckDB, and return its rows as an Arrow table.

    Each stream is a table of its name; its fields are columns, and so are _id, _timestamp, _sequence and
    _stream. A value that does not fit the type of its column is null, and counted in the log.

    Args:
        query: the query, in the SQL of DuckDB.
        url: the server: `redis://`, `rediss://`, `unix://`, `sentinel://` or `cluster://`; None to
            read only the archive, which needs no server.
        archive: an archive of `headrace archive`, a directory or a URL such as `s3://lake/orders`; its
            entries and the live ones are one table.
        storage_options: the options of the object store, such as `AWS_ENDPOINT_URL`.
        columns: for each stream its columns as SQL declares them, such as `"item STRING, count INT"`; under
            `""` those of all other streams. Columns of streams without a declaration are inferred from a
            sample. `"infer, count INT"` declares count and infers the other columns.
        time_zone: the time zone of times without one.

    Raises:
        UsageError: if the query names no stream, DuckDB rejects it or is not installed, or there is neither a
            server nor an archive.
        HeadraceError: if the server or the archive cannot be read.
    """
    location = None if archive is None else archive_location(archive, storage_options)
    fields = {stream: parse_columns(text) for stream, text in (columns or {}).items()}
    with run_sql(query, url, archive=location, fields=fields, zone=time_zone) as result:
        return result.rows.read_all()


@contextmanager
def run_sql(
    sql: str,
    url: str | None,
    *,
    archive: str | os.PathLike[str] | ArchiveLocation | None = None,
    fields: Mapping[str, DeclaredColumns] | None = None,
    zone: str = "UTC",
) -> Iterator[QueryResult]:
    """Yield the result of a query; its rows can be read only within the `with` block.

    Args:
        sql: The query.
        url: The server; None to read only the archive.
        archive: An archive; its entries and the live ones are one table.
        fields: Declared columns by stream; those under "" are for all other streams. Columns of streams
            without a declaration are inferred.
        zone: The time zone of times without one.

    Raises:
        UsageError: if the query names no stream, DuckDB rejects it or is not installed, or there is neither a
            server nor an archive.
        HeadraceError: if the server is not reachable, or entries cannot be read.
    """
    try:
        import duckdb  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(DUCKDB_MISSING_MESSAGE) from error

    location = None if archive is None else archive_location(archive)
    if url is None and location is None:
        raise UsageError("without a server the query needs an archive")
    views = find_views(sql, url, archive=location, fields=fields, dialect=DUCKDB_DIALECT)
    tables = resolve_case_conflicts(sql, [view.stream for view in views], CASE_SENSITIVE_ENGINE_HINT)
    views = [view for view in views if view.stream in tables]
    for view in views:
        if confused := names_equal_except_case(view.columns.names):
            raise UsageError(
                f"{', '.join(confused)}: two names differ only in case; {CASE_SENSITIVE_ENGINE_HINT}"
            )
        check_no_nul(view.columns.names, "name the columns to read")
    data = {
        view.stream: StreamDataset(url, view.stream, visible_columns(view), view.columns.names, location)
        for view in views
    }
    with duckdb_query_rows(sql, data, views, zone, poll=raise_if_interrupted) as rows:
        yield QueryResult(tuple(views), rows)


def visible_columns(view: StreamView) -> pa.Schema:
    """Return the columns that DuckDB sees: all except ambiguous ones that the query does not name.

    Names are ambiguous if they differ only in case or have a NUL character: see queries/duckdb_names.py.
    """
    every = with_entry_columns(view.table_columns.fields)
    ambiguous = ambiguous_columns(every.names)
    return pa.schema(
        [each for each in every if each.name not in ambiguous or each.name in view.columns.names]
    )
