"""Expiry times of one database's keys.

    times: key -> milliseconds            the valid times
    heap:  (milliseconds, key)            earliest on top; an item is stale if `times` differs

For readers a key expires exactly at its time (Database.find checks `times`). Its memory is freed then, or by
the sweep, which takes keys from the top of the heap. At most half of the heap is stale.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import cython

from headrace import limits
from headrace.keyspace.image import DatabaseImage
from headrace.streams.memory_account import MemoryAccount
from headrace.visibility import Public

TIME_BYTES = cython.declare(cython.Py_ssize_t, limits.KEY_TTL_OVERHEAD_BYTES)  # memory of one expiry time
# With fewer items, cleaning the heap is not worth the cost.
HEAP_STALE_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.final
@cython.cclass
class Expiry:
    """The expiry times of one database's keys, in milliseconds since 1970."""

    times: dict[bytes, int]
    heap: list[tuple[int, bytes]]
    total: int  # the sum of all times, for the average; a Python int, because it may exceed 64 bits
    memory: MemoryAccount  # memory account of the keyspace
    image: Public[DatabaseImage | None]  # for the snapshot that is being written

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory = memory
        self.image = None
        self.times = {}
        self.heap = []
        self.total = 0

    def __len__(self) -> int:
        return len(self.times)

    @cython.ccall
    def set(self, key: bytes, at_ms: cython.longlong) -> cython.void:
        """Set or replace the key's expiry time."""
        moment: int = at_ms  # the same object in all three places
        before = self.times.get(key)
        if self.image is not None:
            self.image.before_time(key, -1 if before is None else before)
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
        """Remove the key's expiry time; return whether it had one."""
        before = self.times.pop(key, None)
        if before is None:
            return False
        if self.image is not None:
            self.image.before_time(key, before)
        self.memory.add(-TIME_BYTES)
        self.total -= before
        self._compact_heap()
        return True

    @cython.ccall
    def clear(self) -> cython.void:
        """Remove all expiry times."""
        self.memory.add(-TIME_BYTES * len(self.times))
        self.times = {}
        self.image = None
        self.heap = []
        self.total = 0

    @cython.cfunc
    def _compact_heap(self) -> cython.void:
        """Drop the stale items when they are the majority."""
        if len(self.heap) > HEAP_STALE_MIN and len(self.heap) > 2 * len(self.times):
            self.heap = [(at, key) for key, at in self.times.items()]
            heapify(self.heap)

    @cython.ccall
    def get(self, key: bytes) -> cython.longlong:
        """Return when the key expires, in milliseconds since 1970; -1 means never."""
        at = self.times.get(key)
        return -1 if at is None else at

    @cython.ccall
    def is_due(self, key: bytes, now: cython.longlong) -> cython.bint:
        """Return whether the key has expired."""
        at = self.times.get(key)
        if at is None:
            return False
        moment: cython.longlong = at
        return moment <= now

    @cython.ccall
    def count_due(self, now: cython.longlong) -> cython.Py_ssize_t:
        """Return how many keys have expired."""
        next_expiry: cython.longlong = self.next_expiry()
        if next_expiry < 0 or next_expiry > now:
            return 0
        return sum([at <= now for at in self.times.values()])

    @cython.ccall
    def next_due_key(self, now: cython.longlong) -> bytes | None:
        """Return an expired key, the earliest first, or None. The caller must remove it."""
        while self.heap:
            at, key = self.heap[0]
            if self.times.get(key) == at:
                return key if at <= now else None
            heappop(self.heap)
        return None

    @cython.ccall
    def next_expiry(self) -> cython.longlong:
        """Return when the next key expires; -1 means never."""
        while self.heap:
            at, key = self.heap[0]
            if self.times.get(key) == at:
                return at
            heappop(self.heap)
        return -1
