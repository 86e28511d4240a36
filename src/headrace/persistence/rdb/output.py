"""Write the primitives of RDB.

    length   00LLLLLL                        up to 63
             01LLLLLL LLLLLLLL               up to 16383
             80 and 4 bytes, big-endian      up to 2^32 - 1
             81 and 8 bytes, big-endian      up to 2^64 - 1

    string   C0 i8 | C1 i16 | C2 i32         a decimal integer, little-endian
             C3 length length byte ...       compressed by LZF: compressed size, size, bytes
             length byte ...

    time     i64, little-endian, milliseconds

Every value has one form: the shortest integer; LZF if it saves four bytes; else the bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace import mem
from headrace.persistence import crc64
from headrace.persistence.lzf import LzfCompressor
from headrace.structures import listpack

BUFFER_BYTES = cython.declare(cython.Py_ssize_t, 1 << 16)
LENGTH_BYTES_MAX = cython.declare(cython.Py_ssize_t, 9)
RAW_ID_BYTES = cython.declare(cython.Py_ssize_t, 16)
INTEGER_TEXT_MAX = cython.declare(cython.Py_ssize_t, 11)  # "-2147483648"
COMPRESSED_MIN = cython.declare(cython.Py_ssize_t, 21)  # shorter strings are never compressed
MINUS = cython.declare(cython.uchar, 45)
INT8 = cython.declare(cython.uchar, 0xC0)
INT16 = cython.declare(cython.uchar, 0xC1)
INT32 = cython.declare(cython.uchar, 0xC2)
LZF = cython.declare(cython.uchar, 0xC3)
LENGTH14 = cython.declare(cython.uchar, 0x40)
LENGTH32 = cython.declare(cython.uchar, 0x80)
LENGTH64 = cython.declare(cython.uchar, 0x81)


@cython.final
@cython.cclass
class RdbOutput:
    """Writes primitives through a buffer to sink(bytes); without a sink all stays in memory until take().

    crc() covers all that was written, including what is still in the buffer.
    """

    sink: Callable[[bytes], object] | None
    compressor: LzfCompressor | None  # None: strings are not compressed
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t
    flushed: cython.longlong  # bytes passed to the sink
    _crc: cython.ulonglong  # of the flushed bytes

    def __init__(
        self,
        sink: Callable[[bytes], object] | None = None,
        compress: cython.bint = True,
        compressor: LzfCompressor | None = None,
    ) -> None:
        """compressor: a compressor to reuse; for a short output, creating one would be most of the cost."""
        self.sink = sink
        self.compressor = None
        if compress:
            self.compressor = LzfCompressor() if compressor is None else compressor
        self.cap = BUFFER_BYTES if sink is not None else 256
        self.buf = bytearray(self.cap)
        self.p = self.buf
        self.used = 0
        self.flushed = 0
        self._crc = 0

    # ---- primitives

    @cython.ccall
    def byte(self, v: cython.uchar) -> cython.void:
        """Write one byte: an opcode or a type."""
        if self.used + 1 > self.cap:
            self._make_room(1)
        self.p[self.used] = v
        self.used += 1

    @cython.ccall
    def length(self, n: cython.ulonglong) -> cython.void:
        """Write a length, or any unsigned number."""
        if self.used + LENGTH_BYTES_MAX > self.cap:
            self._make_room(LENGTH_BYTES_MAX)
        p: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self.used
        if n <= 0x3F:
            p[at] = n
            self.used = at + 1
        elif n <= 0x3FFF:
            p[at] = LENGTH14 | n >> 8
            p[at + 1] = n & 0xFF
            self.used = at + 2
        elif n <= 0xFFFFFFFF:
            mem.put_u64be(p, at + 1, n << 32)  # the upper half of n; the lower half is overwritten
            p[at] = LENGTH32
            self.used = at + 5
        else:
            p[at] = LENGTH64
            mem.put_u64be(p, at + 1, n)
            self.used = at + 9

    @cython.ccall
    def string(self, value: bytes | bytearray) -> cython.void:
        """Write a string in its one form."""
        source: cython.p_const_uchar = value
        self.string_from(source, len(value))

    @cython.cfunc
    def string_from(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        """Write the first n bytes of source as a string. source must not be the buffer of this output."""
        packed: cython.Py_ssize_t
        compressor: LzfCompressor | None = self.compressor
        if n <= INTEGER_TEXT_MAX and self._integer(source, n):
            return
        if compressor is not None and n >= COMPRESSED_MIN:
            packed = compressor.compress(source, n)
            if packed > 0:
                self.byte(LZF)
                self.length(packed)
                self.length(n)
                self.raw_from(compressor.p, packed)
                return
        self.length(n)
        self.raw_from(source, n)

    @cython.ccall
    def raw(self, data: bytes) -> cython.void:
        """Write bytes without a length."""
        self.raw_from(data, len(data))

    @cython.cfunc
    def raw_from(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        """Write the first n bytes of source without a length."""
        at: cython.Py_ssize_t = 0
        part: cython.Py_ssize_t
        while at < n:
            if self.used == self.cap:
                self._make_room(n - at)
            part = min(n - at, self.cap - self.used)
            mem.copy(self.p, self.used, source, at, part)
            self.used += part
            at += part

    @cython.ccall
    def raw_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Write an ID as 16 big-endian bytes."""
        if self.used + RAW_ID_BYTES > self.cap:
            self._make_room(RAW_ID_BYTES)
        mem.put_u64be(self.p, self.used, ms)
        mem.put_u64be(self.p, self.used + 8, seq)
        self.used += RAW_ID_BYTES

    @cython.ccall
    def id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """Write an ID as two lengths."""
        self.length(ms)
        self.length(seq)

    @cython.ccall
    def time(self, ms: cython.longlong) -> cython.void:
        """Write a time in Unix milliseconds."""
        self.u64le(mem.as_unsigned(ms))

    @cython.ccall
    def u64le(self, v: cython.ulonglong) -> cython.void:
        """Write a little-endian u64."""
        if self.used + 8 > self.cap:
            self._make_room(8)
        mem.put_u64le(self.p, self.used, v)
        self.used += 8

    @cython.ccall
    def u16le(self, v: cython.uint) -> cython.void:
        """Write a little-endian u16."""
        if self.used + 2 > self.cap:
            self._make_room(2)
        mem.put_u16le(self.p, self.used, v)
        self.used += 2

    # ---- output

    @cython.ccall
    def offset(self) -> cython.longlong:
        """Return the number of bytes written."""
        return self.flushed + self.used

    @cython.ccall
    def crc(self) -> cython.ulonglong:
        """Return the CRC-64 of all bytes written."""
        return crc64.update(self._crc, self.p, 0, self.used)

    @cython.ccall
    def flush(self) -> cython.void:
        """Pass the buffered bytes to the sink. Raises what the sink raises."""
        if self.sink is not None and self.used > 0:
            self._crc = self.crc()
            self.sink(mem.to_bytes(self.p, 0, self.used))
            self.flushed += self.used
            self.used = 0

    @cython.ccall
    def take(self) -> bytes:
        """Return all bytes written; only without a sink."""
        assert self.sink is None, "the bytes have been passed to the sink"
        return mem.to_bytes(self.p, 0, self.used)

    @cython.cfunc
    def _make_room(self, n: cython.Py_ssize_t) -> cython.void:
        """Make n bytes free. With a sink, flush instead: every primitive fits into the empty buffer."""
        if self.sink is not None:
            self.flush()
            return
        cap: cython.Py_ssize_t = self.cap
        while cap < self.used + n:
            cap *= 2
        mem.resize(self.buf, cap)
        self.p = self.buf
        self.cap = cap

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _integer(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Write the string as an integer and return True if it is a decimal of 32 bits; else return False."""
        if n == 0 or not (48 <= source[0] <= 57 or source[0] == MINUS):
            return False
        if not listpack.is_decimal(source, 0, n):
            return False
        v: cython.longlong = listpack.decimal(source, 0, n)
        if not -0x80000000 <= v <= 0x7FFFFFFF:
            return False
        if self.used + LENGTH_BYTES_MAX > self.cap:
            self._make_room(LENGTH_BYTES_MAX)
        mem.put_u64le(self.p, self.used + 1, mem.as_unsigned(v))  # bytes after the integer are overwritten
        if -0x80 <= v <= 0x7F:
            self.p[self.used] = INT8
            self.used += 2
        elif -0x8000 <= v <= 0x7FFF:
            self.p[self.used] = INT16
            self.used += 3
        else:
            self.p[self.used] = INT32
            self.used += 5
        return True
