"""Expiry times of one database's keys. Accounts for their memory, and preserves old times for a snapshot.

For readers a key expires exactly at its time (Database.find looks it up). Its memory is freed then, or by the
sweep, which removes the earliest keys.
"""

from __future__ import annotations

import cython

from headrace import limits
from headrace.keyspace.key_expiry_times import KeyExpiryTimes
from headrace.keyspace.keyspace_image import DatabaseImage
from headrace.streams.memory_account import MemoryAccount
from headrace.visibility import Public

# Memory of one expiry time.
EXPIRY_MEMORY_BYTES = cython.declare(cython.Py_ssize_t, limits.KEY_TTL_OVERHEAD_BYTES)


@cython.final
@cython.cclass
class DatabaseExpiryTimes:
    """The expiry times of one database's keys, in milliseconds since 1970."""

    times: KeyExpiryTimes
    sum_of_times: int  # the sum of all times, for the average; a Python int, because it may exceed 64 bits
    memory: MemoryAccount  # memory account of the keyspace
    image: Public[DatabaseImage | None]  # for the snapshot that is being written

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory = memory
        self.image = None
        self.times = KeyExpiryTimes()
        self.sum_of_times = 0

    def __len__(self) -> int:
        return self.times.count

    @cython.ccall
    def set(self, key: bytes, at_ms: cython.longlong) -> cython.void:
        """Set or replace the key's expiry time."""
        before: cython.longlong = self.times.set(key, at_ms)
        if self.image is not None:
            self.image.before_expiry_change(key, before)
        if before < 0:
            self.memory.add(EXPIRY_MEMORY_BYTES)
        else:
            self.sum_of_times -= before
        self.sum_of_times += max(at_ms, 0)

    @cython.ccall
    def remove(self, key: bytes) -> cython.bint:
        """Remove the key's expiry time; return whether it had one."""
        before: cython.longlong = self.times.remove(key)
        if before < 0:
            return False
        if self.image is not None:
            self.image.before_expiry_change(key, before)
        self.memory.add(-EXPIRY_MEMORY_BYTES)
        self.sum_of_times -= before
        return True

    @cython.ccall
    def get(self, key: bytes) -> cython.longlong:
        """Return when the key expires, in milliseconds since 1970; -1 means never."""
        return self.times.get(key)

    @cython.ccall
    def is_due(self, key: bytes, now: cython.longlong) -> cython.bint:
        """Return whether the key has expired."""
        at: cython.longlong = self.times.get(key)
        return 0 <= at <= now

    @cython.ccall
    def count_due(self, now: cython.longlong) -> cython.Py_ssize_t:
        """Return how many keys have expired."""
        return self.times.count_due(now)

    @cython.ccall
    def next_due_key(self, now: cython.longlong) -> bytes | None:
        """Return an expired key, the earliest first, or None. The caller must remove it."""
        return self.times.first_due(now)

    @cython.ccall
    def next_expiry(self) -> cython.longlong:
        """Return when the next key expires; -1 means never."""
        return self.times.next_time()
