"""Bars for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from headrace.console.escaping import printable

BLOCKS = " ▏▎▍▌▋▊▉█"


class Description(ProgressColumn):
    """The name of a task, which may be the name of a stream."""

    def get_table_column(self) -> Column:
        """Return the layout: one line, cut where there is little room."""
        return Column(no_wrap=True, overflow="ellipsis")

    def render(self, task: Task) -> Text:
        """Return the text for one task."""
        return Text(f"  {printable(task.description):<8}")


class Rows(ProgressColumn):
    """The rows so far and how many a second; a task carries them in its field `rows`."""

    def get_table_column(self) -> Column:
        """In one line: where there is little room the bar gives way."""
        return Column(no_wrap=True)

    def render(self, task: Task) -> Text:
        """The text for one task."""
        rows = int(task.fields.get("rows", 0))
        rate = rows / task.elapsed if task.elapsed else 0
        return Text(f"{rows:>9,} rows  {rate:>7,.0f} rows/s", style="cyan")


def progress_bar(console: Console) -> Progress:
    """A bar with the share done, rows, rows a second and time; silent when the output is no terminal."""
    return Progress(
        Description(),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        Rows(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def bar(value: float, largest: float, width: int) -> str:
    """A bar of block characters, in eighths of a character."""
    eighths = round(8 * width * max(0.0, value) / largest) if largest > 0 else 0
    return "█" * (eighths // 8) + BLOCKS[eighths % 8].strip()
