"""Checks a history of operations on one stream: what writers were told, what readers saw, what is left.

    writer   invoke ─ ok, with the ID │ fail: it was not added │ info: unknown
    reader   entries in the order in which it saw them, from some position on
    final    the entries at the end

    lost         was acknowledged, is not in the final entries
    duplicated   is more than once in the final entries
    reordered    stands before an entry whose writer was answered before this one was invoked; or an ID that
                 is not above the one before
    unexpected   nobody added it, its writer was told that it failed, or it has another ID than was told
    recovered    its writer was told nothing, and it is in the final entries: no error
    skipped      a reader has passed its position without seeing it
    backward     a reader saw an ID that is not above the one before
    vanished     a reader saw it, it is not in the final entries

The classes are those of Jepsen's tests of queues. The module knows no server: any test may use it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

ID = tuple[int, int]
Entry = tuple[ID, bytes]

OK, FAIL, INFO = "ok", "fail", "info"
NEVER = 1 << 62


@dataclass(eq=False)
class Append:
    """The addition of one value. Times are numbers of events of the history."""

    value: bytes
    invoked: int
    completed: int = NEVER
    outcome: str = INFO
    id: ID | None = None
    confirmed: bool = False  # replicas have it: WAIT has said so


@dataclass(eq=False)
class Reader:
    """What one reader saw, which began after an ID."""

    name: str
    after: ID = (0, 0)
    entries: list[Entry] = field(default_factory=list)

    @property
    def last(self) -> ID:
        return self.entries[-1][0] if self.entries else self.after


@dataclass
class Report:
    """Values by class; readers' values with the name of the reader."""

    lost: list[bytes] = field(default_factory=list)
    duplicated: list[bytes] = field(default_factory=list)
    reordered: list[bytes] = field(default_factory=list)
    unexpected: list[bytes] = field(default_factory=list)
    recovered: list[bytes] = field(default_factory=list)
    skipped: list[tuple[str, bytes]] = field(default_factory=list)
    backward: list[tuple[str, bytes]] = field(default_factory=list)
    vanished: list[tuple[str, bytes]] = field(default_factory=list)
    lost_confirmed: list[bytes] = field(default_factory=list)

    @property
    def errors(self) -> dict[str, object]:
        """What is wrong whether or not a replica took over: everything but losses of unconfirmed values."""
        classes = ("duplicated", "reordered", "unexpected", "skipped", "backward", "vanished")
        names = (*classes, "lost_confirmed")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


class OperationHistory:
    """Operations of writers and readers, in the order of their events."""

    def __init__(self) -> None:
        self.appends: dict[bytes, Append] = {}
        self.readers: list[Reader] = []
        self._events = 0

    def invoke(self, value: bytes) -> Append:
        """Note that a writer sends a value, which no other one has sent."""
        assert value not in self.appends
        self._events += 1
        made = self.appends[value] = Append(value, self._events)
        return made

    def complete(self, append: Append, outcome: str, found: ID | None = None) -> None:
        """Note the reply to a writer."""
        self._events += 1
        append.outcome, append.id, append.completed = outcome, found, self._events

    def reader(self, name: str, after: ID = (0, 0)) -> Reader:
        """Return a new reader."""
        self.readers.append(Reader(name, after))
        return self.readers[-1]

    def check(self, final: list[Entry]) -> Report:
        """Compare the history with the final entries."""
        report = Report()
        counts = Counter(value for _, value in final)
        for append in self.appends.values():
            if append.outcome == OK and not counts[append.value]:
                report.lost.append(append.value)
                if append.confirmed:
                    report.lost_confirmed.append(append.value)
            elif append.outcome == INFO and counts[append.value]:
                report.recovered.append(append.value)
        report.duplicated += [value for value, count in counts.items() if count > 1]
        self._check_order(final, report)
        for reader in self.readers:
            check_reader(reader, final, report)
        return report

    def _check_order(self, final: list[Entry], report: Report) -> None:
        latest = 0  # invocation among the entries so far
        previous: ID = (0, 0)
        for found, value in final:
            append = self.appends.get(value)
            if append is None or append.outcome == FAIL or append.id not in (None, found):
                report.unexpected.append(value)
                continue
            if found <= previous or append.completed < latest:
                report.reordered.append(value)
            latest = max(latest, append.invoked)
            previous = max(previous, found)


def check_reader(reader: Reader, final: list[Entry], report: Report) -> None:
    """Compare what one reader saw with the final entries."""
    previous = reader.after
    for found, value in reader.entries:
        if found <= previous:
            report.backward.append((reader.name, value))
        previous = max(previous, found)
    seen, kept = set(reader.entries), set(final)
    report.vanished += [(reader.name, value) for found, value in reader.entries if (found, value) not in kept]
    report.skipped += [
        (reader.name, value)
        for found, value in final
        if reader.after < found <= previous and (found, value) not in seen
    ]
