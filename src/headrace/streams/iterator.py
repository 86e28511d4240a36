"""Iterate over the live entries of a stream between two IDs, forwards or backwards."""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams import node as node_module
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor


@cython.final
@cython.cclass
class StreamIterator:
    """next() steps from entry to entry, next_piece() through field, value, field, value ... of one.

    The first entry is found through the rax, in time independent of the length of the stream. A change of
    the stream invalidates the iterator and what it has read.
    """

    stream: Stream
    from_ms: cython.ulonglong
    from_seq: cython.ulonglong
    to_ms: cython.ulonglong
    to_seq: cython.ulonglong
    reverse: cython.bint
    node: Node | None  # None: at the end
    walk: EntryWalk | None
    sought: cython.bint  # whether the first entry has been found
    cursor: RaxCursor | None  # created for the second node: most reads need only one
    # the entry
    ms: cython.ulonglong
    seq: cython.ulonglong
    fields: cython.Py_ssize_t
    # the piece: size bytes of p at `at`
    p: cython.p_const_uchar
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t

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
        self.walk = None
        self.sought = False
        self.node = None
        node: Node | None
        if reverse:
            node = stream.node_for(to_ms, to_seq)
        else:
            node = stream.node_for(from_ms, from_seq) or stream.first_node()
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
                if stream_id.before(walk.ms, walk.seq, self.from_ms, self.from_seq):
                    if self.reverse:
                        self.node = None
                        return False
                    continue
                if stream_id.before(self.to_ms, self.to_seq, walk.ms, walk.seq):
                    if self.reverse:
                        continue
                    self.node = None
                    return False
                self.ms = walk.ms
                self.seq = walk.seq
                self.fields = walk.fields
                return True
            self._next_node(self.node)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _next_stored(self, walk: EntryWalk) -> cython.bint:
        """Move to the next entry of the node; seek for the first one."""
        if self.reverse:
            return walk.previous()
        if self.sought:
            return walk.next()
        self.sought = True
        return walk.seek(self.from_ms, self.from_seq)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def next_piece(self) -> cython.bint:
        """Move to the next of the 2 * fields pieces of the entry; return False if there is none.

        The piece is valid until the next call: integers are formatted into a buffer that is reused.
        """
        if self.walk is None or not self.walk.next_piece():
            return False
        self.p = self.walk.text
        self.at = self.walk.text_at
        self.size = self.walk.size
        return True

    @cython.ccall
    def entry(self) -> list[bytes]:
        """Return the remaining pieces of the entry."""
        pieces: list[bytes] = []
        while self.next_piece():
            pieces.append(mem.to_bytes(self.p, self.at, self.size))
        return pieces

    @cython.cfunc
    def _next_node(self, node: Node) -> cython.void:
        """Move from node to the next one in the direction of the iteration."""
        self.node = None
        if node is self.stream.tail and not self.reverse:
            return
        cursor: RaxCursor
        found: cython.bint
        if self.cursor is None:
            self.cursor = cursor = RaxCursor(self.stream.nodes)
            found = cursor.seek("<" if self.reverse else ">", node.key())
        else:
            cursor = self.cursor
            found = cursor.previous() if self.reverse else cursor.next()
        if found:
            self._enter_node(node_module.node_at(cursor))

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
