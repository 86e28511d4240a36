"""The pending entries of a group with one value of its ORDERED-BY field: those delivered, and those waiting.

delivered   one: 17    more: {3, 40}       slots
waiting     . . | 9 0 | 12 0 | 15 0        milliseconds and sequence numbers, in order
                ^ at
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

NONE = cython.declare(cython.Py_ssize_t, -1)
NO_HOLDER = cython.declare(cython.Py_ssize_t, 0)
NEVER = cython.declare(cython.longlong, -1)


@cython.final
@cython.no_gc  # no cycle can contain it, and there may be millions
@cython.cclass
class KeyQueue:
    """The pending entries of one value."""

    value: bytes | None  # None: the entry does not have the field
    count: cython.Py_ssize_t  # of its entries
    holder: (
        cython.Py_ssize_t
    )  # the number of the consumer that owns the delivered entries; NO_HOLDER, SEVERAL
    one: cython.Py_ssize_t  # the slot of a delivered entry; -1: there is none
    more: set[int] | None  # the slots of the other delivered entries
    waiting: array[int] | None  # ms, seq, ms, seq ... in order; some may not be waiting any more
    at: cython.Py_ssize_t  # in waiting
    expires_ms: cython.longlong  # no lease of a delivered entry ends before
    check_ms: cython.longlong  # when to look whether it is due; -1: not planned
    is_free: cython.bint  # it is in KeyOrder.free

    def __init__(self, value: bytes | None) -> None:
        self.value = value
        self.count = 0
        self.holder = NO_HOLDER
        self.one = NONE
        self.more = None
        self.waiting = None
        self.at = 0
        self.expires_ms = self.check_ms = NEVER
        self.is_free = False

    @cython.cfunc
    def add_delivered(self, slot: cython.Py_ssize_t) -> cython.void:
        """Add a delivered entry."""
        if self.one < 0:
            self.one = slot
            return
        if self.more is None:
            self.more = set()
        self.more.add(slot)

    @cython.cfunc
    def drop_delivered(self, slot: cython.Py_ssize_t) -> cython.void:
        """Remove a delivered entry, if it is one."""
        if self.more is not None:
            if self.one == slot:
                self.one = self.more.pop()
            else:
                self.more.discard(slot)
            if not self.more:
                self.more = None
        elif self.one == slot:
            self.one = NONE

    @cython.cfunc
    def delivered(self) -> list[Any]:
        """Return the slots of the delivered entries, unordered."""
        found: list[int] = [] if self.one < 0 else [self.one]
        if self.more is not None:
            found.extend(self.more)
        return found

    @cython.cfunc
    def add_waiting(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Add a waiting entry, usually after all others or before them."""
        words = self.waiting
        if words is None:
            words = self.waiting = array("Q")
            self.at = 0
        size: cython.Py_ssize_t = len(words)
        if size == self.at or (words[size - 2], words[size - 1]) < (ms, seq):
            words.extend((ms, seq))
            return
        if (ms, seq) < (words[self.at], words[self.at + 1]):
            if self.at == 0:
                words[0:0] = array("Q", bytes(8 * size))
                self.at = size
            self.at -= 2
            words[self.at] = ms
            words[self.at + 1] = seq
            return
        low: cython.Py_ssize_t = self.at // 2
        high: cython.Py_ssize_t = size // 2
        while low < high:
            middle: cython.Py_ssize_t = (low + high) // 2
            if (words[2 * middle], words[2 * middle + 1]) < (ms, seq):
                low = middle + 1
            else:
                high = middle
        words[2 * low : 2 * low] = array("Q", (ms, seq))
