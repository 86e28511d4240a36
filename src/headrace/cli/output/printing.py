"""Print results: tables on a terminal, aligned text in a pipe, JSON for programs.

JSON is exact. Bytes that are not UTF-8 are {"$base64": "..."}; fields are an object, or a list
of [name, value] pairs if a name occurs twice or is not UTF-8.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from headrace.console.columns import GAP, columns_that_fit
from headrace.console.escaping import json_text, printable
from headrace.console.rich_text import line
from headrace.errors import HeadraceError
from headrace.positions.entry_ids import parse_id

BASE64 = "$base64"
MISSING_CELL = "-"  # the cell of a value that the server does not report


def print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Iterable[str] = (),
    dropped: Sequence[str] = (),
    optional: Container[str] = (),
) -> None:
    """Print rows under their titles; the first column is a name.

    Args:
        titles: The titles of the columns.
        rows: A value for each column; None is shown as a dash.
        right: The titles of columns of numbers.
        dropped: The titles of columns in the order in which they are left out on a narrow terminal.
        optional: The titles of columns that are left out if no row has a value.
    """
    used = [
        column
        for column, title in enumerate(titles)
        if title not in optional or any(row[column] is not None for row in rows)
    ]
    titles = [titles[column] for column in used]
    rows = [[row[column] for column in used] for row in rows]
    console = Console(highlight=False)
    numbers = set(right)
    shown = [list(titles), *([printable(cell(value)) for value in row] for row in rows)]
    widths = [max(cell_len(row[column]) for row in shown) for column in range(len(titles))]
    if console.is_terminal:
        left_out = [titles.index(title) for title in dropped if title in titles]
        chosen = columns_that_fit(widths, left_out, console.width)
        table = Table(box=None, pad_edge=False, header_style="grey50", padding=(0, GAP, 0, 0))
        for column in chosen:
            justify: JustifyMethod = "right" if titles[column] in numbers else "left"
            table.add_column(titles[column], justify=justify, overflow="fold", no_wrap=column > 0)
        for row in shown[1:]:
            table.add_row(*(Text(row[column]) for column in chosen))
        console.print(table)
        return
    for row in shown:
        padded = (
            " " * (width - cell_len(text)) + text
            if title in numbers
            else text + " " * (width - cell_len(text))
            for title, text, width in zip(titles, row, widths, strict=True)
        )
        click.echo((" " * GAP).join(padded).rstrip())


def cell(value: object) -> object:
    """Return a value as it is shown in a table."""
    return MISSING_CELL if value is None else f"{value:,}" if type(value) is int else value


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    click.echo(json_text(value))


def bytes_to_json(value: bytes) -> str | dict[str, str]:
    """Return bytes as a JSON value that `bytes_from_json` converts back."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(value).decode()}


def fields_to_json(fields: Sequence[bytes]) -> Any:
    """Return a flat list of names and values as a reversible JSON object, or list of pairs."""
    pairs = [(bytes_to_json(name), bytes_to_json(value)) for name, value in field_pairs(fields)]
    names = [name for name, _ in pairs]
    if all(isinstance(name, str) for name in names) and len(set(map(str, names))) == len(names):
        return dict(pairs)
    return [list(pair) for pair in pairs]


def bytes_from_json(value: Any) -> bytes:
    """Convert a JSON value to the bytes of a field.

    Values that `bytes_to_json` returned are converted back. A number, list or other object becomes its JSON
    text, as in `headrace load`.

    Raises:
        ValueError: if the value is null, contains half of a surrogate pair, or is not valid base64.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping) and list(value) == [BASE64]:
        if not isinstance(value[BASE64], str):
            raise ValueError(f"{BASE64} needs a string")
        return base64.b64decode(value[BASE64], validate=True)
    if value is None:
        raise ValueError("null is not a value of a field")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def field_pairs(fields: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return a flat list of names and values as pairs."""
    return list(zip(fields[::2], fields[1::2], strict=True))


def fields_text(fields: Sequence[bytes]) -> str:
    """Return the fields of an entry for people: name=value, quoted where the end would be unclear."""
    return "  ".join(
        f"{quote_if_needed(name)}={quote_if_needed(value)}" for name, value in field_pairs(fields)
    )


def quote_if_needed(value: bytes) -> str:
    """Return a printable name or value, in quotes if it is empty or contains spaces, quotes or =."""
    text = printable(value)
    if text and not any(char in text for char in ' "='):
        return text
    return '"' + text.replace('"', '\\"') + '"'


def id_time(entry_id: str) -> str:
    """Return the time of an ID in UTC; a dash if it is outside the calendar."""
    try:
        time = datetime.datetime.fromtimestamp(parse_id(entry_id)[0] / 1000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return MISSING_CELL
    return time.strftime("%Y-%m-%d %H:%M:%S.") + f"{time.microsecond // 1000:03d}"


def add_hint(console: Console, stop: HeadraceError | KeyboardInterrupt, hint: str) -> None:
    """Append a hint, such as how to resume, to an error's text; print it after Ctrl-C."""
    if isinstance(stop, HeadraceError):
        stop.args = (f"{stop}; {hint}",)
    else:
        console.print(line(hint), soft_wrap=True)
