"""SCAN: iteration over keys by cursor.

A cursor is a number, and must stay valid while keys are added and removed. So each key gets a serial number,
in order of arrival, when it is first stored. A cursor is the serial to continue from:

    serials:  3      4      7      8          ascending, so they can be bisected
    keys:     b"a"   b"x"   b"b"   b"c"       b"x" was removed: a hole, which is skipped

A key that exists from the first SCAN to the last is returned at its serial, whatever else changes.
Holes are removed when they outnumber the keys. A database creates its ScanOrder at the first SCAN.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection

import cython

# In a shorter order, removing holes is not worth the cost.
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
    def add(self, key: bytes, live: Collection[bytes]) -> cython.void:
        """Append a new key; `live` holds all existing keys."""
        self.keys.append(key)
        self.serials.append(self.next_serial)
        self.next_serial += 1
        self.compact(live)

    @cython.ccall
    def compact(self, live: Collection[bytes]) -> cython.void:
        """Remove the holes when they outnumber the keys; each live key keeps its latest serial."""
        if len(self.keys) <= HOLES_MIN or len(self.keys) <= 2 * len(live):
            return
        latest = {key: i for i, key in enumerate(self.keys) if key in live}
        places = sorted(latest.values())
        self.keys = [self.keys[i] for i in places]
        self.serials = array("Q", [self.serials[i] for i in places])

    @cython.ccall
    def empty(self) -> cython.void:
        """Remove all keys; serials continue."""
        self.keys = []
        self.serials = array("Q")

    @cython.ccall
    def replace(self, live: Collection[bytes]) -> cython.void:
        """Replace all keys by those of `live`; serials continue: a SCAN in progress returns each new key."""
        self.keys = list(live)
        self.serials = array("Q", range(self.next_serial, self.next_serial + len(self.keys)))
        self.next_serial += len(self.keys)

    def step(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return (next cursor, keys) of at most `count` positions from the cursor; 0 means the end."""
        at = bisect_left(self.serials, cursor)
        end = at + count
        if end >= len(self.keys):
            return 0, self.keys[at:]
        return self.serials[end], self.keys[at:end]
