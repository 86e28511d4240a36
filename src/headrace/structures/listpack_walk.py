"""Functions that read a listpack at pointer p, where `at` is the offset of an element.

An element is `encoding | payload | trailing length`. The first byte of the encoding determines the rest:

    0xxxxxxx                      integer 0..127, the byte itself
    10nnnnnn  n bytes             string of n = 0..63 bytes
    110xxxxx xxxxxxxx             integer -4096..4095, high bits first
    1110nnnn nnnnnnnn  n bytes    string of n = 64..4095 bytes, high bits first
    F0  n u32 le  n bytes         string of more bytes
    F1 F2 F3 F4                   integer of 2, 3, 4, 8 bytes, little-endian
    FF                            the end of the listpack

The trailing length counts encoding and payload, 7 bits a byte, the most significant first; every
byte but the first has its top bit set, so that it can be read from right to left:

    L <= 127  [L]      L <= 16382  [L >> 7] [0x80 | L & 127]      L <= 2097150  three bytes ...

At L = 16383, 2097151 and 268435455 the servers differ: Redis already uses one more byte (00 FF FF), Valkey
does not (7F FF). The first byte shows which. Both forms are read here, Redis's is written.

Only validate_and_count() and checked_next() accept untrusted bytes. All other functions need bytes that were
checked or written by this program.
"""

from __future__ import annotations

import cython

from headrace import mem

HEADER_BYTES = cython.declare(cython.Py_ssize_t, 6)
END_BYTE = cython.declare(cython.uchar, 0xFF)
LONG_STRING = cython.declare(cython.uchar, 0xF0)
INT16 = cython.declare(cython.uchar, 0xF1)
INT24 = cython.declare(cython.uchar, 0xF2)
INT32 = cython.declare(cython.uchar, 0xF3)
INT64 = cython.declare(cython.uchar, 0xF4)
COUNT_UNKNOWN = cython.declare(cython.uint, 65535)
TRAIL_BYTES_MAX = cython.declare(cython.Py_ssize_t, 5)
SHORTER_TRAIL = cython.declare(cython.uchar, 0x7F)
MINUS = cython.declare(cython.uchar, 45)


