"""`headrace query`: run SQL over streams and archives."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from headrace.archive.location import ArchiveError, ArchiveLocation
from headrace.cli.option_types import ArchivePath, check_time_zone, storage_option, with_storage_options
from headrace.cli.output import add_hint
from headrace.cli.result_values import as_json, as_text, rows_of
from headrace.cli.spark_session import scratch_spark, summarize_misfits
from headrace.cli.streams import url_option
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import servers_at
from headrace.console.escaping import json_text, printable
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.catalog_statements import parse_catalog_statement, reject_writes, run_catalog_statement
from headrace.pipeline.column_declarations import InferredWith, parse_columns
from headrace.pipeline.duckdb_query import run_sql
from headrace.pipeline.interrupts import defer_interrupts
from headrace.pipeline.query import StreamView, follow_query, register_views, run_query
from headrace.pipeline.query_errors import query_errors_explained
from headrace.pipeline.spark_rows import record_batches
from headrace.plurals import plural
from headrace.spark.decode.misfits import MisfitCounts, collected_misfits, collecting_misfits

ROWS_SHOWN = 50
PIPE_WIDTH = 1 << 16  # characters in a line, at most


@click.command(
    "query",
    epilog="""\b
Examples:
  headrace query --rows 5 'SELECT carrier, count(*) n FROM flights GROUP BY carrier ORDER BY n DESC'
  headrace query --archive archive --csv 'SELECT * FROM `orders:eu` WHERE total > 100' > large.csv
  headrace query --archive archive --archive-only 'SELECT count(*) FROM flights'
  headrace query 'SHOW TABLES'
  headrace query 'DESCRIBE flights'
  headrace query --follow 'SELECT city, avg(t) FROM weather GROUP BY city'
