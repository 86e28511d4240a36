"""DueHeap: the owned pending entries of a group with BACKOFF, by due time.

    timers     slot -> (due time, ID)        a TimerHeap; see there

PendingEntries reports each entry that is added, changed or removed, so the times are always exact. An entry
takes 32 bytes, which are part of the memory of the pending entries.
"""

from __future__ import annotations

import cython

from headrace.streams.lease import Lease
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.pending_arena import PendingArena
from headrace.structures.timer_heap import TimerHeap

NO_OWNER = cython.declare(cython.Py_ssize_t, 0)


@cython.final
@cython.no_gc
@cython.cclass
class DueHeap:
    """The due times of the owned pending entries of one group, in Unix milliseconds."""

    arena: PendingArena
    lease: Lease
    timers: TimerHeap
    memory: MemoryAccount  # of the pending entries
    accounted_bytes: cython.Py_ssize_t  # the bytes of the heap in it

    def __init__(self, arena: PendingArena, lease: Lease) -> None:
        self.arena = arena
        self.lease = lease
        self.timers = TimerHeap()
        self.memory = arena.memory
        self.accounted_bytes = 0

    @cython.ccall
    def update(self, slot: cython.Py_ssize_t) -> cython.void:
        """Record the due time of an added or changed entry; remove it if the entry is unowned."""
        arena: PendingArena = self.arena
        if arena.owner_of(slot) == NO_OWNER:
            self.timers.remove(slot)
        else:
            self.timers.set(slot, self.due_of(slot), arena.ms_of(slot), arena.seq_of(slot))
        self._update_account()

    @cython.ccall
    def remove(self, slot: cython.Py_ssize_t) -> cython.void:
        """Remove the due time of an entry, if it has one."""
        self.timers.remove(slot)
        self._update_account()

    @cython.ccall
    def due_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return when an owned entry is due, in Unix milliseconds; 0, at once, if its delivery time is 0."""
        delivered: cython.longlong = self.arena.delivery_time_of(slot)
        return 0 if delivered == 0 else self.lease.end_ms(delivered, self.arena.delivery_count_of(slot))

    @cython.ccall
    def free_memory(self) -> cython.void:
        """Remove all due times and free their memory."""
        self.timers = TimerHeap()
        self._update_account()

    @cython.ccall
    def check(self) -> cython.void:
        """Assert that each entry in the heap is owned and has the correct due time."""
        slot: cython.Py_ssize_t
        self.timers.check()
        assert self.accounted_bytes == self.timers.block_bytes()
        for slot in range(self.timers.number_capacity):
            if self.timers.contains(slot):
                assert self.arena.owner_of(slot) != NO_OWNER
                assert self.timers.deadline_of(slot) == self.due_of(slot)

    @cython.cfunc
    def _update_account(self) -> cython.void:
        now: cython.Py_ssize_t = self.timers.block_bytes()
        if now != self.accounted_bytes:
            self.memory.add(now - self.accounted_bytes)
            self.accounted_bytes = now
