"""Which key of a database dies when.

    at:    key -> milliseconds            the truth
    heap:  (milliseconds, key)            earliest on top; an item is stale when `at` says something else

A key dies for its readers at its time exactly (Database.find looks at `at`); its memory is given back
then, or by the sweep, which takes from the top of the heap. Stale items are never more than those that count.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import cython

from headrace import limits
from headrace.streams.memory_account import MemoryAccount

TIME_BYTES = cython.declare(cython.Py_ssize_t, limits.KEY_TTL_OVERHEAD_BYTES)  # what one time weighs
# Below this many items the heap is not worth sweeping for stale ones.
HEAP_STALE_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class Expiry:
    """The times of death of one database's keys."""

    times: dict[bytes, int]
    heap: list[tuple[int, bytes]]
    total: int  # the sum of all times, for the average; a Python int, it may pass 64 bits
    memory: MemoryAccount  # of all that the keyspace holds

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory = memory
        self.times = {}
        self.heap = []
        self.total = 0

    def __len__(self) -> int:
        return len(self.times)

    @cython.ccall
    def set(self, key: bytes, at_ms: cython.longlong) -> cython.void:
        """Key dies at at_ms, whatever was said before."""
        moment: int = at_ms  # one number for all three
        before = self.times.get(key)
        if before is None:
            self.memory.add(TIME_BYTES)
        else:
            self.total -= before
        self.times[key] = moment
        self.total += moment
        heappush(self.heap, (moment, key))
        self._compact_heap()

    @cython.ccall
    def remove(self, key: bytes) -> cython.bint:
        """Key lives on, or is gone; whether it had a time."""
        before = self.times.pop(key, None)
        if before is None:
            return False
        self.memory.add(-TIME_BYTES)
        self.total -= before
        self._compact_heap()
        return True

    @cython.ccall
    def clear(self) -> cython.void:
        """No key has a time any more."""
        self.memory.add(-TIME_BYTES * len(self.times))
        self.times = {}
        self.heap = []
        self.total = 0

    @cython.cfunc
    def _compact_heap(self) -> cython.void:
        """Throw the stale items away when they are the most."""
        if len(self.heap) > HEAP_STALE_MIN and len(self.heap) > 2 * len(self.times):
            self.heap = [(at, key) for key, at in self.times.items()]
            heapify(self.heap)

    @cython.ccall
    def get(self, key: bytes) -> cython.longlong:
        """When key dies; -1 for never."""
        at = self.times.get(key)
        return -1 if at is None else at

    @cython.ccall
    def is_due(self, key: bytes, now: cython.longlong) -> cython.bint:
        """Whether key is dead at now."""
        at = self.times.get(key)
        if at is None:
            return False
        moment: cython.longlong = at
        return moment <= now

    @cython.ccall
    def next_due_key(self, now: cython.longlong) -> bytes | None:
        """A key that is dead at now, the earliest first; None when there is none. The caller drops it."""
        while self.heap:
            at, key = self.heap[0]
            if self.times.get(key) == at:
                return key if at <= now else None
            heappop(self.heap)
        return None

    @cython.ccall
    def next_expiry(self) -> cython.longlong:
        """When the next key dies; -1 for never."""
        while self.heap:
            at, key = self.heap[0]
            if self.times.get(key) == at:
                return at
            heappop(self.heap)
        return -1
