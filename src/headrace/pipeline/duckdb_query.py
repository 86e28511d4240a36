"""Run SQL on streams and archives with DuckDB, in this process: the first row comes within a second.

Each stream that a query names is a table of its name, as in `query`. DuckDB scans it as a data set
(stream_dataset), which reads only the columns and the time range that the query needs. The SQL is DuckDB's.
Names may be quoted as in Spark, too: `orders:eu` or "orders:eu".
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.column_declarations import parse_columns
from headrace.pipeline.query import StreamView, differ_in_case, every_column, find_views
from headrace.pipeline.query_errors import column_hint, no_stream_message
from headrace.pipeline.sql_tokens import DUCKDB, quoted_for_duckdb
from headrace.pipeline.stream_dataset import StreamDataset
from headrace.spark.archive.location import ArchiveLocation, archive_location
from headrace.spark.options import DEFAULT_URL

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BATCH_ROWS = 10_000
UNKNOWN_TABLE = re.compile(r"Table with name (.+?) does not exist")
UNKNOWN_COLUMN = re.compile(r'Referenced column "(.+?)" (?:not found|was not found)')
LACKS_DUCKDB = "queries need the package duckdb: pip install duckdb, or use --engine spark"
OTHER_ENGINE = "--engine spark distinguishes upper and lower case"


@dataclass(frozen=True)
class QueryResult:
    """The result of a query.

    Attributes:
        views: The tables that the query reads.
        rows: Its rows, which are read while they are computed.
    """

    views: tuple[StreamView, ...]
    rows: pa.RecordBatchReader


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
            `""` those of all other streams. The others are inferred from a sample, and so are the other
            columns after the word `infer`, as in `"infer, count INT"`.
        time_zone: the time zone of times without one.

    Raises:
        UsageError: if the query names no stream, or DuckDB rejects it.
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
    fields: Mapping[str, StructType] | None = None,
    zone: str = "UTC",
) -> Iterator[QueryResult]:
    """Run a query; its result can be read within the block.

    Args:
        sql: The query.
        url: The server; None to read only the archive.
        archive: An archive; its entries and the live ones are one table.
        fields: Columns by stream; those under "" are for all other streams. Others are inferred.
        zone: The time zone of times without one.

    Raises:
        UsageError: if the query names no stream, or DuckDB rejects it.
        HeadraceError: if the server is not reachable, or entries cannot be read.
    """
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise UsageError(LACKS_DUCKDB) from error

    location = None if archive is None else archive_location(archive)
    if url is None and location is None:
        raise UsageError("without a server the query needs an archive")
    views = find_views(sql, url, archive=location, fields=fields, dialect=DUCKDB)
    for names in ([view.stream for view in views], *(view.columns.names for view in views)):
        if differ_in_case(names):
            raise UsageError(f"{', '.join(names)}: two names differ only in case; {OTHER_ENGINE}")
    data = {
        view.stream: StreamDataset(url, view.stream, visible_columns(view), view.columns.names, location)
        for view in views
    }
    connection = duckdb.connect()
    try:
        connection.execute("SET TimeZone = ?", [zone])
        connection.execute("SET python_enable_replacements = false")  # variables of Python are no tables
        for stream, each in data.items():
            connection.register(stream, each)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        with errors_explained(views, data):
            yield QueryResult(tuple(views), execute(connection, sql))
    finally:
        connection.close()


def visible_columns(view: StreamView) -> StructType:
    """Return the columns that DuckDB sees: all but those that the query does not name and case confuses."""
    every = every_column(view.table.fields)
    count = Counter(name.lower() for name in every.names)
    return StructType(
        [each for each in every if count[each.name.lower()] == 1 or each.name in view.columns.names]
    )


def execute(connection: DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """Start a query. UsageError if it is not one statement that returns rows."""
    statements = connection.extract_statements(quoted_for_duckdb(sql))
    if len(statements) != 1:
        raise UsageError(f"one statement is expected, not {len(statements)}")
    relation = connection.sql(statements[0])
    if relation is None:
        raise UsageError("the statement returns no rows")
    return relation.to_arrow_reader(BATCH_ROWS)


@contextmanager
def errors_explained(views: list[StreamView], data: Mapping[str, StreamDataset]) -> Iterator[None]:
    """Raise the errors of DuckDB in one line; instead of an error in a scan what made the scan fail."""
    import duckdb

    try:
        yield
    except BrokenPipeError:  # of the output
        raise
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        for each in data.values():
            if isinstance(each.error, HeadraceError):
                raise each.error from error
            if each.error is not None:
                raise HeadraceError(f"the query failed: {each.error}") from each.error
        raise query_error(error, views) from error


def query_error(error: Exception, views: list[StreamView]) -> HeadraceError:
    """Return an error of DuckDB as one line, with a hint if a name is unknown."""
    text = str(error)
    if table := UNKNOWN_TABLE.search(text):
        return UsageError(no_stream_message(table[1].strip('"'), [view.stream for view in views]))
    first = " ".join(text.partition("\n")[0].split())
    if column := UNKNOWN_COLUMN.search(text):
        return UsageError(f"DuckDB: there is no column {column[1]!r}{column_hint(column[1], views)}")
    if type(error).__name__ == "ParserException":
        first += keyword_hint(views)
    is_input = type(error).__name__ in ("ParserException", "BinderException", "CatalogException")
    return (UsageError if is_input else HeadraceError)(f"DuckDB: {first}")


def keyword_hint(views: list[StreamView]) -> str:
    """Return a hint about the columns whose names are keywords of DuckDB; empty if there are none."""
    import duckdb

    sql = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
    with duckdb.connect() as connection:
        keywords = {word for (word,) in connection.execute(sql).fetchall()}
    found = sorted({name for view in views for name in view.fields if name.lower() in keywords})
    return f"; put names that are keywords between double quotes: {', '.join(found)}" if found else ""
