"""Compact nodes of which more than half is deleted: rewrite them without the deleted entries.

    before   master | 5-0   5-1x  5-2x  6-0   6-1x  7-0x      x: a tombstone
    after    master | 5-0               6-0         7-0x      reclaimed = 3

It runs in the background, a bounded number of bytes at a time, and does not change replies:

- The node keeps its key, its master entry, and its first and last stored entries, even if these are
  tombstones: trims look at them. A tombstone whose ID is not below that of the next entry also stays.
- The tail is never rewritten. A node that becomes the tail again counts its reclaimed tombstones
  (`Node.reclaimed_count`), so that the next node is opened at the same entry as without compaction.

    Compaction (one per keyspace) -> SparseNodes (one per stream) -> nodes; the longest waiting first
"""

from __future__ import annotations

import weakref
from collections import OrderedDict

import cython

from headrace import mem
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.structures import stream_id
from headrace.structures.listpack import Listpack
from headrace.visibility import Public

# Small steps, 0.1 ms in each millisecond: in fewer, larger ones requests would wait longer.
STEP_INTERVAL_MS = cython.declare(cython.longlong, 1)
STEP_BYTES = cython.declare(cython.longlong, 1 << 15)  # of nodes rewritten in one step, approximately
NODE_VISIT_COST_BYTES = cython.declare(cython.longlong, 1024)  # the cost of the next node, in bytes rewritten
# The first and the last entry stay, even as tombstones.
EDGE_ENTRIES_KEPT = cython.declare(cython.longlong, 2)
HEADER_BYTES = cython.declare(cython.Py_ssize_t, 6)  # of a listpack
COUNT_UNKNOWN = cython.declare(cython.longlong, 65535)


@cython.ccall
@cython.exceptval(-1, check=False)
def needs_rewrite(node: Node) -> cython.bint:
    """Return whether more than half of the node is deleted, and a rewrite would free some of it.

    False for a cold node: run_rewriting.py writes its run again.
    """
    return (
        node.deleted_count > node.live_count and node.deleted_count > EDGE_ENTRIES_KEPT and node.run is None
    )


@cython.ccall
def remove_tombstones(node: Node, memory: MemoryAccount) -> cython.longlong:
    """Remove tombstones from node, and update the account `memory`; return how many were removed.

    Invalidates walks over the node.
    """
    took: cython.Py_ssize_t = node.pack.cap
    walk: EntryWalk = EntryWalk(node)
    p: cython.p_uchar = node.pack.p
    parts: list[bytes] = [b""]  # reserved for the header
    kept_from: cython.Py_ssize_t = HEADER_BYTES
    elements: cython.longlong = node.pack.count
    reclaimed: cython.longlong = 0
    # The entry before the current one, and whether it can be removed.
    at: cython.Py_ssize_t = 0
    ms: cython.ulonglong = 0
    seq: cython.ulonglong = 0
    size: cython.longlong = 0
    idle: cython.bint = False
    while walk.next():
        if idle and stream_id.is_before(ms, seq, walk.ms, walk.seq):
            if at > kept_from:
                parts.append(mem.to_bytes(p, kept_from, at - kept_from))
            kept_from = walk.at
            elements -= size
            reclaimed += 1
        idle = walk.deleted and at > 0
        at = walk.at
        ms = walk.ms
        seq = walk.seq
        size = _element_count(walk)
    if reclaimed > 0:
        parts.append(mem.to_bytes(p, kept_from, node.pack.used + 1 - kept_from))
        parts[0] = _header(parts, elements)
        node.replace_pack(Listpack.from_bytes(b"".join(parts)), reclaimed)
        memory.add(node.pack.cap - took)
    return reclaimed


@cython.cfunc
@cython.exceptval(check=False)
def _element_count(walk: EntryWalk) -> cython.longlong:
    """Return the number of elements of the current entry of walk; see node.py."""
    return walk.field_count + 4 if walk.has_same_fields else 2 * walk.field_count + 5


