"""The part of a stream that is in files (its cold runs): lookups and totals. cold_run.py explains runs.

A stream has a ColdPart if one of its nodes is cold. The ColdPart changes the node tree and the live counts of
the stream, which still owns them.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.streams import cold_run, memory_account
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun, ColdTotals
from headrace.streams.live_counts import LiveCounts
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.structures import stream_id
from headrace.structures.rax import Rax
from headrace.structures.rax_walk import RaxCursor
from headrace.visibility import Public

ID_BYTES = cython.declare(cython.Py_ssize_t, 16)


@cython.final
@cython.no_gc
@cython.cclass
class ColdPart:
    """The cold runs of one stream: totals, and lookups from an inner node to its run and back."""

    tree: Rax  # of the stream
    memory: MemoryAccount  # of the stream
    totals: Public[ColdTotals]
    last: bytes  # the key of the last run; empty: there was none
    runs_of_files: dict[Any, int]  # by file: how many runs of the stream are in it

    def __init__(self, tree: Rax, memory: MemoryAccount) -> None:
        self.tree = tree
        self.memory = memory
        self.totals = ColdTotals()
        self.last = b""
        self.runs_of_files = {}

    @cython.ccall
    def add(self, node: Node) -> cython.void:
        """Add a cold node to the totals. It does not change the tree."""
        run: ColdRun = node.run
        self.last = max(self.last, node.key())
        self.totals.parent = run.cache.totals
        if cold_run.is_sparse(node):
            run.cache.has_sparse = True
        self.totals.add(1, run.inner_count(), node.live, run.memory_bytes)
        self.memory.add(_bytes_of(run))
        file = run.cache.source.file_of(run.place)
        self.runs_of_files[file] = self.runs_of_files.get(file, 0) + 1

    @cython.ccall
    def remove(self, node: Node) -> cython.void:
        """Subtract a cold node from the totals. It does not change the tree."""
        run: ColdRun = node.run
        live: cython.longlong = node.live
        self.totals.add(-1, -run.inner_count(), -live, -run.memory_bytes)
        self.memory.add(-_bytes_of(run))
        file = run.cache.source.file_of(run.place)
        self.runs_of_files[file] -= 1
        if self.runs_of_files[file] == 0:
            del self.runs_of_files[file]

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def file_count(self) -> cython.Py_ssize_t:
        """Return the number of files that contain runs of the stream."""
        return len(self.runs_of_files)

    @cython.ccall
    def outer_of(self, inner: Node) -> Node:
        """Return the cold node in the tree whose run contains this inner node."""
        cursor: RaxCursor = RaxCursor(self.tree)
        cursor.seek("<=", inner.key())
        return node_module.node_of_cursor(cursor)

    @cython.ccall
    def inner_for(self, outer: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> Node | None:
        """Return the last inner node that is not after ms-seq; None if there is none.

        outer: the last node in the tree that is not after ms-seq. If the first inner nodes of outer were
        dropped, the result may be in the node before it.
        """
        nodes: list[Node] = cold_run.run_of(outer).inner_nodes()
        at: cython.Py_ssize_t = cold_run.inner_index(nodes, ms, seq)
        if at >= 0:
            return nodes[at]
        cursor: RaxCursor = RaxCursor(self.tree)
        if not cursor.seek("<", outer.key()):
            return None
        return cold_run.last_inner(node_module.node_of_cursor(cursor))

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def live_before(self, outer: Node, inner: Node) -> cython.ulonglong:
        """Return the number of live entries of outer before those of its inner node."""
        total: cython.ulonglong = 0
        other: Node
        for other in cold_run.run_of(outer).inner_nodes():
            if not stream_id.before(other.ms, other.seq, inner.ms, inner.seq):
                break
            total += other.live
        return total

    @cython.ccall
    def record_deleted_id(self, walk: EntryWalk) -> cython.void:
        """Record that the entry of walk, in an inner node, is deleted."""
        run: ColdRun = self.outer_of(walk.node).run
        run.record_deleted_id(walk.ms, walk.seq)
        self.memory.add(ID_BYTES)

    @cython.ccall
    def record_deletions(self, inner: Node, n: cython.longlong, counts: LiveCounts) -> cython.void:
        """After n live entries of inner were marked as deleted, update all counts but the stream's length."""
        outer: Node = self.outer_of(inner)
        inner.set_counts(inner.live - n, inner.deleted + n)
        outer.live -= n
        outer.deleted += n
        self.totals.add(0, 0, -n, 0)
        counts.subtract(outer, n)
        if cold_run.is_sparse(outer):
            cold_run.run_of(outer).cache.has_sparse = True

    @cython.ccall
    def drop(self, outer: Node, inner: Node, counts: LiveCounts) -> cython.void:
        """Drop an inner node, and subtract its live entries. It has none, or is the first one of outer."""
        run: ColdRun = outer.run
        live: cython.longlong = inner.live
        self.remove(outer)
        run.drop(inner)
        outer.live -= live
        outer.deleted -= min(outer.deleted, inner.deleted)
        self.add(outer)
        counts.subtract(outer, live)

    @cython.ccall
    def replace(self, nodes: list[Node], run: ColdRun, counts: LiveCounts, image: cython.uint) -> Node:
        """Replace adjacent nodes of the tree by one cold node for the run that stores them; return it.

        image: the number of the image that has preserved the nodes; 0: there is none.
        """
        outer: Node = _outer_for(nodes, run)
        outer.image_number = image
        self.memory.add(-run.memory_bytes)
        self._put(nodes, outer, counts)
        return outer

    @cython.ccall
    def rewrite(
        self, cold_nodes: list[Node], nodes: list[Node], run: ColdRun, counts: LiveCounts, image: cython.uint
    ) -> cython.void:
        """Replace adjacent cold nodes by one for a new run.

        nodes: the nodes that the new run stores; they have the live entries of the cold ones.
        """
        node: Node
        outer: Node = _outer_for(nodes, run)
        outer.image_number = image
        for node in cold_nodes:
            self.remove(node)
            self.memory.add(-memory_account.NODE_BYTES)
        self._put(cold_nodes, outer, counts)

    @cython.cfunc
    def _put(self, replaced: list[Node], outer: Node, counts: LiveCounts) -> cython.void:
        """Put a cold node in the place of adjacent nodes, whose memory is not counted any more."""
        first: Node = replaced[0]
        node: Node
        for node in replaced:
            if node is not first:
                self.tree.remove(node.key())
                counts.remove(node, self.tree)
        self.tree.remove(first.key())
        self.tree.insert(outer.key(), outer)
        counts.replace(first, outer)
        self.add(outer)
        self.memory.add(memory_account.NODE_BYTES)

    @cython.ccall
    def replace_by_inner_nodes(self, outer: Node, counts: LiveCounts, image: cython.uint) -> cython.void:
        """Replace the last closed node, which is cold, by its inner nodes, from the cache or the file.

        Raises DamagedColdRun before any change.
        """
        run: ColdRun = outer.run
        nodes: list[Node] | None = run.cache.take(run)
        if nodes is None:
            nodes = run.read_nodes()
        node: Node
        cursor: RaxCursor = RaxCursor(self.tree)
        self.last = cursor.key if cursor.seek("<", outer.key()) else b""
        self.tree.remove(outer.key())
        counts.remove(outer, self.tree)
        self.remove(outer)
        self.memory.add(-memory_account.NODE_BYTES)
        for node in nodes:
            node.inner = False
            node.serial = 0
            node.image_number = image
            self.tree.insert(node.key(), node)
            counts.add(node)
            self.memory.add(memory_account.NODE_BYTES + node.pack.cap)


