"""Iterate over the live entries of a stream between two IDs, forwards or backwards."""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams import cold_run
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor


@cython.final
@cython.cclass
class StreamIterator:
    """Iterates over the live entries between two IDs, both included, forwards or backwards.

    next() moves to the next entry, next_field_or_value() to its next field or value, in turn. The first entry
    is found through the rax, in time independent of the length of the stream. A change of the stream
    invalidates the iterator and what it has read. The constructor and next() raise DamagedColdRun or
    RunNeeded if they need a cold run that cannot be read or is not loaded.
    """

    stream: Stream
    from_ms: cython.ulonglong
    from_seq: cython.ulonglong
    to_ms: cython.ulonglong
    to_seq: cython.ulonglong
    reverse: cython.bint
    node: Node | None  # None: at the end
    walk: EntryWalk | None
    is_positioned: cython.bint  # whether the first entry has been found
    cursor: RaxCursor | None  # created for the second node: most reads need only one
    run_nodes: list[Node] | None  # of the cold run that has the node; None: it is in the tree
    run_node_index: cython.Py_ssize_t  # the index of the node in it
    # the entry
    ms: cython.ulonglong
    seq: cython.ulonglong
    field_count: cython.Py_ssize_t
    # the piece: size bytes of p at `piece_at`
    piece_pointer: cython.p_const_uchar
    piece_at: cython.Py_ssize_t
    piece_size: cython.Py_ssize_t

    def __init__(
        self,
        stream: Stream,
        from_ms: cython.ulonglong,
        from_seq: cython.ulonglong,
        to_ms: cython.ulonglong,
        to_seq: cython.ulonglong,
        reverse: cython.bint = False,
    ) -> None:
        self.stream = stream
        self.from_ms = from_ms
        self.from_seq = from_seq
        self.to_ms = to_ms
        self.to_seq = to_seq
        self.reverse = reverse
        self.cursor = None
        self.run_nodes = None
        self.run_node_index = 0
        self.walk = None
        self.is_positioned = False
        self.node = None
        node: Node | None
        if reverse:
            node = stream.node_for_id(to_ms, to_seq)
        else:
            node = stream.first_node_from(from_ms, from_seq)
            if node is None:
                node = stream.first_node()
                if node is not None:
                    node = cold_run.first_inner(node)
        if node is not None:
            self._enter_node(node)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next(self) -> cython.bint:
        """Move to the next live entry between the two IDs; return False if there is none."""
        walk: EntryWalk | None = self.walk
        while self.node is not None and walk is not None:
            while self._next_stored(walk):
                if walk.deleted:
                    continue
                if stream_id.is_before(walk.ms, walk.seq, self.from_ms, self.from_seq):
                    if self.reverse:
                        self.node = None
                        return False
                    continue
                if stream_id.is_before(self.to_ms, self.to_seq, walk.ms, walk.seq):
                    if self.reverse:
                        continue
                    self.node = None
                    return False
                self.ms = walk.ms
                self.seq = walk.seq
                self.field_count = walk.field_count
                return True
            self._next_node(self.node)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _next_stored(self, walk: EntryWalk) -> cython.bint:
        """Move to the next entry of the node; seek for the first one."""
        if self.reverse:
            return walk.previous()
        if self.is_positioned:
            return walk.next()
        self.is_positioned = True
        return walk.seek(self.from_ms, self.from_seq)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next_field_or_value(self) -> cython.bint:
        """Move to the next of the 2 * fields pieces of the entry; return False if there is none.

        The piece is valid until the next call: integers are formatted into a buffer that is reused.
        """
        if self.walk is None or not self.walk.next_field_or_value():
            return False
        self.piece_pointer = self.walk.text_pointer
        self.piece_at = self.walk.text_at
        self.piece_size = self.walk.text_size
        return True

    @cython.ccall
    def remaining_pieces(self) -> list[bytes]:
        """Return the pieces of the entry that were not read yet: fields and values in turn."""
        pieces: list[bytes] = []
        while self.next_field_or_value():
            pieces.append(mem.to_bytes(self.piece_pointer, self.piece_at, self.piece_size))
        return pieces

    @cython.cfunc
    def _next_node(self, node: Node) -> cython.void:
        """Move from node to the next one in the direction of the iteration."""
        self.node = None
        if node is self.stream.tail and not self.reverse:
            return
        cursor: RaxCursor
        found: cython.bint
        key: bytes
        if node.is_inner and self._enter_next_inner(node):
            return
        if self.cursor is None:
            self.cursor = cursor = RaxCursor(self.stream.nodes)
            key = self._tree_key(node)
            found = cursor.seek("<" if self.reverse else ">", key)
        else:
            cursor = self.cursor
            found = cursor.previous() if self.reverse else cursor.next()
        if not found:
            return
        node = node_module.node_of_cursor(cursor)
        if node.run is not None:
            if self._is_outside(node):
                return
            self.run_nodes = cold_run.run_of(node).load_inner_nodes()
            self.run_node_index = len(self.run_nodes) - 1 if self.reverse else 0
            node = self.run_nodes[self.run_node_index]
        self._enter_node(node)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _enter_next_inner(self, node: Node) -> cython.bint:
        """Move to the next node of the same cold run; return False if there is none."""
        nodes: list[Node] | None = self.run_nodes
        if nodes is None:  # node is the first one of the iteration
            nodes = self.run_nodes = cold_run.run_of(
                self.stream.ensure_cold_part().outer_of(node)
            ).load_inner_nodes()
            self.run_node_index = cold_run.last_index_up_to(nodes, node.ms, node.seq)
        self.run_node_index += -1 if self.reverse else 1
        if 0 <= self.run_node_index < len(nodes):
            self._enter_node(nodes[self.run_node_index])
            return True
        self.run_nodes = None
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_outside(self, node: Node) -> cython.bint:
        """Return whether no entry of a cold node can be between the two IDs: it need not be read."""
        if self.reverse:
            run: ColdRun = node.run
            return stream_id.is_before(run.last_ms, run.last_seq, self.from_ms, self.from_seq)
        return stream_id.is_before(self.to_ms, self.to_seq, node.ms, node.seq)

    @cython.cfunc
    def _tree_key(self, node: Node) -> bytes:
        """Return the key of node in the tree, or for an inner node that of the cold node that contains it."""
        return self.stream.ensure_cold_part().outer_of(node).key() if node.is_inner else node.key()

    @cython.cfunc
    def _enter_node(self, node: Node) -> cython.void:
        """Position the walk before the first entry of node in the direction of the iteration."""
        self.node = node
        if self.walk is None:
            self.walk = EntryWalk(node)
        if self.reverse:
            self.walk.enter_end(node)
        else:
            self.walk.enter(node)
