"""Progress bars for the terminal."""

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


class TaskNameColumn(ProgressColumn):
    """The name of a task, which may be the name of a stream."""

    def get_table_column(self) -> Column:
        """Return the layout: one line, which is cut on a narrow terminal."""
        return Column(no_wrap=True, overflow="ellipsis")

    def render(self, task: Task) -> Text:
        """Return the text for a task."""
        return Text(f"  {printable(task.description):<8}")


class RowsColumn(ProgressColumn):
    """The number of rows so far (the task's field `rows`), and the rows per second."""

    def get_table_column(self) -> Column:
        """Return the layout: one line; on a narrow terminal the bar becomes shorter."""
        return Column(no_wrap=True)

    def render(self, task: Task) -> Text:
        """Return the text for a task."""
        rows = int(task.fields.get("rows", 0))
        rate = rows / task.elapsed if task.elapsed else 0
        return Text(f"{rows:>9,} rows  {rate:>7,.0f} rows/s", style="cyan")


def progress_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Return a bar with name, share done, rows, rates, `columns` and time; silent without a terminal."""
    return Progress(
        TaskNameColumn(),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        RowsColumn(),
        *columns,
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
