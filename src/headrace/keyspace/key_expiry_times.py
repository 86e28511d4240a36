"""Expiry times by key: the time of each, and the earliest of all.

    timer_numbers   key -> number                   a KeyTable, which never takes long to grow
    queue           number -> key, by time          a TimerQueue, which changes and removes exact times

Setting, replacing or removing a time costs O(log n). Nothing is rebuilt.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.keyspace.key_table import KeyTable
from headrace.structures.timer_heap import TimerQueue

NEVER = cython.declare(cython.longlong, -1)


@cython.final
@cython.cclass
class KeyExpiryTimes:
    """The keys that expire, each with its time in milliseconds since 1970."""

    count: cython.Py_ssize_t
    timer_numbers: KeyTable
    queue: TimerQueue

    def __init__(self) -> None:
        self.count = 0
        self.timer_numbers = KeyTable()
        self.queue = TimerQueue()

    @cython.ccall
    def set(self, key: bytes, at_ms: cython.longlong) -> cython.longlong:
        """Set or replace the time of a key; return its previous time, or -1 if it had none.

        A time before 1970, which only a file or a primary can name, counts as 1970.
        """
        number: Any = self.timer_numbers.find(key)
        before: cython.longlong = NEVER
        at_ms = max(at_ms, 0)
        if number is None:
            self.timer_numbers.put(key, self.queue.add(at_ms, key), True)
            self.count += 1
        else:
            before = self.queue.deadline_of(number)
            self.queue.change_deadline(number, at_ms)
        return before

    @cython.ccall
    def remove(self, key: bytes) -> cython.longlong:
        """Remove the time of a key; return it, or -1 if there is none."""
        number: Any = self.timer_numbers.find(key)
        if number is None:
            return NEVER
        before: cython.longlong = self.queue.deadline_of(number)
        self.queue.remove(number)
        self.timer_numbers.delete(key)
        self.count -= 1
        return before

    @cython.ccall
    def get(self, key: bytes) -> cython.longlong:
        """Return the time of a key; -1 if it has none."""
        number: Any = self.timer_numbers.find(key)
        return NEVER if number is None else self.queue.deadline_of(number)

    @cython.ccall
    def first_due(self, now: cython.longlong) -> bytes | None:
        """Return the key with the earliest time that is not after now, or None."""
        found: bytes | None = self.queue.first_due(now)
        return found

    @cython.ccall
    def next_time(self) -> cython.longlong:
        """Return the earliest time; -1 if there is none."""
        return self.queue.next_deadline()

    @cython.ccall
    def count_due(self, now: cython.longlong) -> cython.Py_ssize_t:
        """Return how many times are not after now."""
        return self.queue.heap.count_due(now)

    def check(self) -> None:
        """Assert every invariant."""
        self.queue.check()
        assert self.count == len(self.timer_numbers) == len(self.queue)
        number: Any
        for key, number in self.timer_numbers.items():
            assert self.queue.items[number] == key
