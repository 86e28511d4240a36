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
from headrace.spark.source.stream_state import Tail


@dataclass(frozen=True)
class Number:
    """So many entries had been given up to some ID; about so many if not exact."""

    value: int
    exact: bool


class EntryNumbers:
    """The numbers of the IDs that a query has to do with."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Number]] = {}
        self._least: dict[str, dict[str, int]] = {}  # proven: so many at least

    def exact(self, stream: str, entry_id: str) -> int | None:
        """The number of an ID, if it is known exactly."""
        number = self._known.get(stream, {}).get(entry_id)
        return number.value if number and number.exact else None

    def proven(self, stream: str, entry_id: str) -> tuple[int, bool] | None:
        """The number of an ID and True, or one that it has at least and False; None if nothing is proven."""
        number = self.exact(stream, entry_id)
        if number is not None:
            return number, True
        least = self._least.get(stream, {}).get(entry_id)
        return None if least is None else (least, False)

    def recall(self, positions: Mapping[str, Position]) -> None:
        """Note what a checkpoint tells."""
        for stream, each in positions.items():
            if each.number is not None and each.exact:
                self._note(stream, each.id, Number(each.number, True))
            elif each.number is not None:
                self._least.setdefault(stream, {})[each.id] = each.number

    def forget(self, stream: str) -> None:
        """Forget a stream that was recreated."""
        self._known.pop(stream, None)
        self._least.pop(stream, None)

    def position(self, stream: str, entry_id: str, tail: Tail) -> Number | None:
        """How many entries need not be read any more from after an ID: those up to it, and trimmed ones."""
        first = tail.number_of_first
        if first is not None and (tail.first is None or parse_id(entry_id) < parse_id(tail.first)):
            return Number(first - 1, True)
        return self._known.get(stream, {}).get(entry_id)

    def lag(self, stream: str, entry_id: str, tail: Tail) -> int | None:
        """How many entries there are after an ID; more if some were deleted. None if not even about known."""
        if parse_id(entry_id) >= parse_id(tail.last):
            return 0
        position = self.position(stream, entry_id, tail)
        return max(0, tail.added - position.value) if position and tail.added is not None else None

    def learn(self, tails: Mapping[str, Tail]) -> None:
        """Note the numbers of the last entries."""
        for stream, tail in tails.items():
            if tail.added is not None:
                self._note(stream, tail.last, Number(tail.added, True))

    def estimate(self, stream: str, entry_id: str, number: float) -> None:
        """Note about which number an ID has."""
        self._note(stream, entry_id, Number(max(0, round(number)), False))

    def count_on(self, stream: str, after: str, upto: str, count: int, tail: Tail) -> None:
        """Note the number of an ID that came `count` entries after another."""
        position = self.position(stream, after, tail)
        if position:
            deleted = tail.deleted is None or parse_id(tail.deleted) > parse_id(after)
            whole = tail.number_of_first is not None or not deleted
            self._note(stream, upto, Number(position.value + count, position.exact and whole))
        before = self.proven(stream, after)
        if position and position.exact:
            before = (position.value, True)
        self._least.setdefault(stream, {})[upto] = (before[0] if before else 0) + count

    def forget_before(self, start: Offsets) -> None:
        """Nobody will ask for what lies before these offsets."""
        for stream, known in self._known.items():
            low = parse_id(start.get(stream, START))
            self._known[stream] = {i: n for i, n in known.items() if parse_id(i) >= low}
        for stream, least in self._least.items():
            low = parse_id(start.get(stream, START))
            self._least[stream] = {i: n for i, n in least.items() if parse_id(i) >= low}

    def _note(self, stream: str, entry_id: str, number: Number) -> None:
        known = self._known.setdefault(stream, {})
        if number.exact or not (entry_id in known and known[entry_id].exact):
            known[entry_id] = number
