"""Print entries, one per line."""

from __future__ import annotations

import sys

from rich.console import Console

from headrace.cli.connections.stream_client import RawEntry
from headrace.cli.output.printing import bytes_to_json, fields_text, fields_to_json, id_time
from headrace.cli.output_errors import wrap_output_errors
from headrace.client.stream_names import stream_key
from headrace.console import styles
from headrace.console.escaping import json_text, printable
from headrace.console.rich_text import line


class EntryPrinter:
    """A printer of entries, one per line.

    Args:
        as_json: Print JSON.
        with_names: Begin each line with the name of the stream.
        count: Number of entries to print; None for no limit.
    """

    def __init__(self, as_json: bool, with_names: bool, count: int | None) -> None:
        self.as_json = as_json
        self.prints_stream_names = with_names
        self.remaining = count
        self.console = Console(highlight=False)

    @property
    def is_done(self) -> bool:
        """Whether enough entries were printed."""
        return self.remaining == 0

    def show(self, stream: str, entry: RawEntry, *notes: str, about: dict[str, object] | None = None) -> None:
        """Print an entry.

        Args:
            stream: The name of its stream.
            entry: Its ID and its fields.
            notes: Additional text in output for people.
            about: Additional members of the JSON object.
        """
        with wrap_output_errors():
            self._show(stream, entry, notes, about or {})
        if self.remaining is not None:
            self.remaining -= 1

    def _show(self, stream: str, entry: RawEntry, notes: tuple[str, ...], about: dict[str, object]) -> None:
        entry_id, fields = entry
        if self.as_json:
            name = bytes_to_json(stream_key(stream))
            shown = None if fields is None else fields_to_json(fields)
            print(json_text({"stream": name, "id": entry_id, **about, "fields": shown}))
        else:
            text = "(deleted)" if fields is None else fields_text(fields)
            self._print(stream, entry_id, *notes, text)

    def _print(self, stream: str, entry_id: str, *parts: str) -> None:
        name = f"{printable(stream)}  " if self.prints_stream_names else ""
        time = id_time(entry_id)
        if not self.console.is_terminal:  # rich is slow, and here is nothing to color
            print(f"{name}{entry_id}  {time}  {'  '.join(parts)}")
            return
        text = line(
            (name, styles.GREY), (entry_id, styles.MS), (f"  {time}  ", styles.GREY), "  ".join(parts)
        )
        self.console.print(text, soft_wrap=True)

    def flush(self) -> None:
        """Flush the output, so that the reader of a pipe receives it."""
        with wrap_output_errors():
            sys.stdout.flush()