@cython.cfunc
@cython.exceptval(check=False)
def is_integer(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether the element at `at` is stored as an integer."""
    first: cython.uint = p[at]
    return first < 0x80 or first & 0xE0 == 0xC0 or first > LONG_STRING


@cython.cfunc
@cython.exceptval(check=False)
def integer(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    """Return the value of the integer element at `at`."""
    v: cython.longlong = p[at]
    if v < 0x80:
        return v
    if v < INT16:
        v = (v & 0x1F) << 8 | p[at + 1]
        return v if v < 1 << 12 else v - (1 << 13)
    if v == INT16:
        v = mem.u16le(p, at + 1)
        return v if v < 1 << 15 else v - (1 << 16)
    if v == INT24:
        v = mem.u16le(p, at + 1)
        v |= p[at + 3] << 16
        return v if v < 1 << 23 else v - (1 << 24)
    if v == INT32:
        v = mem.u32le(p, at + 1)
        return v if v <= 0x7FFFFFFF else v - 0x7FFFFFFF - 0x7FFFFFFF - 2
    return mem.as_signed(mem.u64le(p, at + 1))


@cython.cfunc
@cython.exceptval(check=False)
def text_start(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset of the first byte of text of the string element at `at`."""
    if p[at] < 0xC0:
        return at + 1
    return at + 5 if p[at] == LONG_STRING else at + 2


@cython.cfunc
@cython.exceptval(check=False)
def text_size(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the length of the text of the string element at `at`."""
    first: cython.Py_ssize_t = p[at]
    if first < 0xC0:
        return first & 0x3F
    if first == LONG_STRING:
        return mem.u32le(p, at + 1)
    return (first & 0x0F) << 8 | p[at + 1]


@cython.cfunc
@cython.exceptval(check=False)
def encoded_size(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the bytes of encoding and payload of the element at `at`, which its trailing length states."""
    first: cython.uint = p[at]
    if first < 0x80:
        return 1
    if first < 0xC0:
        return 1 + (first & 0x3F)
    if first < 0xE0:
        return 2
    if first < LONG_STRING:
        return 2 + text_size(p, at)
    if first == LONG_STRING:
        return 5 + text_size(p, at)
    return 9 if first == INT64 else first - LONG_STRING + 2


@cython.cfunc
@cython.exceptval(check=False)
def trail_size(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return how many bytes at `at` encode the trailing length `size`, in Redis's or Valkey's form."""
    if size < 0x7F + 1:
        return 1
    n: cython.Py_ssize_t = 2
    ambiguous: cython.Py_ssize_t = 0x3FFF
    while n < TRAIL_BYTES_MAX and size > ambiguous:
        n += 1
        ambiguous = ambiguous << 7 | 0x7F
    if size == ambiguous and n < TRAIL_BYTES_MAX and p[at] != SHORTER_TRAIL:
        return n + 1
    return n


@cython.cfunc
@cython.exceptval(check=False)
def next_at(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset after the element at `at`, which is that of the next element or of the end byte."""
    size: cython.Py_ssize_t = encoded_size(p, at)
    if size < 0x80:
        return at + size + 1
    return at + size + trail_size(p, at + size, size)


@cython.cfunc
@cython.exceptval(check=False)
def previous_at(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset of the element that ends at `at`; -1 if `at` is the first element."""
    if at <= HEADER_BYTES:
        return -1
    size: cython.Py_ssize_t = 0
    group: cython.Py_ssize_t
    shift: cython.uint = 0
    at -= 1
    while True:
        group = p[at] & 0x7F
        size |= group << shift
        if p[at] < 0x80:
            return at - size
        shift += 7
        at -= 1


@cython.cfunc
@cython.exceptval(check=False)
def put_integer_text(p: cython.p_uchar, v: cython.longlong) -> cython.Py_ssize_t:
    """Write v in decimal to p, which must have 20 bytes; return how many bytes were written."""
    if v >= 0:
        return mem.put_decimal(p, 0, v)
    p[0] = MINUS
    return 1 + mem.put_decimal(p, 1, mem.sub_u64(0, mem.as_unsigned(v)))


@cython.ccall
def validate_and_count(data: bytes | bytearray) -> cython.Py_ssize_t:
    """Check that untrusted bytes are a listpack; return the number of its elements.

    Reads nothing outside data and allocates nothing, whatever lengths it contains. Raises ValueError if data
    is not a valid listpack.
    """
    size: cython.Py_ssize_t = len(data)
    if size < HEADER_BYTES + 1:
        raise ValueError(f"a listpack has at least 7 bytes, not {size}")
    p: cython.p_const_uchar = data
    end: cython.Py_ssize_t = size - 1
    total: cython.Py_ssize_t = mem.u32le(p, 0)
    if total != size:
        raise ValueError(f"the listpack header has a size of {total} bytes, there are {size}")
    if p[end] != END_BYTE:
        raise ValueError("the listpack has no end byte")
    at: cython.Py_ssize_t = HEADER_BYTES
    count: cython.Py_ssize_t = 0
    while at < end:
        at = checked_next(p, at, end)
        if at < 0:
            raise ValueError(f"element {count} of the listpack is damaged")
        count += 1
    said: cython.Py_ssize_t = mem.u16le(p, 4)
    if said != COUNT_UNKNOWN and said != count:
        raise ValueError(f"the listpack header has a count of {said} elements, there are {count}")
    return count


@cython.cfunc
@cython.exceptval(check=False)
def checked_next(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the offset after the element at `at`; -1 unless it is valid and ends at `end` or before."""
    first: cython.uint = p[at]
    head: cython.Py_ssize_t = 1
    if first > INT64:
        return -1
    if first == LONG_STRING:
        head = 5
    elif first >= 0xE0:
        head = 2
    if at + head > end:
        return -1
    size: cython.Py_ssize_t = encoded_size(p, at)
    trail: cython.Py_ssize_t = at + size
    if trail >= end:
        return -1
    n: cython.Py_ssize_t = trail_size(p, trail, size)
    if trail + n > end or _decode_trail(p, trail + n, n) != size:
        return -1
    return trail + n


@cython.cfunc
@cython.exceptval(check=False)
def _decode_trail(p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Decode the trailing length that ends at `at`; -1 unless it has exactly n bytes."""
    size: cython.Py_ssize_t = 0
    group: cython.Py_ssize_t
    i: cython.Py_ssize_t
    for i in range(n):
        group = p[at - 1 - i]
        if (group >= 0x80) != (i < n - 1):
            return -1
        size |= (group & 0x7F) << 7 * i
    return size
