"""`headrace query`: SQL over streams."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from headrace.cli.spark_session import announced_spark
from headrace.cli.streams import url_option
from headrace.cli.values import LocalPath, time_zone
from headrace.client.servers import servers_at
from headrace.console.escaping import json_text, printable
from headrace.errors import UsageError
from headrace.pipeline.archive import parse_schema
from headrace.pipeline.catalog_statements import parse_catalog_statement, reject_writes, run_catalog_statement
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.query import StreamView, follow_query, register_views, run_query
from headrace.pipeline.query_errors import query_errors_explained
from headrace.spark.decode.misfits import (
    MisfitCounts,
    collected_misfits,
    collecting_misfits,
    summarize_misfits,
)

ROWS_SHOWN = 50


@click.command(
    "query",
    epilog="""\b
Examples:
  headrace query --rows 5 'SELECT carrier, count(*) n FROM flights GROUP BY carrier ORDER BY n DESC'
  headrace query --archive archive --csv 'SELECT * FROM `orders:eu` WHERE total > 100' > large.csv
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
    type=LocalPath(),
    help="An archive: it and what is live are one table.",
)
@click.option(
    "--fields",
    "said",
    multiple=True,
    metavar="[STREAM=]COLUMNS",
    help="The fields as typed columns, in SQL; guessed from some entries if left out.",
)
@click.option("--follow", "following", is_flag=True, help="Go on with what comes in, until Ctrl-C.")
@click.option("--rows", type=click.IntRange(min=1), help=f"Rows to show.  [default: {ROWS_SHOWN}]")
@click.option("--csv", "as_csv", is_flag=True, help="All rows, as CSV.")
@click.option("--json", "as_json_lines", is_flag=True, help="All rows, a line of JSON each.")
@click.option(
    "--time-zone", callback=time_zone, default="UTC", show_default=True, help="In which times are shown."
)
def command(
    sql: str,
    url: str,
    directory: Path | None,
    said: tuple[str, ...],
    following: bool,
    rows: int | None,
    as_csv: bool,
    as_json_lines: bool,
    time_zone: str,
) -> None:
    """Ask streams in SQL. Each stream is a table of its name; its fields are the columns.

    Besides them there are _id, _timestamp, _sequence and _stream. With --follow a query that aggregates is
    shown again whenever entries have come; of any other, the new rows are shown.
    """
    if following and directory is not None:
        raise UsageError("--follow reads what is live: leave out --archive")
    if as_csv and as_json_lines:
        raise UsageError("--csv and --json exclude each other")
    form = "csv" if as_csv else "json" if as_json_lines else None
    if form is not None and rows is not None:
        raise UsageError(f"--rows is for the terminal, --{form} writes all rows: put a LIMIT into the SQL")
    shown = rows or ROWS_SHOWN
    told = Console(stderr=True, highlight=False)
    reject_writes(sql)
    statement = parse_catalog_statement(sql)
    if statement is not None and following:
        raise UsageError("--follow is for queries: leave it out with SHOW TABLES and DESCRIBE")
    if statement is not None and not said:  # quick: only --fields needs Spark, to read its types
        print_rows(*run_catalog_statement(statement, url, directory), shown, form)
        return
    with ExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="headrace-query-"))
        stack.enter_context(collecting_misfits(Path(scratch)))
        stack.callback(lambda: print_misfits(told, collected_misfits(Path(scratch))))
        log = Path(scratch) / "spark.log"
        spark = stack.enter_context(announced_spark("headrace query", log, time_zone))
        archive = None if directory is None else directory.absolute()
        fields = dict(columns_of(each) for each in said)
        if statement is not None:
            print_rows(*run_catalog_statement(statement, url, archive, fields), shown, form)
            return
        tables = register_views(spark, sql, url, archive=archive, fields=fields, following=following)
        if unknown := sorted(set(fields) - {"", *(table.stream for table in tables)}):
            raise UsageError(f"--fields {unknown[0]}=…: the query names no stream {unknown[0]!r}")
        for table in tables:
            tell_guess(told, table)
        if following:
            follow_it(run_query(spark, sql, tables, names_at(url)), shown, form)
        else:
            with query_errors_explained():
                answer(told, run_query(spark, sql, tables, names_at(url)), shown, form)


def names_at(url: str) -> Iterator[str]:
    """Return the names of the server's streams, asked for when the first one is wanted."""
    with servers_at(url) as servers:
        yield from servers.scan(".*")


