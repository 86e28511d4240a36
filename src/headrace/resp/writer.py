"""Writes replies: values in, RESP2 or RESP3 bytes out, no sockets.

    0          start                    used         cap
    +----------+------------------------+------------+
    | sent     | not yet sent           | free       |
    +----------+------------------------+------------+

A mark is an offset from `start`, so it stays valid when growing moves the unsent bytes to the front.

A session may have a limit. If a reply would exceed it, the writer has overflowed: all unsent bytes are
dropped, and the connection must be closed. The command continues to write, into a small block that is
reused from its start. `start` is then negative, so that marks stay valid.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.resp import buffer_pool
from headrace.resp.buffer_pool import BufferPool
from headrace.visibility import Public

CAP_MIN = cython.declare(cython.Py_ssize_t, 256)
# The least capacity for a reply that has overflowed.
OVERFLOWED_CAP_MIN = cython.declare(cython.Py_ssize_t, 16 * 1024)
HEADER_MAX = cython.declare(cython.Py_ssize_t, 32)  # kind, 20 digits, both line ends of a bulk
ENCODED_ID_BYTES_MAX = cython.declare(cython.Py_ssize_t, 64)  # `$41`, two 20-digit numbers and their hyphen

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
SPACE = cython.declare(cython.uchar, 32)
CRLF = cython.declare(cython.uint, 0x0A0D)  # as a little-endian number
ZERO_DIGIT = cython.declare(cython.uchar, 48)
HYPHEN = cython.declare(cython.uchar, 45)
SIMPLE = cython.declare(cython.uchar, 43)  # +
ERROR = cython.declare(cython.uchar, 45)  # -
INTEGER = cython.declare(cython.uchar, 58)  # :
BULK = cython.declare(cython.uchar, 36)  # $
ARRAY = cython.declare(cython.uchar, 42)  # *
MAP = cython.declare(cython.uchar, 37)  # %
SET = cython.declare(cython.uchar, 126)  # ~
PUSH = cython.declare(cython.uchar, 62)  # >
DOUBLE = cython.declare(cython.uchar, 44)  # ,
VERBATIM = cython.declare(cython.uchar, 61)  # =


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_header(
    p: cython.p_uchar, at: cython.Py_ssize_t, kind: cython.uchar, n: cython.longlong
) -> cython.Py_ssize_t:
    """Write `<kind><n>\\r\\n` at `at`, n not negative; return the offset after it."""
    digit: cython.uchar
    p[at] = kind
    if n <= 9:
        digit = n
        p[at + 1] = ZERO_DIGIT + digit
        at += 2
    elif n <= 99:
        mem.put_two_digits(p, at + 1, n)
        at += 3
    else:
        at += 1 + mem.put_decimal(p, at + 1, n)
    mem.put_u16le(p, at, CRLF)
    return at + 2


@cython.final
@cython.cclass
class ReplyWriter:
    """The unsent replies of one session, in its protocol (2 or 3).

    Methods called for each piece of an entry return 0 instead of None: in C, -1 means an exception. After a
    void function the caller would have to ask the interpreter for an exception each time, which takes 5 % of
    the time of an XRANGE.
    """

    protocol: Public[cython.uint]
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    start: cython.Py_ssize_t
    used: cython.Py_ssize_t
    limit: Public[cython.Py_ssize_t]  # bytes pending; one item may be longer. 0: no limit
    overflowed: cython.bint  # the limit was exceeded; nothing more is kept
    pool: Public[BufferPool | None]  # lends blocks larger than IDLE_BYTES_MAX; None: own blocks only

    def __init__(self, protocol: cython.uint = 2) -> None:
        self.pool = None
        self.protocol = protocol
        self.buf = bytearray()
        self.p = self.buf
        self.cap = 0
        self.start = 0
        self.used = 0
        self.limit = 0
        self.overflowed = False

    @cython.ccall
    def ok(self) -> cython.void:
        """Write +OK."""
        self._line(SIMPLE, b"OK")

    @cython.ccall
    def simple(self, text: bytes) -> cython.void:
        """Write a short status; a line break becomes a space."""
        self._line(SIMPLE, text)

    @cython.ccall
    def error(self, text: bytes) -> cython.void:
        """Write an error, its code first; a line break becomes a space."""
        self._line(ERROR, text)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def integer(self, v: cython.longlong) -> cython.int:
        """Write a signed 64-bit number."""
        if v >= 0:
            return self._header(INTEGER, v)
        if self.used + HEADER_MAX > self.cap:
            self._grow(HEADER_MAX)
        at: cython.Py_ssize_t = self.used
        p: cython.p_uchar = self.p
        p[at] = INTEGER
        p[at + 1] = HYPHEN
        at += 2
        at += mem.put_decimal(p, at, mem.sub_u64(0, mem.as_unsigned(v)))
        mem.put_u16le(p, at, CRLF)
        self.used = at + 2
        return 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def bulk(self, v: bytes) -> cython.int:
        """Write a string of any bytes."""
        return self.bulk_from(v, 0, len(v))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def bulk_from(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.int:
        """Write a string: the n bytes at `at` of source, which must not be this writer's buffer."""
        if self.used + n + HEADER_MAX > self.cap:
            self._grow(n + HEADER_MAX)
        p: cython.p_uchar = self.p
        to: cython.Py_ssize_t = put_header(p, self.used, BULK, n)
        mem.copy_short(p, to, source, at, n)
        mem.put_u16le(p, to + n, CRLF)
        self.used = to + n + 2
        return 0

    @cython.ccall
    def raw(self, encoded: bytes) -> cython.void:
        """Write bytes that are encoded already."""
        n: cython.Py_ssize_t = len(encoded)
        if self.used + n > self.cap:
            self._grow(n)
        mem.copy(self.p, self.used, encoded, 0, n)
        self.used += n

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def stream_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.int:
        """Write the ID ms-seq as a string."""
        if self.used + ENCODED_ID_BYTES_MAX > self.cap:
            self._grow(ENCODED_ID_BYTES_MAX)
        p: cython.p_uchar = self.p
        text: cython.Py_ssize_t = self.used + 5  # after `$NN\r\n`: nearly every ID has ten characters or more
        end: cython.Py_ssize_t = text + mem.put_decimal(p, text, ms)
        p[end] = HYPHEN
        end += 1
        end += mem.put_decimal(p, end, seq)
        n: cython.Py_ssize_t = end - text
        to: cython.Py_ssize_t = put_header(p, self.used, BULK, n)
        if to != text:
            mem.move(p, to, text, n)
        mem.put_u16le(p, to + n, CRLF)
        self.used = to + n + 2
        return 0

    @cython.ccall
    def null(self) -> cython.void:
        """Write null instead of a string."""
        self.raw(b"$-1\r\n" if self.protocol == 2 else b"_\r\n")

    @cython.ccall
    def null_array(self) -> cython.void:
        """Write null instead of an array."""
        self.raw(b"*-1\r\n" if self.protocol == 2 else b"_\r\n")

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def array(self, n: cython.Py_ssize_t) -> cython.int:
        """Write the header of an array; its n elements follow."""
        return self._header(ARRAY, n)

    @cython.ccall
    def map(self, n: cython.Py_ssize_t) -> cython.void:
        """Write the header of a map; its n pairs follow."""
        if self.protocol == 2:
            self._header(ARRAY, 2 * n)
        else:
            self._header(MAP, n)

    @cython.ccall
    def set(self, n: cython.Py_ssize_t) -> cython.void:
        """Write the header of a set; its n elements follow."""
        self._header(ARRAY if self.protocol == 2 else SET, n)

    @cython.ccall
    def push(self, n: cython.Py_ssize_t) -> cython.void:
        """Write the header of a push message; its n elements follow."""
        self._header(ARRAY if self.protocol == 2 else PUSH, n)

    @cython.ccall
    def double(self, v: cython.double) -> cython.void:
        """Write a float with the fewest digits that identify it."""
        text = repr(v).removesuffix(".0").encode()
        if self.protocol == 2:
            self.bulk(text)
        else:
            self._line(DOUBLE, text)

    @cython.ccall
    def boolean(self, v: cython.bint) -> cython.void:
        """Write true or false; 1 or 0 in RESP2."""
        if self.protocol == 2:
            self._header(INTEGER, 1 if v else 0)
        else:
            self.raw(b"#t\r\n" if v else b"#f\r\n")

    @cython.ccall
    def verbatim(self, v: bytes) -> cython.void:
        """Write a verbatim string of the format txt; in RESP2 a bulk string."""
        if self.protocol == 2:
            self.bulk(v)
            return
        n: cython.Py_ssize_t = len(v) + 4
        if self.used + n + HEADER_MAX > self.cap:
            self._grow(n + HEADER_MAX)
        self._header(VERBATIM, n)
        self.raw(b"txt:")
        self.raw(v)
        self.raw(b"\r\n")

    @cython.ccall
    def value(self, v: object) -> cython.void:
        """Write a nested value: None, bool, int, float, bytes, str (a status), list or tuple, set, dict.

        Raises TypeError for another type.
        """
        if isinstance(v, bytes):
            self.bulk(v)
        elif v is None:
            self.null()
        elif isinstance(v, bool):
            self.boolean(v)
        elif isinstance(v, int):
            self.integer(v)
        elif isinstance(v, float):
            self.double(v)
        elif isinstance(v, str):
            self.simple(v.encode())
        elif isinstance(v, (list, tuple)):
            self.array(len(v))
            for item in v:
                self.value(item)
        elif isinstance(v, (set, frozenset)):
            self.set(len(v))
            for item in v:
                self.value(item)
        elif isinstance(v, dict):
            self.map(len(v))
            for key, item in v.items():
                self.value(key)
                self.value(item)
        else:
            raise TypeError(f"no RESP type for {type(v).__name__}")

    @cython.ccall
    def mark(self) -> cython.Py_ssize_t:
        """Return the current end, for rewind(); valid until bytes are sent."""
        return self.used - self.start

    @cython.ccall
    def rewind(self, mark: cython.Py_ssize_t) -> cython.void:
        """Discard everything written after mark."""
        assert 0 <= mark <= self.used - self.start, "a mark from before the last send"
        if self.overflowed:
            self.start = -mark
            self.used = 0
        else:
            self.used = self.start + mark

    @cython.ccall
    def open_array(self) -> cython.Py_ssize_t:
        """Begin an array or map; return the mark for close_array() or close_map()."""
        mark: cython.Py_ssize_t = self.used - self.start
        self._header(ARRAY, 0)  # space for one digit: most such replies are short
        return mark

    @cython.ccall
    def close_array(self, mark: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        """End the array opened at mark, which has n elements."""
        self._close(ARRAY, mark, n)

    @cython.ccall
    def close_map(self, mark: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        """End the map opened at mark, which has n pairs."""
        if self.protocol == 2:
            self._close(ARRAY, mark, 2 * n)
        else:
            self._close(MAP, mark, n)

    @cython.ccall
    def pending_bytes(self) -> cython.Py_ssize_t:
        """Return the number of unsent bytes."""
        return self.used - self.start

    @cython.ccall
    def mark_sent(self, n: cython.Py_ssize_t) -> cython.void:
        """Drop the first n unsent bytes: they were sent."""
        assert 0 <= n <= self.used - self.start, "sent more than was pending"
        self.start += n
        if self.start == self.used:
            self.start = 0
            self.used = 0
            if self.cap > buffer_pool.IDLE_BYTES_MAX:
                self._resize(0)

    @cython.ccall
    def take(self) -> bytes:
        """Return the unsent bytes, which then count as sent."""
        n: cython.Py_ssize_t = self.used - self.start
        encoded: bytes = mem.to_bytes(self.p, self.start, n)
        self.mark_sent(n)
        return encoded

    @cython.cfunc
    def bulk_header(self, n: cython.Py_ssize_t) -> cython.void:
        """Write the header of a string. The caller then writes its n bytes and the line end by raw_from()."""
        if self.used + n + 2 * HEADER_MAX > self.cap:
            self._grow(n + 2 * HEADER_MAX)
        self._header(BULK, n)

    @cython.cfunc
    def raw_from(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.void:
        """Write the n encoded bytes at `at` of source, which must not be this writer's buffer."""
        if self.used + n > self.cap:
            self._grow(n)
        mem.copy(self.p, self.used, source, at, n)
        self.used += n

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _header(self, kind: cython.uchar, n: cython.longlong) -> cython.int:
        """Write `<kind><n>\\r\\n`, n not negative."""
        if self.used + HEADER_MAX > self.cap:
            self._grow(HEADER_MAX)
        self.used = put_header(self.p, self.used, kind, n)
        return 0

    @cython.cfunc
    def _line(self, kind: cython.uchar, text: bytes) -> cython.void:
        n: cython.Py_ssize_t = len(text)
        if self.used + n + HEADER_MAX > self.cap:
            self._grow(n + HEADER_MAX)
        p: cython.p_uchar = self.p
        source: cython.p_const_uchar = text
        to: cython.Py_ssize_t = self.used + 1
        at: cython.Py_ssize_t
        p[self.used] = kind
        for at in range(n):
            p[to + at] = SPACE if source[at] == CR or source[at] == LF else source[at]
        mem.put_u16le(p, to + n, CRLF)
        self.used = to + n + 2

    @cython.cfunc
    def _close(self, kind: cython.uchar, mark: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.void:
        """Write the header at mark; move the elements if the count has more than one digit."""
        more: cython.Py_ssize_t = 0  # digits beyond the one there is room for
        rest: cython.Py_ssize_t = n
        while rest > 9:
            more += 1
            rest //= 10
        if self.used + HEADER_MAX > self.cap:
            self._grow(HEADER_MAX)
        if self.overflowed:
            return
        at: cython.Py_ssize_t = self.start + mark
        end: cython.Py_ssize_t = self.used + more
        if more > 0:
            mem.move(self.p, at + 4 + more, at + 4, self.used - at - 4)
        self.used = at
        self._header(kind, n)
        self.used = end

    @cython.cfunc
    def _grow(self, n: cython.Py_ssize_t) -> cython.void:
        """Make room for n bytes after `used`, or overflow if the limit is exceeded.

        Moves the unsent bytes to the front, and doubles the block unless half of it is then free.
        """
        pending: cython.Py_ssize_t = self.used - self.start
        if self.overflowed or (0 < self.limit < pending + n and (n <= self.limit or pending > self.limit)):
            self._drop(n)
            return
        if self.start > 0:
            mem.move(self.p, 0, self.start, pending)
            self.start = 0
            self.used = pending
        if 2 * (pending + n) <= self.cap:
            return
        cap: cython.Py_ssize_t = max(self.cap, CAP_MIN)
        while cap < pending + n:
            cap *= 2
        if cap > self.limit > 0:
            cap = max(self.limit, pending + n)
        self._resize(cap)

    @cython.ccall
    def drop_unsent(self) -> cython.void:
        """Drop all unsent bytes and all that is written later; the connection must be closed."""
        if not self.overflowed:
            self._drop(0)

    @cython.cfunc
    def _drop(self, n: cython.Py_ssize_t) -> cython.void:
        """Mark the writer as overflowed, drop the unsent bytes, and make room for n bytes."""
        self.start -= self.used
        self.used = 0
        if not self.overflowed:
            self.overflowed = True
            self._resize(0)
        if self.cap < n:
            self._resize(max(n, OVERFLOWED_CAP_MIN))

    @cython.cfunc
    def _resize(self, cap: cython.Py_ssize_t) -> cython.void:
        self.buf = buffer_pool.resized(self.buf, self.used, cap, self.pool)
        self.p = self.buf
        self.cap = len(self.buf)
