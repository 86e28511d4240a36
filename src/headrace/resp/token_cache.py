"""A cache of recent arguments: an argument that is sent again is the same bytes object.

    XADD s * device dev107 temp 21.5      most of this was in the previous request, of any client

A cached token saves creating and freeing an object (100 instructions), and hashing and comparing it in
dictionaries (250 more). Each token has one slot, in which it replaces the previous one. So tokens that are
not repeated are replaced by others.
"""

from __future__ import annotations

import cython

from headrace import mem

SLOT_COUNT = cython.declare(cython.uint, 256)  # a power of two
TOKEN_BYTES_MAX = cython.declare(cython.Py_ssize_t, 24)  # longer ones are data
SCRIPT_DIGEST_BYTES = cython.declare(cython.Py_ssize_t, 40)  # but for the digests of scripts


@cython.final
@cython.cclass
class TokenCache:
    """At most SLOT_COUNT tokens of at most TOKEN_BYTES_MAX bytes, or of SCRIPT_DIGEST_BYTES bytes."""

    tokens: list[bytes]

    def __init__(self) -> None:
        self.tokens = [b""] * SLOT_COUNT

    @cython.cfunc
    def get(self, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> bytes:
        """Return the n bytes at `at`: the cached object, or a new one, which is cached if n allows it."""
        if n < 2 or (n > TOKEN_BYTES_MAX and n != SCRIPT_DIGEST_BYTES):
            return mem.to_bytes(p, at, n)
        slot: cython.uint = p[at]
        slot = (slot * 31 + p[at + n - 1] * 7 + p[at + (n >> 1)] * 3 + n) & (SLOT_COUNT - 1)
        token: bytes = self.tokens[slot]
        cached: cython.p_const_uchar = token
        if len(token) == n and mem.equal_bytes(p, at, cached, 0, n):
            return token
        token = mem.to_bytes(p, at, n)
        self.tokens[slot] = token
        return token
