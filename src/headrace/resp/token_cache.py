"""Words heard lately: a word that is sent again is the object that it was before.

    XADD s * device dev107 temp 21.5      most of this was said in the request before, by whichever client

A known word costs neither the making nor the end of an object (100 instructions), and a dictionary that is
asked for it need neither hash nor compare it (250 more). Each word has one place, which the next word of that
place takes over: what is never said again goes by itself, and what is said all the time comes back.
"""

from __future__ import annotations

import cython

from headrace import mem

PLACES = cython.declare(cython.uint, 256)  # a power of two
WORD_MAX = cython.declare(cython.Py_ssize_t, 24)  # longer ones are data


@cython.final
@cython.cclass
class TokenCache:
    """At most PLACES words of at most WORD_MAX bytes."""

    words: list[bytes]

    def __init__(self) -> None:
        self.words = [b""] * PLACES

    @cython.cfunc
    def word(self, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> bytes:
        """The n bytes at `at`."""
        if n < 2 or n > WORD_MAX:
            return mem.to_bytes(p, at, n)
        place: cython.uint = p[at]
        place = (place * 31 + p[at + n - 1] * 7 + p[at + (n >> 1)] * 3 + n) & (PLACES - 1)
        word: bytes = self.words[place]
        known: cython.p_const_uchar = word
        if len(word) == n and mem.equal_bytes(p, at, known, 0, n):
            return word
        word = mem.to_bytes(p, at, n)
        self.words[place] = word
        return word
