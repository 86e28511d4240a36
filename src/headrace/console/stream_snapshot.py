"""Read the nodes and groups of a stream from a DUMP payload or from a snapshot file.

The base file of a log may refer to cold files in the directory `cold` beside it. They are not loaded; only
the runs that a drawing needs are read from them.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from headrace.console.node_parser import ParsedNode, parse_node
from headrace.errors import HeadraceError, UsageError, os_error_text
from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.persistence.aof.file_names import COLD_DIRECTORY_NAME
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.dump import restore
from headrace.persistence.rdb.reader import read_rdb
from headrace.plurals import plural
from headrace.streams.cold_run import ColdRun, run_of
from headrace.streams.group import Group
from headrace.streams.node import Node, node_of_cursor
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor

DATABASES_MAX = 1024  # more than a server is usually configured with


@dataclass(frozen=True)
class PackedNode:
    """A node of the tree: its key, its listpack, and the live and deleted entries that it counts.

    cold_run: the cold run that the node stands for, with `data` empty; None for a node in memory.
    """

    key: bytes
    data: bytes
    live: int
    deleted: int
    cold_run: ColdRun | None = None

    @property
    def id(self) -> str:
        """Return the master ID."""
        return f"{int.from_bytes(self.key[:8], 'big')}-{int.from_bytes(self.key[8:], 'big')}"

    def parse(self) -> ParsedNode:
        """Return the parsed node. It must not be the node of a cold run."""
        return parse_node_cached(self.key, self.data)

    def live_before(self, ms: int, seq: int) -> int:
        """Return the number of its entries before this ID. Raises DamagedColdRun if a file cannot be read."""
        nodes = [self] if self.cold_run is None else map(packed_node, self.cold_run.load_inner_nodes())
        return sum(
            (e.ms, e.seq) < (ms, seq) for node in nodes for e in node.parse().entries if not e.is_deleted
        )


@lru_cache(maxsize=256)
def parse_node_cached(key: bytes, data: bytes) -> ParsedNode:
    """Return parse_node(key, data), from a cache if possible."""
    return parse_node(key, data)


class ColdStats(NamedTuple):
    """The part of a stream that is in files: entries, the bytes of memory they would take, files."""

    entries: int
    memory_bytes: int
    files: int


@dataclass
class StreamSnapshot:
    """A stream at the time now_ms; source_name is the server or file it was read from, for messages.

    `cold_stats` counts its oldest entries, which are in files. A server sends them with the others, so
    `packed_nodes` has their nodes; a snapshot file only refers to them, so it has one node per cold run.
    """

    name: str
    source_name: str
    stream: Stream
    now_ms: int
    packed_nodes: list[PackedNode] = field(default_factory=list)
    cold_stats: ColdStats | None = None  # what is in files
    cold_file_names: list[str] = field(default_factory=list)  # of these files, as far as they are known

    def __post_init__(self) -> None:
        self.packed_nodes = list(packed_nodes(self.stream))
        if not self.cold_file_names:
            runs = (pack.cold_run for pack in self.packed_nodes if pack.cold_run is not None)
            self.cold_file_names = list(dict.fromkeys(run.storage_location.file.name for run in runs))
        self.entries_before = [0, *accumulate(pack.live for pack in self.packed_nodes)]

    def node_index(self, node: str) -> int:
        """Return the index of a node.

        Args:
            node: the number of the node, negative from the end; or an ID in its range.

        Raises:
            UsageError: if there is no such node.
        """
        try:
            if "-" not in node[1:]:
                number = int(node)
                return range(len(self.packed_nodes))[number]
            ms, _, seq = node.partition("-")
            number = self._node_index_of_key(tree_key(int(ms), int(seq)))
        except (ValueError, OverflowError):
            raise UsageError(
                f"not a node: {node!r}; expected its number or an ID, such as -1 or 1763676000000-0"
            ) from None
        except IndexError:
            raise UsageError(
                f"there is no node {node}; the stream has {plural(len(self.packed_nodes), 'node')}, "
                "counted from 0"
            ) from None
        return max(number, 0)

    def rank(self, ms: int, seq: int, exactly: bool) -> int:
        """Return the number of entries before this ID; unless `exactly`, only of those in earlier nodes."""
        number = self._node_index_of_key(tree_key(ms, seq))
        if number < 0:
            return 0
        if not exactly:
            return self.entries_before[number]
        return self.entries_before[number] + self.packed_nodes[number].live_before(ms, seq)

    def is_cold(self, number: int) -> bool:
        """Return whether the node of this index is in a file."""
        return self.cold_stats is not None and self.entries_before[number + 1] <= self.cold_stats.entries

    def _node_index_of_key(self, key: bytes) -> int:
        return bisect_right(self.packed_nodes, key, key=lambda pack: pack.key) - 1


@dataclass(frozen=True)
class PendingEntry:
    """One entry of a group's pending list; consumer is empty if it has no owner."""

    ms: int
    seq: int
    consumer: bytes
    delivery_time_ms: int
    delivery_count: int


