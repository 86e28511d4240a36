"""The pending entries of a group with one value of its ORDERED-BY field: those delivered, and those waiting.

delivered   one: 17    more: {3, 40}       slots
owners      {1: 1, 2: 2}                   by consumer: how many of them it has; only if there are several
waiting     . . | 9 0 | 12 0 | 15 0        milliseconds and sequence numbers, in order
                ^ first_waiting_index
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from headrace.streams import memory_account

NO_SLOT = cython.declare(cython.Py_ssize_t, -1)
NO_HOLDER = cython.declare(cython.Py_ssize_t, 0)
NEVER = cython.declare(cython.longlong, -1)
SEVERAL_HOLDERS = cython.declare(cython.Py_ssize_t, -1)


@cython.final
@cython.no_gc  # no cycle can contain it, and there may be millions
@cython.cclass
class KeyQueue:
    """The pending entries of one value."""

    ordering_value: bytes | None  # None: the entry does not have the field
    count: cython.Py_ssize_t  # of its entries
    # The number of the consumer that owns the delivered entries; NO_HOLDER, SEVERAL_HOLDERS.
    holder: cython.Py_ssize_t
    delivered_slot: cython.Py_ssize_t  # the slot of a delivered entry; -1: there is none
    other_delivered_slots: set[int] | None  # the slots of the other delivered entries
    delivered_count_by_owner: dict[int, int] | None  # None: there are not several
    waiting_ids: array[int] | None  # ms, seq, ms, seq ... in order; some may not be waiting any more
    first_waiting_index: cython.Py_ssize_t  # in waiting_ids
    expires_ms: cython.longlong  # no lease of a delivered entry ends before
    # In KeyOrder.check_timers: when to look whether it is due; -1: not planned.
    timer_number: cython.Py_ssize_t
    accounted_bytes: cython.Py_ssize_t  # its bytes in the memory of the pending entries
    is_free: cython.bint  # it is in KeyOrder.free_queues

    def __init__(self, value: bytes | None) -> None:
        self.ordering_value = value
        self.count = 0
        self.holder = NO_HOLDER
        self.delivered_slot = NO_SLOT
        self.other_delivered_slots = None
        self.delivered_count_by_owner = None
        self.waiting_ids = None
        self.first_waiting_index = 0
        self.timer_number = NO_SLOT
        self.accounted_bytes = 0
        self.expires_ms = NEVER
        self.is_free = False

    @cython.cfunc
    def add_delivered(self, slot: cython.Py_ssize_t, owner: cython.Py_ssize_t) -> cython.void:
        """Add a delivered entry of this owner."""
        if self.delivered_slot < 0:
            self.delivered_slot = slot
            self.holder = owner
            return
        if self.holder != owner and self.holder != SEVERAL_HOLDERS:
            self.delivered_count_by_owner = {self.holder: self.delivered_count()}
            self.holder = SEVERAL_HOLDERS
        if self.delivered_count_by_owner is not None:
            self.delivered_count_by_owner[owner] = self.delivered_count_by_owner.get(owner, 0) + 1
        if self.other_delivered_slots is None:
            self.other_delivered_slots = set()
        self.other_delivered_slots.add(slot)

    @cython.cfunc
    def drop_delivered(self, slot: cython.Py_ssize_t, owner: cython.Py_ssize_t) -> cython.void:
        """Remove a delivered entry of this owner; no-op if the slot is not a delivered entry."""
        if self.delivered_slot != slot and (
            self.other_delivered_slots is None or slot not in self.other_delivered_slots
        ):
            return
        if self.delivered_count_by_owner is not None:
            self.delivered_count_by_owner[owner] -= 1
            if self.delivered_count_by_owner[owner] == 0:
                del self.delivered_count_by_owner[owner]
            if len(self.delivered_count_by_owner) == 1:
                self.holder = next(iter(self.delivered_count_by_owner))
                self.delivered_count_by_owner = None
        if self.other_delivered_slots is not None:
            if self.delivered_slot == slot:
                self.delivered_slot = self.other_delivered_slots.pop()
            else:
                self.other_delivered_slots.discard(slot)
            if not self.other_delivered_slots:
                self.other_delivered_slots = None
        elif self.delivered_slot == slot:
            self.delivered_slot = NO_SLOT
            self.holder = NO_HOLDER

    @cython.cfunc
    def drop_all_delivered(self) -> cython.void:
        """Remove all delivered entries."""
        self.delivered_slot = NO_SLOT
        self.other_delivered_slots = None
        self.delivered_count_by_owner = None
        self.holder = NO_HOLDER

    @cython.cfunc
    @cython.exceptval(check=False)
    def delivered_count(self) -> cython.Py_ssize_t:
        """Return the number of delivered entries."""
        if self.delivered_slot < 0:
            return 0
        return 1 if self.other_delivered_slots is None else 1 + len(self.other_delivered_slots)

    @cython.cfunc
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return about how many bytes the queue takes, with its items in the containers of the KeyOrder."""
        total: cython.Py_ssize_t = memory_account.KEY_QUEUE_BYTES
        if self.ordering_value is not None:
            total += memory_account.QUEUE_VALUE_BYTES + len(self.ordering_value)
        if self.other_delivered_slots is not None:
            total += memory_account.QUEUE_DELIVERED_BYTES * len(self.other_delivered_slots)
        if self.waiting_ids is not None:
            total += memory_account.QUEUE_WAITING_BYTES + 8 * len(self.waiting_ids)
        return total

    @cython.cfunc
    def delivered_slots(self) -> list[Any]:
        """Return the slots of the delivered entries, unordered."""
        found: list[int] = [] if self.delivered_slot < 0 else [self.delivered_slot]
        if self.other_delivered_slots is not None:
            found.extend(self.other_delivered_slots)
        return found

    @cython.cfunc
    def add_waiting(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Add a waiting entry, usually after all others or before them."""
        words = self.waiting_ids
        if words is None:
            words = self.waiting_ids = array("Q")
            self.first_waiting_index = 0
        size: cython.Py_ssize_t = len(words)
        if size == self.first_waiting_index or (words[size - 2], words[size - 1]) < (ms, seq):
            words.extend((ms, seq))
            return
        if (ms, seq) < (words[self.first_waiting_index], words[self.first_waiting_index + 1]):
            if self.first_waiting_index == 0:
                words[0:0] = array("Q", bytes(8 * size))
                self.first_waiting_index = size
            self.first_waiting_index -= 2
            words[self.first_waiting_index] = ms
            words[self.first_waiting_index + 1] = seq
            return
        low: cython.Py_ssize_t = self.first_waiting_index // 2
        high: cython.Py_ssize_t = size // 2
        while low < high:
            middle: cython.Py_ssize_t = (low + high) // 2
            if (words[2 * middle], words[2 * middle + 1]) < (ms, seq):
                low = middle + 1
            else:
                high = middle
        words[2 * low : 2 * low] = array("Q", (ms, seq))