def columns_of(text: str) -> tuple[str, StructType]:
    """What --fields says: of which stream (all, if it names none), and its columns."""
    stream, equals, columns = text.rpartition("=")
    return (stream if equals else ""), parse_schema(columns)


def tell_guess(told: Console, table: StreamView) -> None:
    """Says which types were guessed."""
    if table.sampled:
        columns = ", ".join(
            f"{f.name} {f.dataType.simpleString()}" for f in table.columns if not f.name.startswith("_")
        )
        if columns:
            guess = f"{table.stream}: {columns} (from {table.sampled} entries; --fields says otherwise)"
            told.print(Text(printable(guess), style="dim"))


def print_misfits(errors: Console, misfits: MisfitCounts) -> None:
    """Say which columns have a null where a field's value does not fit."""
    if text := summarize_misfits(misfits):
        errors.print(Text(f"{text} (--fields sets other types)"), soft_wrap=True)


def answer(told: Console, found: DataFrame, most: int, form: str | None) -> None:
    """Prints the rows of a query that ends."""
    if form is None:
        with told.status("Asking"):
            first = found.limit(most + 1).collect()
        raise_if_interrupted()
        Console(highlight=False).print(picture(found.columns, first, most))
        return
    write(form, found.columns, until_noted(found.toLocalIterator(prefetchPartitions=True)))


def print_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], most: int, form: str | None) -> None:
    """Print rows that are all there."""
    if form is None:
        Console(highlight=False).print(picture(names, rows, most))
    else:
        write(form, names, rows)


def until_noted(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows; KeyboardInterrupt after a signal."""
    for row in rows:
        raise_if_interrupted()
        yield row


def follow_it(found: DataFrame, most: int, form: str | None) -> None:
    """Prints what a query over growing streams gives, until Ctrl-C."""
    console = Console(highlight=False)
    with ExitStack() as stack:
        live: Live | None = None
        begun = False

        def show(names: list[str], rows: Iterable[Row], whole: bool) -> None:
            nonlocal live, begun
            if form is not None:
                write(form, names, rows, head=whole or not begun)
                begun = True
                return
            drawn = picture(names, list(rows), most)
            if not whole or not console.is_terminal:
                console.print(drawn)
                return
            if live is None:
                live = stack.enter_context(Live(console=console, auto_refresh=False))
            live.update(drawn, refresh=True)

        follow_query(found, most + 1 if form is None else None, show)


def picture(names: Sequence[str], rows: Sequence[Sequence[Any]], most: int) -> RenderableType:
    """The first rows for the terminal, and a word if there are more."""
    if len(rows) <= most:
        return grid(names, rows)
    more = f"There are more; --rows shows more than {most}, --csv and --json all"
    return Group(grid(names, rows[:most]), more)


def grid(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Grid:
    """The rows as a table for the terminal."""
    made = Grid()
    for place, name in enumerate(names):
        numbers = any(isinstance(row[place], int | float) for row in rows)
        # Where it is narrow a value goes on in the next line: no ID is cut.
        made.add_column(Text(printable(name)), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text("" if value is None else printable(decoded(value))) for value in row))
    return made


def write(form: str, names: Sequence[str], rows: Iterable[Sequence[Any]], head: bool = True) -> None:
    """Prints rows for other programs; head: whether CSV begins with the names."""
    if form == "csv":
        sheet = csv.writer(sys.stdout, lineterminator="\n")
        if head:
            sheet.writerow(shown_cells(names) if sys.stdout.isatty() else names)
        # CSV has no escapes: a terminal is shown what the table shows, a file or a pipe gets the data.
        cells = ([decoded(value) for value in row] for row in rows)
        sheet.writerows(map(shown_cells, cells) if sys.stdout.isatty() else cells)
    else:
        for row in rows:
            pairs = dict(zip(names, (as_json(decoded(value)) for value in row), strict=True))
            print(json_text(pairs))
    sys.stdout.flush()


def shown_cells(row: Iterable[Any]) -> list[Any]:
    """Return a row of CSV for a terminal, its texts escaped."""
    return [value if value is None else printable(value) for value in row]


def decoded(value: Any) -> Any:
    """Return a value with its bytes as text: each byte that is not UTF-8 as \\xNN."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, Row):
        return Row(**{name: decoded(each) for name, each in value.asDict().items()})
    if isinstance(value, dict):
        return {decoded(name): decoded(each) for name, each in value.items()}
    return [decoded(each) for each in value] if isinstance(value, list) else value


def as_json(value: Any) -> Any:
    """A value as JSON can say it."""
    return value.asDict(recursive=True) if isinstance(value, Row) else value