""",
)
@click.argument("sql")
@url_option
@click.option(
    "--archive",
    "directory",
    type=ArchivePath(),
    metavar="PATH|URL",
    help="Read this archive and the streams as one table.",
)
@storage_option
@click.option(
    "--archive-only",
    "archive_only",
    is_flag=True,
    help="Read only the --archive, without a connection to the server.",
)
@click.option(
    "--fields",
    "field_options",
    multiple=True,
    metavar="[STREAM=]COLUMNS",
    help="Read these fields as typed columns, given in SQL; may be repeated. After `infer,` "
    "all other fields are inferred.  [default: inferred]",
)
@click.option("--follow", "following", is_flag=True, help="Continue with new entries until Ctrl-C.")
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="DuckDB answers at once, from this machine; Spark can use many. --follow uses Spark.",
)
@click.option(
    "--rows", type=click.IntRange(min=1), metavar="N", help=f"Show at most N rows.  [default: {ROWS_SHOWN}]"
)
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@click.option("--json", "as_json_lines", is_flag=True, help="Print all rows, a JSON object each.")
@click.option(
    "--time-zone",
    metavar="ZONE",
    callback=check_time_zone,
    default="UTC",
    show_default=True,
    help="Show times in this time zone.",
)
def command(
    sql: str,
    url: str,
    directory: ArchiveLocation | None,
    storage_options: tuple[str, ...],
    archive_only: bool,
    field_options: tuple[str, ...],
    following: bool,
    engine: str,
    rows: int | None,
    as_csv: bool,
    as_json_lines: bool,
    time_zone: str,
) -> None:
    """Query streams in SQL. Each stream is a table with its name; its fields are the columns.

    Every table also has the columns _id, _timestamp, _sequence and _stream. With --follow, the whole result
    of an aggregation is printed again after new entries; of any other query only the new rows are printed.
    """
    if following and directory is not None:
        raise UsageError("--follow and --archive exclude each other: --follow reads only the server")
    if archive_only and directory is None:
        raise UsageError("--archive-only needs the --archive to read")
    if as_csv and as_json_lines:
        raise UsageError("--csv and --json exclude each other")
    form = "csv" if as_csv else "json" if as_json_lines else None
    if form is not None and rows is not None:
        raise UsageError(f"--rows is for the terminal; --{form} writes all rows: use LIMIT in the SQL")
    limit = rows or ROWS_SHOWN
    errors = Console(stderr=True, highlight=False)
    reject_writes(sql)
    statement = parse_catalog_statement(sql)
    archive = None if directory is None else with_storage_options(directory, storage_options)
    if statement is not None and following:
        raise UsageError("--follow is for SELECT, not for SHOW TABLES and DESCRIBE")
    fields = dict(parse_fields_option(each) for each in field_options)
    place = None if archive_only else url
    hints_archive = archive is not None and not archive_only
    hints_infer = not all(isinstance(each, InferredWith) for each in fields.values())
    with options_hinted(errors, hints_archive, hints_infer):
        if statement is not None:
            print_rows(*run_catalog_statement(statement, place, archive, fields), limit, form)
        elif engine == "duckdb" and not following:
            query_with_duckdb(errors, sql, place, archive, fields, time_zone, limit, form)
        else:
            query_with_spark(errors, sql, place, archive, fields, following, time_zone, limit, form)


@contextmanager
def options_hinted(errors: Console, hints_archive: bool, hints_infer: bool) -> Iterator[None]:
    """Name --archive-only in errors of the connection, and `--fields infer` in those of missing columns."""
    try:
        yield
    except HeadraceError as error:
        if hints_infer and isinstance(error, UsageError) and "no column" in str(error):
            add_hint(errors, error, "--fields 'infer, …' infers the columns that it does not declare")
        is_of_server = isinstance(error.__cause__, CONNECTION_ERRORS) and not isinstance(error, ArchiveError)
        if hints_archive and is_of_server:
            add_hint(errors, error, "--archive-only reads the archive without the server")
        raise


def query_with_spark(
    errors: Console, sql: str, url: str | None, archive: ArchiveLocation | None,
    fields: Mapping[str, StructType], following: bool, time_zone: str, limit: int, form: str | None,
) -> None:  # fmt: skip
    """Run a query with Spark, and print its rows."""
    with scratch_spark("headrace query", time_zone, lambda counts: print_misfits(errors, counts)) as spark:
        views = register_views(spark, sql, url, archive=archive, fields=fields, following=following)
        check_fields_are_read(fields, views)
        for view in views:
            print_notes(errors, view)
        if following:
            print_followed(run_query(spark, sql, views, stream_names(url)), limit, form, time_zone)
        else:
            with query_errors_explained():
                result = run_query(spark, sql, views, stream_names(url))
                print_result(errors, result, limit, form, time_zone)


def check_fields_are_read(fields: Mapping[str, StructType], views: Iterable[StreamView]) -> None:
    """Raise UsageError if --fields names a stream that the query does not read."""
    if unknown := sorted(set(fields) - {"", *(view.stream for view in views)}):
        raise UsageError(f"--fields {unknown[0]}=…: the query does not read a stream {unknown[0]!r}")


def query_with_duckdb(
    errors: Console, sql: str, url: str | None, archive: ArchiveLocation | None,
    fields: Mapping[str, StructType], time_zone: str, limit: int, form: str | None,
) -> None:  # fmt: skip
    """Run a query in this process, and print its rows."""
    with TemporaryDirectory(prefix="headrace-query-") as counts, collecting_misfits(Path(counts)):
        with (
            defer_interrupts(),
            run_sql(sql, url, archive=archive, fields=fields, zone=time_zone) as result,
        ):
            check_fields_are_read(fields, result.views)
            for view in result.views:
                print_notes(errors, view)
            names = result.rows.schema.names
            if form is None:
                print_rows(
                    names, list(itertools.islice(rows_of(result.rows, time_zone), limit + 1)), limit, None
                )
            else:
                write(form, names, rows_of(result.rows, time_zone))
        print_misfits(errors, collected_misfits(Path(counts)))


def stream_names(url: str | None) -> Iterator[str]:
    """Return the names of the server's streams; connect when the first one is requested."""
    if url is not None:
        with servers_at(url) as servers:
            yield from servers.scan(".*")


def parse_fields_option(text: str) -> tuple[str, StructType]:
    """Return the stream (empty for all) and the columns of a value of --fields."""
    stream, equals, columns = text.rpartition("=")
    return (stream if equals else ""), parse_columns(columns)


