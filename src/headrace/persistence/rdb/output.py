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

RdbOutput writes the bytes of the file. In deferred form it leaves the expensive part to an RdbEncoder, in
another thread (encoder.py): it passes pieces on, in which the strings to compress are raw and marked.

    0                               used            marks_at                  end
    +-------------------------------+---------------+--------+-----+--------+--------+
    | bytes, and strings for LZF    | free          | mark n | ... | mark 2 | mark 1 |
    +-------------------------------+---------------+--------+-----+--------+--------+
                                     mark: offset (u32 le), length (u32 le); no string overlaps another one

A string whose bytes do not change is shared instead of copied: its mark has the bit SHARED_BIT in the length,
its bytes belong between those before and after the offset, and the piece keeps the object that has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from headrace import mem
from headrace.persistence import crc64
from headrace.persistence.lzf import LzfCompressor
from headrace.structures import listpack

BUFFER_BYTES = cython.declare(cython.Py_ssize_t, 1 << 16)
# Of the deferred form, marks included. The encoder's thread needs the GIL twice for each piece, and waits
# 5 ms for it beside a thread that never releases it: with 256 KiB it was then three times slower.
PIECE_BYTES = cython.declare(cython.Py_ssize_t, 1 << 20)
MARK_BYTES = cython.declare(cython.Py_ssize_t, 8)
MARKED_MAX = cython.declare(cython.Py_ssize_t, (1 << 20) - 8)  # a longer string is a piece of its own
SHARED_BIT = cython.declare(cython.uint, 0x80000000)
SHARED_BYTES_MAX = cython.declare(cython.Py_ssize_t, 1 << 22)  # of a piece, about
SHARED_MIN = cython.declare(cython.Py_ssize_t, 512)  # copying a shorter string is cheaper
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
NO_TRAILER = cython.declare(cython.int, 0)
ZERO_TRAILER = cython.declare(cython.int, 1)
CHECKSUM_TRAILER = cython.declare(cython.int, 2)


@cython.final
@cython.cclass
class RdbPiece:
    """A part of a file in deferred form. len() is the number of bytes without marks and trailer."""

    _owner: bytes | bytearray
    p: cython.p_const_uchar
    used: cython.Py_ssize_t
    marks_at: cython.Py_ssize_t
    marks_end: cython.Py_ssize_t
    is_single_string: cython.bint  # all the bytes are one string to compress; there are no marks
    trailer: cython.int  # what the file ends with after this piece
    shared_owners: list[
        Any
    ]  # the objects that have the bytes of the shared strings, in the order of their marks
    shared_bytes: cython.Py_ssize_t  # of these strings
    _spare: list[bytearray] | None  # gets the buffer when it is not needed any more

    def __init__(
        self,
        owner: bytes | bytearray,
        used: cython.Py_ssize_t,
        marks_at: cython.Py_ssize_t,
        whole: cython.bint = False,
        trailer: cython.int = 0,
        spare: list[bytearray] | None = None,
    ) -> None:
        """Create a piece of the first `used` bytes of owner.

        Args:
            owner: must not change before recycle(), which appends a bytearray to `spare`, if that is given.
            marks_at: the index at which the marks begin; they reach to the end of owner.
            whole: all the bytes are one string to compress; there are no marks.
            trailer: NO_TRAILER, ZERO_TRAILER or CHECKSUM_TRAILER.
        """
        self._owner = owner
        self._spare = spare
        self.p = owner
        self.used = used
        self.marks_at = marks_at
        self.marks_end = len(owner)
        self.is_single_string = whole
        self.trailer = trailer
        self.shared_owners = []
        self.shared_bytes = 0

    def __len__(self) -> int:
        return self.used + self.shared_bytes

    def queue_cost(self) -> int:
        """Return how much the piece counts in a queue: its bytes, but shared strings only a quarter."""
        return self.used + self.shared_bytes // 4

    def recycle(self) -> None:
        """Release the shared strings, and make the buffer available for reuse. The piece is useless then."""
        self.shared_owners = []
        if self._spare is not None and isinstance(self._owner, bytearray):
            self._spare.append(self._owner)
            self._spare = None
            self.used = self.shared_bytes = 0


