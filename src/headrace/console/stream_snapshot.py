"""A stream under the glass: its nodes and groups, read from a DUMP payload or from a snapshot."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from headrace.console.node_parser import NodeParts, parse_node
from headrace.errors import HeadraceError, UsageError
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.persistence.damage import Damaged
from headrace.persistence.dump import restore
from headrace.persistence.rdb.reader import read_rdb
from headrace.streams.group import Group
from headrace.streams.node import node_at
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor

DATABASES = 1024  # a snapshot is not wrong for using a high number


@dataclass(frozen=True)
class PackedNode:
    """A node of the tree: its key, its listpack, and what its master entry counts."""

    key: bytes
    data: bytes
    live: int
    deleted: int

    @property
    def id(self) -> str:
        """The master ID."""
        return f"{int.from_bytes(self.key[:8], 'big')}-{int.from_bytes(self.key[8:], 'big')}"

    @property
    def parts(self) -> NodeParts:
        """The node taken apart."""
        return parts_of(self.key, self.data)


@lru_cache(maxsize=256)
def parts_of(key: bytes, data: bytes) -> NodeParts:
    """parse_node(), remembered."""
    return parse_node(key, data)


@dataclass
class StreamSnapshot:
    """A stream as of now_ms; where: what a person calls the place it comes from."""

    name: str
    where: str
    stream: Stream
    now_ms: int
    packs: list[PackedNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.packs = list(packs(self.stream))
        self.before = [0, *accumulate(pack.live for pack in self.packs)]

    def pack_number(self, wanted: str) -> int:
        """Which node is meant: a number, from the end if negative, or an ID that it holds. UsageError."""
        try:
            if "-" not in wanted[1:]:
                number = int(wanted)
                return range(len(self.packs))[number]
            ms, _, seq = wanted.partition("-")
            number = self._pack_at(key_of(int(ms), int(seq)))
        except (ValueError, OverflowError):
            raise UsageError(f"{wanted!r} is neither a node's number nor an ID") from None
        except IndexError:
            raise UsageError(f"there is no node {wanted}: there are {len(self.packs)}, from 0 on") from None
        return max(number, 0)

    def rank(self, ms: int, seq: int, exactly: bool) -> int:
        """How many entries come before this ID; at least, if not exactly."""
        number = self._pack_at(key_of(ms, seq))
        if number < 0:
            return 0
        if not exactly:
            return self.before[number]
        entries = self.packs[number].parts.entries
        return self.before[number] + sum((e.ms, e.seq) < (ms, seq) for e in entries if not e.dead)

    def _pack_at(self, key: bytes) -> int:
        return bisect_right(self.packs, key, key=lambda pack: pack.key) - 1


@dataclass(frozen=True)
class PendingEntry:
    """One entry of a group's pending list; consumer is empty if it is unowned."""

    ms: int
    seq: int
    consumer: bytes
    time_ms: int
    deliveries: int


def pending_of(group: Group) -> Iterator[PendingEntry]:
    """The pending entries of a group by ID."""
    held = group.pending
    slot = held.from_id(0, 0)
    while slot >= 0:
        owner = held.owner_of(slot)
        name = owner.name if owner is not None else b""
        yield PendingEntry(
            held.ms_of(slot),
            held.seq_of(slot),
            name,
            held.delivery_time_of(slot),
            held.delivery_count_of(slot),
        )
        slot = held.after(slot)


def packs(stream: Stream) -> Iterator[PackedNode]:
    """The nodes of a stream in order."""
    cursor = RaxCursor(stream.nodes)
    more = cursor.seek("^")
    while more:
        node = node_at(cursor)
        yield PackedNode(cursor.key, node.pack.to_bytes(), node.live, node.deleted)
        more = cursor.next()


def key_of(ms: int, seq: int) -> bytes:
    """The key of an ID in the tree. OverflowError when it is none."""
    return ms.to_bytes(8, "big") + seq.to_bytes(8, "big")


def from_payload(name: str, where: str, payload: bytes) -> StreamSnapshot:
    """A stream from a DUMP payload. HeadraceError when it is none, or damaged."""
    now_ms = time.time_ns() // 1_000_000
    value = restore(payload, Keyspace(Settings()), now_ms)
    if not isinstance(value, Stream):
        raise UsageError(f"{where}: {name} is no stream")
    return StreamSnapshot(name, where, value, now_ms)


def from_file(name: str, path: Path, database: int) -> StreamSnapshot:
    """A stream of a snapshot, with what has expired in it. HeadraceError when it is damaged or not there."""
    settings = Settings()
    settings.databases = DATABASES
    keyspace = Keyspace(settings)
    keyspace.keep_expired = True
    try:
        with path.open("rb") as source:
            read_rdb(source, keyspace, now_ms=0, keep_expired=True)
    except Damaged as damage:
        raise HeadraceError(f"{path}: {damage}") from None
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not 0 <= database < DATABASES:
        raise UsageError(f"there is no database {database}")
    value = keyspace.databases[database].values.get(name.encode(errors="surrogateescape"))
    if not isinstance(value, Stream):
        raise UsageError(f"{path}: there is no stream {name!r} in database {database}")
    return StreamSnapshot(name, str(path), value, int(path.stat().st_mtime * 1000))
