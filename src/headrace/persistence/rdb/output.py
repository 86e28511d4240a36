"""The primitives of RDB, written.

    length   00LLLLLL                        up to 63
             01LLLLLL LLLLLLLL               up to 16383
             80 and 4 bytes, big-endian      up to 2^32 - 1
             81 and 8 bytes, big-endian      up to 2^64 - 1

    string   C0 i8 | C1 i16 | C2 i32         a decimal integer, little-endian
             C3 length length byte ...       packed by LZF: packed size, size, packed bytes
             length byte ...

    time     i64, little-endian, milliseconds

Every value has one form: the shortest integer, LZF where it gains four bytes, else the bytes.
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
PACKED_MIN = cython.declare(cython.Py_ssize_t, 21)  # shorter strings are never packed
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
    """Writes through a buffer to sink, a call with bytes; without a sink all stays here until take().

    The CRC is of all that was written, also of what is still in the buffer.
    """

    sink: Callable[[bytes], object] | None
    packer: LzfCompressor | None  # None: strings are not packed
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t
    flushed: cython.longlong  # bytes that have gone to the sink
    _crc: cython.ulonglong  # of those

    def __init__(
        self,
        sink: Callable[[bytes], object] | None = None,
        compress: cython.bint = True,
        packer: LzfCompressor | None = None,
    ) -> None:
        """packer: one that is at hand, for an output so short that a new one would be most of its cost."""
        self.sink = sink
        self.packer = None
        if compress:
            self.packer = LzfCompressor() if packer is None else packer
        self.cap = BUFFER_BYTES if sink is not None else 256
        self.buf = bytearray(self.cap)
        self.p = self.buf
        self.used = 0
        self.flushed = 0
        self._crc = 0

    # ---- primitives

    @cython.ccall
    def byte(self, v: cython.uchar) -> cython.void:
        """One byte: an opcode or a type."""
        if self.used + 1 > self.cap:
            self._make_room(1)
        self.p[self.used] = v
        self.used += 1

    @cython.ccall
    def length(self, n: cython.ulonglong) -> cython.void:
        """A length, or any unsigned number."""
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
            mem.put_u64be(p, at + 1, n << 32)  # its upper half; the lower one is overwritten
            p[at] = LENGTH32
            self.used = at + 5
        else:
            p[at] = LENGTH64
            mem.put_u64be(p, at + 1, n)
            self.used = at + 9

    @cython.ccall
    def string(self, value: bytes | bytearray) -> cython.void:
        """A string, in its one form."""
        source: cython.p_const_uchar = value
        self.string_from(source, len(value))

    @cython.cfunc
    def string_from(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        """A string: the first n bytes of source, which must not be this output's own buffer."""
        packed: cython.Py_ssize_t
        packer: LzfCompressor | None = self.packer
        if n <= INTEGER_TEXT_MAX and self._integer(source, n):
            return
        if packer is not None and n >= PACKED_MIN:
            packed = packer.pack(source, n)
            if packed > 0:
                self.byte(LZF)
                self.length(packed)
                self.length(n)
                self.raw_from(packer.p, packed)
                return
        self.length(n)
        self.raw_from(source, n)

    @cython.ccall
    def raw(self, data: bytes) -> cython.void:
        """Bytes as they are."""
        self.raw_from(data, len(data))

    @cython.cfunc
    def raw_from(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        """The first n bytes of source as they are."""
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
    def raw16(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """An ID as 16 bytes that sort as it does."""
        if self.used + RAW_ID_BYTES > self.cap:
            self._make_room(RAW_ID_BYTES)
        mem.put_u64be(self.p, self.used, ms)
        mem.put_u64be(self.p, self.used + 8, seq)
        self.used += RAW_ID_BYTES

    @cython.ccall
    def numbers(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        """An ID as two numbers."""
        self.length(ms)
        self.length(seq)

    @cython.ccall
    def time(self, ms: cython.longlong) -> cython.void:
        """A time, in milliseconds since 1970."""
        self.u64le(mem.as_unsigned(ms))

    @cython.ccall
    def u64le(self, v: cython.ulonglong) -> cython.void:
        """Eight bytes, the lowest first."""
        if self.used + 8 > self.cap:
            self._make_room(8)
        mem.put_u64le(self.p, self.used, v)
        self.used += 8

    @cython.ccall
    def u16le(self, v: cython.uint) -> cython.void:
        """Two bytes, the lower first."""
        if self.used + 2 > self.cap:
            self._make_room(2)
        mem.put_u16le(self.p, self.used, v)
        self.used += 2

    # ---- where it goes

    @cython.ccall
    def offset(self) -> cython.longlong:
        """How many bytes were written."""
        return self.flushed + self.used

    @cython.ccall
    def crc(self) -> cython.ulonglong:
        """The CRC-64 of what was written."""
        return crc64.update(self._crc, self.p, 0, self.used)

    @cython.ccall
    def flush(self) -> cython.void:
        """Hand what is buffered to the sink; whatever the sink raises passes through."""
        if self.sink is not None and self.used > 0:
            self._crc = self.crc()
            self.sink(mem.to_bytes(self.p, 0, self.used))
            self.flushed += self.used
            self.used = 0

    @cython.ccall
    def take(self) -> bytes:
        """All that was written; only without a sink."""
        assert self.sink is None, "what was written has gone to the sink"
        return mem.to_bytes(self.p, 0, self.used)

    @cython.cfunc
    def _make_room(self, n: cython.Py_ssize_t) -> cython.void:
        """Make some bytes free: n of them without a sink; with one, the buffer, which no primitive fills."""
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
        """Write the string as an integer, if that is what it is and 32 bits hold it; else nothing."""
        if n == 0 or not (48 <= source[0] <= 57 or source[0] == MINUS):
            return False
        if not listpack.is_decimal(source, 0, n):
            return False
        v: cython.longlong = listpack.decimal(source, 0, n)
        if not -0x80000000 <= v <= 0x7FFFFFFF:
            return False
        if self.used + LENGTH_BYTES_MAX > self.cap:
            self._make_room(LENGTH_BYTES_MAX)
        mem.put_u64le(self.p, self.used + 1, mem.as_unsigned(v))  # what follows the integer is overwritten
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
