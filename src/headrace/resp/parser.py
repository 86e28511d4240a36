r"""Requests: bytes in, lists of words out, and no socket anywhere.

    0        at                        filled      cap
    +--------+-------------------------+-----------+
    | parsed | arrived, not yet parsed | free      |
    +--------+-------------------------+-----------+

A request is `*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n` or, typed by a person, `ECHO hi\r\n`. Words are taken out as they
arrive, so a request cut anywhere is resumed where it stopped. A declared length allocates nothing.
"""

from __future__ import annotations

import cython

from headrace import limits, mem
from headrace.errors import ProtocolError
from headrace.resp.inline import split_line

CAP_MIN = cython.declare(cython.Py_ssize_t, 512)
CAP_KEPT_MAX = cython.declare(cython.Py_ssize_t, 4096)  # a parser with nothing pending keeps no more

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
DIGIT = cython.declare(cython.uchar, 48)
HYPHEN = cython.declare(cython.uchar, 45)
ARRAY = cython.declare(cython.uchar, 42)  # *
BULK = cython.declare(cython.uchar, 36)  # $

NONE = cython.declare(cython.longlong, -1)  # no word begun; no length there
DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)  # a longer number is over every limit
INVALID = cython.declare(cython.longlong, 1_000_000_000_000_000_000)  # hence over every limit too
WORDS_MAX = cython.declare(cython.longlong, limits.WORDS_MAX)
LINE_MAX = cython.declare(cython.Py_ssize_t, limits.INLINE_BYTES_MAX)


@cython.final
@cython.cclass
class RequestParser:
    """Feed it what the client sent, then call next() until it answers None."""

    __slots__ = ("at", "buf", "bulk_max", "cap", "filled", "held", "left", "p", "size", "words")

    bulk_max: cython.longlong  # the longest word accepted
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    filled: cython.Py_ssize_t
    at: cython.Py_ssize_t
    words: list[bytes] | None  # of the request begun
    left: cython.longlong  # its words still to come; 0 between requests
    size: cython.longlong  # the length of the word begun, or NONE
    held: cython.Py_ssize_t  # bytes already taken out for the request begun

    def __init__(self) -> None:
        self.bulk_max = limits.BULK_BYTES_MAX
        self.buf = bytearray()
        self.p = self.buf
        self.cap = 0
        self.filled = 0
        self.at = 0
        self.words = None
        self.left = 0
        self.size = NONE
        self.held = 0

    @cython.ccall
    def feed(self, data: bytes) -> cython.void:
        """Take data that arrived."""
        self.feed_from(data, 0, len(data))

    @cython.cfunc
    def feed_from(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.void:
        """Take the n bytes at `at` of source."""
        if self.filled + n > self.cap:
            self._make_room(n)
        mem.copy(self.p, self.filled, source, at, n)
        self.filled += n

    @cython.ccall
    def pending(self) -> cython.Py_ssize_t:
        """Bytes held for requests that next() has not answered yet."""
        return self.filled - self.at + self.held

    @cython.ccall
    def next(self) -> list[bytes] | None:
        """The next request, never empty; None when its last byte has not arrived.

        Raises ProtocolError, with the text for the client, on what can be no request; after that the parser
        is not to be used again.
        """
        words: list[bytes] | None
        while True:
            if self.left > 0:
                return self._array()
            if self.at >= self.filled:
                self._rest()
                return None
            if self.p[self.at] == ARRAY:
                if not self._begin_array():
                    return None
            else:
                words = self._inline()
                if words is None or len(words) > 0:
                    return words

    @cython.cfunc
    def _begin_array(self) -> cython.bint:
        """Step over `*<count>\\r\\n`; whether it was there. A count of none or less is no request at all."""
        end: cython.Py_ssize_t = self._line_end("too big mbulk count string")
        if end < 0:
            return False
        count: cython.longlong = self._number(self.at + 1, end)
        if count > WORDS_MAX:
            raise ProtocolError("Protocol error: invalid multibulk length")
        self.at = end + 2
        if count > 0:
            self.words = []
            self.left = count
            self.held = 0
        return True

    @cython.cfunc
    def _array(self) -> list[bytes] | None:
        """Go on with the array begun; None when it is cut."""
        words: list[bytes] | None = self.words
        assert words is not None
        begin: cython.Py_ssize_t = self.at
        size: cython.longlong = self.size
        end: cython.Py_ssize_t
        while self.left > 0:
            if size == NONE:
                end = self._line_end("too big bulk count string")
                if end < 0:
                    break
                if self.p[self.at] != BULK:
                    raise ProtocolError(f"Protocol error: expected '$', got '{chr(self.p[self.at])}'")
                size = self._number(self.at + 1, end)
                if size < 0 or size > self.bulk_max:
                    raise ProtocolError("Protocol error: invalid bulk length")
                self.at = end + 2
            if size + 2 > self.filled - self.at:
                break
            words.append(mem.take(self.p, self.at, size))
            self.at += size + 2
            self.left -= 1
            size = NONE
        self.size = size
        if self.left > 0:
            self.held += self.at - begin
            return None
        self.held = 0
        self.words = None
        return words

    @cython.cfunc
    def _inline(self) -> list[bytes] | None:
        """The words of a line, which may be none; None when its end has not arrived."""
        end: cython.Py_ssize_t = mem.find(self.p, self.at, self.filled, LF)
        if (end if end >= 0 else self.filled) - self.at > LINE_MAX:
            raise ProtocolError("Protocol error: too big inline request")
        if end < 0:
            return None
        words: list[bytes] | None = split_line(mem.take(self.p, self.at, end - self.at))
        if words is None:
            raise ProtocolError("Protocol error: unbalanced quotes in request")
        self.at = end + 1
        return words

    @cython.cfunc
    def _line_end(self, refusal: str) -> cython.Py_ssize_t:
        """Where the line at `at` has its \\r, the \\n behind it being there too; -1 when it is cut."""
        p: cython.p_uchar = self.p
        end: cython.Py_ssize_t = self.at
        filled: cython.Py_ssize_t = self.filled
        while end < filled and p[end] != CR:
            end += 1
        if end - self.at > LINE_MAX:
            raise ProtocolError(f"Protocol error: {refusal}")
        return end if end + 1 < filled else -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        """The number that [at, end) spells, without blank, plus or leading zero; INVALID for all else."""
        p: cython.p_uchar = self.p
        negative: cython.bint = at < end and p[at] == HYPHEN
        if negative:
            at += 1
        n: cython.Py_ssize_t = end - at
        if n < 1 or n > DIGITS_MAX or (p[at] == DIGIT and (n > 1 or negative)):
            return INVALID
        number: cython.longlong = 0
        digit: cython.uint
        while at < end:
            digit = p[at]
            if digit < 48 or digit > 57:
                return INVALID
            number = number * 10 + (digit - 48)
            at += 1
        return -number if negative else number

    @cython.cfunc
    def _make_room(self, n: cython.Py_ssize_t) -> cython.void:
        """Make n bytes free behind `filled`, dropping what is parsed."""
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
    def _rest(self) -> cython.void:
        """Between requests with nothing arrived: keep little."""
        self.at = 0
        self.filled = 0
        if self.cap > CAP_KEPT_MAX:
            self._resize(0)

    @cython.cfunc
    def _resize(self, cap: cython.Py_ssize_t) -> cython.void:
        mem.resize(self.buf, cap)
        self.p = self.buf
        self.cap = cap
