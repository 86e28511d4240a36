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
from headrace.structures.stream_id import StreamId
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
    last_run_key: bytes  # the key of the last run; empty: there was none
    run_count_by_file: dict[Any, int]  # by file: how many runs of the stream are in it
    # The greatest ID up to which removals of the log were left out; None: none were. See
    # commands/stream/left_out_removals.py.
    last_left_out_id: Public[StreamId | None]
    left_out_removals_drop_references: Public[cython.bint]  # whether one of them removes references, too

    def __init__(self, tree: Rax, memory: MemoryAccount) -> None:
        self.tree = tree
        self.memory = memory
        self.totals = ColdTotals()
        self.last_run_key = b""
        self.run_count_by_file = {}
        self.last_left_out_id = None
        self.left_out_removals_drop_references = False

    @cython.ccall
    def copy_left_out_removals(self, other: ColdPart) -> cython.void:
        """Copy another part's record of the removals that were left out."""
        self.last_left_out_id = other.last_left_out_id
        self.left_out_removals_drop_references = other.left_out_removals_drop_references

    @cython.ccall
    def add_to_totals(self, node: Node) -> cython.void:
        """Add a cold node to the totals. It does not change the tree."""
        run: ColdRun = node.run
        self.last_run_key = max(self.last_run_key, node.key())
        self.totals.parent = run.cache.cold_run_totals
        if cold_run.is_sparse(node):
            run.cache.has_new_sparse_run = True
        self.totals.add(1, run.inner_count(), node.live_count, run.bytes_if_loaded)
        self.memory.add(_memory_bytes_of(run))
        file = run.cache.source.file_of(run.storage_location)
        self.run_count_by_file[file] = self.run_count_by_file.get(file, 0) + 1

    @cython.ccall
    def subtract_from_totals(self, node: Node) -> cython.void:
        """Subtract a cold node from the totals. It does not change the tree."""
        run: ColdRun = node.run
        live: cython.longlong = node.live_count
        self.totals.add(-1, -run.inner_count(), -live, -run.bytes_if_loaded)
        self.memory.add(-_memory_bytes_of(run))
        file = run.cache.source.file_of(run.storage_location)
        self.run_count_by_file[file] -= 1
        if self.run_count_by_file[file] == 0:
            del self.run_count_by_file[file]

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def file_count(self) -> cython.Py_ssize_t:
        """Return the number of files that contain runs of the stream."""
        return len(self.run_count_by_file)

    @cython.ccall
    def outer_of(self, inner: Node) -> Node:
        """Return the cold node in the tree whose run contains this inner node."""
        cursor: RaxCursor = RaxCursor(self.tree)
        cursor.seek("<=", inner.key())
        return node_module.node_of_cursor(cursor)

    @cython.ccall
    def last_inner_up_to(self, outer: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> Node | None:
        """Return the last inner node that is not after ms-seq; None if there is none.

        outer: the last node in the tree that is not after ms-seq. If the first inner nodes of outer were
        dropped, the result may belong to the tree node before outer.
        """
        found: Node | None = cold_run.run_of(outer).last_inner_up_to(ms, seq)
        if found is not None:
            return found
        cursor: RaxCursor = RaxCursor(self.tree)
        if not cursor.seek("<", outer.key()):
            return None
        return cold_run.last_inner(node_module.node_of_cursor(cursor))

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def live_count_before(self, outer: Node, inner: Node) -> cython.ulonglong:
        """Return the number of live entries of outer before those of its inner node."""
        total: cython.ulonglong = 0
        other: Node
        for other in cold_run.run_of(outer).load_inner_nodes():
            if not stream_id.is_before(other.ms, other.seq, inner.ms, inner.seq):
                break
            total += other.live_count
        return total

    @cython.ccall
    def record_deleted_id(self, walk: EntryWalk) -> cython.void:
        """Record that the entry at the position of `walk`, in an inner node, is deleted."""
        run: ColdRun = self.outer_of(walk.node).run
        run.record_deleted_id(walk.ms, walk.seq)
        self.memory.add(ID_BYTES)

    @cython.ccall
    def record_deletions(self, inner: Node, n: cython.longlong, counts: LiveCounts) -> cython.void:
        """Update all counts except the stream's length after marking n live entries of inner as deleted."""
        outer: Node = self.outer_of(inner)
        inner.set_counts(inner.live_count - n, inner.deleted_count + n)
        outer.live_count -= n
        outer.deleted_count += n
        self.totals.add(0, 0, -n, 0)
        counts.subtract(outer, n)
        if cold_run.is_sparse(outer):
            cold_run.run_of(outer).cache.has_new_sparse_run = True

    @cython.ccall
    def drop_inner_node(self, outer: Node, inner: Node, counts: LiveCounts) -> cython.void:
        """Drop an inner node, and subtract its live entries from the counts.

        The node must have no live entries, or be the first inner node of outer.
        """
        run: ColdRun = outer.run
        live: cython.longlong = inner.live_count
        self.subtract_from_totals(outer)
        run.drop_inner_node(inner)
        outer.live_count -= live
        outer.deleted_count -= min(outer.deleted_count, inner.deleted_count)
        self.add_to_totals(outer)
        counts.subtract(outer, live)

    @cython.ccall
    def replace_by_cold_node(
        self, nodes: list[Node], run: ColdRun, counts: LiveCounts, image: cython.uint
    ) -> Node:
        """Replace adjacent nodes of the tree by one cold node for the run that stores them; return it.

        image: the epoch of the image that has preserved the nodes; 0: there is none.
        """
        outer: Node = _create_cold_node(nodes, run)
        outer.snapshot_epoch = image
        self.memory.add(-run.bytes_if_loaded)
        self._put(nodes, outer, counts)
        return outer

    @cython.ccall
    def replace_cold_nodes(
        self, cold_nodes: list[Node], nodes: list[Node], run: ColdRun, counts: LiveCounts, image: cython.uint
    ) -> cython.void:
        """Replace adjacent cold nodes by one for a new run.

        nodes: the nodes that the new run stores; they have the live entries of the cold ones.
        """
        node: Node
        outer: Node = _create_cold_node(nodes, run)
        outer.snapshot_epoch = image
        for node in cold_nodes:
            self.subtract_from_totals(node)
            self.memory.add(-memory_account.NODE_BYTES)
        self._put(cold_nodes, outer, counts)

    @cython.cfunc
    def _put(self, replaced: list[Node], outer: Node, counts: LiveCounts) -> cython.void:
        """Put a cold node in the place of adjacent nodes.

        The caller must have subtracted the memory of these nodes from the account.
        """
        first: Node = replaced[0]
        node: Node
        for node in replaced:
            if node is not first:
                self.tree.remove(node.key())
                counts.remove(node, self.tree)
        self.tree.remove(first.key())
        self.tree.insert(outer.key(), outer)
        counts.replace(first, outer)
        self.add_to_totals(outer)
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
        self.last_run_key = cursor.key if cursor.seek("<", outer.key()) else b""
        self.tree.remove(outer.key())
        counts.remove(outer, self.tree)
        self.subtract_from_totals(outer)
        self.memory.add(-memory_account.NODE_BYTES)
        for node in nodes:
            node.is_inner = False
            node.serial = 0
            node.snapshot_epoch = image
            self.tree.insert(node.key(), node)
            counts.add(node)
            self.memory.add(memory_account.NODE_BYTES + node.pack.cap)


@cython.cfunc
def _create_cold_node(nodes: list[Node], run: ColdRun) -> Node:
    """Create the cold node for the run of these nodes, which have a live entry."""
    node: Node
    live: cython.longlong = 0
    deleted: cython.longlong = 0
    run.bytes_if_loaded = 0
    for node in nodes:
        live += node.live_count
        deleted += node.deleted_count
        run.bytes_if_loaded += memory_account.NODE_BYTES + node.pack.cap
    _set_run_bounds(run, nodes)
    return cold_run.create_cold_node(nodes[0], run, live, deleted)


@cython.cfunc
def _set_run_bounds(run: ColdRun, nodes: list[Node]) -> cython.void:
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
def _memory_bytes_of(run: ColdRun) -> cython.Py_ssize_t:
    """Return the bytes of memory of a run without its node."""
    return memory_account.RUN_BYTES + run.removal_record_bytes()