def pending_entries(group: Group) -> Iterator[PendingEntry]:
    """Return the pending entries of a group in the order of their IDs."""
    pel = group.pending
    slot = pel.first_by_id_from(0, 0)
    while slot >= 0:
        owner = pel.owner_of(slot)
        name = owner.name if owner is not None else b""
        yield PendingEntry(
            pel.ms_of(slot),
            pel.seq_of(slot),
            name,
            pel.delivery_time_of(slot),
            pel.delivery_count_of(slot),
        )
        slot = pel.next_by_id(slot)


def packed_nodes(stream: Stream) -> Iterator[PackedNode]:
    """Return the nodes of a stream in order."""
    cursor = RaxCursor(stream.nodes)
    more = cursor.seek("^")
    while more:
        yield packed_node(node_of_cursor(cursor))
        more = cursor.next()


def packed_node(node: Node) -> PackedNode:
    """Return a node of the tree as a PackedNode."""
    if node.run is not None:
        return PackedNode(node.key(), b"", node.live_count, node.deleted_count, run_of(node))
    return PackedNode(node.key(), node.pack.to_bytes(), node.live_count, node.deleted_count)


def cold_stats_of(stream: Stream) -> ColdStats | None:
    """Return what is in cold files; None if there is nothing."""
    cold = stream.cold
    if cold is None or not cold.totals.run_count:
        return None
    return ColdStats(cold.totals.entry_count, cold.totals.bytes_if_loaded, cold.file_count())


def tree_key(ms: int, seq: int) -> bytes:
    """Return the key of an ID in the tree. Raises OverflowError if a number is outside 64 bits."""
    return ms.to_bytes(8, "big") + seq.to_bytes(8, "big")


def from_payload(
    name: str, where: str, payload: bytes, cold_stats: ColdStats | None = None
) -> StreamSnapshot:
    """Return the stream in a DUMP payload. Raises HeadraceError if it is damaged or of another type."""
    now_ms = time.time_ns() // 1_000_000
    value = restore(payload, Keyspace(Settings()), now_ms)
    if not isinstance(value, Stream):
        raise UsageError(f"{where}: {name!r} is not a stream")
    return StreamSnapshot(name, where, value, now_ms, cold_stats=cold_stats)


def from_file(name: str, path: Path, database: int) -> StreamSnapshot:
    """Return a stream of a snapshot file, also an expired one.

    Raises:
        HeadraceError: if the file is damaged, or the file or stream does not exist.
    """
    settings = Settings()
    settings.databases = DATABASES_MAX
    keyspace = Keyspace(settings)
    keyspace.ignore_expiry = True
    cold_files = ColdFiles(DiskDirectory(str(path.parent)), COLD_DIRECTORY_NAME)
    keyspace.cold_storage = ColdStorage(keyspace, ColdStore(cold_files))
    try:
        with path.open("rb") as source:
            read_rdb(source, keyspace, now_ms=0, keep_expired=True)
    except Damaged as damage:
        raise HeadraceError(f"{path}: {damage}") from None
    except OSError as error:
        raise UsageError(f"{path}: {os_error_text(error)}") from None
    if not 0 <= database < DATABASES_MAX:
        raise UsageError(f"there is no database {database}; expected 0 to {DATABASES_MAX - 1}")
    value = keyspace.databases[database].values.get(name.encode(errors="surrogateescape"))
    if not isinstance(value, Stream):
        raise UsageError(f"{path}: there is no stream {name!r} in database {database}")
    now_ms = int(path.stat().st_mtime * 1000)
    return StreamSnapshot(name, str(path), value, now_ms, cold_stats=cold_stats_of(value))
