"""Walking keys by cursor, and Redis's glob patterns.

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

BACKSLASH = cython.declare(cython.int, 92)
CARET = cython.declare(cython.int, 94)
DASH = cython.declare(cython.int, 45)
OPENING = cython.declare(cython.int, 91)
CLOSING = cython.declare(cython.int, 93)
QUESTION = cython.declare(cython.int, 63)
STAR = cython.declare(cython.int, 42)


@cython.final
@cython.cclass
class Order:
    """The keys of one database in order of arrival."""

    __slots__ = ("keys", "next_serial", "serials")

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
        self.tidy(live)

    @cython.ccall
    def tidy(self, live: dict[bytes, object]) -> cython.void:
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


@cython.ccall
def matches(pattern: bytes, text: bytes, ignore_case: cython.bint = False) -> cython.bint:
    """Whether text is one the glob pattern describes: * ? [a-c] [^a] and backslash, as Redis has them."""
    if pattern == b"*":
        return True
    if ignore_case:
        pattern = pattern.lower()
        text = text.lower()
    return _matches(pattern, text)


@cython.cfunc
def _matches(pattern: bytes, text: bytes) -> cython.bint:
    """Only the last star can still change what it swallowed, so one place to come back to is enough."""
    p: cython.p_const_uchar = pattern
    t: cython.p_const_uchar = text
    p_end: cython.Py_ssize_t = len(pattern)
    t_end: cython.Py_ssize_t = len(text)
    at: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t = 0
    star: cython.Py_ssize_t = -1  # the place after the last star
    swallowed: cython.Py_ssize_t = 0  # how far that star reaches
    after: cython.Py_ssize_t
    while i < t_end or at < p_end:
        if at < p_end and p[at] == STAR:
            at += 1
            star = at
            swallowed = i
            continue
        if at < p_end and i < t_end:
            after = _one(pattern, at, t[i])
            if after > 0:
                at = after
                i += 1
                continue
        if star < 0 or swallowed >= t_end:
            return False
        swallowed += 1
        i = swallowed
        at = star
    return True


@cython.cfunc
def _one(pattern: bytes, at: cython.Py_ssize_t, c: cython.int) -> cython.Py_ssize_t:
    """The place after the pattern's element at `at` when that element takes the byte c; else 0."""
    p: cython.p_const_uchar = pattern
    end: cython.Py_ssize_t = len(pattern)
    if p[at] == QUESTION:
        return at + 1
    if p[at] == OPENING:
        return _one_of_set(pattern, at + 1, c)
    if p[at] == BACKSLASH and at + 1 < end:
        at += 1
    return at + 1 if p[at] == c else 0


@cython.cfunc
def _one_of_set(pattern: bytes, at: cython.Py_ssize_t, c: cython.int) -> cython.Py_ssize_t:
    """As _one, for a [set]. A set that is never closed ends with the pattern."""
    p: cython.p_const_uchar = pattern
    end: cython.Py_ssize_t = len(pattern)
    inverted: cython.bint = at < end and p[at] == CARET
    found: cython.bint = False
    low: cython.int
    high: cython.int
    if inverted:
        at += 1
    while at < end and p[at] != CLOSING:
        if p[at] == BACKSLASH and at + 1 < end:
            at += 1
            low = p[at]
            high = low
        elif at + 2 < end and p[at + 1] == DASH:
            low = min(p[at], p[at + 2])
            high = max(p[at], p[at + 2])
            at += 2
        else:
            low = p[at]
            high = low
        if low <= c <= high:
            found = True
        at += 1
    return min(at + 1, end) if found != inverted else 0
