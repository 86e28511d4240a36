"""The figures of a server at one moment: of the whole, of each stream, of each group.

They come through ordinary commands, in pipelines of a bounded size, so that any server of the protocol can
be asked and none is kept from its other clients. What a server does not say is None, never 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headrace.errors import HeadraceError

Words = Sequence[bytes | str | int]
Send = Callable[[list[Words]], list[object]]  # a pipeline: its answers in order, refusals as exceptions

STREAMS_MAX = 1000  # of one server; the others are only counted
STREAMS_AT_ONCE = 50  # in one pipeline
CONSUMERS_MAX = 100  # of one group
SCAN_COUNT = 500


@dataclass
class ConsumerFigures:
    """One consumer; idle_ms since it was last heard of."""

    name: bytes
    pending: int
    idle_ms: int


@dataclass
class GroupFigures:
    """One group. lag is None when the server cannot tell; oldest_idle_ms is of the first pending entry.

    It is None if there is none, or if no server has it.
    """

    name: bytes
    consumers: int
    pending: int
    last_id: bytes
    entries_read: int | None
    lag: int | None
    members: list[ConsumerFigures] = field(default_factory=list)
    oldest_id: bytes | None = None
    oldest_idle_ms: int | None = None


@dataclass
class StreamFigures:
    """One stream; IDs of an empty one are None, memory_bytes is None unless asked for."""

    database: int
    key: bytes
    length: int
    nodes: int  # of the radix tree
    keys: int  # in it: nodes of entries
    last_id: bytes
    entries_added: int | None = None
    max_deleted_id: bytes | None = None
    first_entry_id: bytes | None = None
    last_entry_id: bytes | None = None
    memory_bytes: int | None = None
    groups: list[GroupFigures] = field(default_factory=list)


@dataclass
class Figures:
    """All of it. info: INFO's fields; left_out: streams beyond STREAMS_MAX, at least."""

    at: float  # time.monotonic()
    info: dict[str, str]
    streams: list[StreamFigures] = field(default_factory=list)
    left_out: int = 0

    def number(self, name: str) -> float | None:
        """A field of INFO as a number, if it is there and one."""
        try:
            return float(self.info[name])
        except (KeyError, ValueError):
            return None


def collect(ask: Send, *, consumers: bool = True, memory: bool = False) -> Figures:
    """Ask for everything. HeadraceError when INFO is refused; a stream that goes meanwhile is left out."""
    figures = Figures(time.monotonic(), read_info(ask))
    for database in databases(figures.info):
        found, more = streams_of(ask, database, STREAMS_MAX - len(figures.streams))
        figures.left_out += more
        for start in range(0, len(found), STREAMS_AT_ONCE):
            figures.streams += ask_streams(
                ask, database, found[start : start + STREAMS_AT_ONCE], consumers, memory
            )
    return figures


