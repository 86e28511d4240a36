"""A position in the history of a stream: the ID up to which a query has read, and the stream's identity.

    1763676000000-4                  an ID alone: chosen by an option, or of an old checkpoint or server
    1763676000000-4:5                the entry with this ID was the fifth that was added to the stream
    1763676000000-4:5+               it was the fifth or a later one
    1763676000000-4:5:9af3c01e       and its fields have this fingerprint
    0-1:1:9af3c01e:2                 after the stream was recreated twice

Redis keeps no creation ID of a stream. But the number of an entry, counted from the first one ever added,
never changes, and neither do its fields. A stream that contradicts one of them was recreated under its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.positions.entry_ids import START, parse_id

POSITION_PATTERN = re.compile(r"([^:]+)(?::(\d{1,20})?(\+)?(?::([0-9a-f]{8})?(?::(\d{1,9}))?)?)?")


@dataclass(frozen=True)
class Position:
    """One stream up to and including an ID.

    entry_number           how many entries were ever added up to the ID; None if unknown
    entry_number_is_exact  whether it is exact; else it is a minimum
    fingerprint            of the fields of the entry with this ID; None if there was none
    generation             how often the query has detected that the stream was recreated
    """

    id: str = START
    entry_number: int | None = None
    entry_number_is_exact: bool = True
    fingerprint: str | None = None
    generation: int = 0

    @property
    def has_identity(self) -> bool:
        """Whether more than the ID is known. Such a position was read, not chosen by an option."""
        return self.entry_number is not None or self.fingerprint is not None or self.generation > 0

    def __str__(self) -> str:
        count = (
            ""
            if self.entry_number is None
            else f"{self.entry_number}{'' if self.entry_number_is_exact else '+'}"
        )
        parts = [self.id, count, self.fingerprint or "", str(self.generation or "")]
        return ":".join(parts).rstrip(":")


Positions = dict[str, Position]


def parse_position(text: str) -> Position:
    """Parse a position.

    Raises:
        ValueError: if the text is neither an ID nor an ID with further parts.
    """
    found = POSITION_PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an entry ID")
    entry_id, number, more, fingerprint, generation = found.groups()
    parse_id(entry_id)
    count = None if number is None else int(number)
    return Position(entry_id, count, more is None, fingerprint, int(generation or 0))


def parse_positions(offsets: Mapping[str, str]) -> Positions:
    """Parse the offsets of a checkpoint. Raises ValueError if one of them is malformed."""
    return {stream: parse_position(text) for stream, text in offsets.items()}


def ids_by_stream(positions: Mapping[str, Position]) -> dict[str, str]:
    """Return the IDs alone, sorted by stream."""
    return {stream: positions[stream].id for stream in sorted(positions)}


def reached_ids_by_stream(positions: Mapping[str, Position]) -> dict[str, str]:
    """Return the IDs of the positions that were read; those chosen by an option are left out."""
    return {stream: each.id for stream, each in positions.items() if each.has_identity}
