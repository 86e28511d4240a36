"""Read the primitives of RDB files and DUMP payloads, from untrusted bytes.

length    00nnnnnn                    0 to 63
          01nnnnnn nnnnnnnn           14 bits, high bits first
          80  u32 be      81  u64 be
string    length  bytes
          C0 i8   C1 i16 le   C2 i32 le          the decimal text of that integer
          C3 length length  bytes                LZF: compressed size, size, the compressed bytes
time      i64 le, milliseconds                   raw ID    u64 be ms, u64 be seq       ID   length, length

A length alone allocates nothing: memory grows as the bytes are read. A compressed string is rejected if its
size is more than its bytes can expand to.

    |<- base: dropped ->|....buf: read from the source....|    free    |
                        ^crc      ^at                     ^filled       ^cap
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from headrace import mem
from headrace.limits import RDB_STRING_BYTES_MAX
from headrace.persistence import crc64, lzf
from headrace.persistence.damage import Damaged
from headrace.resp.read_buffer import ReadBuffer

READ_BYTES = cython.declare(cython.Py_ssize_t, 1 << 16)  # per read from the source
PROGRESS_BYTES = cython.declare(cython.longlong, 1 << 20)  # between two calls of progress
STRING_MAX = cython.declare(cython.ulonglong, RDB_STRING_BYTES_MAX)
LZF_RATIO_MAX = cython.declare(cython.ulonglong, 88)  # three compressed bytes expand to 264 at most
ENCODED_STRING_BITS = cython.declare(cython.uint, 0xC0)
U32_LENGTH = cython.declare(cython.uint, 0x80)
U64_LENGTH = cython.declare(cython.uint, 0x81)
INT8 = cython.declare(cython.ulonglong, 0)
INT16 = cython.declare(cython.ulonglong, 1)
INT32 = cython.declare(cython.ulonglong, 2)
LZF = cython.declare(cython.ulonglong, 3)


@cython.final
@cython.cclass
class RdbInput(ReadBuffer):
    """Reads primitives, one after the other, from a source. Raises Damaged for invalid bytes.

    The methods are named after what they read. raw_id() and id() store the ID in ms and seq.
    """

    read: Any
    progress: Any  # called with the offset about every MiB, or None
    buffer_offset: cython.longlong  # bytes of the source before the buffer
    checksum_enabled: cython.bint  # compute the checksum
    checksummed_to: cython.Py_ssize_t  # crc covers the buffer up to here
    crc: cython.ulonglong
    progress_offset: cython.longlong
    is_string_encoding: cython.bint  # _length() has read the number of a string encoding, not a length
    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(
        self,
        read: Callable[[int], bytes],
        checksum: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            read: read(n) returns up to n bytes of the source, b"" at its end.
            checksum: compute the CRC-64 of what is consumed.
            progress: called with the bytes read so far, about every MiB.
        """
        super().__init__()
        self.read = read
        self.progress = progress
        self.buffer_offset = self.progress_offset = self.checksummed_to = 0
        self.checksum_enabled = checksum
        self.crc = 0
        self.is_string_encoding = False
        self.ms = self.seq = 0

    @cython.ccall
    def offset(self) -> cython.longlong:
        """Return the offset of the next byte in the source."""
        return self.buffer_offset + self.at

    @cython.ccall
    def checksum(self) -> cython.ulonglong:
        """Return the CRC-64 of all bytes consumed so far."""
        self._update_crc()
        return self.crc

    @cython.ccall
    def take_buffered(self) -> bytes:
        """Consume and return the bytes that are in the buffer."""
        left: bytes = mem.to_bytes(self.p, self.at, self.filled - self.at)
        self.at = self.filled
        return left

    def remainder(self) -> bytes:
        """Consume and return all bytes up to the end of the source."""
        parts: list[bytes] = [self.take_buffered()]
        while more := self.read(READ_BYTES):
            parts.append(more)
        return b"".join(parts)

    # ---- numbers

    @cython.ccall
    def byte(self) -> cython.uint:
        """Read one byte."""
        if self.at == self.filled:
            self._fill(1)
        self.at += 1
        return self.p[self.at - 1]

    @cython.ccall
    def length(self) -> cython.ulonglong:
        """Read a length or count. Signed values are stored as unsigned 64 bits."""
        at: cython.longlong = self.offset()
        n: cython.ulonglong = self._length()
        if self.is_string_encoding:
            raise Damaged(at, "expected a length, found a string encoding")
        return n

    @cython.ccall
    def time(self) -> cython.longlong:
        """Read a time in milliseconds."""
        if self.filled - self.at < 8:
            self._fill(8)
        self.at += 8
        return mem.as_signed(mem.u64le(self.p, self.at - 8))

    @cython.ccall
    def u32(self) -> cython.uint:
        """Read a little-endian u32."""
        if self.filled - self.at < 4:
            self._fill(4)
        self.at += 4
        return mem.u32le(self.p, self.at - 4)

    @cython.ccall
    def raw_id(self) -> cython.void:
        """Read an ID of 16 bytes into ms and seq."""
        if self.filled - self.at < 16:
            self._fill(16)
        self.at += 16
        self.ms = mem.u64be(self.p, self.at - 16)
        self.seq = mem.u64be(self.p, self.at - 8)

    @cython.ccall
    def id(self) -> cython.void:
        """Read an ID of two lengths into ms and seq."""
        self.ms = self.length()
        self.seq = self.length()

    # ---- strings

    @cython.ccall
    def string(self) -> bytes:
        """Read a string in any encoding."""
        at: cython.longlong = self.offset()
        n: cython.ulonglong = self._length()
        if not self.is_string_encoding:
            return self._take(n, at)
        if n == LZF:
            return bytes(self._decompressed(at))
        return self._integer_text(n, at)

    @cython.ccall
    def string_as_bytearray(self) -> bytearray:
        """Read a string in any encoding into a new bytearray of exactly its size."""
        at: cython.longlong = self.offset()
        n: cython.ulonglong = self._length()
        made: bytearray = bytearray()
        if self.is_string_encoding:
            return self._decompressed(at) if n == LZF else bytearray(self._integer_text(n, at))
        if n > mem.as_unsigned(READ_BYTES):
            return bytearray(self._take(n, at))
        size: cython.Py_ssize_t = n
        if self.filled - self.at < size:
            self._fill(size)
        mem.resize(made, size)
        out: cython.p_uchar = made
        mem.copy(out, 0, self.p, self.at, size)
        self.at += size
        return made

    @cython.ccall
    def raw(self, n: cython.Py_ssize_t) -> bytes:
        """Read n bytes."""
        return self._take(n, self.offset())

    # ---- what is not needed

    @cython.ccall
    def skip(self, n: cython.ulonglong) -> cython.void:
        """Consume n bytes without keeping them."""
        step: cython.Py_ssize_t
        while n > 0:
            if self.at == self.filled:
                self._fill(1)
            step = self.filled - self.at
            if n < mem.as_unsigned(step):
                step = n
            self.at += step
            n -= mem.as_unsigned(step)

    @cython.ccall
    def skip_string(self) -> cython.void:
        """Consume a string in any encoding; it is not decompressed."""
        at: cython.longlong = self.offset()
        n: cython.ulonglong = self._length()
        if not self.is_string_encoding:
            self.skip(n)
        elif n == LZF:
            n = self.length()
            self.length()
            self.skip(n)
        elif n <= INT32:
            self.skip(1 << n)
        else:
            raise Damaged(at, f"a string of the unknown encoding {n}")

    # ---- inside

    @cython.cfunc
    def _integer_text(self, encoding: cython.ulonglong, at: cython.longlong) -> bytes:
        """Return the text of the integer that comes next; the string began at offset `at`."""
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
        """Read a length, or the number of a string encoding; is_string_encoding tells which."""
        first: cython.uint = self.byte()
        n: cython.ulonglong = first & 0x3F
        left: cython.int
        self.is_string_encoding = first >= ENCODED_STRING_BITS
        if first < 0x40 or self.is_string_encoding:
            return n
        if first < U32_LENGTH:
            return n << 8 | self.byte()
        if first > U64_LENGTH:
            raise Damaged(self.offset() - 1, f"no length begins with the byte {first}")
        left = 4 if first == U32_LENGTH else 8
        if self.filled - self.at < left:
            self._fill(left)
        n = 0
        while left > 0:
            n = n << 8 | self.p[self.at]
            self.at += 1
            left -= 1
        return n

    @cython.cfunc
    def _take(self, n: cython.ulonglong, at: cython.longlong) -> bytes:
        """Read n bytes of the string that began at offset `at`."""
        size: cython.Py_ssize_t
        if n > STRING_MAX:
            raise Damaged(at, f"a string cannot have {n} bytes")
        size = n
        if size > READ_BYTES:
            return self._take_long(size)
        if self.filled - self.at < size:
            self._fill(size)
        self.at += size
        return mem.to_bytes(self.p, self.at - size, size)

    @cython.cfunc
    def _take_long(self, size: cython.Py_ssize_t) -> bytes:
        """Read size bytes in steps, so that a wrong size does not allocate memory."""
        parts: list[bytes] = []
        n: cython.Py_ssize_t
        while size > 0:
            if self.at == self.filled:
                self._fill(1)
            n = min(size, self.filled - self.at)
            parts.append(mem.to_bytes(self.p, self.at, n))
            self.at += n
            size -= n
        return b"".join(parts)

    @cython.cfunc
    def _decompressed(self, at: cython.longlong) -> bytearray:
        """Read the two sizes and the bytes of the compressed string that began at offset `at`."""
        packed: cython.ulonglong = self.length()
        size: cython.ulonglong = self.length()
        if size > STRING_MAX or packed > STRING_MAX or size > packed * LZF_RATIO_MAX:
            raise Damaged(at, f"{packed} compressed bytes cannot expand to a string of {size}")
        data: bytes = b""
        n: cython.Py_ssize_t = packed
        wanted: cython.Py_ssize_t = size
        expanded: cython.Py_ssize_t
        if n > READ_BYTES:
            data = self._take_long(n)
        elif self.filled - self.at < n:
            self._fill(n)
        made: bytearray = bytearray()
        mem.resize(made, wanted)
        out: cython.p_uchar = made
        if n > READ_BYTES:
            expanded = lzf.decompress_into(data, 0, n, out, wanted)
        else:
            expanded = lzf.decompress_into(self.p, self.at, n, out, wanted)
            self.at += n
        if expanded != wanted:
            raise Damaged(at, "a compressed string is damaged")
        return made

    @cython.cfunc
    def _fill(self, n: cython.Py_ssize_t) -> cython.void:
        """Read from the source until the buffer has n unread bytes."""
        self._update_crc()
        piece: bytes
        self.buffer_offset += self.at
        self.filled -= self.at
        mem.move(self.p, 0, self.at, self.filled)
        self.at = self.checksummed_to = 0
        while self.filled < n:
            piece = self.read(READ_BYTES)
            if not piece:
                raise Damaged(self.buffer_offset + self.filled, "it ends here, but more bytes are expected")
            self.feed(piece)
        if self.progress is not None and self.buffer_offset - self.progress_offset >= PROGRESS_BYTES:
            self.progress_offset = self.buffer_offset
            self.progress(self.buffer_offset)

    @cython.cfunc
    def _update_crc(self) -> cython.void:
        """Add the consumed bytes to the checksum."""
        if self.checksum_enabled:
            self.crc = crc64.update(self.crc, self.p, self.checksummed_to, self.at - self.checksummed_to)
        self.checksummed_to = self.at
