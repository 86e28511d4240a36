"""`headrace query`: run SQL over streams and archives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from headrace.archive.location import ArchiveError, ArchiveLocation
from headrace.cli.options.option_types import (
    ArchivePath,
    check_time_zone,
    optional_archive,
    storage_option,
)
from headrace.cli.options.server_options import url_option
from headrace.cli.output.printing import add_hint
from headrace.cli.query.output import (
    ROWS_SHOWN,
    check_fields_are_read,
    print_misfits,
    print_notes,
    print_rows,
    write_rows,
)
from headrace.cli.query.result_values import rows_of
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.columns.declarations import DeclaredColumns, parse_columns
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.querying.duckdb_query import run_sql
from headrace.pipeline.shared.interrupts import defer_interrupts
from headrace.queries.catalog_statements import parse_catalog_statement, reject_writes, run_catalog_statement
from headrace.spark.decode.misfits import read_misfit_counts, set_misfits_directory

LACKS_SPARK_MESSAGE = "--engine spark and --follow need PySpark: pip install 'headrace[spark]'"


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
    archive = optional_archive(directory, storage_options)
    if statement is not None and following:
        raise UsageError("--follow is for SELECT, not for SHOW TABLES and DESCRIBE")
    fields = dict(parse_fields_option(each) for each in field_options)
    place = None if archive_only else url
    hints_archive = archive is not None and not archive_only
    hints_infer = not all(each.infers_others for each in fields.values())
    with add_option_hints(errors, hints_archive, hints_infer):
        if statement is not None:
            print_rows(*run_catalog_statement(statement, place, archive, fields), limit, form)
        elif engine == "duckdb" and not following:
            query_with_duckdb(errors, sql, place, archive, fields, time_zone, limit, form)
        else:
            query_with_spark = import_spark_query()
            query_with_spark(errors, sql, place, archive, fields, following, time_zone, limit, form)


def import_spark_query() -> Callable[..., None]:
    """Import the function that runs a query with Spark. UsageError without PySpark."""
    try:
        from headrace.cli.query.spark_query import query_with_spark
    except ModuleNotFoundError as error:
        raise UsageError(LACKS_SPARK_MESSAGE) from error
    return query_with_spark


@contextmanager
def add_option_hints(errors: Console, hints_archive: bool, hints_infer: bool) -> Iterator[None]:
    """Add hints to errors: --archive-only if the connection fails, `--fields infer` for unknown columns."""
    try:
        yield
    except HeadraceError as error:
        if hints_infer and isinstance(error, UsageError) and "no column" in str(error):
            add_hint(errors, error, "--fields 'infer, …' infers the columns that it does not declare")
        is_of_server = isinstance(error.__cause__, CONNECTION_ERRORS) and not isinstance(error, ArchiveError)
        if hints_archive and is_of_server:
            add_hint(errors, error, "--archive-only reads the archive without the server")
        raise


def query_with_duckdb(
    errors: Console, sql: str, url: str | None, archive: ArchiveLocation | None,
    fields: Mapping[str, DeclaredColumns], time_zone: str, limit: int, form: str | None,
) -> None:  # fmt: skip
    """Run a query in this process, and print its rows."""
    with TemporaryDirectory(prefix="headrace-query-") as counts, set_misfits_directory(Path(counts)):
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
                write_rows(form, names, rows_of(result.rows, time_zone))
        print_misfits(errors, read_misfit_counts(Path(counts)))


def parse_fields_option(text: str) -> tuple[str, DeclaredColumns]:
    """Return the stream (empty for all) and the columns of a value of --fields."""
    stream, equals, columns = text.rpartition("=")
    return (stream if equals else ""), parse_columns(columns)
