"""The input buffer of a parser: the base class of the parsers of requests, replies, logs and RDB files.

    0        at                        filled      cap
    +--------+-------------------------+-----------+
    | parsed | arrived, not yet parsed | free      |
    +--------+-------------------------+-----------+

The block doubles as bytes arrive. A declared length alone allocates nothing.
"""

from __future__ import annotations

import cython

from headrace import limits, mem
from headrace.errors import ProtocolError
from headrace.resp import buffer_pool
from headrace.resp.buffer_pool import BufferPool
from headrace.visibility import Public

CAP_MIN = cython.declare(cython.Py_ssize_t, 512)
LINE_MAX = cython.declare(cython.Py_ssize_t, limits.INLINE_BYTES_MAX)

CR = cython.declare(cython.uchar, 13)
ZERO_DIGIT = cython.declare(cython.uchar, 48)
HYPHEN = cython.declare(cython.uchar, 45)
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)  # a longer length is over every limit
INVALID_NUMBER = cython.declare(cython.longlong, 1_000_000_000_000_000_000)  # and so is this


@cython.cclass
class ReadBuffer:
    """Bytes and the offset up to which they are parsed."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    filled: cython.Py_ssize_t
    at: cython.Py_ssize_t
    pool: Public[BufferPool | None]  # lends blocks larger than IDLE_BYTES_MAX; None: own blocks only

    def __init__(self) -> None:
        self.pool = None
        self.buf = bytearray()
        self.p = self.buf
        self.cap = 0
        self.filled = 0
        self.at = 0

    @cython.ccall
    def feed(self, data: bytes) -> cython.void:
        """Append received data."""
        self.feed_from(data, 0, len(data))

    @cython.cfunc
    def feed_from(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.void:
        """Append the n bytes at `at` of source."""
        self.make_room(n)
        mem.copy(self.p, self.filled, source, at, n)
        self.filled += n

    @cython.cfunc
    def line_end(self, error: str) -> cython.Py_ssize_t:
        """Return the offset of the \\r that ends the current line; -1 if the line is incomplete.

        Raises ProtocolError with the text `error` if the line is too long.
        """
        p: cython.p_uchar = self.p
        end: cython.Py_ssize_t = self.at
        filled: cython.Py_ssize_t = self.filled
        while end < filled and p[end] != CR:
            end += 1
        if end - self.at > LINE_MAX:
            raise ProtocolError(error)
        return end if end + 1 < filled else -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def parse_number(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        """Parse [at, end) as a number without blanks, plus or leading zeros.

        Returns INVALID_NUMBER, which exceeds every limit, if it is not one or is longer than DIGITS_MAX.
        """
        p: cython.p_uchar = self.p
        negative: cython.bint = at < end and p[at] == HYPHEN
        if negative:
            at += 1
        n: cython.Py_ssize_t = end - at
        if n < 1 or n > DIGITS_MAX or (p[at] == ZERO_DIGIT and (n > 1 or negative)):
            return INVALID_NUMBER
        number: cython.longlong = 0
        digit: cython.uint
        while at < end:
            digit = p[at]
            if digit < 48 or digit > 57:
                return INVALID_NUMBER
            number = number * 10 + (digit - 48)
            at += 1
        return -number if negative else number

    @cython.cfunc
    def make_room(self, n: cython.Py_ssize_t) -> cython.void:
        """Make sure that n bytes are free after `filled`; drop the parsed bytes if that is needed."""
        if self.filled + n <= self.cap:
            return
        if self.at > 0:
            mem.move(self.p, 0, self.at, self.filled - self.at)
            self.filled -= self.at
            self.at = 0
        if self.filled + n <= self.cap:
            return
        cap: cython.Py_ssize_t = max(self.cap, CAP_MIN)
        while cap < self.filled + n:
            cap *= 2
        self._resize(cap)

    @cython.cfunc
    def reset(self) -> cython.void:
        """Empty the buffer; give a large block back to the pool. Call only if everything is parsed."""
        self.at = 0
        self.filled = 0
        if self.cap > buffer_pool.IDLE_BYTES_MAX:
            self._resize(0)

    @cython.cfunc
    def _resize(self, cap: cython.Py_ssize_t) -> cython.void:
        self.buf = buffer_pool.resized(self.buf, self.filled, cap, self.pool)
        self.p = self.buf
        self.cap = len(self.buf)
