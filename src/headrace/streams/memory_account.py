"""What data weigh: bytes of memory, known at any time without a look at the data.

    keyspace  <-  stream  <-  group, what is remembered of producers

Whatever grows or shrinks by a block says so to its own weight, and that to the one above. A block is what
is rare: a node, the doubling of a listpack, room for pending entries. So adding an entry costs nothing here
but for one in a hundred, and reading a weight costs a look at a number.

The bytes are those of footprint.py, rounded: what a node or a group takes beside its blocks is a constant.
size.py counts for itself, by walking; the two differ by some percent.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.visibility import Public

# What the objects take beside their blocks, in the compiled program.
STREAM_BYTES = cython.declare(cython.Py_ssize_t, 330)
NODE_BYTES = cython.declare(cython.Py_ssize_t, 336)  # its place in the radix tree and its count included
GROUP_BYTES = cython.declare(cython.Py_ssize_t, 930)
CONSUMER_BYTES = cython.declare(cython.Py_ssize_t, 344)
INDEX_BYTES = cython.declare(cython.Py_ssize_t, 9)  # of a pending entry, with its group and its consumer

NO_LIMIT = cython.declare(cython.Py_ssize_t, (1 << 63) - 1)


@cython.final
@cython.cclass
class MemoryAccount:
    """Bytes, and whose bytes they are a part of."""

    total: Public[cython.Py_ssize_t]
    limit: Public[cython.Py_ssize_t]  # what whoever adds to it should not exceed
    parent: MemoryAccount | None
    key: Public[bytes | None]  # of a stream: under which the keyspace has it
    evictable: Public[Any]  # of a keyspace: stream -> key, those that could shed nodes; None: nobody asks

    def __init__(self, n: cython.Py_ssize_t = 0) -> None:
        self.total = n
        self.limit = NO_LIMIT
        self.parent = None
        self.key = None
        self.evictable = None

    @cython.ccall
    def add(self, n: cython.Py_ssize_t) -> cython.void:
        """There are n bytes more, or less."""
        memory: MemoryAccount | None = self
        while memory is not None:
            memory.total += n
            memory = memory.parent

    @cython.ccall
    def attach(self, parent: MemoryAccount) -> cython.void:
        """Be a part of parent, and of nothing else, from now on."""
        self.detach()
        self.parent = parent
        parent.add(self.total)

    @cython.ccall
    def mark_evictable(self, stream: object) -> cython.void:
        """The stream that weighs this has more than one node now."""
        parent: MemoryAccount | None = self.parent
        if parent is not None and parent.evictable is not None:
            parent.evictable[stream] = self.key

    @cython.ccall
    def detach(self) -> cython.void:
        """Be a part of nothing any more."""
        if self.parent is not None:
            self.parent.add(-self.total)
            self.parent = None
