"""Find the pending entries of a group with a LEASE that must be delivered again, in order of due times.

    delivery order    [ unowned ] <-> [ owned, 1000 ms ] <-> [ owned, 1742 ms ] <- end
                      due at once     due at 1000 + lease

An entry that XNACK has released, or whose delivery time is 0, is due at once. Any other entry is due when its
lease has ended, or later by the delay of BACKOFF. Without BACKOFF the delivery order is the order of due
times. With BACKOFF, PendingEntries.due_heap has the due times of owned entries. It is created at first use.

All of this follows from the pending entries and the rules, so none of it is stored.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.streams.due_heap import DueHeap
from headrace.streams.lease import Lease
from headrace.streams.pending import PendingEntries

NO_SLOT = cython.declare(cython.Py_ssize_t, -1)
NEVER = cython.declare(cython.longlong, -1)


@cython.final
@cython.no_gc
@cython.cclass
class DueEntries:
    """The due times of one group's pending entries. Times are Unix milliseconds."""

    pending: PendingEntries
    lease: Lease
    has_backoff: cython.bint  # without BACKOFF there is no heap

    def __init__(self, pending: PendingEntries, lease: Lease) -> None:
        self.pending = pending
        self.lease = lease
        self.has_backoff = len(lease.backoff_ms) > 0

    @cython.ccall
    def due_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return when the entry is due; 0: at once."""
        delivered: cython.longlong = self.pending.delivery_time_of(slot)
        if delivered == 0 or self.pending.owner_of(slot) is None:
            return 0
        return self.lease.end_ms(delivered, self.pending.delivery_count_of(slot))

    @cython.ccall
    def next_due_ms(self) -> cython.longlong:
        """Return when the next entry is due, which may be in the past; -1 if none is pending."""
        slot: cython.Py_ssize_t = self.pending.first_by_delivery()
        if slot < 0:
            return NEVER
        if not self.has_backoff or self.pending.owner_of(slot) is None:
            return self.due_of(slot)
        return self.ensure_due_heap().timers.first_deadline()

    @cython.ccall
    def first_due(self, now: cython.longlong) -> cython.Py_ssize_t:
        """Return the slot of the entry that a DueWalk returns first; -1 if none is due."""
        slot: cython.Py_ssize_t = self.pending.first_by_delivery()
        if slot >= 0 and self.has_backoff and self.pending.owner_of(slot) is not None:
            heap: DueHeap = self.ensure_due_heap()
            slot = heap.timers.first() if heap.timers.count > 0 else NO_SLOT
        return slot if slot >= 0 and self.due_of(slot) <= now else NO_SLOT

    @cython.ccall
    def ensure_due_heap(self) -> DueHeap:
        """Return the due times of all owned entries; the first call visits all pending entries."""
        pending: PendingEntries = self.pending
        heap: DueHeap | None = pending.due_heap
        slot: cython.Py_ssize_t
        if heap is None:
            heap = DueHeap(pending.arena, self.lease)
            slot = pending.first_by_delivery()
            while slot >= 0:
                heap.update(slot)
                slot = pending.next_by_delivery(slot)
            pending.due_heap = heap
        return heap


@cython.final
@cython.cclass
class DueWalk:
    """A walk over the entries that are due now, the earliest first. They may be delivered during the walk.

    put_back() must follow for entries that were not delivered.
    """

    due_entries: DueEntries
    now: cython.longlong
    slot: cython.Py_ssize_t  # next in the delivery order
    entries_left: cython.Py_ssize_t  # delivered entries move to the end of that order, and are not met again

    def __init__(self, due: DueEntries, now: cython.longlong) -> None:
        self.due_entries = due
        self.now = now
        self.slot = due.pending.first_by_delivery()
        self.entries_left = due.pending.count

    @cython.ccall
    def next(self) -> cython.Py_ssize_t:
        """Return the next slot; -1 at the end. Call put_back() for slots whose entry is not delivered."""
        pending: PendingEntries = self.due_entries.pending
        slot: cython.Py_ssize_t = self.slot
        in_order: cython.bint = not self.due_entries.has_backoff
        if slot >= 0 and self.entries_left > 0 and (in_order or pending.owner_of(slot) is None):
            if self.due_entries.due_of(slot) > self.now:
                return NO_SLOT
            self.slot = pending.next_by_delivery(slot)
            self.entries_left -= 1
            return slot
        if in_order:
            return NO_SLOT
        self.slot = NO_SLOT  # the others come from the heap, and may be removed
        heap: DueHeap = self.due_entries.ensure_due_heap()
        if heap.timers.count == 0 or heap.timers.first_deadline() > self.now:
            return NO_SLOT
        slot = heap.timers.first()
        heap.remove(slot)
        return slot

    @cython.ccall
    def put_back(self, slots: list[Any]) -> cython.void:
        """Let later walks return these slots of next() again: they were not delivered."""
        slot: cython.Py_ssize_t
        if self.due_entries.has_backoff:
            for slot in slots:
                self.due_entries.ensure_due_heap().update(slot)
