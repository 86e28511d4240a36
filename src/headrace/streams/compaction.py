"""Frees the memory of deleted entries: rewrites nodes that are more than half deleted without tombstones.

    before   master | 5-0   5-1x  5-2x  6-0   6-1x  7-0x      x: a tombstone
    after    master | 5-0               6-0         7-0x      gone = 3

It runs in the background, some bytes at a time, and does not change replies:

- The node keeps its key, its master entry and, even if they are tombstones, its first and its last
  stored entry: trims look at them. So does a tombstone stay that does not come before what follows it.
- The tail is never touched, and a node that becomes the tail again goes by what it would hold had no
  tombstone been taken out (`Node.reclaimed`): the next node is opened at the same entry.

    Compaction  (one of a keyspace)  -> SparseNodes of a stream -> node, node, ...   each the oldest first
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any

import cython

from headrace import mem
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.structures import stream_id
from headrace.structures.listpack import Listpack

# A tenth of a millisecond in every one: in bigger steps, even if fewer, requests would wait longer.
STEP_INTERVAL_MS = cython.declare(cython.longlong, 1)
STEP_BYTES = cython.declare(cython.longlong, 1 << 15)  # of nodes rewritten in one step, about
VISIT_BYTES = cython.declare(cython.longlong, 1024)  # what going from node to node counts as
EDGES = cython.declare(cython.longlong, 2)  # tombstones that stay for being the first or the last
HEADER = cython.declare(cython.Py_ssize_t, 6)  # of a listpack
COUNT_UNKNOWN = cython.declare(cython.longlong, 65535)


@cython.ccall
@cython.exceptval(-1, check=False)
def needs_rewrite(node: Node) -> cython.bint:
    """Whether more than half of what node stores is dead, and rewriting it is to gain something."""
    return node.deleted > node.live and node.deleted > EDGES


@cython.ccall
def rewrite(node: Node, memory: MemoryAccount) -> cython.longlong:
    """Take tombstones out of node; return how many, and update memory. Ends every walk over it."""
    took: cython.Py_ssize_t = node.pack.cap
    walk: EntryWalk = EntryWalk(node)
    p: cython.p_uchar = node.pack.p
    parts: list[bytes] = [b""]  # the header is written when the rest is known
    kept_from: cython.Py_ssize_t = HEADER
    elements: cython.longlong = node.pack.count
    gone: cython.longlong = 0
    # The entry before the one that the walk stands on, and whether it may go.
    at: cython.Py_ssize_t = 0
    ms: cython.ulonglong = 0
    seq: cython.ulonglong = 0
    size: cython.longlong = 0
    idle: cython.bint = False
    while walk.next():
        if idle and stream_id.before(ms, seq, walk.ms, walk.seq):
            if at > kept_from:
                parts.append(mem.to_bytes(p, kept_from, at - kept_from))
            kept_from = walk.at
            elements -= size
            gone += 1
        idle = walk.deleted and at > 0
        at = walk.at
        ms = walk.ms
        seq = walk.seq
        size = _elements(walk)
    if gone > 0:
        parts.append(mem.to_bytes(p, kept_from, node.pack.used + 1 - kept_from))
        parts[0] = _header(parts, elements)
        node.replace_pack(Listpack.from_bytes(b"".join(parts)), gone)
        memory.add(node.pack.cap - took)
    return gone


@cython.cfunc
@cython.exceptval(check=False)
def _elements(walk: EntryWalk) -> cython.longlong:
    """Of how many elements the entry that walk stands on is made; node.py draws them."""
    return walk.fields + 4 if walk.same else 2 * walk.fields + 5


@cython.cfunc
def _header(parts: list[bytes], elements: cython.longlong) -> bytes:
    """The header of the listpack that parts make up, with so many elements."""
    head: bytearray = bytearray(HEADER)
    p: cython.p_uchar = head
    part: bytes
    total: cython.Py_ssize_t = HEADER
    for part in parts:
        total += len(part)
    mem.put_u32le(p, 0, total)
    mem.put_u16le(p, 4, min(elements, COUNT_UNKNOWN))
    return bytes(head)


@cython.final
@cython.cclass
class SparseNodes:
    """The nodes of one stream that are queued for rewriting. Lives as long as the stream."""

    compaction: Compaction
    nodes: Any  # OrderedDict: node -> None, the one that has waited longest first
    queued: cython.bint  # the Compaction knows of this one
    memory: MemoryAccount  # of the stream
    __weakref__: object

    def __init__(self, compaction: Compaction, memory: MemoryAccount) -> None:
        self.compaction = compaction
        self.memory = memory
        self.nodes = OrderedDict()
        self.queued = False

    @cython.ccall
    def add(self, node: Node) -> cython.void:
        """Queue node for rewriting, unless it is queued already."""
        if node.awaits_rewrite:
            return
        node.awaits_rewrite = True
        self.nodes[node] = None
        if not self.queued:
            self.queued = True
            self.compaction.enqueue(self)

    @cython.ccall
    def discard(self, node: Node) -> cython.void:
        """Node, which waits, is not to be rewritten any more: it has left the stream, or is its tail."""
        node.awaits_rewrite = False
        del self.nodes[node]

    @cython.ccall
    def rewrite_oldest(self) -> cython.longlong:
        """Rewrite the node that has waited longest, there being one; returns what it took, in bytes."""
        node: Node
        node, _ = self.nodes.popitem(last=False)
        node.awaits_rewrite = False
        looked_at: cython.longlong = node.pack.used
        rewrite(node, self.memory)
        return VISIT_BYTES + looked_at


@cython.final
@cython.cclass
class Compaction:
    """Rewrites the sparse nodes of a keyspace's streams, a bounded number of bytes at a time.

    It keeps no stream alive. A stream takes part if its `compaction` is set before it has nodes.
    """

    queue: Any  # OrderedDict: weak reference to a SparseNodes -> None
    due_ms: cython.longlong

    def __init__(self) -> None:
        self.queue = OrderedDict()
        self.due_ms = 0

    @cython.ccall
    def enqueue(self, sparse_nodes: SparseNodes) -> cython.void:
        """Queue a stream that has nodes to rewrite; it is removed when none are left."""
        self.queue[weakref.ref(sparse_nodes, self._left)] = None

    def _left(self, reference: object) -> None:
        self.queue.pop(reference, None)

    def __len__(self) -> int:
        """How many streams it knows of; some may have no nodes left to rewrite."""
        return len(self.queue)

    @cython.ccall
    def next_step_ms(self) -> cython.longlong:
        """When step() has work, in milliseconds since 1970; -1 for never."""
        return self.due_ms if self.queue else -1

    @cython.ccall
    def step(self, now_ms: cython.longlong) -> cython.void:
        """Rewrite some nodes, if that was not done just before; of the stream that has waited longest, first.

        A node's size is not bounded by this; but to delete from a large one takes as long as to rewrite it.
        """
        left: cython.longlong = STEP_BYTES
        sparse_nodes: SparseNodes | None
        if 0 < self.due_ms - now_ms <= STEP_INTERVAL_MS:
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
                sparse_nodes.queued = False
