"""How many live entries lie before a node, without looking at the nodes before it: a Fenwick tree.

    serial    1   2   3   4   5   6   7   8       a closed node's place, in the order of the IDs
    live      9   7   0   8   9   2   5   4       0: its node was dropped
    cell      9  16   0  24   9  11   5  44       u64 le, 8 bytes each; nothing else is kept
              |   |   |   |   |   |   |   |
              1  1-2  3  1-4  5  5-6  7  1-8      the serials whose live entries a cell sums

Cell i sums as many serials as the lowest bit of i says, up to i itself. What lies before a serial is the
sum of at most one cell for each of its bits, and a change touches one cell for each bit above.

The tail is not in the tree. It comes in when it is closed, that is when a node is opened behind it, so
adding an entry costs nothing here. A node that becomes the tail again leaves the tree. Closed nodes are
also what compaction.py may rewrite, so it is told here of those that wear out.
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

CELL = cython.declare(cython.Py_ssize_t, 8)
CELLS_MIN = cython.declare(cython.Py_ssize_t, 8)
# Serials of dropped nodes that are put up with before the others are counted again.
UNUSED_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class LiveCounts:
    """The live entries of a stream's closed nodes. A node in it has a serial above 0, any other has 0."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t  # cells there is room for, the unused cell 0 included
    serials: cython.Py_ssize_t  # given so far: 1 to serials
    nodes: cython.Py_ssize_t  # in the tree; the other serials are unused
    compaction: Compaction | None  # None: sparse nodes are not rewritten
    memory: MemoryAccount  # of the stream
    sparse_nodes: SparseNodes | None  # those that wait for it; None until the first
    last_found: Node | None  # where an ID was looked for the last time, if it is still in the stream

    def __init__(self, compaction: Compaction | None, memory: MemoryAccount) -> None:
        self.compaction = compaction
        self.memory = memory
        self.sparse_nodes = None
        self.last_found = None
        self.serials = 0
        self.nodes = 0
        self.buf = bytearray(0)
        self.p = self.buf
        self.cap = 0
        self._make_room(CELLS_MIN)

    @cython.ccall
    def close(self, node: Node) -> cython.void:
        """Count in node, which comes after all that are counted."""
        self._count_in(node)
        self._queue_if_sparse(node)

    @cython.ccall
    def reopen(self, node: Node, nodes: Rax) -> cython.void:
        """Take out the last node that is counted, which is the tail of nodes again."""
        self.serials = node.serial - 1
        self._count_out(node, nodes)

    @cython.ccall
    def lose(self, node: Node, n: cython.longlong) -> cython.void:
        """Node, which is counted, has n live entries less than it had."""
        self._subtract(node, n)
        self._queue_if_sparse(node)

    @cython.ccall
    def drop(self, node: Node, nodes: Rax) -> cython.void:
        """Take out node, which has left nodes."""
        self._subtract(node, node.live)
        self._count_out(node, nodes)

    @cython.ccall
    def before(self, node: Node) -> cython.ulonglong:
        """The live entries of all nodes before node, which is counted."""
        total: cython.ulonglong = 0
        at: cython.Py_ssize_t = node.serial - 1
        while at > 0:
            total += mem.u64le(self.p, CELL * at)
            at &= at - 1
        return total

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_in_last_found(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Whether ms-seq lies between the first and the last entry of the node that was looked for before.

        Who reads on does so in the same node a hundred times; a search of the tree costs 3,500 instructions.
        """
        node: Node | None = self.last_found
        if node is None or stream_id.before(ms, seq, node.ms, node.seq):
            return False
        return node_walk.reaches(node, ms, seq)

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """What it takes."""
        return footprint.instance_bytes(LiveCounts) + footprint.object_bytes(self.buf)

    @cython.ccall
    def check(self, nodes: Rax, tail: Node | None) -> cython.void:
        """Assert that it counts nodes, tail apart, and what they hold."""
        serial: cython.Py_ssize_t = 0
        counted: cython.Py_ssize_t = 0
        total: cython.ulonglong = 0
        node: Node
        cursor: RaxCursor = RaxCursor(nodes)
        more: cython.bint = cursor.seek("^")
        while more:
            node = node_module.node_at(cursor)
            if node is tail:
                assert node.serial == 0, "the tail has a serial"
                break
            assert serial < node.serial <= self.serials, f"serial {node.serial} after {serial}"
            assert self.before(node) == total, f"{self.before(node)} before {node.serial}, not {total}"
            serial = node.serial
            total += mem.as_unsigned(node.live)
            counted += 1
            more = cursor.next()
        assert counted == self.nodes, f"{counted} closed nodes, {self.nodes} counted"
        assert self.serials <= 2 * self.nodes + UNUSED_MIN

    @cython.cfunc
    def _count_in(self, node: Node) -> cython.void:
        """Give node the next serial and its cell."""
        at: cython.Py_ssize_t = self.serials + 1
        below: cython.Py_ssize_t = at & (at - 1)
        child: cython.Py_ssize_t = at - 1
        total: cython.ulonglong = node.live
        if at == self.cap:
            self._make_room(self.cap + self.cap // 2)
        while child > below:
            total += mem.u64le(self.p, CELL * child)
            child &= child - 1
        mem.put_u64le(self.p, CELL * at, total)
        self.serials = at
        self.nodes += 1
        node.serial = at

    @cython.cfunc
    def _count_out(self, node: Node, nodes: Rax) -> cython.void:
        """Node is none of the closed nodes any more."""
        if node.awaits_rewrite and self.sparse_nodes is not None:
            self.sparse_nodes.discard(node)
        self.nodes -= 1
        node.serial = 0
        if self.serials > 2 * self.nodes + UNUSED_MIN:
            self._renumber(nodes)

    @cython.cfunc
    def _subtract(self, node: Node, n: cython.longlong) -> cython.void:
        """Take n from every cell that sums node."""
        at: cython.Py_ssize_t = node.serial
        while at <= self.serials:
            mem.put_u64le(self.p, CELL * at, mem.sub_u64(mem.u64le(self.p, CELL * at), mem.as_unsigned(n)))
            at += at & -at

    @cython.cfunc
    def _queue_if_sparse(self, node: Node) -> cython.void:
        """Have node rewritten when too much of it is dead."""
        if self.compaction is None or not compaction.needs_rewrite(node):
            return
        if self.sparse_nodes is None:
            self.sparse_nodes = SparseNodes(self.compaction, self.memory)
        self.sparse_nodes.add(node)

    @cython.cfunc
    def _renumber(self, nodes: Rax) -> cython.void:
        """Give the closed nodes the serials from 1 on, and the room of the unused ones back."""
        left: cython.Py_ssize_t = self.nodes
        self.serials = 0
        self.nodes = 0
        self._make_room(max(left + left // 2, CELLS_MIN))
        cursor: RaxCursor = RaxCursor(nodes)
        more: cython.bint = cursor.seek("^")
        while more and self.nodes < left:
            self._count_in(node_module.node_at(cursor))
            more = cursor.next()

    @cython.cfunc
    def _make_room(self, cap: cython.Py_ssize_t) -> cython.void:
        """Make it cap cells; those of the serials given stay."""
        buf: bytearray = bytearray(CELL * cap)
        p: cython.p_uchar = buf
        if self.serials > 0:
            mem.copy(p, 0, self.p, 0, CELL * (self.serials + 1))
        self.buf = buf
        self.p = self.buf
        self.cap = cap
