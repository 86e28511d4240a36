"""Growable byte buffers, used for columns while rows are appended, and a pool of them."""

from __future__ import annotations

import cython

from headrace import mem

HYPHEN = cython.declare(cython.uchar, 45)
ZERO = cython.declare(cython.uint, 48)
# The digits of a u64, or a sign and those of an i64.
DECIMAL_BYTES_MAX = cython.declare(cython.Py_ssize_t, 20)
ID_BYTES_MAX = cython.declare(cython.Py_ssize_t, 41)  # two numbers and their hyphen
# A server reuses the buffers of a batch for the next one, because new memory from the kernel costs more than
# writing to it. Limits of the pool:
POOL_BUFFERS_MAX = cython.declare(cython.Py_ssize_t, 16)
POOL_BUFFER_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1 << 19)
POOL: list[GrowableBuffer] = cython.declare(list, [])

BACKSLASH = cython.declare(cython.uchar, 92)
LETTER_X = cython.declare(cython.uchar, 120)
HEX_DIGITS = cython.declare(bytes, b"0123456789abcdef")
ESCAPE_BYTES = cython.declare(cython.Py_ssize_t, 4)  # of `\xNN`


@cython.final
@cython.cclass
class GrowableBuffer:
    """A buffer to append bytes to; take() returns its contents as a bytearray."""

    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t
    # of the last ID: where it begins, how many digits its time has before the last three, and their value
    last_id_offset: cython.Py_ssize_t
    last_id_second_digits: cython.Py_ssize_t
    last_id_seconds: cython.ulonglong

    def __init__(self, cap: cython.Py_ssize_t) -> None:
        self.buf = bytearray(cap)
        self.p = self.buf
        self.cap = cap
        self.used = 0
        self.last_id_offset = 0
        self.last_id_second_digits = 0
        self.last_id_seconds = 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow(self, extra: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Make space for `extra` more bytes. Pointers to the old bytes become invalid; `p` is set again."""
        cap: cython.Py_ssize_t = self.cap
        while cap < self.used + extra:
            cap *= 2
        mem.resize(self.buf, cap)
        self.p = self.buf
        self.cap = cap
        return cap

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append n bytes of source; return the total size."""
        if self.used + n > self.cap:
            self.grow(n)
        mem.copy(self.p, self.used, source, at, n)
        self.used += n
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_escaped(
        self, source: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Append n bytes of source as UTF-8; return the total size.

        Each byte that is not part of a UTF-8 sequence becomes `\\xNN`, like Python's backslashreplace.
        """
        end: cython.Py_ssize_t = at + n
        start: cython.Py_ssize_t
        size: cython.Py_ssize_t
        while at < end:
            start = at
            while at < end and source[at] < 0x80:
                at += 1
            if at > start:
                self.put(source, start, at - start)
            if at == end:
                break
            size = 2 if source[at] < 0xE0 else 3 if source[at] < 0xF0 else 4
            if size <= end - at and mem.is_utf8(source, at, size):
                self.put(source, at, size)
                at += size
            else:
                self._put_escape(source[at])
                at += 1
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _put_escape(self, byte: cython.uchar) -> cython.Py_ssize_t:
        """Append one byte as `\\xNN`."""
        digits: cython.p_const_uchar = HEX_DIGITS
        if self.used + ESCAPE_BYTES > self.cap:
            self.grow(ESCAPE_BYTES)
        self.p[self.used] = BACKSLASH
        self.p[self.used + 1] = LETTER_X
        self.p[self.used + 2] = digits[byte >> 4]
        self.p[self.used + 3] = digits[byte & 15]
        self.used += ESCAPE_BYTES
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_u32(self, v: cython.uint) -> cython.Py_ssize_t:
        """Append a little-endian u32."""
        if self.used + 4 > self.cap:
            self.grow(4)
        mem.put_u32le(self.p, self.used, v)
        self.used += 4
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_bit(self, row: cython.Py_ssize_t, on: cython.bint) -> cython.Py_ssize_t:
        """Append the bit of a row; rows are in order, without gaps."""
        if row & 7 == 0:
            if self.used + 1 > self.cap:
                self.grow(1)
            self.p[self.used] = 0
            self.used += 1
        if on:
            self.p[row >> 3] |= 1 << (row & 7)
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_decimal(self, v: cython.longlong) -> cython.Py_ssize_t:
        """Append the decimal digits of v."""
        if self.used + DECIMAL_BYTES_MAX > self.cap:
            self.grow(DECIMAL_BYTES_MAX)
        magnitude: cython.ulonglong = mem.as_unsigned(v)
        if v < 0:
            self.p[self.used] = HYPHEN
            self.used += 1
            magnitude = mem.sub_u64(0, magnitude)
        self.used += mem.put_decimal(self.p, self.used, magnitude)
        return self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Append the text of an ID. Most digits of its time are copied from the previous ID if they agree."""
        if self.used + ID_BYTES_MAX > self.cap:
            self.grow(ID_BYTES_MAX)
        p: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self.used
        thousands: cython.ulonglong = ms // 1000
        left: cython.uint = ms - thousands * 1000
        if thousands == 0:
            at += mem.put_decimal(p, at, ms)
        else:
            if self.last_id_second_digits > 0 and thousands == self.last_id_seconds:
                mem.copy(p, at, p, self.last_id_offset, self.last_id_second_digits)
            else:
                self.last_id_seconds = thousands
                self.last_id_second_digits = mem.put_decimal(p, at, thousands)
            self.last_id_offset = at
            at += self.last_id_second_digits
            p[at] = ZERO + left // 100
            p[at + 1] = ZERO + left // 10 % 10
            p[at + 2] = ZERO + left % 10
            at += 3
        p[at] = HYPHEN
        self.used = at + 1 + mem.put_decimal(p, at + 1, seq)
        return self.used

    @cython.cfunc
    def take(self) -> bytearray:
        """Return the bytes, and empty the buffer."""
        full: bytearray = self.buf
        self.buf = bytearray(self.cap)  # the same capacity: batches have similar sizes
        self.p = self.buf
        mem.resize(full, self.used)
        self.used = 0
        self.last_id_second_digits = 0
        return full


@cython.ccall
def escaped(data: bytes) -> bytes:
    """Return the bytes as UTF-8, each byte that is not UTF-8 as `\\xNN`."""
    out: GrowableBuffer = GrowableBuffer(64)
    out.put_escaped(data, 0, len(data))
    return mem.to_bytes(out.p, 0, out.used)


@cython.ccall
def acquire() -> GrowableBuffer:
    """Return a buffer from the pool, or a new one."""
    if POOL:
        found: GrowableBuffer = POOL.pop()
        return found
    return GrowableBuffer(64)


@cython.ccall
def release(buffer: GrowableBuffer) -> cython.void:
    """Return a buffer to the pool; drop the buffer if it is too large or the pool is full."""
    if len(POOL) < POOL_BUFFERS_MAX and buffer.cap <= POOL_BUFFER_BYTES_MAX:
        buffer.used = 0
        buffer.last_id_second_digits = 0
        POOL.append(buffer)
