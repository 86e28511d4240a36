"""Reading the primitives of RDB files and DUMP payloads, from bytes that may say anything.

length    00nnnnnn                    0 to 63
          01nnnnnn nnnnnnnn           14 bits, high bits first
          80  u32 be      81  u64 be
string    length  bytes
          C0 i8   C1 i16 le   C2 i32 le          the decimal text of that integer
          C3 length length  bytes                LZF: compressed size, size, the compressed bytes
time      i64 le, milliseconds                   raw ID    u64 be ms, u64 be seq       ID   length, length

Nothing is believed of a length but that so many bytes must come: memory is taken as they do come, and a
compressed string may not claim to be more than its bytes can say.

    |<- base: dropped ->|....buf: read from the source....|    free    |
                        ^summed   ^at                     ^end         ^cap
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from headrace import mem
from headrace.limits import RDB_STRING_BYTES_MAX
from headrace.persistence import crc64, lzf
from headrace.persistence.damage import Damaged

READ_BYTES = cython.declare(cython.Py_ssize_t, 1 << 16)  # asked of the source at once
TELL_BYTES = cython.declare(cython.longlong, 1 << 20)  # progress is told about that often
STRING_MAX = cython.declare(cython.ulonglong, RDB_STRING_BYTES_MAX)
LZF_RATIO_MAX = cython.declare(cython.ulonglong, 88)  # three compressed bytes stand for 264 at most
CODED = cython.declare(cython.uint, 0xC0)
U32_LENGTH = cython.declare(cython.uint, 0x80)
U64_LENGTH = cython.declare(cython.uint, 0x81)
INT8 = cython.declare(cython.ulonglong, 0)
INT16 = cython.declare(cython.ulonglong, 1)
INT32 = cython.declare(cython.ulonglong, 2)
LZF = cython.declare(cython.ulonglong, 3)


@cython.final
@cython.cclass
class RdbInput:
    """Takes primitives one after the other from what `read` gives; Damaged where they cannot be.

    read(n) gives up to n bytes, none at the end. raw_id() and id() leave what they read in ms and seq.
    """

    read: Any
    progress: Any  # called with the offset now and then, or None
    buf: bytearray
    p: cython.p_uchar  # borrowed from it
    cap: cython.Py_ssize_t
    at: cython.Py_ssize_t  # the next byte in it
    end: cython.Py_ssize_t
    base: cython.longlong  # bytes that came before it
    checksum_enabled: cython.bint  # the checksum is wanted
    checksummed_to: cython.Py_ssize_t  # up to here it is in crc
    crc: cython.ulonglong
    reported_at: cython.longlong
    coded: cython.bint  # what _length() read is no length but the number of an encoding
    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(
        self,
        read: Callable[[int], bytes],
        checksum: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """progress is called with the bytes read so far, about every MiB."""
        self.read = read
        self.progress = progress
        self.buf = bytearray()
        self.p = self.buf
        self.cap = self.at = self.end = self.checksummed_to = 0
        self.base = self.reported_at = 0
        self.checksum_enabled = checksum
        self.crc = 0
        self.coded = False
        self.ms = self.seq = 0

    @property
    def offset(self) -> int:
        """The offset of the next byte."""
        return self.base + self.at

    @cython.ccall
    def here(self) -> cython.longlong:
        """The same, for compiled callers."""
        return self.base + self.at

    @cython.ccall
    def checksum(self) -> cython.ulonglong:
        """The CRC of all bytes taken so far."""
        self._update_crc()
        return self.crc

    @cython.ccall
    def rest(self) -> bytes:
        """What was asked of the source and not taken, and is taken now."""
        left: bytes = mem.to_bytes(self.p, self.at, self.end - self.at)
        self.at = self.end
        return left

    def remainder(self) -> bytes:
        """All bytes up to the end."""
        parts: list[bytes] = [self.rest()]
        while more := self.read(READ_BYTES):
            parts.append(more)
        return b"".join(parts)

    # ---- numbers

    @cython.ccall
    def byte(self) -> cython.uint:
        """One byte."""
        if self.at == self.end:
            self._fill(1)
        self.at += 1
        return self.p[self.at - 1]

    @cython.ccall
    def length(self) -> cython.ulonglong:
        """A length or count; signed values are written as the unsigned 64 bits they have."""
        at: cython.longlong = self.here()
        n: cython.ulonglong = self._length()
        if self.coded:
            raise Damaged(at, "a length cannot begin like that")
        return n

    @cython.ccall
    def time(self) -> cython.longlong:
        """A time in milliseconds."""
        if self.end - self.at < 8:
            self._fill(8)
        self.at += 8
        return mem.as_signed(mem.u64le(self.p, self.at - 8))

    @cython.ccall
    def u32(self) -> cython.uint:
        """Four bytes, little-endian."""
        if self.end - self.at < 4:
            self._fill(4)
        self.at += 4
        return mem.u32le(self.p, self.at - 4)

    @cython.ccall
    def raw_id(self) -> cython.void:
        """An ID of 16 bytes, into ms and seq."""
        if self.end - self.at < 16:
            self._fill(16)
        self.at += 16
        self.ms = mem.u64be(self.p, self.at - 16)
        self.seq = mem.u64be(self.p, self.at - 8)

    @cython.ccall
    def id(self) -> cython.void:
        """An ID of two lengths, into ms and seq."""
        self.ms = self.length()
        self.seq = self.length()

    # ---- strings

    @cython.ccall
    def string(self) -> bytes:
        """A string, whatever its encoding."""
        at: cython.longlong = self.here()
        n: cython.ulonglong = self._length()
        if not self.coded:
            return self._take(n, at)
        if n == LZF:
            return bytes(self._decompressed(at))
        return self._decimal(n, at)

    @cython.ccall
    def block(self) -> bytearray:
        """The same, in a block of its own, with no room to spare."""
        at: cython.longlong = self.here()
        n: cython.ulonglong = self._length()
        made: bytearray = bytearray()
        if self.coded:
            return self._decompressed(at) if n == LZF else bytearray(self._decimal(n, at))
        if n > mem.as_unsigned(READ_BYTES):
            return bytearray(self._take(n, at))
        size: cython.Py_ssize_t = n
        if self.end - self.at < size:
            self._fill(size)
        mem.resize(made, size)
        out: cython.p_uchar = made
        mem.copy(out, 0, self.p, self.at, size)
        self.at += size
        return made

    @cython.ccall
    def bytes_of(self, n: cython.Py_ssize_t) -> bytes:
        """The next n bytes."""
        return self._take(n, self.here())

    # ---- inside

    @cython.cfunc
    def _decimal(self, encoding: cython.ulonglong, at: cython.longlong) -> bytes:
        """The string at offset `at`, of which the integer comes next."""
        v: cython.longlong
        if encoding == INT8:
            v = self.byte()
            return b"%d" % (v if v < 1 << 7 else v - (1 << 8))
        if encoding == INT16:
            v = self.byte()
            v |= self.byte() << 8
            return b"%d" % (v if v < 1 << 15 else v - (1 << 16))
        if encoding == INT32:
            v = self.u32()
            return b"%d" % (v if v <= 0x7FFFFFFF else v - 0x7FFFFFFF - 0x7FFFFFFF - 2)
        raise Damaged(at, f"a string of the unknown encoding {encoding}")

    @cython.cfunc
    def _length(self) -> cython.ulonglong:
        """A length; or, `coded`, the number of a string's encoding."""
        first: cython.uint = self.byte()
        n: cython.ulonglong = first & 0x3F
        left: cython.int
        self.coded = first >= CODED
        if first < 0x40 or self.coded:
            return n
        if first < U32_LENGTH:
            return n << 8 | self.byte()
        if first > U64_LENGTH:
            raise Damaged(self.here() - 1, f"no length begins with the byte {first}")
        left = 4 if first == U32_LENGTH else 8
        if self.end - self.at < left:
            self._fill(left)
        n = 0
        while left > 0:
            n = n << 8 | self.p[self.at]
            self.at += 1
            left -= 1
        return n

    @cython.cfunc
    def _take(self, n: cython.ulonglong, at: cython.longlong) -> bytes:
        """The next n bytes, those of the string at offset `at`."""
        size: cython.Py_ssize_t
        if n > STRING_MAX:
            raise Damaged(at, f"a string cannot have {n} bytes")
        size = n
        if size > READ_BYTES:
            return self._take_long(size)
        if self.end - self.at < size:
            self._fill(size)
        self.at += size
        return mem.to_bytes(self.p, self.at - size, size)

    @cython.cfunc
    def _take_long(self, size: cython.Py_ssize_t) -> bytes:
        """The next size bytes, read in steps: a size that lies takes no memory."""
        parts: list[bytes] = []
        n: cython.Py_ssize_t
        while size > 0:
            if self.at == self.end:
                self._fill(1)
            n = min(size, self.end - self.at)
            parts.append(mem.to_bytes(self.p, self.at, n))
            self.at += n
            size -= n
        return b"".join(parts)

    @cython.cfunc
    def _decompressed(self, at: cython.longlong) -> bytearray:
        """The string at offset `at`, whose two sizes come next."""
        packed: cython.ulonglong = self.length()
        size: cython.ulonglong = self.length()
        if size > STRING_MAX or packed > STRING_MAX or size > packed * LZF_RATIO_MAX:
            raise Damaged(at, f"{packed} compressed bytes cannot stand for a string of {size}")
        data: bytes = b""
        n: cython.Py_ssize_t = packed
        wanted: cython.Py_ssize_t = size
        unpacked: cython.Py_ssize_t
        if n > READ_BYTES:
            data = self._take_long(n)
        elif self.end - self.at < n:
            self._fill(n)
        made: bytearray = bytearray()
        mem.resize(made, wanted)
        out: cython.p_uchar = made
        if n > READ_BYTES:
            unpacked = lzf.unpack(data, 0, n, out, wanted)
        else:
            unpacked = lzf.unpack(self.p, self.at, n, out, wanted)
            self.at += n
        if unpacked != wanted:
            raise Damaged(at, "a compressed string is damaged")
        return made

    @cython.cfunc
    def _fill(self, n: cython.Py_ssize_t) -> cython.void:
        """Read until n bytes are there that were not taken yet."""
        self._update_crc()
        piece: bytes
        self.base += self.at
        self.end -= self.at
        mem.move(self.p, 0, self.at, self.end)
        self.at = self.checksummed_to = 0
        while self.end < n:
            piece = self.read(READ_BYTES)
            if not piece:
                raise Damaged(self.base + self.end, "it ends here, where more must come")
            self._append(piece)
        if self.progress is not None and self.base - self.reported_at >= TELL_BYTES:
            self.reported_at = self.base
            self.progress(self.base)

    @cython.cfunc
    def _append(self, piece: bytes) -> cython.void:
        """Put piece behind what is there."""
        end: cython.Py_ssize_t = self.end + len(piece)
        if end > self.cap:
            cap: cython.Py_ssize_t = max(end, min(2 * self.cap, 2 * READ_BYTES))
            mem.resize(self.buf, cap)
            self.p = self.buf
            self.cap = cap
        mem.copy(self.p, self.end, piece, 0, len(piece))
        self.end = end

    @cython.cfunc
    def _update_crc(self) -> cython.void:
        """Bring what was taken into the checksum."""
        if self.checksum_enabled:
            self.crc = crc64.update(self.crc, self.p, self.checksummed_to, self.at - self.checksummed_to)
        self.checksummed_to = self.at