@cython.cfunc
def _header(parts: list[bytes], elements: cython.longlong) -> bytes:
    """Return the header of the listpack that consists of these parts and elements."""
    head: bytearray = bytearray(HEADER_BYTES)
    p: cython.p_uchar = head
    part: bytes
    total: cython.Py_ssize_t = HEADER_BYTES
    for part in parts:
        total += len(part)
    mem.put_u32le(p, 0, total)
    mem.put_u16le(p, 4, min(elements, COUNT_UNKNOWN))
    return bytes(head)


@cython.final
@cython.no_gc
@cython.cclass
class SparseNodes:
    """The nodes of one stream that are queued for rewriting. Exists as long as the stream."""

    compaction: Compaction
    nodes: OrderedDict[Node, None]  # the longest waiting first
    is_in_queue: cython.bint  # this is in the queue of the Compaction
    memory: MemoryAccount  # of the stream
    __weakref__: object

    def __init__(self, compaction: Compaction, memory: MemoryAccount) -> None:
        self.compaction = compaction
        self.memory = memory
        self.nodes = OrderedDict()
        self.is_in_queue = False

    @cython.ccall
    def add(self, node: Node) -> cython.void:
        """Queue node for rewriting, unless it is queued already."""
        if node.awaits_rewrite:
            return
        node.awaits_rewrite = True
        self.nodes[node] = None
        if not self.is_in_queue:
            self.is_in_queue = True
            self.compaction.enqueue(self)

    @cython.ccall
    def discard(self, node: Node) -> cython.void:
        """Remove a queued node: it was removed from the stream, or became its tail."""
        node.awaits_rewrite = False
        del self.nodes[node]

    @cython.ccall
    def rewrite_oldest(self) -> cython.longlong:
        """Rewrite the node that has waited longest; return the cost in bytes. A node must be queued."""
        node: Node
        node, _ = self.nodes.popitem(last=False)
        node.awaits_rewrite = False
        looked_at: cython.longlong = node.pack.used
        remove_tombstones(node, self.memory)
        return NODE_VISIT_COST_BYTES + looked_at


@cython.final
@cython.cclass
class Compaction:
    """Rewrites the sparse nodes of the streams of a keyspace, a bounded number of bytes at a time.

    It holds only weak references. A stream takes part if its `compaction` is set before it has nodes.
    """

    queue: OrderedDict[weakref.ref[SparseNodes], None]
    due_ms: cython.longlong
    paused: Public[cython.bint]  # a snapshot is being written, for which rewritten nodes would be copied

    def __init__(self) -> None:
        self.queue = OrderedDict()
        self.due_ms = 0
        self.paused = False

    @cython.ccall
    def enqueue(self, sparse_nodes: SparseNodes) -> cython.void:
        """Queue a stream that has nodes to rewrite; it is removed when none are left."""
        self.queue[weakref.ref(sparse_nodes, self._remove)] = None

    def _remove(self, reference: weakref.ref[SparseNodes]) -> None:
        self.queue.pop(reference, None)

    def __len__(self) -> int:
        """Return the number of queued streams, including those that have no nodes left to rewrite."""
        return len(self.queue)

    @cython.ccall
    def next_step_ms(self) -> cython.longlong:
        """Return when step() has work, in Unix milliseconds; -1 for never."""
        return self.due_ms if self.queue and not self.paused else -1

    @cython.ccall
    def step(self, now_ms: cython.longlong) -> cython.void:
        """Rewrite some nodes of the streams that have waited longest, at most once per interval.

        One large node can exceed STEP_BYTES. That is acceptable: deleting an entry from such a node takes as
        long as rewriting it.
        """
        left: cython.longlong = STEP_BYTES
        sparse_nodes: SparseNodes | None
        if self.paused or 0 < self.due_ms - now_ms <= STEP_INTERVAL_MS:
            return
        self.due_ms = now_ms + STEP_INTERVAL_MS
        while left > 0 and self.queue:
            reference = next(iter(self.queue))
            sparse_nodes = reference()
            if sparse_nodes is not None and sparse_nodes.nodes:
                left -= sparse_nodes.rewrite_oldest()
                continue
            self.queue.pop(reference, None)
            if sparse_nodes is not None:
                sparse_nodes.is_in_queue = False