@cython.cfunc
def _outer_for(nodes: list[Node], run: ColdRun) -> Node:
    """Return the cold node for the run of these nodes, which have a live entry."""
    node: Node
    live: cython.longlong = 0
    deleted: cython.longlong = 0
    run.memory_bytes = 0
    for node in nodes:
        live += node.live
        deleted += node.deleted
        run.memory_bytes += memory_account.NODE_BYTES + node.pack.cap
    _describe(run, nodes)
    return cold_run.cold_node(nodes[0], run, live, deleted)


@cython.cfunc
def _describe(run: ColdRun, nodes: list[Node]) -> cython.void:
    """Set the first live and the last stored ID of a run of these nodes, which have a live entry."""
    at: cython.Py_ssize_t = 0
    walk: EntryWalk = EntryWalk(nodes[0])
    while not _next_live(walk):
        at += 1
        walk = EntryWalk(nodes[at])
    run.first_ms = walk.ms
    run.first_seq = walk.seq
    walk.enter_end(nodes[-1])
    if walk.previous():
        run.last_ms = walk.ms
        run.last_seq = walk.seq


@cython.cfunc
@cython.exceptval(-1, check=False)
def _next_live(walk: EntryWalk) -> cython.bint:
    """Move to the next live entry; return False if there is none."""
    while walk.next():
        if not walk.deleted:
            return True
    return False


@cython.cfunc
def _bytes_of(run: ColdRun) -> cython.Py_ssize_t:
    """Return the bytes of memory of a run without its node."""
    return memory_account.RUN_BYTES + run.removal_bytes()
