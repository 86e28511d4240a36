"""The pending entries of a group with one value of its ORDERED-BY field: those delivered, and those waiting.

delivered   one: 17    more: {3, 40}       slots
owners      {1: 1, 2: 2}                   by consumer: how many of them it has; only if there are several
waiting     . . | 9 0 | 12 0 | 15 0        milliseconds and sequence numbers, in order
                ^ at
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from headrace.streams import memory_account

NONE = cython.declare(cython.Py_ssize_t, -1)
NO_HOLDER = cython.declare(cython.Py_ssize_t, 0)
NEVER = cython.declare(cython.longlong, -1)
SEVERAL = cython.declare(cython.Py_ssize_t, -1)


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
    owners: dict[int, int] | None  # None: there are not several
    waiting: array[int] | None  # ms, seq, ms, seq ... in order; some may not be waiting any more
    at: cython.Py_ssize_t  # in waiting
    expires_ms: cython.longlong  # no lease of a delivered entry ends before
    timer: cython.Py_ssize_t  # in KeyOrder.checks: when to look whether it is due; -1: not planned
    accounted_bytes: cython.Py_ssize_t  # its bytes in the memory of the pending entries
    is_free: cython.bint  # it is in KeyOrder.free_queues

    def __init__(self, value: bytes | None) -> None:
        self.value = value
        self.count = 0
        self.holder = NO_HOLDER
        self.one = NONE
        self.more = None
        self.owners = None
        self.waiting = None
        self.at = 0
        self.timer = NONE
        self.accounted_bytes = 0
        self.expires_ms = NEVER
        self.is_free = False

    @cython.cfunc
    def add_delivered(self, slot: cython.Py_ssize_t, owner: cython.Py_ssize_t) -> cython.void:
        """Add a delivered entry of this owner."""
        if self.one < 0:
            self.one = slot
            self.holder = owner
            return
        if self.holder != owner and self.holder != SEVERAL:
            self.owners = {self.holder: self.delivered_count()}
            self.holder = SEVERAL
        if self.owners is not None:
            self.owners[owner] = self.owners.get(owner, 0) + 1
        if self.more is None:
            self.more = set()
        self.more.add(slot)

    @cython.cfunc
    def drop_delivered(self, slot: cython.Py_ssize_t, owner: cython.Py_ssize_t) -> cython.void:
        """Remove a delivered entry of this owner, if it is one."""
        if self.one != slot and (self.more is None or slot not in self.more):
            return
        if self.owners is not None:
            self.owners[owner] -= 1
            if self.owners[owner] == 0:
                del self.owners[owner]
            if len(self.owners) == 1:
                self.holder = next(iter(self.owners))
                self.owners = None
        if self.more is not None:
            if self.one == slot:
                self.one = self.more.pop()
            else:
                self.more.discard(slot)
            if not self.more:
                self.more = None
        elif self.one == slot:
            self.one = NONE
            self.holder = NO_HOLDER

    @cython.cfunc
    def drop_all_delivered(self) -> cython.void:
        """Remove all delivered entries."""
        self.one = NONE
        self.more = None
        self.owners = None
        self.holder = NO_HOLDER

    @cython.cfunc
    @cython.exceptval(check=False)
    def delivered_count(self) -> cython.Py_ssize_t:
        """Return the number of delivered entries."""
        if self.one < 0:
            return 0
        return 1 if self.more is None else 1 + len(self.more)

    @cython.cfunc
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return about how many bytes the queue takes, with its items in the containers of the KeyOrder."""
        total: cython.Py_ssize_t = memory_account.KEY_QUEUE_BYTES
        if self.value is not None:
            total += memory_account.KEY_VALUE_BYTES + len(self.value)
        if self.more is not None:
            total += memory_account.KEY_DELIVERED_BYTES * len(self.more)
        if self.waiting is not None:
            total += memory_account.KEY_WAITING_BYTES + 8 * len(self.waiting)
        return total

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
