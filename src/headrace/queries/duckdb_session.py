"""Run one query with DuckDB on data sets, and explain its errors in one line.

DuckDB sees the data sets as tables, and neither files nor the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import HeadraceError, UsageError
from headrace.queries.duckdb_names import names_equal_except_case
from headrace.queries.hints import (
    WRITING_STATEMENTS,
    HasColumns,
    column_hint,
    no_stream_message,
    write_rejected_message,
)
from headrace.queries.interruptible import InterruptibleConnection, QueryRows, do_nothing
from headrace.queries.sql_tokens import quoted_for_duckdb

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from headrace.queries.scans import ScannedStream

BATCH_ROWS = 10_000
UNKNOWN_TABLE_PATTERN = re.compile(r"Table with name (.+?) does not exist")
UNKNOWN_COLUMN_PATTERN = re.compile(r'Referenced column "(.+?)" (?:not found|was not found)')


@contextmanager
def duckdb_query_rows(
    sql: str,
    data: Mapping[str, ScannedStream],
    tables: Sequence[HasColumns],
    zone: str,
    known: Callable[[], Iterable[str]] | None = None,
    poll: Callable[[], None] = do_nothing,
) -> Iterator[QueryRows]:
    """Run a query; its rows can be read within the block, and are computed meanwhile.

    Args:
        sql: The query. Names may be quoted as in Spark, too.
        data: The data sets by the names of their tables.
        tables: The tables, for hints in errors.
        zone: The time zone of times without one.
        known: Returns the names of all streams, for a suggestion if there is no such table; default: those of
            the tables.
        poll: Called several times a second while DuckDB computes; an exception that it raises ends the query.

    Raises:
        UsageError: if DuckDB rejects the query.
        HeadraceError: if it fails, or a scan fails.
    """
    import duckdb

    connection = duckdb.connect()
    interruptible = InterruptibleConnection(connection, poll)
    try:
        connection.execute("SET TimeZone = ?", [zone])
        connection.execute("SET python_enable_replacements = false")  # variables of Python are no tables
        for name, each in data.items():
            connection.register(name, each)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        with errors_explained(tables, data, known):
            yield QueryRows(interruptible.call(partial(execute, connection, sql)), interruptible)
    finally:
        interruptible.close()


def resolve_case_conflicts(sql: str, names: Sequence[str], instead: str) -> list[str]:
    """Drop names that differ from others only in case and are not tables of the query; return the rest.

    Args:
        sql: The query.
        names: The existing streams that the query names.
        instead: What to do if DuckDB cannot distinguish two tables.

    Raises:
        UsageError: if the query reads two streams whose names differ only in case, or may do so.
    """
    confused = names_equal_except_case(names)
    if not confused:
        return list(names)
    import duckdb

    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        try:
            tables = connection.get_table_names(quoted_for_duckdb(sql))
        except duckdb.Error:  # such as PIVOT, which is several statements
            tables = set(confused)
    if same := names_equal_except_case(tables.intersection(confused)):
        raise UsageError(
            f"{', '.join(same)}: two names differ only in case, and DuckDB ignores case; {instead}"
        )
    return [name for name in names if name not in confused or name in tables]


def execute(connection: DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """Start a query. Raises UsageError if it is not one statement that returns rows."""
    statements = connection.extract_statements(quoted_for_duckdb(sql))
    if len(statements) != 1:
        raise UsageError(f"one statement is expected, not {len(statements)}")
    kind = statements[0].type.name.partition("_")[0]  # MERGE_INTO
    if kind in WRITING_STATEMENTS:  # DuckDB would apply it to tables of its own, which end with the query
        raise UsageError(write_rejected_message(kind))
    relation = connection.sql(statements[0])
    if relation is None:
        raise UsageError("the statement returns no rows")
    return relation.to_arrow_reader(BATCH_ROWS)


@contextmanager
def errors_explained(
    tables: Sequence[HasColumns],
    data: Mapping[str, ScannedStream],
    known: Callable[[], Iterable[str]] | None,
) -> Iterator[None]:
    """Raise the errors of DuckDB as one line; if a scan has failed, raise the error of the scan instead."""
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
        raise query_error(error, tables, known) from error


def query_error(
    error: Exception, tables: Sequence[HasColumns], known: Callable[[], Iterable[str]] | None = None
) -> HeadraceError:
    """Return an error of DuckDB as one line, with a hint if a name is unknown."""
    text = str(error)
    if table := UNKNOWN_TABLE_PATTERN.search(text):
        names = [each.stream for each in tables] if known is None else known()
        return UsageError(no_stream_message(table[1].strip('"'), names))
    first = " ".join(text.partition("\n")[0].split())
    if column := UNKNOWN_COLUMN_PATTERN.search(text):
        return UsageError(f"DuckDB: there is no column {column[1]!r}{column_hint(column[1], tables)}")
    if type(error).__name__ == "ParserException":
        first += keyword_hint(tables)
    is_input = type(error).__name__ in ("ParserException", "BinderException", "CatalogException")
    return (UsageError if is_input else HeadraceError)(f"DuckDB: {first}")


def keyword_hint(tables: Sequence[HasColumns]) -> str:
    """Return a hint about the columns whose names are keywords of DuckDB; empty if there are none."""
    import duckdb

    sql = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
    with duckdb.connect() as connection:
        keywords = {word for (word,) in connection.execute(sql).fetchall()}
    found = sorted({name for table in tables for name in table.fields if name.lower() in keywords})
    return f"; put names that are keywords between double quotes: {', '.join(found)}" if found else ""
