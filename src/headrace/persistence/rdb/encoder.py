"""Encode the pieces of RDB data of RdbOutput: compress the strings that it marked, compute the CRC-64.

    piece      bytes | string          | bytes | shared string  | bytes
    encoded    bytes | C3 length length | bytes | length         | bytes | CRC-64, if it is the last piece
                     | compressed       |       | string         |

The encoded pieces, one after the other, are equal to what the direct form writes. The work is done without
the GIL, so that other threads run Python meanwhile.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem, system
from headrace.persistence import crc64, lzf
from headrace.persistence.lzf import LzfCompressor
from headrace.persistence.rdb import output
from headrace.persistence.rdb.output import RdbPiece

CAP_KEPT_MAX = cython.declare(cython.Py_ssize_t, 1 << 23)  # a larger buffer is kept until the next piece
# Between two moments at which a thread that waits for this core can run: it would wait for milliseconds until
# the scheduler's next tick, even if it has a higher priority.
YIELD_BYTES = cython.declare(cython.Py_ssize_t, 1 << 14)
TRAILER_BYTES = cython.declare(cython.Py_ssize_t, 8)


@cython.final
@cython.cclass
class RdbEncoder:
    """Encodes the pieces of one file, in their order. Use it in one thread at a time."""

    size: cython.longlong  # bytes encoded so far
    crc: cython.ulonglong  # their CRC-64, without the trailer
    compressor: LzfCompressor
    out: bytearray
    p: cython.p_uchar
    cap: cython.Py_ssize_t

    def __init__(self) -> None:
        self.size = 0
        self.crc = 0
        self.compressor = LzfCompressor()
        self.cap = 0
        self.out = bytearray()
        self.p = self.out

    @cython.ccall
    def encode(self, piece: RdbPiece) -> memoryview:
        """Return the encoded piece; the next call overwrites it."""
        compressor: LzfCompressor = self.compressor
        size: cython.Py_ssize_t = len(piece)
        compressor.reserve(size if piece.is_single_string else min(size, output.MARKED_MAX))
        self._reserve(piece, size)
        block: Any = _pointers_of(piece)
        shared: cython.p_const_uchar = block
        shared_at: cython.Py_ssize_t = 0  # the next shared string
        source: cython.p_const_uchar = piece.p
        end: cython.Py_ssize_t = piece.used
        mark: cython.Py_ssize_t = piece.marks_end
        marks_at: cython.Py_ssize_t = piece.marks_at
        whole: cython.bint = piece.is_single_string
        trailer: cython.int = piece.trailer
        out: cython.p_uchar = self.p
        packed: cython.p_uchar = compressor.p
        table: cython.p_uchar = compressor.table
        tables: cython.p_const_uchar = crc64.TABLES
        crc: cython.ulonglong = self.crc
        done: cython.Py_ssize_t = 0  # bytes of source
        used: cython.Py_ssize_t = 0  # bytes of out
        summed: cython.Py_ssize_t = 0  # of these, in the CRC
        at: cython.Py_ssize_t
        n: cython.Py_ssize_t
        with cython.nogil:
            if whole:
                used = _put_string(source, 0, end, out, 0, packed, table)
                done = end
            while True:
                if used - summed >= YIELD_BYTES:
                    crc = crc64.update_with_tables(tables, crc, out, summed, used - summed)
                    summed = used
                    system.yield_core()
                at = mem.u32le(source, mark - output.MARK_BYTES) if mark > marks_at else end
                n = min(at - done, YIELD_BYTES)
                mem.copy(out, used, source, done, n)
                used += n
                done += n
                if done < at:
                    continue
                if mark == marks_at:
                    break
                mark -= output.MARK_BYTES
                n = mem.u32le(source, mark + 4)
                if n & output.SHARED_BIT:
                    n -= output.SHARED_BIT
                    used = _put_string(mem.pointer_at(shared, shared_at), 0, n, out, used, packed, table)
                    shared_at += 1
                else:
                    used = _put_string(source, at, n, out, used, packed, table)
                    done += n
            crc = crc64.update_with_tables(tables, crc, out, summed, used - summed)
            if trailer != output.NO_TRAILER:
                mem.put_u64le(out, used, crc if trailer == output.CHECKSUM_TRAILER else 0)
                used += TRAILER_BYTES
        self.crc = crc
        self.size += used
        return memoryview(self.out)[:used]

    @cython.cfunc
    def _reserve(self, piece: RdbPiece, size: cython.Py_ssize_t) -> cython.void:
        """Make `out` large enough: each string grows by its length at most. A view keeps the old buffer."""
        strings: cython.Py_ssize_t = (piece.marks_end - piece.marks_at) // output.MARK_BYTES + 1
        need: cython.Py_ssize_t = size + strings * output.LENGTH_BYTES_MAX + TRAILER_BYTES
        if need > self.cap or self.cap > CAP_KEPT_MAX:
            self.out = bytearray()
            mem.resize(self.out, need)
            self.p = self.out
            self.cap = need


@cython.cfunc
def _pointers_of(piece: RdbPiece) -> Any:
    """Return an array of pointers to the shared strings, which is valid as long as the piece is."""
    shared: list[Any] = piece.shared_owners
    block: Any = mem.alloc_pointers(len(shared))
    array: cython.p_uchar = block
    p: cython.p_const_uchar
    i: cython.Py_ssize_t
    for i in range(len(shared)):
        p = shared[i]
        mem.put_pointer(array, i, p)
    return block


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_string(
    source: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    out: cython.p_uchar,
    used: cython.Py_ssize_t,
    packed: cython.p_uchar,
    table: cython.p_uchar,
) -> cython.Py_ssize_t:
    """Write the string of n bytes at `at` of source to out; return its end. packed is for LZF."""
    size: cython.Py_ssize_t = lzf.compress_into(mem.tail(source, at), n, packed, table)
    if size == 0:
        used = output.put_length(out, used, n)
        mem.copy(out, used, source, at, n)
        return used + n
    out[used] = output.LZF
    used = output.put_length(out, used + 1, size)
    used = output.put_length(out, used, n)
    mem.copy(out, used, packed, 0, size)
    return used + size
