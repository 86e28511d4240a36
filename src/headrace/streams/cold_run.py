"""A cold run: adjacent nodes of a stream that are in a file instead of in memory.

    tree of the stream      [1000-0]       [5000-0]       [9000-0]       [9120-0]
    Node.run                 ColdRun        ColdRun         None           None: in memory
                                │
                                ▼ when an entry of it is needed: RunCache
    inner nodes             [1000-0]x [1200-0] [1311-5]x [1400-2] … [4711-0]
                             skipped            dropped

The node of a run has the key of its first inner node and an empty listpack; its counts are those of all
inner nodes. So an operation that needs only counts, or drops whole nodes, does not read the file.

What is stored never changes. A run records what was removed since, so that a later load gives its nodes as
they are now:

    skipped    how many inner nodes were dropped from the front
    dropped    the indexes of others that were dropped, u32 le each
    deleted    the IDs of deleted entries of the nodes that are not skipped, 16 bytes each as in a key, in
               the order of their deletion; the latest are still in `_unmerged_deleted`

When more than half of its entries are deleted, the run is written again: keyspace/run_rewriting.py.

An inner node is an ordinary node. It is not in the tree of the stream, and does not know its run: the run
has the nodes, and only for as long as they are in the cache.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import cython

from headrace import mem
from headrace.errors import DamagedColdRun
from headrace.streams import memory_account
from headrace.streams import node as node_module
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.node_check import NodeCheck
from headrace.streams.node_walk import EntryWalk
from headrace.structures import stream_id
from headrace.structures.listpack import Listpack
from headrace.structures.stream_id import StreamId
from headrace.visibility import Public

ID_BYTES = cython.declare(cython.Py_ssize_t, 16)
INDEX_BYTES = cython.declare(cython.Py_ssize_t, 4)
CACHE_BYTES = 64 << 20
NO_LIMIT = cython.declare(cython.longlong, (1 << 63) - 1)
# IDs wait until they are this share of those in `deleted`, which is copied then.
UNMERGED_IDS_DIVISOR = cython.declare(cython.Py_ssize_t, 8)
UNMERGED_IDS_MIN = cython.declare(cython.Py_ssize_t, 64)
# The listpack of every cold node: no entries, and a master entry without fields.
EMPTY_LISTPACK = cython.declare(
    Listpack, Listpack.from_bytes(b"\x0f\x00\x00\x00\x04\x00\x00\x01\x00\x01\x00\x01\x00\x01\xff")
)


# What RunCache.defer_mode may be: when a run that is not in the cache raises RunNeeded.
DEFER_NEVER = cython.declare(cython.int, 0)
DEFER_REQUIRED = cython.declare(cython.int, 1)  # if cold_reads.py requires it, before anything is changed
DEFER_ALWAYS = cython.declare(cython.int, 2)


class RunNeeded(BaseException):
    """Runs are not in the cache, and the request must wait for them: see RunCache.defer_mode.

    Not an Exception, so that no handler on the way turns it into an error.
    """

    def __init__(self, runs: list[ColdRun]) -> None:
        self.runs = runs


class RunSource:
    """Interface to read stored runs; persistence/cold implements it, because this package does no I/O."""

    def load(self, place: Any) -> Sequence[tuple[bytes, bytearray]]:
        """Return (key, listpack) of each node stored at this place, in order. Raises DamagedColdRun."""
        raise NotImplementedError

    def read_ahead(self, run: ColdRun) -> None:
        """Start to load a run into the cache, if that is possible: a sequential reader will need it next."""

    def file_of(self, place: Any) -> Any:
        """Return the file that contains this place, as a hashable object."""
        raise NotImplementedError


@cython.final
@cython.no_gc
@cython.cclass
class ColdTotals:
    """Totals of the cold runs of a stream; its parent has those of all streams."""

    run_count: Public[cython.Py_ssize_t]
    node_count: Public[cython.Py_ssize_t]  # inner nodes that are left
    entry_count: Public[cython.longlong]  # live
    bytes_if_loaded: Public[cython.longlong]  # bytes of memory that the inner nodes would take
    parent: ColdTotals | None

    def __init__(self) -> None:
        self.run_count = self.node_count = 0
        self.entry_count = self.bytes_if_loaded = 0
        self.parent = None

    def __dealloc__(self) -> None:
        """Subtract what a freed stream had from the parent."""
        if self.parent is not None:
            self.parent.add(-self.run_count, -self.node_count, -self.entry_count, -self.bytes_if_loaded)

    @cython.ccall
    def add(
        self,
        runs: cython.Py_ssize_t,
        nodes: cython.Py_ssize_t,
        entries: cython.longlong,
        weight: cython.longlong,
    ) -> cython.void:
        """Add numbers, which may be negative, here and to the parent."""
        self.run_count += runs
        self.node_count += nodes
        self.entry_count += entries
        self.bytes_if_loaded += weight
        if self.parent is not None:
            self.parent.add(runs, nodes, entries, weight)


if not cython.compiled:
    ColdTotals.__del__ = ColdTotals.__dealloc__  # type: ignore[attr-defined]


@cython.final
@cython.cclass
class ColdRun:
    """A cold run: where its nodes are stored, and what was removed from them since."""

    storage_location: Public[Any]  # for RunSource.load
    cache: RunCache
    stored_node_count: Public[cython.uint]  # inner nodes in the file
    skipped_node_count: Public[cython.uint]  # of these, dropped from the front
    encoded_dropped_indexes: Public[bytes]
    bytes_if_loaded: Public[cython.longlong]  # bytes of memory that the inner nodes took
    first_ms: Public[cython.ulonglong]  # the first live entry when the run was stored
    first_seq: Public[cython.ulonglong]
    last_ms: Public[cython.ulonglong]  # the last stored entry, live or deleted
    last_seq: Public[cython.ulonglong]
    _deleted: bytes
    _unmerged_deleted: list[bytes] | None  # not in _deleted yet, so that a deletion does not copy it
    # The inner nodes, except those skipped and dropped; None: not in the cache.
    cached_nodes: list[Node] | None
    __weakref__: object

    def __init__(self, place: Any, cache: RunCache, stored: cython.uint) -> None:
        self.storage_location = place
        self.cache = cache
        self.stored_node_count = stored
        self.skipped_node_count = 0
        self.encoded_dropped_indexes = b""
        self.bytes_if_loaded = 0
        self.first_ms = self.first_seq = self.last_ms = self.last_seq = 0
        self._deleted = b""
        self._unmerged_deleted = None  # a list for each run would be a tenth of its memory
        self.cached_nodes = None

    @cython.ccall
    def copy(self) -> ColdRun:
        """Return a run of the same stored nodes, with the same removals so far."""
        other: ColdRun = ColdRun(self.storage_location, self.cache, self.stored_node_count)
        other.skipped_node_count = self.skipped_node_count
        other.encoded_dropped_indexes = self.encoded_dropped_indexes
        other.bytes_if_loaded = self.bytes_if_loaded
        other.first_ms = self.first_ms
        other.first_seq = self.first_seq
        other.last_ms = self.last_ms
        other.last_seq = self.last_seq
        other._deleted = self.encoded_deleted_ids()
        return other

    @cython.ccall
    def encoded_deleted_ids(self) -> bytes:
        """Return the IDs of deleted entries, 16 bytes each, in order of deletion."""
        if self._unmerged_deleted is not None:
            self._deleted += b"".join(self._unmerged_deleted)
            self._unmerged_deleted = None
        return self._deleted

    @cython.ccall
    def set_deleted_ids(self, ids: bytes) -> cython.void:
        """Set the IDs of deleted entries, for a run that is loaded from a snapshot."""
        self._deleted = ids

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def deleted_count(self) -> cython.Py_ssize_t:
        """Return how many entries of nodes that are not skipped were deleted since the run was stored."""
        last: list[bytes] | None = self._unmerged_deleted
        return len(self._deleted) // ID_BYTES + (0 if last is None else len(last))

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def inner_count(self) -> cython.Py_ssize_t:
        """Return the number of inner nodes that are left."""
        return (
            self.stored_node_count
            - self.skipped_node_count
            - len(self.encoded_dropped_indexes) // INDEX_BYTES
        )

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def removal_record_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes of memory that the records of removed nodes and entries take."""
        return ID_BYTES * self.deleted_count() + len(self.encoded_dropped_indexes)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_unchanged(self) -> cython.bint:
        """Return whether nothing was removed since the run was stored."""
        return self.skipped_node_count == 0 and self.removal_record_bytes() == 0

    @cython.ccall
    def load_inner_nodes(self) -> list[Node]:
        """Return the inner nodes that are left; load them into the cache if needed.

        Raises DamagedColdRun if they cannot be read, and RunNeeded instead of loading them with DEFER_ALWAYS.
        """
        nodes: list[Node] | None = self.cached_nodes
        if nodes is None:
            if self.cache.defer_mode == DEFER_ALWAYS:
                raise RunNeeded([self])
            nodes = self.read_nodes()
            self.cache.misses += 1
            self.cache.put(self, nodes)
        else:
            self.cache.touch(self)
        return nodes

    @cython.ccall
    def read_nodes(self) -> list[Node]:
        """Read and return the inner nodes that are left, without the cache: the caller may keep them.

        Raises DamagedColdRun.
        """
        try:
            stored = self.cache.source.load(self.storage_location)
        except DamagedColdRun as error:
            raise self._error_with_ids(error) from None
        return self.decode(stored)

    def _error_with_ids(self, error: DamagedColdRun) -> DamagedColdRun:
        """Return the error with the IDs of the run."""
        ids = f"{self.first_ms}-{self.first_seq} to {self.last_ms}-{self.last_seq}"
        return DamagedColdRun(error.file, error.offset, error.what, ids)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def may_contain(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether ms-seq is between the first and the last ID of the run, both included."""
        return not (
            stream_id.is_before(ms, seq, self.first_ms, self.first_seq)
            or stream_id.is_before(self.last_ms, self.last_seq, ms, seq)
        )

    @cython.ccall
    def last_inner_up_to(self, ms: cython.ulonglong, seq: cython.ulonglong) -> Node | None:
        """Return the last inner node that is not after ms-seq, or None. Raises DamagedColdRun."""
        nodes: list[Node] = self.load_inner_nodes()
        at: cython.Py_ssize_t = last_index_up_to(nodes, ms, seq)
        return nodes[at] if at >= 0 else None

    @cython.ccall
    def last_id(self) -> StreamId:
        """Return the ID of the last stored entry, live or deleted."""
        return StreamId(self.last_ms, self.last_seq)

    @cython.ccall
    def decode(self, stored: Any) -> list[Node]:
        """Return the nodes of what RunSource.load returned, without what was removed since.

        Raises DamagedColdRun.
        """
        nodes: list[Node] = []
        gone: set[int] = set(decode_dropped_indexes(self.encoded_dropped_indexes))
        at: cython.Py_ssize_t
        node: Node
        for at in range(self.skipped_node_count, len(stored)):
            if at in gone:
                continue
            try:
                node = _node_of(stored[at][0], stored[at][1])
            except ValueError as error:
                raise self._error_with_ids(
                    DamagedColdRun(str(self.storage_location), 0, str(error))
                ) from None
            node.is_inner = True
            node.serial = at
            nodes.append(node)
        if self.deleted_count() > 0:
            _delete_entries(nodes, self.encoded_deleted_ids())
        return nodes

    @cython.ccall
    def record_deleted_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Record that the entry ms-seq, which was live, is deleted."""
        last: list[bytes] | None = self._unmerged_deleted
        if last is None:
            last = self._unmerged_deleted = []
        last.append(stream_id.key_of(ms, seq))
        if UNMERGED_IDS_DIVISOR * len(last) > self.deleted_count() + UNMERGED_IDS_DIVISOR * UNMERGED_IDS_MIN:
            self.encoded_deleted_ids()

    @cython.ccall
    def drop_inner_node(self, inner: Node) -> cython.void:
        """Drop an inner node. If it has live entries that are not in `deleted`, it must be the first one."""
        nodes: list[Node] = self.load_inner_nodes()
        at: cython.Py_ssize_t = last_index_up_to(nodes, inner.ms, inner.seq)
        self.bytes_if_loaded -= memory_account.NODE_BYTES + inner.pack.cap
        self.encoded_dropped_indexes += nodes[at].serial.to_bytes(4, "little")
        nodes.pop(at)
        if at == 0 and nodes:
            self._skip_to(nodes[0])

    @cython.cfunc
    def _skip_to(self, node: Node) -> cython.void:
        """Skip the nodes before this one, and forget what was removed from them."""
        kept: list[bytes] = []
        at: cython.Py_ssize_t
        key: bytes = node.key()
        deleted: bytes = self.encoded_deleted_ids()
        self.skipped_node_count = node.serial
        for at in range(0, len(deleted), ID_BYTES):
            if deleted[at : at + ID_BYTES] >= key:
                kept.append(deleted[at : at + ID_BYTES])
        self._deleted = b"".join(kept)
        indexes: list[int] = [
            index for index in decode_dropped_indexes(self.encoded_dropped_indexes) if index > node.serial
        ]
        self.encoded_dropped_indexes = b"".join([index.to_bytes(4, "little") for index in indexes])


@cython.final
@cython.cclass
class RunCache:
    """The inner nodes of the runs that were used last, of all streams of a keyspace.

    A run that is freed is removed from the cache automatically. put() does not evict the run that it adds, so
    its nodes stay in the cache until another run is added, or evict_bytes() or set_limit() is called.
    """

    source: Public[Any]  # a RunSource
    limit: Public[cython.longlong]  # bytes
    memory: Public[MemoryAccount]  # what the nodes in the cache take
    cold_run_totals: Public[ColdTotals]
    has_new_sparse_run: Public[cython.bint]  # a run became sparse since this was set to False
    bytes_by_run: OrderedDict[
        Any, int
    ]  # a weak reference to each run, and its bytes; the least recently used first
    defer_mode: Public[cython.int]  # DEFER_NEVER, DEFER_REQUIRED or DEFER_ALWAYS
    hits: Public[cython.longlong]
    misses: Public[cython.longlong]
    __weakref__: object

    def __init__(self, source: RunSource, limit: int = CACHE_BYTES) -> None:
        self.source = source
        self.limit = limit
        self.memory = MemoryAccount()
        self.cold_run_totals = ColdTotals()
        self.has_new_sparse_run = False
        self.bytes_by_run = OrderedDict()
        self.defer_mode = DEFER_NEVER
        self.hits = self.misses = 0

    @cython.ccall
    def put(self, run: ColdRun, nodes: list[Node]) -> cython.void:
        """Add the nodes of a run that is not in the cache; evict least recently used runs above the limit."""
        size: cython.longlong = 0
        node: Node
        for node in nodes:
            size += memory_account.NODE_BYTES + node.pack.cap
        run.cached_nodes = nodes
        self.bytes_by_run[weakref.ref(run, self._forget)] = size
        self.memory.add(size)
        while self.memory.total > self.limit and len(self.bytes_by_run) > 1:
            self._remove_oldest()

    def set_limit(self, limit: int) -> None:
        """Set the limit in bytes, and evict the least recently used runs until the cache is within it."""
        self.limit = limit
        self.evict_bytes(self.memory.total - limit)

    @cython.ccall
    def evict_bytes(self, wanted: cython.longlong) -> cython.void:
        """Evict the least recently used runs until `wanted` bytes are freed, or no run is left."""
        goal: cython.longlong = self.memory.total - wanted
        while self.memory.total > goal and self.bytes_by_run:
            self._remove_oldest()

    @cython.ccall
    def touch(self, run: ColdRun) -> cython.void:
        """Mark a run in the cache as the most recently used, and count a hit."""
        self.hits += 1
        self.bytes_by_run.move_to_end(weakref.ref(run))

    @cython.ccall
    def take(self, run: ColdRun) -> list[Node] | None:
        """Remove a run from the cache and return its inner nodes; None if it is not there."""
        nodes: list[Node] | None = run.cached_nodes
        if nodes is not None:
            self.memory.add(-self.bytes_by_run.pop(weakref.ref(run)))
            run.cached_nodes = None
        return nodes

    def _remove_oldest(self) -> None:
        run: ColdRun | None
        reference, size = self.bytes_by_run.popitem(last=False)
        self.memory.add(-size)
        run = reference()
        if run is not None:
            run.cached_nodes = None

    def _forget(self, reference: Any) -> None:
        self.memory.add(-self.bytes_by_run.pop(reference, 0))


def decode_dropped_indexes(dropped: bytes) -> list[int]:
    """Decode ColdRun.encoded_dropped_indexes: indexes of inner nodes, u32 little-endian each."""
    return [int.from_bytes(dropped[at : at + 4], "little") for at in range(0, len(dropped), 4)]


@cython.ccall
def create_cold_node(first: Node, run: ColdRun, live: cython.longlong, deleted: cython.longlong) -> Node:
    """Create the tree node of a run whose first inner node is `first`, with these counts."""
    node: Node = Node(first.ms, first.seq, EMPTY_LISTPACK)
    node.run = run
    node.live_count = live
    node.deleted_count = deleted
    return node


@cython.ccall
def copy_cold_node(node: Node) -> Node:
    """Return a copy of a cold node, with a copy of its run."""
    run: ColdRun = node.run
    return create_cold_node(node, run.copy(), node.live_count, node.deleted_count)


@cython.ccall
def run_of(node: Node) -> ColdRun:
    """Return the run of a cold node."""
    run: ColdRun = node.run
    return run


@cython.ccall
@cython.exceptval(-1, check=False)
def is_sparse(node: Node) -> cython.bint:
    """Return whether more entries of a cold node were deleted since it was stored than are left.

    False for a node in memory.
    """
    return node.run is not None and run_of(node).deleted_count() > node.live_count


@cython.ccall
@cython.exceptval(-2, check=False)
def last_index_up_to(nodes: list[Node], ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
    """Return the index of the last node whose master ID is not after ms-seq; -1 if there is none."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(nodes)
    middle: cython.Py_ssize_t
    node: Node
    while low < high:
        middle = (low + high) // 2
        node = nodes[middle]
        if stream_id.is_before(ms, seq, node.ms, node.seq):
            high = middle
        else:
            low = middle + 1
    return low - 1


@cython.ccall
def first_inner(node: Node) -> Node:
    """Return the first inner node of a cold node, or the node itself if it is in memory."""
    if node.run is None:
        return node
    return run_of(node).load_inner_nodes()[0]


@cython.ccall
def last_inner(node: Node) -> Node:
    """Return the last inner node of a cold node, or the node itself if it is in memory."""
    if node.run is None:
        return node
    return run_of(node).load_inner_nodes()[-1]


@cython.ccall
def inner_nodes_or_self(node: Node) -> list[Node]:
    """Return a new list: the inner nodes of a cold node, or only the node itself if it is in memory."""
    return [node] if node.run is None else list(run_of(node).load_inner_nodes())


@cython.cfunc
def _node_of(key: bytes, block: bytearray) -> Node:
    master: stream_id.StreamId = stream_id.from_key(key)
    check: NodeCheck = NodeCheck(block)
    check.run(master.ms, master.seq)
    return node_module.node_from_checked_data(master.ms, master.seq, block, check)


@cython.cfunc
def _delete_entries(nodes: list[Node], deleted: bytes) -> cython.void:
    """Mark the entries of these IDs as deleted; IDs of nodes that are not there are ignored."""
    p: cython.p_const_uchar = deleted
    at: cython.Py_ssize_t
    index: cython.Py_ssize_t
    ms: cython.ulonglong
    seq: cython.ulonglong
    node: Node
    walk: EntryWalk
    for at in range(0, len(deleted), ID_BYTES):
        ms = mem.u64be(p, at)
        seq = mem.u64be(p, at + 8)
        index = last_index_up_to(nodes, ms, seq)
        if index < 0:
            continue
        node = nodes[index]
        walk = EntryWalk(node)
        if walk.seek(ms, seq) and walk.ms == ms and walk.seq == seq:
            node.mark_deleted(walk.at)
            node.set_counts(node.live_count - 1, node.deleted_count + 1)
