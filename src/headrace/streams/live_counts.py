"""Count the live entries before a node without visiting the nodes before it: a Fenwick tree.

    serial    1   2   3   4   5   6   7   8       numbers of the closed nodes, in order of IDs
    live      9   7   0   8   9   2   5   4       0: its node was dropped
    cell      9  16   0  24   9  11   5  44       u64 le, 8 bytes each; nothing else is kept
              |   |   |   |   |   |   |   |
              1  1-2  3  1-4  5  5-6  7  1-8      the serials that a cell sums

Cell i sums as many serials as the lowest set bit of i, up to i itself. So the entries before a serial are the
sum of at most one cell per bit of the serial, and a change updates one cell per higher bit.

The tail is not in the tree, so adding an entry costs nothing here. It is added when it is closed, that is,
when the next node is opened; a node that becomes the tail again is removed. Only closed nodes are compacted,
so sparse nodes are queued for compaction.py here.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams import compaction, node_walk
from headrace.streams import node as node_module
from headrace.streams.compaction import Compaction, SparseNodes
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.structures import footprint, stream_id
from headrace.structures.rax import Rax
from headrace.structures.rax_walk import RaxCursor

CELL_BYTES = cython.declare(cython.Py_ssize_t, 8)
CELLS_MIN = cython.declare(cython.Py_ssize_t, 8)
# So many serials of dropped nodes are tolerated before all nodes are renumbered.
UNUSED_SERIALS_TOLERATED = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.no_gc
@cython.cclass
class LiveCounts:
    """The numbers of live entries of the closed nodes of a stream, which have serials above 0."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t  # capacity in cells, including the unused cell 0
    last_serial: cython.Py_ssize_t  # the highest serial given
    node_count: cython.Py_ssize_t  # in the tree; the other serials are unused
    compaction: Compaction | None  # None: sparse nodes are not rewritten
    memory: MemoryAccount  # of the stream
    sparse_nodes: SparseNodes | None  # nodes queued for rewriting; None until the first
    last_found_node: Node | None  # the result of the last lookup by ID; None if it was dropped

    def __init__(self, compaction: Compaction | None, memory: MemoryAccount) -> None:
        self.compaction = compaction
        self.memory = memory
        self.sparse_nodes = None
        self.last_found_node = None
        self.last_serial = 0
        self.node_count = 0
        self.buf = bytearray(0)
        self.p = self.buf
        self.cap = 0
        self._make_room(CELLS_MIN)

    @cython.ccall
    def add(self, node: Node) -> cython.void:
        """Add a node, which must follow all nodes in the tree."""
        self._append(node)
        self._queue_if_sparse(node)

    @cython.ccall
    def remove_last(self, node: Node, nodes: Rax) -> cython.void:
        """Remove the last node of the tree, which becomes the tail again."""
        self.last_serial = node.serial - 1
        self._forget(node, nodes)

    @cython.ccall
    def subtract(self, node: Node, n: cython.longlong) -> cython.void:
        """Record that n live entries of a node in the tree were deleted."""
        self._subtract(node, n)
        self._queue_if_sparse(node)

    @cython.ccall
    def remove(self, node: Node, nodes: Rax) -> cython.void:
        """Remove a node that was already removed from the rax `nodes`."""
        self._subtract(node, node.live_count)
        self._forget(node, nodes)

    @cython.ccall
    def replace(self, node: Node, by: Node) -> cython.void:
        """Put the node `by`, which may have more live entries, in the place of node."""
        if node.awaits_rewrite and self.sparse_nodes is not None:
            self.sparse_nodes.discard(node)
        by.serial = node.serial
        node.serial = 0
        self.last_found_node = None
        more: cython.longlong = by.live_count
        more -= node.live_count
        self._subtract(by, -more)

    @cython.ccall
    def count_before(self, node: Node) -> cython.ulonglong:
        """Return the number of live entries before node, which must be in the tree."""
        total: cython.ulonglong = 0
        at: cython.Py_ssize_t = node.serial - 1
        while at > 0:
            total += mem.u64le(self.p, CELL_BYTES * at)
            at &= at - 1
        return total

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_in_last_found(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether ms-seq is between the first and the last entry of the node found by the last lookup.

        Sequential readers use the same node about a hundred times; a tree search costs 3,500 instructions.
        """
        node: Node | None = self.last_found_node
        if node is None or stream_id.is_before(ms, seq, node.ms, node.seq):
            return False
        return node_walk.has_live_entry_from(node, ms, seq)

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the counts take."""
        return footprint.instance_bytes(LiveCounts) + footprint.object_bytes(self.buf)

    @cython.ccall
    def check(self, nodes: Rax, tail: Node | None) -> cython.void:
        """Assert that the tree counts all nodes except the tail."""
        serial: cython.Py_ssize_t = 0
        counted: cython.Py_ssize_t = 0
        total: cython.ulonglong = 0
        node: Node
        cursor: RaxCursor = RaxCursor(nodes)
        more: cython.bint = cursor.seek("^")
        while more:
            node = node_module.node_of_cursor(cursor)
            if node is tail:
                assert node.serial == 0, "the tail has a serial"
                break
            assert serial < node.serial <= self.last_serial, f"serial {node.serial} after {serial}"
            assert self.count_before(node) == total, (
                f"{self.count_before(node)} before {node.serial}, not {total}"
            )
            serial = node.serial
            total += mem.as_unsigned(node.live_count)
            counted += 1
            more = cursor.next()
        assert counted == self.node_count, f"{counted} closed nodes, {self.node_count} counted"
        assert self.last_serial <= 2 * self.node_count + UNUSED_SERIALS_TOLERATED

    @cython.cfunc
    def _append(self, node: Node) -> cython.void:
        """Give node the next serial and cell."""
        at: cython.Py_ssize_t = self.last_serial + 1
        below: cython.Py_ssize_t = at & (at - 1)
        child: cython.Py_ssize_t = at - 1
        total: cython.ulonglong = node.live_count
        if at == self.cap:
            self._make_room(self.cap + self.cap // 2)
        while child > below:
            total += mem.u64le(self.p, CELL_BYTES * child)
            child &= child - 1
        mem.put_u64le(self.p, CELL_BYTES * at, total)
        self.last_serial = at
        self.node_count += 1
        node.serial = at

    @cython.cfunc
    def _forget(self, node: Node, nodes: Rax) -> cython.void:
        """Remove the serial of node; renumber if too many are unused."""
        if node.awaits_rewrite and self.sparse_nodes is not None:
            self.sparse_nodes.discard(node)
        self.node_count -= 1
        node.serial = 0
        if self.last_serial > 2 * self.node_count + UNUSED_SERIALS_TOLERATED:
            self._renumber(nodes)

    @cython.cfunc
    def _subtract(self, node: Node, n: cython.longlong) -> cython.void:
        """Subtract n from every cell that sums node."""
        at: cython.Py_ssize_t = node.serial
        while at <= self.last_serial:
            mem.put_u64le(
                self.p, CELL_BYTES * at, mem.sub_u64(mem.u64le(self.p, CELL_BYTES * at), mem.as_unsigned(n))
            )
            at += at & -at

    @cython.cfunc
    def _queue_if_sparse(self, node: Node) -> cython.void:
        """Queue node for rewriting if it is sparse."""
        if self.compaction is None or not compaction.needs_rewrite(node):
            return
        if self.sparse_nodes is None:
            self.sparse_nodes = SparseNodes(self.compaction, self.memory)
        self.sparse_nodes.add(node)

    @cython.cfunc
    def _renumber(self, nodes: Rax) -> cython.void:
        """Renumber the closed nodes from 1 on, and free the memory of unused serials."""
        left: cython.Py_ssize_t = self.node_count
        self.last_serial = 0
        self.node_count = 0
        self._make_room(max(left + left // 2, CELLS_MIN))
        cursor: RaxCursor = RaxCursor(nodes)
        more: cython.bint = cursor.seek("^")
        while more and self.node_count < left:
            self._append(node_module.node_of_cursor(cursor))
            more = cursor.next()

    @cython.cfunc
    def _make_room(self, cap: cython.Py_ssize_t) -> cython.void:
        """Resize to cap cells; keep those of given serials."""
        buf: bytearray = bytearray(CELL_BYTES * cap)
        p: cython.p_uchar = buf
        if self.last_serial > 0:
            mem.copy(p, 0, self.p, 0, CELL_BYTES * (self.last_serial + 1))
        self.buf = buf
        self.p = self.buf
        self.cap = cap