def read_info(ask: Send) -> dict[str, str]:
    """INFO's fields, with those of the commands."""
    answer = ask([["INFO", "everything"]])[0]
    if not isinstance(answer, bytes):
        raise HeadraceError(f"INFO was refused: {answer}")
    lines = answer.decode(errors="backslashreplace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def databases(info: dict[str, str]) -> list[int]:
    """The numbers of the databases that hold keys."""
    return sorted(int(name[2:]) for name in info if name.startswith("db") and name[2:].isdigit())


def streams_of(ask: Send, database: int, most: int) -> tuple[list[bytes], int]:
    """The names of at most so many streams, sorted, and how many more were met."""
    names: set[bytes] = set()
    cursor: object = b"0"
    while len(names) <= most:
        scan = ["SCAN", cursor, "COUNT", SCAN_COUNT, "TYPE", "stream"]
        answer = ask([["SELECT", database], scan])[1]  # type: ignore[list-item]
        if not isinstance(answer, list):
            raise HeadraceError(f"SCAN was refused: {answer}")
        cursor, keys = answer
        names.update(keys)
        if cursor == b"0":
            break
    kept = sorted(names)[: max(most, 0)]
    return kept, len(names) - len(kept)


def ask_streams(
    ask: Send, database: int, keys: list[bytes], consumers: bool, memory: bool
) -> list[StreamFigures]:
    """The figures of these streams of one database."""
    each: list[Callable[[bytes], Words]] = [
        lambda key: ["XINFO", "STREAM", key],
        lambda key: ["XINFO", "GROUPS", key],
    ]
    if memory:
        each.append(lambda key: ["MEMORY", "USAGE", key])
    answers = ask([["SELECT", database], *(words(key) for key in keys for words in each)])[1:]
    streams = []
    for key, about, groups, *size in zip(keys, *(answers[n :: len(each)] for n in range(len(each)))):  # noqa: B905
        if not isinstance(about, list) or not isinstance(groups, list):
            continue  # it has gone, or is no stream any more
        stream = stream_figures(database, key, named(about))
        stream.groups = [group_figures(named(group)) for group in groups]
        stream.memory_bytes = size[0] if size and isinstance(size[0], int) else None
        streams.append(stream)
    ask_groups(ask, database, streams, consumers)
    return streams


def ask_groups(ask: Send, database: int, streams: list[StreamFigures], consumers: bool) -> None:
    """Add to the groups of streams their consumers and their first pending entry."""
    groups = [(stream.key, group) for stream in streams for group in stream.groups]
    if not groups:
        return
    requests: list[Words] = [["SELECT", database]]
    for key, group in groups:
        requests.append(["XPENDING", key, group.name, "-", "+", 1])
        if consumers:
            requests.append(["XINFO", "CONSUMERS", key, group.name])
    answers = iter(ask(requests)[1:])
    for _, group in groups:
        first = next(answers)
        if isinstance(first, list) and first:
            group.oldest_id, idle_ms = first[0][0], first[0][2]
            group.oldest_idle_ms = None if idle_ms < 0 else idle_ms  # given back by XNACK
        members = next(answers) if consumers else None
        if isinstance(members, list):
            group.members = list(consumer_figures(members))[:CONSUMERS_MAX]


def stream_figures(database: int, key: bytes, about: dict[str, object]) -> StreamFigures:
    """A stream as XINFO STREAM shows it."""
    first, last = about.get("first-entry"), about.get("last-entry")
    return StreamFigures(
        database,
        key,
        _int(about, "length"),
        _int(about, "radix-tree-nodes"),
        _int(about, "radix-tree-keys"),
        _bytes(about, "last-generated-id"),
        _maybe_int(about, "entries-added"),
        _bytes(about, "max-deleted-entry-id") or None,
        first[0] if isinstance(first, list) and first else None,
        last[0] if isinstance(last, list) and last else None,
    )


def group_figures(about: dict[str, object]) -> GroupFigures:
    """A group as XINFO GROUPS shows it."""
    return GroupFigures(
        _bytes(about, "name"),
        _int(about, "consumers"),
        _int(about, "pending"),
        _bytes(about, "last-delivered-id"),
        _maybe_int(about, "entries-read"),
        _maybe_int(about, "lag"),
    )


def consumer_figures(members: list[object]) -> Iterator[ConsumerFigures]:
    """Consumers as XINFO CONSUMERS shows them."""
    for member in members:
        about = named(member)
        yield ConsumerFigures(_bytes(about, "name"), _int(about, "pending"), _int(about, "idle"))


def named(flat: object) -> dict[str, object]:
    """A list of names and values in turn as a dictionary."""
    assert isinstance(flat, list)
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _int(about: dict[str, object], name: str) -> int:
    return _maybe_int(about, name) or 0


def _maybe_int(about: dict[str, object], name: str) -> int | None:
    value = about.get(name)
    return value if isinstance(value, int) else None


def _bytes(about: dict[str, object], name: str) -> bytes:
    value = about.get(name)
    return value if isinstance(value, bytes) else b""
