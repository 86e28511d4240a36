"""CRC-64 as RDB files and DUMP payloads end with it.

Polynomial ad93d23594c935a9, bits reflected in and out, begun with 0, nothing at the end. A byte at a time:

    crc = table[(crc ^ byte) & 0xff] ^ crc >> 8

Eight at a time, row r of the table says what a byte does to the CRC when r more bytes come after it:

    crc   c0 c1 c2 c3 c4 c5 c6 c7        ^ the next eight bytes
          |  |  |  |  |  |  |  |
    row   7  6  5  4  3  2  1  0         all eight looked up, and the findings xored
"""

from __future__ import annotations

import cython

from headrace import mem

REFLECTED = 0x95AC9329AC4BC9B5  # the polynomial, its lowest bit first
ROWS = 8
ROW = cython.declare(cython.Py_ssize_t, 2048)  # bytes: 256 words


def _build_table() -> bytes:
    """The rows one after the other, each of 256 little-endian words."""
    row = []
    for word in range(256):
        for _ in range(8):
            word = word >> 1 ^ (REFLECTED if word & 1 else 0)
        row.append(word)
    first = row
    words = list(row)
    for _ in range(ROWS - 1):
        row = [first[word & 0xFF] ^ word >> 8 for word in row]
        words += row
    return b"".join([word.to_bytes(8, "little") for word in words])


TABLE = cython.declare(bytes, _build_table())


@cython.cfunc
@cython.exceptval(check=False)
def update(
    crc: cython.ulonglong, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.ulonglong:
    """The CRC of what crc is of, followed by the n bytes at `at` of p."""
    table: cython.p_const_uchar = TABLE
    end: cython.Py_ssize_t = at + n
    while end - at >= 8:
        crc ^= mem.u64le(p, at)
        crc = (
            mem.u64le(table, 7 * ROW + 8 * (crc & 0xFF))
            ^ mem.u64le(table, 6 * ROW + 8 * (crc >> 8 & 0xFF))
            ^ mem.u64le(table, 5 * ROW + 8 * (crc >> 16 & 0xFF))
            ^ mem.u64le(table, 4 * ROW + 8 * (crc >> 24 & 0xFF))
            ^ mem.u64le(table, 3 * ROW + 8 * (crc >> 32 & 0xFF))
            ^ mem.u64le(table, 2 * ROW + 8 * (crc >> 40 & 0xFF))
            ^ mem.u64le(table, ROW + 8 * (crc >> 48 & 0xFF))
            ^ mem.u64le(table, 8 * (crc >> 56))
        )
        at += 8
    while at < end:
        crc = mem.u64le(table, 8 * ((crc ^ p[at]) & 0xFF)) ^ crc >> 8
        at += 1
    return crc


@cython.ccall
def crc64(data: bytes, crc: cython.ulonglong = 0) -> cython.ulonglong:
    """The CRC of data; with crc, that of what crc is of, followed by data."""
    return update(crc, data, 0, len(data))
