"""A cache of recent arguments: an argument that is sent again is the same bytes object.

    XADD s * device dev107 temp 21.5      most of this was in the previous request, of any client

A known word costs neither the making nor the end of an object (100 instructions), and a dictionary that is
asked for it need neither hash nor compare it (250 more). Each word has one slot, which the next word of that
slot takes over: what is never said again goes by itself, and what is said all the time comes back.
"""

from __future__ import annotations

import cython

from headrace import mem

SLOTS = cython.declare(cython.uint, 256)  # a power of two
WORD_MAX = cython.declare(cython.Py_ssize_t, 24)  # longer ones are data


@cython.final
@cython.cclass
class TokenCache:
    """At most SLOTS words of at most WORD_MAX bytes."""

    words: list[bytes]

    def __init__(self) -> None:
        self.words = [b""] * SLOTS

    @cython.cfunc
    def get(self, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> bytes:
        """The n bytes at `at`."""
        if n < 2 or n > WORD_MAX:
            return mem.to_bytes(p, at, n)
        slot: cython.uint = p[at]
        slot = (slot * 31 + p[at + n - 1] * 7 + p[at + (n >> 1)] * 3 + n) & (SLOTS - 1)
        word: bytes = self.words[slot]
        known: cython.p_const_uchar = word
        if len(word) == n and mem.equal_bytes(p, at, known, 0, n):
            return word
        word = mem.to_bytes(p, at, n)
        self.words[slot] = word
        return word
