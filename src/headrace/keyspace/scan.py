"""Walking keys by cursor.

A cursor is a number, and must survive keys that come and go meanwhile. So each key gets a serial
number, in order of arrival, when it is first put; a cursor is the serial to go on from:

    serials:  3      4      7      8          ascending, hence found by bisection
    keys:     b"a"   b"x"   b"b"   b"c"       b"x" was removed since: a hole, passed over

A key that stays from the first SCAN to the last is met exactly where its serial stands, whatever else
happens. Holes are closed when they outnumber the keys. A database makes its Order at the first SCAN.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection

import cython

# Orders shorter than this are not worth closing holes in.
HOLES_MIN = cython.declare(cython.Py_ssize_t, 1024)


@cython.final
@cython.cclass
class ScanOrder:
    """The keys of one database in order of arrival."""

    keys: list[bytes]
    serials: array[int]
    next_serial: int

    def __init__(self, keys: Collection[bytes]) -> None:
        self.keys = list(keys)
        self.serials = array("Q", range(1, len(self.keys) + 1))
        self.next_serial = len(self.keys) + 1

    @cython.ccall
    def add(self, key: bytes, live: dict[bytes, object]) -> cython.void:
        """Key is new; live holds all keys that exist."""
        self.keys.append(key)
        self.serials.append(self.next_serial)
        self.next_serial += 1
        self.compact(live)

    @cython.ccall
    def compact(self, live: dict[bytes, object]) -> cython.void:
        """Close the holes when they outnumber the keys: each live key stays once, under its latest serial."""
        if len(self.keys) <= HOLES_MIN or len(self.keys) <= 2 * len(live):
            return
        latest = {key: i for i, key in enumerate(self.keys) if key in live}
        places = sorted(latest.values())
        self.keys = [self.keys[i] for i in places]
        self.serials = array("Q", [self.serials[i] for i in places])

    @cython.ccall
    def empty(self) -> cython.void:
        """All keys are gone; serials go on."""
        self.keys = []
        self.serials = array("Q")

    def step(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """At most count places from cursor on: (the next cursor, 0 at the end; the keys found there)."""
        at = bisect_left(self.serials, cursor)
        end = at + count
        if end >= len(self.keys):
            return 0, self.keys[at:]
        return self.serials[end], self.keys[at:end]
