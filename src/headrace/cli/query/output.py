"""Print the rows of a query's result, and notes about its tables."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from headrace.cli.output.misfits import summarize_misfits
from headrace.cli.query.result_values import as_text, to_json_value
from headrace.columns.declarations import DeclaredColumns, type_name
from headrace.console.escaping import json_text, printable
from headrace.errors import UsageError
from headrace.plurals import plural
from headrace.queries.views import StreamView
from headrace.spark.decode.misfits import MisfitCounts

ROWS_SHOWN = 50
PIPE_WIDTH = 1 << 16  # characters in a line, at most


def check_fields_are_read(fields: Mapping[str, DeclaredColumns], views: Iterable[StreamView]) -> None:
    """Raise UsageError if --fields names a stream that the query does not read."""
    if unknown := sorted(set(fields) - {"", *(view.stream for view in views)}):
        raise UsageError(f"--fields {unknown[0]}=…: the query does not read a stream {unknown[0]!r}")


def print_notes(errors: Console, view: StreamView) -> None:
    """Print inferred types, what was not sampled or not read, and the fields without a column."""
    table = view.table_columns
    columns = ", ".join(
        f"{f.name} {type_name(f.type)}" for f in view.columns if f.name in table.inferred_names
    )
    is_whole = set(view.fields) <= set(view.columns.names)  # SELECT *
    notes = []
    lacking = (
        f"{plural(table.unread_file_count, 'archived file')} not sampled" if table.unread_file_count else ""
    )
    if table.sampled_entry_count and columns:
        count = plural(table.sampled_entry_count, "entry")
        notes.append(
            f"{columns} (from {'; '.join(filter(None, [count, lacking]))}; --fields sets other types)"
        )
    elif lacking and is_whole:
        notes.append(f"{lacking}; --fields 'infer, NAME TYPE' adds a field that only they have")
    if view.removed_entry_count:
        lost = plural(view.removed_entry_count, "entry")
        notes.append(
            f"{lost} added earlier, then trimmed or deleted, not read (--archive reads archived ones)"
        )
    if table.hidden_names and is_whole:
        names = ", ".join(table.hidden_names)
        notes.append(f"no columns for the fields {names}: their names are reserved or not UTF-8")
    for note in notes:
        errors.print(Text(printable(f"{view.stream}: {note}"), style="dim"), soft_wrap=True)


def print_misfits(errors: Console, misfits: MisfitCounts) -> None:
    """Print which columns have nulls because a value did not fit."""
    if text := summarize_misfits(misfits):
        errors.print(Text(f"{text} (--fields sets other types)"), soft_wrap=True)


def print_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], limit: int, form: str | None) -> None:
    """Print rows: a table of the first `limit` rows if `form` is None, else all as CSV or JSON lines."""
    if form is None:
        result_console().print(limited_grid(names, rows, limit))
    else:
        write_rows(form, names, rows)


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


def write_rows(form: str, names: Sequence[str], rows: Iterable[Sequence[Any]], head: bool = True) -> None:
    """Print rows as CSV, or as JSON lines unless `form` is "csv"; head: whether CSV begins with the names."""
    if form == "csv":
        sheet = csv.writer(sys.stdout, lineterminator="\n")
        if head:
            sheet.writerow(escaped_cells(names) if sys.stdout.isatty() else names)
        # CSV has no escapes: a terminal gets escaped text, a file or a pipe gets the data.
        cells = ([None if value is None else as_text(value) for value in row] for row in rows)
        sheet.writerows(map(escaped_cells, cells) if sys.stdout.isatty() else cells)
    else:
        for row in rows:
            pairs = dict(zip(names, (to_json_value(value) for value in row), strict=True))
            print(json_text(pairs))
    sys.stdout.flush()


def escaped_cells(row: Iterable[Any]) -> list[Any]:
    """Return a row of CSV for a terminal, with escaped texts."""
    return [value if value is None else printable(value) for value in row]