@cython.final
@cython.cclass
class RdbOutput:
    """Writes primitives through a buffer to sink(bytes); without a sink all stays in memory until take().

    crc() covers all that was written, including what is still in the buffer. In deferred form sink gets each
    RdbPiece; then offset() counts strings uncompressed, and only the encoder knows the CRC.
    """

    sink: Callable[[Any], object] | None
    compressor: LzfCompressor | None  # None: strings are not compressed here
    deferred: cython.bint
    marks_strings: cython.bint  # strings are compressed by the encoder
    buf: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t
    used: cython.Py_ssize_t
    flushed: cython.longlong  # bytes passed to the sink
    spare_buffers: list[bytearray]  # buffers of pieces that were encoded
    shared_owners: list[Any]  # the objects of the shared strings of the next piece
    shared_bytes: cython.Py_ssize_t  # of these strings
    _crc: cython.ulonglong  # of the flushed bytes

    def __init__(
        self,
        sink: Callable[[Any], object] | None = None,
        compress: cython.bint = True,
        compressor: LzfCompressor | None = None,
        deferred: cython.bint = False,
    ) -> None:
        """Create an empty output.

        Args:
            compressor: a compressor to reuse; for a short output, creating one would be most of the cost.
            deferred: pass pieces for an RdbEncoder to sink, which must not be None.
        """
        assert sink is not None or not deferred, "the deferred form needs a sink"
        self.sink = sink
        self.deferred = deferred
        self.marks_strings = deferred and compress
        self.compressor = None
        if compress and not deferred:
            self.compressor = LzfCompressor() if compressor is None else compressor
        self.cap = PIECE_BYTES if deferred else BUFFER_BYTES if sink is not None else 256
        self.buf = bytearray(self.cap)
        self.p = self.buf
        self.used = 0
        self.flushed = 0
        self.spare_buffers = []
        self.shared_owners = []
        self.shared_bytes = 0
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
        self.used = put_length(self.p, self.used, n)

    @cython.ccall
    def string(self, value: bytes | bytearray) -> cython.void:
        """Write a string in the form that the rules above give it."""
        n: cython.Py_ssize_t = len(value)
        source: cython.p_const_uchar = value
        if n > MARKED_MAX and self.deferred and isinstance(value, bytes):
            self._pass_string(value)  # without a copy
            return
        self.string_from(source, n)

    @cython.cfunc
    def string_from(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        """Write the first n bytes of source as a string. source must not be the buffer of this output."""
        packed: cython.Py_ssize_t
        compressor: LzfCompressor | None = self.compressor
        if n <= INTEGER_TEXT_MAX and self._try_integer_encoding(source, n):
            return
        if n >= COMPRESSED_MIN:
            if compressor is not None:
                packed = compressor.compress(source, n)
                if packed > 0:
                    self.byte(LZF)
                    self.length(packed)
                    self.length(n)
                    self.raw_from(compressor.p, packed)
                    return
            elif self.marks_strings:
                self._write_marked_string(source, n)
                return
        self.length(n)
        self.raw_from(source, n)

    @cython.ccall
    def shared_string(self, owner: Any, n: cython.Py_ssize_t) -> cython.void:
        """Write the first n bytes of a block as a string; in deferred form without a copy if it is long.

        owner: bytes, a bytearray, or a block of mem.alloc. In deferred form these n bytes must not change
            until the piece has been encoded; the piece keeps the block alive.
        """
        source: cython.p_const_uchar = owner
        if not self.marks_strings or not SHARED_MIN <= n <= MARKED_MAX:
            self.string_from(source, n)
            return
        if self.used + MARK_BYTES > self.cap:
            self.flush()
        self._put_mark(n | SHARED_BIT)
        self.shared_owners.append(owner)
        self.shared_bytes += n
        if self.shared_bytes >= SHARED_BYTES_MAX:
            self.flush()

    @cython.ccall
    def raw(self, data: bytes) -> cython.void:
        """Write bytes without a length."""
        self.raw_from(data, len(data))

    @cython.cfunc
    def raw_from(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        """Write the first n bytes of source as they are, with no length before them."""
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
        """Return the number of bytes written; in deferred form they count before compression."""
        return self.flushed + self.used + self.shared_bytes

    @cython.ccall
    def crc(self) -> cython.ulonglong:
        """Return the CRC-64 of all bytes written; not in deferred form."""
        assert not self.deferred, "the encoder computes the CRC"
        return crc64.update(self._crc, self.p, 0, self.used)

    @cython.ccall
    def flush(self) -> cython.void:
        """Pass the buffered bytes to the sink. Raises what the sink raises."""
        if self.deferred:
            if self.used + self.shared_bytes > 0:
                self._pass_buffer(NO_TRAILER)
        elif self.sink is not None and self.used > 0:
            self._crc = self.crc()
            self.sink(mem.to_bytes(self.p, 0, self.used))
            self.flushed += self.used
            self.used = 0

    @cython.ccall
    def pass_object(self, piece: Any, size: cython.longlong) -> cython.void:
        """Pass an object that is not an RdbPiece, such as a RunPiece, to the sink; only in deferred form.

        size: about how many bytes it stands for in the file.
        """
        assert self.deferred and self.sink is not None
        self.flush()
        self.sink(piece)
        self.flushed += size

    @cython.ccall
    def write_trailer(self, checksum: cython.bint) -> cython.void:
        """Write the last 8 bytes of a file, the CRC-64 or zeros, and flush. Raises what the sink raises."""
        if self.deferred:
            self._pass_buffer(CHECKSUM_TRAILER if checksum else ZERO_TRAILER)
        else:
            self.u64le(self.crc() if checksum else 0)
            self.flush()

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
    def _write_marked_string(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.void:
        """Write a string that the encoder compresses."""
        if n > MARKED_MAX:
            self._pass_string(mem.to_bytes(source, 0, n))
            return
        if self.used + n + MARK_BYTES > self.cap:
            self._make_room(n)
        self._put_mark(n)
        mem.copy(self.p, self.used, source, 0, n)
        self.used += n

    @cython.cfunc
    @cython.inline
    def _put_mark(self, length: cython.uint) -> cython.void:
        """Mark a string at this point; there must be room for the mark."""
        self.cap -= MARK_BYTES
        mem.put_u32le(self.p, self.cap, self.used)
        mem.put_u32le(self.p, self.cap + 4, length)

    @cython.cfunc
    def _pass_string(self, value: bytes) -> cython.void:
        """Pass a long string to the sink as a piece of its own."""
        n: cython.Py_ssize_t = len(value)
        if not self.marks_strings:
            self.length(n)
        self.flush()
        self._pass(RdbPiece(value, n, n, self.marks_strings))
        self.flushed += n

    @cython.cfunc
    def _pass_buffer(self, trailer: cython.int) -> cython.void:
        """Pass the buffer to the sink, and take another one: the encoder needs this one for some time.

        Buffers are recycled. Freeing one would stop both threads, because their table of pages changes.
        """
        buf: bytearray
        if self.spare_buffers:
            buf = self.spare_buffers.pop()
        else:
            buf = bytearray()
            mem.resize(buf, PIECE_BYTES)
        piece: RdbPiece = RdbPiece(self.buf, self.used, self.cap, False, trailer, self.spare_buffers)
        piece.shared_owners = self.shared_owners
        piece.shared_bytes = self.shared_bytes
        self._pass(piece)
        self.flushed += self.used + self.shared_bytes
        self.shared_owners = []
        self.shared_bytes = 0
        self.buf = buf
        self.p = buf
        self.cap = PIECE_BYTES
        self.used = 0

    @cython.cfunc
    def _pass(self, piece: RdbPiece) -> cython.void:
        assert self.sink is not None
        self.sink(piece)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _try_integer_encoding(self, source: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Write the string as an integer and return True if it is a decimal of 32 bits; else return False."""
        if n == 0 or not (48 <= source[0] <= 57 or source[0] == MINUS):
            return False
        if not listpack.is_decimal(source, 0, n):
            return False
        v: cython.longlong = listpack.parse_decimal(source, 0, n)
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


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_length(p: cython.p_uchar, at: cython.Py_ssize_t, n: cython.ulonglong) -> cython.Py_ssize_t:
    """Write a length at `at`, where LENGTH_BYTES_MAX bytes are free; return its end."""
    if n <= 0x3F:
        p[at] = n
        return at + 1
    if n <= 0x3FFF:
        p[at] = LENGTH14 | n >> 8
        p[at + 1] = n & 0xFF
        return at + 2
    if n >> 32 == 0:
        mem.put_u64be(p, at + 1, n << 32)  # the upper half of n; the lower half is overwritten
        p[at] = LENGTH32
        return at + 5
    p[at] = LENGTH64
    mem.put_u64be(p, at + 1, n)
    return at + 9
