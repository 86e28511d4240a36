"""The CRC-64 of RDB files and DUMP payloads.

Polynomial ad93d23594c935a9, bits reflected in and out, initial value 0, no final xor. A byte at a time:

    crc = table[(crc ^ byte) & 0xff] ^ crc >> 8

Eight at a time: row r of the table has the effect of a byte that is followed by r more bytes:

    crc   c0 c1 c2 c3 c4 c5 c6 c7        ^ the next eight bytes
          |  |  |  |  |  |  |  |
    row   7  6  5  4  3  2  1  0         look up all eight, and xor the results

Each step depends on the one before, so long runs are read as three lanes in parallel. For a lane, the bytes
after it count as zeros: they advance its CRC, which is then xored with that of the next lane.

    |<- lane a ->|<- lane b ->|<- lane c ->|      crc = advance(advance(a) ^ b) ^ c

Advancing is linear: each bit of the CRC becomes one word, and the words of all set bits are xored.
"""

from __future__ import annotations

import cython

from headrace import mem

REFLECTED_POLYNOMIAL = 0x95AC9329AC4BC9B5  # the polynomial, its lowest bit first
ROWS = 8
LANE_BYTES = cython.declare(cython.Py_ssize_t, 2048)  # bytes: so long that combining lanes costs little


def _build_table() -> bytes:
    """Return the rows, each of 256 little-endian words, one after the other."""
    row = []
    for word in range(256):
        for _ in range(8):
            word = word >> 1 ^ (REFLECTED_POLYNOMIAL if word & 1 else 0)
        row.append(word)
    first = row
    words = list(row)
    for _ in range(ROWS - 1):
        row = [first[word & 0xFF] ^ word >> 8 for word in row]
        words += row
    return b"".join([word.to_bytes(8, "little") for word in words])


def _build_advanced_bits() -> bytes:
    """Return the word that each bit of a CRC, the lowest first, becomes after a lane of zeros."""
    word = 1 << 63  # the polynomial 1; a step multiplies by x
    words = []
    for step in range(8 * LANE_BYTES + 64):
        if step >= 8 * LANE_BYTES:
            words.append(word.to_bytes(8, "little"))
        word = word >> 1 ^ (REFLECTED_POLYNOMIAL if word & 1 else 0)
    return b"".join(reversed(words))


TABLES = cython.declare(bytes, _build_table() + _build_advanced_bits())


@cython.cfunc
@cython.exceptval(check=False)
def update(
    crc: cython.ulonglong, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.ulonglong:
    """Return the CRC of bytes whose CRC is `crc`, followed by the n bytes at p[at:]; crc is 0 at first."""
    tables: cython.p_const_uchar = TABLES
    return update_with_tables(tables, crc, p, at, n)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def update_with_tables(
    tables: cython.p_const_uchar,
    crc: cython.ulonglong,
    p: cython.p_const_uchar,
    at: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.ulonglong:
    """Do the same as update(), given a pointer to TABLES, which can only be taken with the GIL."""
    end: cython.Py_ssize_t = at + n
    lane: cython.Py_ssize_t = LANE_BYTES
    lane_end: cython.Py_ssize_t
    second: cython.ulonglong
    third: cython.ulonglong
    while end - at >= 3 * lane:
        second = third = 0
        lane_end = at + lane
        while at < lane_end:
            crc = _crc_after_word(tables, crc ^ mem.u64le(p, at))
            second = _crc_after_word(tables, second ^ mem.u64le(p, at + lane))
            third = _crc_after_word(tables, third ^ mem.u64le(p, at + 2 * lane))
            at += 8
        crc = _advance(tables, _advance(tables, crc) ^ second) ^ third
        at += 2 * lane
    while end - at >= 8:
        crc = _crc_after_word(tables, crc ^ mem.u64le(p, at))
        at += 8
    while at < end:
        crc = mem.u64le(tables, 8 * ((crc ^ p[at]) & 0xFF)) ^ crc >> 8
        at += 1
    return crc


@cython.cfunc
@cython.nogil
@cython.inline
@cython.exceptval(check=False)
def _crc_after_word(table: cython.p_const_uchar, word: cython.ulonglong) -> cython.ulonglong:
    """Return the CRC after eight bytes; word: these bytes xored with the CRC before them, in one number.

    A row has 1 << 11 bytes.
    """
    return (
        mem.u64le(table, (7 << 11) + 8 * (word & 0xFF))
        ^ mem.u64le(table, (6 << 11) + 8 * (word >> 8 & 0xFF))
        ^ mem.u64le(table, (5 << 11) + 8 * (word >> 16 & 0xFF))
        ^ mem.u64le(table, (4 << 11) + 8 * (word >> 24 & 0xFF))
        ^ mem.u64le(table, (3 << 11) + 8 * (word >> 32 & 0xFF))
        ^ mem.u64le(table, (2 << 11) + 8 * (word >> 40 & 0xFF))
        ^ mem.u64le(table, (1 << 11) + 8 * (word >> 48 & 0xFF))
        ^ mem.u64le(table, 8 * (word >> 56))
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _advance(tables: cython.p_const_uchar, crc: cython.ulonglong) -> cython.ulonglong:
    """Return the CRC after a lane of zeros."""
    advanced: cython.ulonglong = 0
    bit: cython.Py_ssize_t
    for bit in range(64):
        advanced ^= mem.u64le(tables, (8 << 11) + 8 * bit) * (crc >> bit & 1)
    return advanced


@cython.ccall
def crc64(data: bytes, crc: cython.ulonglong = 0) -> cython.ulonglong:
    """Return the CRC of bytes whose CRC is `crc`, followed by data."""
    return update(crc, data, 0, len(data))
