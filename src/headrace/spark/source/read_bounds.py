"""Bounds of a batch read after its filters: the streams, and a range of IDs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.positions.entry_ids import START, U64_MAX, EntryId, format_id, parse_id
from headrace.positions.offsets import Offsets, sorted_offsets

MAX_ID = (U64_MAX, U64_MAX)


@dataclass
class ReadBounds:
    """What remains to be read: these streams (None: all), and their entries after one ID up to another."""

    streams: set[str] | None = None
    after: EntryId = (0, 0)
    upto: EntryId = MAX_ID

    def restrict_streams(self, streams: Iterable[Any]) -> None:
        """Keep only these streams."""
        names = {name for name in streams if name is not None}
        self.streams = names if self.streams is None else self.streams & names

    def restrict_ids(self, after: EntryId, upto: EntryId) -> None:
        """Keep only the entries after one ID and up to another."""
        self.after = max(self.after, after)
        self.upto = min(self.upto, upto)

    def select_nothing(self) -> None:
        """Keep no entry."""
        self.upto = (0, 0)

    def narrow_offsets(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Return the start and end of a read, narrowed to the bounds."""
        end = {s: i for s, i in end.items() if self.streams is None or s in self.streams}
        start = {s: format_id(max(parse_id(start.get(s, START)), self.after)) for s in end}
        return sorted_offsets(start), sorted_offsets(
            {s: format_id(min(parse_id(i), self.upto)) for s, i in end.items()}
        )
