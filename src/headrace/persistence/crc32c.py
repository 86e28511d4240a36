"""The CRC-32C of commits in the log.

Polynomial 1edc6f41 (Castagnoli), bits reflected in and out, initial value and final xor ffffffff: the CRC of
iSCSI, ext4 and Kafka (RFC 3720, appendix B.4). x86-64 has an instruction for it, which reads eight bytes in
three cycles. Other processors use a table of 16 words, twice for each byte:

    crc = crc ^ byte;  crc = table[crc & 15] ^ crc >> 4;  crc = table[crc & 15] ^ crc >> 4
"""

from __future__ import annotations

import cython

from headrace import mem

REFLECTED_POLYNOMIAL = 0x82F63B78  # the polynomial, its lowest bit first


def _build_table() -> bytes:
    """Return the effect of each four bits, as 16 little-endian words."""
    words = []
    for word in range(16):
        for _ in range(4):
            word = word >> 1 ^ (REFLECTED_POLYNOMIAL if word & 1 else 0)
        words.append(word.to_bytes(4, "little"))
    return b"".join(words)


TABLE = cython.declare(bytes, _build_table())
ALL_BITS = cython.declare(cython.uint, 0xFFFFFFFF)  # as a literal it would be an object


@cython.cfunc
@cython.exceptval(check=False)
def update(
    crc: cython.uint, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.uint:
    """Return the CRC of bytes whose CRC is `crc`, followed by the n bytes at p[at:]; crc is 0 at first."""
    if mem.has_crc32c():
        return mem.crc32c(p, at, n, crc ^ ALL_BITS) ^ ALL_BITS
    return update_by_table(crc, p, at, n)


@cython.cfunc
@cython.exceptval(check=False)
def update_by_table(
    crc: cython.uint, p: cython.p_const_uchar, at: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.uint:
    """Do the same as update(), on any processor."""
    table: cython.p_const_uchar = TABLE
    end: cython.Py_ssize_t = at + n
    crc ^= ALL_BITS
    while at < end:
        crc ^= p[at]
        crc = mem.u32le(table, 4 * (crc & 15)) ^ crc >> 4
        crc = mem.u32le(table, 4 * (crc & 15)) ^ crc >> 4
        at += 1
    return crc ^ ALL_BITS


@cython.ccall
def crc32c(data: bytes, crc: cython.uint = 0, table: cython.bint = False) -> cython.uint:
    """Return the CRC of bytes whose CRC is `crc`, followed by data; table: do not use the CRC instruction."""
    return update_by_table(crc, data, 0, len(data)) if table else update(crc, data, 0, len(data))
