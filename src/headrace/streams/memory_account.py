"""Memory accounting: the bytes of memory of the data, known at any time without visiting the data.

    keyspace  <-  database  <-  stream  <-  group, idempotent requests

A structure that grows or shrinks by a block adds the change to its own account and to all parents. Blocks are
rare: a node, the doubling of a listpack, a chunk of pending entries. So about one in a hundred added entries
updates an account, and reading an account costs one attribute.

The bytes are those of footprint.py, rounded: the overhead of a node or a group is a constant. size.py
measures by visiting the data; the two differ by a few percent.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.visibility import Public

# The bytes of the objects beside their blocks, in the compiled program.
STREAM_BYTES = cython.declare(cython.Py_ssize_t, 266)
NODE_BYTES = cython.declare(cython.Py_ssize_t, 336)  # with its key in the rax and its cell in LiveCounts
RUN_BYTES = cython.declare(cython.Py_ssize_t, 120)  # of a cold run, beside its node, whose listpack is shared
GROUP_BYTES = cython.declare(cython.Py_ssize_t, 700)
CONSUMER_BYTES = cython.declare(cython.Py_ssize_t, 232)
PENDING_INDEX_BYTES = cython.declare(
    cython.Py_ssize_t, 9
)  # of a pending entry, in the indexes of group and consumer
# ORDERED-BY: of a queue, with its timer; of its value, with its item in the dictionary; of each delivered
# entry but one; of the array of waiting ones; and of a slot.
KEY_QUEUE_BYTES = cython.declare(cython.Py_ssize_t, 184)
QUEUE_VALUE_BYTES = cython.declare(cython.Py_ssize_t, 90)
QUEUE_DELIVERED_BYTES = cython.declare(cython.Py_ssize_t, 64)
QUEUE_WAITING_BYTES = cython.declare(cython.Py_ssize_t, 80)
QUEUE_SLOT_BYTES = cython.declare(cython.Py_ssize_t, 9)

NO_LIMIT = cython.declare(cython.Py_ssize_t, (1 << 63) - 1)


@cython.final
@cython.no_gc
@cython.cclass
class MemoryAccount:
    """A count of bytes that is included in the count of its parent.

    Streams refer to their account and to its parents, so no account may refer to a stream.
    """

    total: Public[cython.Py_ssize_t]
    limit: Public[cython.Py_ssize_t]  # not enforced here: see keyspace/eviction.py
    parent: MemoryAccount | None
    stream_key: Public[bytes | None]  # of a stream: its key
    evictable_ref: Public[Any]  # of a database: a weak reference to Keyspace.evictable; None: of others

    def __init__(self, n: cython.Py_ssize_t = 0) -> None:
        self.total = n
        self.limit = NO_LIMIT
        self.parent = None
        self.stream_key = None
        self.evictable_ref = None

    @cython.ccall
    def add(self, n: cython.Py_ssize_t) -> cython.void:
        """Add n bytes, which may be negative, here and to all parents."""
        memory: MemoryAccount | None = self
        while memory is not None:
            memory.total += n
            memory = memory.parent

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_part_of(self, other: MemoryAccount) -> cython.bint:
        """Return whether the other account is this one or one of its parents, and so includes its bytes."""
        memory: MemoryAccount | None = self
        while memory is not None:
            if memory is other:
                return True
            memory = memory.parent
        return False

    @cython.ccall
    def attach(self, parent: MemoryAccount) -> cython.void:
        """Make parent the only parent, and add all bytes to it."""
        self.detach()
        self.parent = parent
        parent.add(self.total)

    @cython.ccall
    def mark_evictable(self, stream: object) -> cython.void:
        """Add the stream of this account, which has more than one node, to Keyspace.evictable."""
        parent: MemoryAccount | None = self.parent
        streams: Any = (
            parent.evictable_ref() if parent is not None and parent.evictable_ref is not None else None
        )
        if streams is not None:
            streams[stream] = self.stream_key

    @cython.ccall
    def detach(self) -> cython.void:
        """Subtract all bytes from the parent, and leave it."""
        if self.parent is not None:
            self.parent.add(-self.total)
            self.parent = None
