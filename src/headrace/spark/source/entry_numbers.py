"""How many entries a query has read of each stream, and how many lie before it, without counting them.

A server tells the number of a stream's last entry (stream_state.py), and of its first; a micro-batch that
was cut after n entries has counted n on from where it began. So of a query that starts at either end every
offset's number is known:

    number   0                       4000       4300                  9000
             |-- trimmed or read ----|-- batch --|------ lag ---------|
             start of the stream     start       end: 4000 + 300      the last entry

One that is restarted in the middle knows its number only about, until it is at the end for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.spark.source.offsets import START, Offsets, parse_id
from headrace.spark.source.positions import Position
from headrace.spark.source.stream_state import StreamState


@dataclass(frozen=True)
class EntryNumber:
    """So many entries had been given up to some ID; about so many if not exact."""

    value: int
    exact: bool


class EntryNumbers:
    """The numbers of the IDs that a query has to do with."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, EntryNumber]] = {}
        self._at_least: dict[str, dict[str, int]] = {}  # proven: so many at least

    def exact_number(self, stream: str, entry_id: str) -> int | None:
        """The number of an ID, if it is known exactly."""
        number = self._known.get(stream, {}).get(entry_id)
        return number.value if number and number.exact else None

    def proven_number(self, stream: str, entry_id: str) -> tuple[int, bool] | None:
        """The number of an ID and True, or one that it has at least and False; None if nothing is proven."""
        number = self.exact_number(stream, entry_id)
        if number is not None:
            return number, True
        least = self._at_least.get(stream, {}).get(entry_id)
        return None if least is None else (least, False)

    def load_positions(self, positions: Mapping[str, Position]) -> None:
        """Note what a checkpoint tells."""
        for stream, each in positions.items():
            if each.number is not None and each.exact:
                self._note(stream, each.id, EntryNumber(each.number, True))
            elif each.number is not None:
                self._at_least.setdefault(stream, {})[each.id] = each.number

    def forget(self, stream: str) -> None:
        """Forget a stream that was recreated."""
        self._known.pop(stream, None)
        self._at_least.pop(stream, None)

    def number_at(self, stream: str, entry_id: str, state: StreamState) -> EntryNumber | None:
        """How many entries need not be read any more from after an ID: those up to it, and trimmed ones."""
        first = state.first_number
        if first is not None and (state.first_id is None or parse_id(entry_id) < parse_id(state.first_id)):
            return EntryNumber(first - 1, True)
        return self._known.get(stream, {}).get(entry_id)

    def lag(self, stream: str, entry_id: str, state: StreamState) -> int | None:
        """How many entries there are after an ID; more if some were deleted. None if not even about known."""
        if parse_id(entry_id) >= parse_id(state.last_id):
            return 0
        position = self.number_at(stream, entry_id, state)
        return (
            max(0, state.entries_added - position.value)
            if position and state.entries_added is not None
            else None
        )

    def record_last_ids(self, states: Mapping[str, StreamState]) -> None:
        """Note the numbers of the last entries."""
        for stream, state in states.items():
            if state.entries_added is not None:
                self._note(stream, state.last_id, EntryNumber(state.entries_added, True))

    def record_estimate(self, stream: str, entry_id: str, number: float) -> None:
        """Note about which number an ID has."""
        self._note(stream, entry_id, EntryNumber(max(0, round(number)), False))

    def record_count(self, stream: str, after: str, upto: str, count: int, state: StreamState) -> None:
        """Note the number of an ID that came `count` entries after another."""
        position = self.number_at(stream, after, state)
        if position:
            deleted = state.max_deleted_id is None or parse_id(state.max_deleted_id) > parse_id(after)
            whole = state.first_number is not None or not deleted
            self._note(stream, upto, EntryNumber(position.value + count, position.exact and whole))
        before = self.proven_number(stream, after)
        if position and position.exact:
            before = (position.value, True)
        self._at_least.setdefault(stream, {})[upto] = (before[0] if before else 0) + count

    def drop_before(self, start: Offsets) -> None:
        """Forget what lies before these offsets: it is not requested again."""
        for stream, known in self._known.items():
            low = parse_id(start.get(stream, START))
            self._known[stream] = {i: n for i, n in known.items() if parse_id(i) >= low}
        for stream, least in self._at_least.items():
            low = parse_id(start.get(stream, START))
            self._at_least[stream] = {i: n for i, n in least.items() if parse_id(i) >= low}

    def _note(self, stream: str, entry_id: str, number: EntryNumber) -> None:
        known = self._known.setdefault(stream, {})
        if number.exact or not (entry_id in known and known[entry_id].exact):
            known[entry_id] = number