def print_notes(errors: Console, view: StreamView) -> None:
    """Print inferred types, what the sample and the stream lack, and the fields without a column."""
    table = view.table
    columns = ", ".join(
        f"{f.name} {f.dataType.simpleString()}" for f in view.columns if f.name in table.inferred
    )
    is_whole = set(view.fields) <= set(view.columns.names)  # SELECT *
    notes = []
    lacking = f"{plural(table.unread_files, 'archived file')} not sampled" if table.unread_files else ""
    if table.sampled and columns:
        count = plural(table.sampled, "entry")
        notes.append(
            f"{columns} (from {'; '.join(filter(None, [count, lacking]))}; --fields sets other types)"
        )
    elif lacking and is_whole:
        notes.append(f"{lacking}; --fields 'infer, NAME TYPE' adds a field that only they have")
    if view.removed:
        lost = plural(view.removed, "entry")
        notes.append(
            f"{lost} added earlier, then trimmed or deleted, not read (--archive reads archived ones)"
        )
    if table.hidden and is_whole:
        names = ", ".join(table.hidden)
        notes.append(f"no columns for the fields {names}: their names are reserved or not UTF-8")
    for note in notes:
        errors.print(Text(printable(f"{view.stream}: {note}"), style="dim"), soft_wrap=True)


def print_misfits(errors: Console, misfits: MisfitCounts) -> None:
    """Print which columns have nulls because a value did not fit."""
    if text := summarize_misfits(misfits):
        errors.print(Text(f"{text} (--fields sets other types)"), soft_wrap=True)


def print_result(errors: Console, result: DataFrame, limit: int, form: str | None, time_zone: str) -> None:
    """Print the rows of a finite query."""
    if form is None:
        with errors.status("Running the query"):
            rows = list(rows_of(record_batches(result.limit(limit + 1)), time_zone))
        result_console().print(limited_grid(result.columns, rows, limit))
        return
    write(form, result.columns, rows_of(record_batches(result), time_zone))


def print_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], limit: int, form: str | None) -> None:
    """Print a list of rows."""
    if form is None:
        result_console().print(limited_grid(names, rows, limit))
    else:
        write(form, names, rows)


def print_followed(result: DataFrame, limit: int, form: str | None, time_zone: str) -> None:
    """Print the results of a streaming query until Ctrl-C."""
    console = result_console()
    with ExitStack() as stack:
        live: Live | None = None
        begun = False

        def show(names: list[str], found: Iterable[pa.RecordBatch], whole: bool) -> None:
            nonlocal live, begun
            rows = rows_of(found, time_zone)
            if form is not None:
                write(form, names, rows, head=whole or not begun)
                begun = True
                return
            drawn = limited_grid(names, list(rows), limit)
            if not whole or not console.is_terminal:
                console.print(drawn)
                return
            if live is None:
                live = stack.enter_context(Live(console=console, auto_refresh=False))
            live.update(drawn, refresh=True)

        follow_query(result, limit + 1 if form is None else None, show)


def result_console() -> Console:
    """Return where tables are printed: as wide as the terminal; in a pipe as wide as the rows."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def limited_grid(names: Sequence[str], rows: Sequence[Sequence[Any]], limit: int) -> RenderableType:
    """Return the first rows as a table, with a note if there are more."""
    if len(rows) <= limit:
        return grid(names, rows)
    more = f"There are more rows; --rows shows more than {limit}, --csv and --json show all"
    return Group(grid(names, rows[:limit]), more)


def grid(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    """Return rows as a table for the terminal."""
    table = Grid()
    for column, name in enumerate(names):
        numbers = any(isinstance(row[column], int | float) for row in rows)
        # On a narrow terminal a value continues in the next line, so that no ID is cut.
        table.add_column(Text(printable(name)), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else printable(as_text(value))) for value in row))
    return table


def write(form: str, names: Sequence[str], rows: Iterable[Sequence[Any]], head: bool = True) -> None:
    """Print rows as CSV or JSON; head: whether CSV begins with the names."""
    if form == "csv":
        sheet = csv.writer(sys.stdout, lineterminator="\n")
        if head:
            sheet.writerow(escaped_cells(names) if sys.stdout.isatty() else names)
        # CSV has no escapes: a terminal gets escaped text, a file or a pipe gets the data.
        cells = ([None if value is None else as_text(value) for value in row] for row in rows)
        sheet.writerows(map(escaped_cells, cells) if sys.stdout.isatty() else cells)
    else:
        for row in rows:
            pairs = dict(zip(names, (as_json(value) for value in row), strict=True))
            print(json_text(pairs))
    sys.stdout.flush()


def escaped_cells(row: Iterable[Any]) -> list[Any]:
    """Return a row of CSV for a terminal, with escaped texts."""
    return [value if value is None else printable(value) for value in row]
