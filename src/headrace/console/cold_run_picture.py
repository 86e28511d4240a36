"""Draw a cold run (nodes of a stream that were moved to a file) as a table: where it is, what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from headrace.console import styles
from headrace.console.escaping import printable
from headrace.console.stream_snapshot import ColdStats
from headrace.plurals import plural
from headrace.streams.cold_run import ColdRun

NAMES_MAX = 20  # of files in a line


def cold_run_table(run: ColdRun) -> Table:
    """Return a table about a cold run; its file is not read."""
    table = Table.grid(padding=(0, 3))
    for name, value in cold_run_rows(run):
        table.add_row(Text(name, styles.GREY), value)
    return table


def cold_run_rows(run: ColdRun) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table: a name and a value."""
    place = run.storage_location
    yield "file", f"{place.file.name}, {styles.format_size(place.size)} at byte {place.offset:,}"
    yield "checksum", f"{place.checksum:016x}"
    yield "entries", f"{run.first_ms}-{run.first_seq} to {run.last_ms}-{run.last_seq} when it was stored"
    yield "nodes", f"{run.inner_count():,} of {run.stored_node_count:,}"
    yield "in memory", f"they would take {styles.format_size(run.bytes_if_loaded)}"
    yield "deleted since", plural(run.deleted_count(), "entry")


def cold_text(cold: ColdStats, names: Sequence[str] = ()) -> Text:
    """Return a line about the part of a stream that is in files, with some of the files' names."""
    text = Text("in files", styles.GREY)
    text.append(f"   {plural(cold.entries, 'entry')}", "bold")
    text.append(f", which would take {styles.format_size(cold.memory_bytes)} of memory, ", styles.GREY)
    text.append(f"in {plural(cold.files, 'file')}", styles.GREY)
    if names:
        shown = ", ".join(printable(name) for name in names[:NAMES_MAX])
        text.append(f": {shown}{', …' if len(names) > NAMES_MAX else ''}", styles.GREY)
    return text
