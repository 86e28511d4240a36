"""Which pending entries of a group with a LEASE are to be delivered again, in which order.

    delivery order    [ unowned ] <-> [ owned, 1000 ms ] <-> [ owned, 1742 ms ] <- end
                      due at once     due at 1000 + lease

An entry that XNACK has released, or whose delivery time is 0, is due at once. Another one is due when its
lease has ended, with BACKOFF so much later. Without BACKOFF the delivery order is the order of due times.
With it, a heap has an item for each owned entry, whose time is at most its due time. An item is corrected
when it reaches the top, because most changes make an entry due later. What makes one due earlier (XCLAIM with
TIME and the like), or gives an unowned entry an owner, adds another item: see before_claim().

All of it follows from the pending entries and the rules. So nothing of it is stored.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import cython

from headrace.streams.lease import Lease
from headrace.streams.pending import PendingEntries

NONE = cython.declare(cython.Py_ssize_t, -1)
NEVER = cython.declare(cython.longlong, -1)
NOT_SHOWN = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)  # later than any due time


@cython.final
@cython.no_gc
@cython.cclass
class DueEntries:
    """The due times of one group's pending entries. Times are Unix milliseconds."""

    pending: PendingEntries
    lease: Lease
    has_backoff: cython.bint  # without BACKOFF there is no heap
    heap: list[tuple[int, int, int]]  # (due, ms, seq)
    stale: cython.bint

    def __init__(self, pending: PendingEntries, lease: Lease) -> None:
        self.pending = pending
        self.lease = lease
        self.has_backoff = len(lease.backoff_ms) > 0
        self.heap = []
        self.stale = True

    @cython.ccall
    def due_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return when the entry is due."""
        delivered: cython.longlong = self.pending.delivery_time_of(slot)
        if delivered == 0 or self.pending.owner_of(slot) is None:
            return 0
        return self.lease.end(delivered, self.pending.delivery_count_of(slot))

    @cython.ccall
    def add(self, slot: cython.Py_ssize_t) -> cython.void:
        """Record that the entry was delivered, or skipped by a walk."""
        if self.has_backoff and not self.stale:
            heappush(self.heap, (self.due_of(slot), self.pending.ms_of(slot), self.pending.seq_of(slot)))

    @cython.ccall
    @cython.exceptval(check=False)
    def before_claim(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return the latest time at which the heap shows the entry, for after_claim()."""
        return NOT_SHOWN if self.pending.owner_of(slot) is None else self.due_of(slot)

    @cython.ccall
    def after_claim(self, slot: cython.Py_ssize_t, shown: cython.longlong) -> cython.void:
        """Record that the entry has an owner, and may be due earlier than the heap shows it."""
        if self.due_of(slot) < shown:
            self.add(slot)

    @cython.ccall
    def next_due(self) -> cython.longlong:
        """Return when the next entry is due, which may have passed; -1 if none is pending."""
        slot: cython.Py_ssize_t = self.pending.oldest()
        if slot < 0:
            return NEVER
        if not self.has_backoff or self.pending.owner_of(slot) is None:
            return self.due_of(slot)
        return self.next_owned()

    @cython.cfunc
    def next_owned(self) -> cython.longlong:
        """Return the earliest time in the heap, after corrections; -1 if there is none."""
        slot: cython.Py_ssize_t
        self._refresh()
        while self.heap:
            due, ms, seq = self.heap[0]
            slot = self.pending.find(ms, seq)
            if slot >= 0 and self.due_of(slot) == due:
                return due
            heappop(self.heap)
            if slot >= 0 and self.pending.owner_of(slot) is not None:
                self.add(slot)
        return NEVER

    @cython.cfunc
    def _refresh(self) -> cython.void:
        """Build the heap if it is stale or most of it is."""
        slot: cython.Py_ssize_t
        if not self.stale and len(self.heap) <= 2 * self.pending.count + 64:
            return
        self.heap = []
        self.stale = False
        slot = self.pending.from_id(0, 0)
        while slot >= 0:
            if self.pending.owner_of(slot) is not None:
                self.heap.append((self.due_of(slot), self.pending.ms_of(slot), self.pending.seq_of(slot)))
            slot = self.pending.after(slot)
        heapify(self.heap)


@cython.final
@cython.cclass
class DueWalk:
    """A walk over the entries that are due now, the earliest first. They may be delivered during the walk."""

    due: DueEntries
    now: cython.longlong
    slot: cython.Py_ssize_t  # next in the delivery order
    rest: cython.Py_ssize_t  # delivered entries move to the end of that order, and are not met again

    def __init__(self, due: DueEntries, now: cython.longlong) -> None:
        self.due = due
        self.now = now
        self.slot = due.pending.oldest()
        self.rest = due.pending.count

    @cython.ccall
    def next(self) -> cython.Py_ssize_t:
        """Return the next slot; -1 at the end. With BACKOFF the caller adds it to the due entries again."""
        pending: PendingEntries = self.due.pending
        slot: cython.Py_ssize_t = self.slot
        in_order: cython.bint = not self.due.has_backoff
        if slot >= 0 and self.rest > 0 and (in_order or pending.owner_of(slot) is None):
            if self.due.due_of(slot) > self.now:
                return NONE
            self.slot = pending.newer(slot)
            self.rest -= 1
            return slot
        if in_order:
            return NONE
        self.slot = NONE  # the others come from the heap, and may be removed
        earliest: cython.longlong = self.due.next_owned()
        if earliest < 0 or earliest > self.now:
            return NONE
        item = heappop(self.due.heap)
        while self.due.heap and self.due.heap[0] == item:
            heappop(self.due.heap)  # after_claim() may have added it twice
        return pending.find(item[1], item[2])
