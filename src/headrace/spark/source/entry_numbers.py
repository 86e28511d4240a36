"""Track the numbers of the IDs at which a query's batches end: they give its lag without counting entries.

The number of an ID is how many entries were ever added up to it. XINFO STREAM gives the numbers of a stream's
last and first entry (stream_state.py). A micro-batch that is limited to n entries ends n after its start. So
if a query starts at either end of the stream, the number of every offset is known:

    number   0                       4000       4300                  9000
             |-- trimmed or read ----|-- batch --|------ lag ---------|
             start of the stream     start       end: 4000 + 300      the last entry

A query that restarts in the middle has an estimated number until it first reaches the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.positions.entry_ids import START, parse_id
from headrace.positions.offsets import Offsets
from headrace.positions.position import Position
from headrace.positions.stream_state import StreamState


@dataclass(frozen=True)
class EntryNumber:
    """How many entries were added up to some ID; an estimate if not exact."""

    value: int
    exact: bool


class EntryNumbers:
    """The numbers of the IDs of one query, by stream."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, EntryNumber]] = {}
        self._minimum_numbers: dict[str, dict[str, int]] = {}  # proven minimums

    def exact_number(self, stream: str, entry_id: str) -> int | None:
        """Return the number of an ID; None if it is not known exactly."""
        number = self._known.get(stream, {}).get(entry_id)
        return number.value if number and number.exact else None

    def proven_number_or_minimum(self, stream: str, entry_id: str) -> tuple[int, bool] | None:
        """Return the number of an ID and True, or a proven minimum of it and False; None if unknown."""
        number = self.exact_number(stream, entry_id)
        if number is not None:
            return number, True
        least = self._minimum_numbers.get(stream, {}).get(entry_id)
        return None if least is None else (least, False)

    def load_positions(self, positions: Mapping[str, Position]) -> None:
        """Record the numbers in the positions of a checkpoint."""
        for stream, each in positions.items():
            if each.entry_number is not None and each.entry_number_is_exact:
                self._record(stream, each.id, EntryNumber(each.entry_number, True))
            elif each.entry_number is not None:
                self._minimum_numbers.setdefault(stream, {})[each.id] = each.entry_number

    def forget(self, stream: str) -> None:
        """Forget the numbers of all entries of a stream, because it was recreated."""
        self._known.pop(stream, None)
        self._minimum_numbers.pop(stream, None)

    def number_at(self, stream: str, entry_id: str, state: StreamState) -> EntryNumber | None:
        """Return how many entries were ever added up to and including an ID; None if unknown.

        For an ID before the first entry, this is the number of entries that were trimmed.
        """
        first = state.first_number
        if first is not None and (state.first_id is None or parse_id(entry_id) < parse_id(state.first_id)):
            return EntryNumber(first - 1, True)
        return self._known.get(stream, {}).get(entry_id)

    def lag(self, stream: str, entry_id: str, state: StreamState) -> int | None:
        """Return how many entries follow an ID, including deleted ones; None if there is no estimate."""
        if parse_id(entry_id) >= parse_id(state.last_id):
            return 0
        position = self.number_at(stream, entry_id, state)
        return (
            max(0, state.entries_added - position.value)
            if position and state.entries_added is not None
            else None
        )

    def record_last_numbers(self, states: Mapping[str, StreamState]) -> None:
        """Record each stream's count of added entries as the number of its last ID."""
        for stream, state in states.items():
            if state.entries_added is not None:
                self._record(stream, state.last_id, EntryNumber(state.entries_added, True))

    def record_estimate(self, stream: str, entry_id: str, number: float) -> None:
        """Record an estimated number of an ID."""
        self._record(stream, entry_id, EntryNumber(max(0, round(number)), False))

    def record_number_after(
        self, stream: str, after: str, upto: str, count: int, state: StreamState, later: StreamState | None
    ) -> None:
        """Record the number of the ID `upto`, which is `count` entries after the ID `after`.

        Args:
            stream: the stream.
            after: an ID.
            upto: a later ID.
            count: the number of entries after `after`, up to `upto`.
            state: the stream before the entries were counted.
            later: the stream after they were counted; None if it no longer exists.
        """
        position = self.number_at(stream, after, state)
        if position:
            deleted = state.max_deleted_id is None or parse_id(state.max_deleted_id) > parse_id(after)
            whole = (state.first_number is not None or not deleted) and _is_unchanged(state, later, after)
            self._record(stream, upto, EntryNumber(position.value + count, position.exact and whole))
        before = self.proven_number_or_minimum(stream, after)
        if position and position.exact:
            before = (position.value, True)
        self._minimum_numbers.setdefault(stream, {})[upto] = (before[0] if before else 0) + count

    def drop_before(self, start: Offsets) -> None:
        """Forget the numbers of IDs before these offsets, which are not requested again."""
        for stream, known in self._known.items():
            low = parse_id(start.get(stream, START))
            self._known[stream] = {i: n for i, n in known.items() if parse_id(i) >= low}
        for stream, least in self._minimum_numbers.items():
            low = parse_id(start.get(stream, START))
            self._minimum_numbers[stream] = {i: n for i, n in least.items() if parse_id(i) >= low}

    def _record(self, stream: str, entry_id: str, number: EntryNumber) -> None:
        known = self._known.setdefault(stream, {})
        if number.exact or not (entry_id in known and known[entry_id].exact):
            known[entry_id] = number


def _is_unchanged(before: StreamState, later: StreamState | None, after: str) -> bool:
    """Return whether no entry after an ID was removed between two states of a stream."""
    if later is None or later.max_deleted_id != before.max_deleted_id:
        return False
    first = later.first_id
    return first == before.first_id or (first is not None and parse_id(first) <= parse_id(after))
