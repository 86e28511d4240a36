"""Byte primitives for the interpreter; mem.pxd has the same functions in C for compiled callers.

This module is never compiled. A function takes a buffer and an index, never an address, so that both
versions can exist. In the interpreter an index past the end raises instead of reading other memory.
"""

from __future__ import annotations

import math
import struct
from typing import Any

_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def alloc(n: int) -> bytearray:
    """Return a buffer of n bytes with undefined content, private to the caller; compiled, one allocation."""
    return bytearray(n)


def copy(target: bytearray, target_at: int, source: bytes | bytearray, source_at: int, n: int) -> None:
    """Copy n bytes of source over target. The two must not overlap."""
    assert 0 <= target_at <= target_at + n <= len(target), "copy past the end of the target"
    assert 0 <= source_at <= source_at + n <= len(source), "copy past the end of the source"
    target[target_at : target_at + n] = source[source_at : source_at + n]


def move(buf: bytearray, to: int, at: int, n: int) -> None:
    """Copy n bytes within buf; the two ranges may overlap."""
    assert 0 <= to <= to + n <= len(buf), "move past the end"
    assert 0 <= at <= at + n <= len(buf), "move from past the end"
    buf[to : to + n] = buf[at : at + n]


def to_bytes(buf: bytes | bytearray, at: int, n: int) -> bytes:
    """Return the n bytes at `at` as a new bytes object."""
    assert 0 <= at <= at + n <= len(buf), "to_bytes past the end"
    return bytes(buf[at : at + n])


def compare(a: bytes | bytearray, a_at: int, b: bytes | bytearray, b_at: int, n: int) -> int:
    """Compare n bytes of a and b as memcmp does: return a negative number, 0 or a positive number."""
    assert 0 <= a_at <= a_at + n <= len(a), "compare past the end"
    assert 0 <= b_at <= b_at + n <= len(b), "compare past the end"
    left = a[a_at : a_at + n]
    right = b[b_at : b_at + n]
    return (left > right) - (left < right)


def copy_short(target: bytearray, target_at: int, source: bytes | bytearray, source_at: int, n: int) -> None:
    """Do the same as copy(), faster for a few bytes: compiled, it avoids a call."""
    copy(target, target_at, source, source_at, n)


def equal_bytes(a: bytes | bytearray, a_at: int, b: bytes | bytearray, b_at: int, n: int) -> bool:
    """Return whether the n bytes of a and b are equal; fastest for a few bytes."""
    return compare(a, a_at, b, b_at, n) == 0


def parse_8_digits(buf: bytes | bytearray, at: int) -> int:
    """Return the number written as eight digits at `at`; -1 if they are not all digits."""
    text = to_bytes(buf, at, 8)
    return int(text) if text.isdigit() else -1


def find(buf: bytes | bytearray, at: int, end: int, byte: int) -> int:
    """Return the first index of byte in buf[at:end]; -1 if it is not there."""
    assert 0 <= at <= end <= len(buf), "find past the end"
    return buf.find(byte, at, end)


def u16le(buf: bytes | bytearray, at: int) -> int:
    """Return the little-endian u16 at `at`."""
    return buf[at] | buf[at + 1] << 8


def put_u16le(buf: bytearray, at: int, v: int) -> None:
    """Write v at `at` as a little-endian u16."""
    assert at + 2 <= len(buf), "put past the end"
    buf[at : at + 2] = v.to_bytes(2, "little")


def u32le(buf: bytes | bytearray, at: int) -> int:
    """Return the little-endian u32 at `at`."""
    return buf[at] | buf[at + 1] << 8 | buf[at + 2] << 16 | buf[at + 3] << 24


def put_u32le(buf: bytearray, at: int, v: int) -> None:
    """Write v at `at` as a little-endian u32."""
    assert at + 4 <= len(buf), "put past the end"
    buf[at : at + 4] = v.to_bytes(4, "little")


def u64le(buf: bytes | bytearray, at: int) -> int:
    """Return the little-endian u64 at `at`."""
    assert at + 8 <= len(buf), "read past the end"
    return int.from_bytes(buf[at : at + 8], "little")


def put_u64le(buf: bytearray, at: int, v: int) -> None:
    """Write v at `at` as a little-endian u64."""
    assert at + 8 <= len(buf), "put past the end"
    buf[at : at + 8] = v.to_bytes(8, "little")


def u64be(buf: bytes | bytearray, at: int) -> int:
    """Return the big-endian u64 at `at`."""
    assert at + 8 <= len(buf), "read past the end"
    return int.from_bytes(buf[at : at + 8], "big")


def put_u64be(buf: bytearray, at: int, v: int) -> None:
    """Write v at `at` as a big-endian u64."""
    assert at + 8 <= len(buf), "put past the end"
    buf[at : at + 8] = v.to_bytes(8, "big")


def put_decimal(buf: bytearray, at: int, v: int) -> int:
    """Write the decimal digits of the unsigned v at `at`; return how many there are (1 to 20)."""
    digits = str(v).encode()
    assert v >= 0 and at + len(digits) <= len(buf), "put past the end"
    buf[at : at + len(digits)] = digits
    return len(digits)


def put_two_digits(buf: bytearray, at: int, v: int) -> None:
    """Write v, which is below 100, at `at` as two digits."""
    assert 0 <= v < 100 and at + 2 <= len(buf), "put past the end"
    buf[at : at + 2] = b"%02d" % v


def as_signed(v: int) -> int:
    """Return the i64 with the same 64 bits as the u64 v."""
    return v - ((v & _SIGN) << 1)


def as_unsigned(v: int) -> int:
    """Return the u64 with the same 64 bits as the i64 v."""
    return v & _MASK


def add_u64(a: int, b: int) -> int:
    """Return a + b modulo 2^64."""
    return (a + b) & _MASK


def sub_u64(a: int, b: int) -> int:
    """Return a - b modulo 2^64."""
    return (a - b) & _MASK


def resize(buf: bytearray, n: int) -> None:
    """Make buf n bytes long; new bytes are undefined. Pointers into buf become invalid: get them again."""
    if n < len(buf):
        del buf[n:]
    else:
        buf.extend(bytes(n - len(buf)))


def put_f64le(buf: bytearray, at: int, v: float) -> None:
    """Write v at `at` as a little-endian IEEE double."""
    assert at + 8 <= len(buf), "put past the end"
    struct.pack_into("<d", buf, at, v)


def put_f32le(buf: bytearray, at: int, v: float) -> None:
    """Write v at `at` as a little-endian IEEE single; a value out of range becomes infinity."""
    assert at + 4 <= len(buf), "put past the end"
    try:
        struct.pack_into("<f", buf, at, v)
    except OverflowError:
        struct.pack_into("<f", buf, at, math.copysign(math.inf, v))


def parse_f64(buf: bytes | bytearray, at: int, n: int) -> float:
    """Return the double nearest to the decimal number in the n bytes at `at`.

    The bytes must be digits, signs, a point and an exponent; the result for others is undefined.
    Raises ValueError if they are not a number.
    """
    assert 0 <= at <= at + n <= len(buf), "read past the end"
    return float(bytes(buf[at : at + n]))


def is_utf8(buf: bytes | bytearray, at: int, n: int) -> bool:
    """Return whether the n bytes at `at` are well-formed UTF-8."""
    assert 0 <= at <= at + n <= len(buf), "read past the end"
    try:
        buf[at : at + n].decode()
    except UnicodeDecodeError:
        return False
    return True


def ctz64(v: int) -> int:
    """Return the number of trailing zero bits of v, which must not be 0."""
    assert v > 0
    return (v & -v).bit_length() - 1


def bit_length(v: int) -> int:
    """Return the position of the highest set bit of v, counted from 1; v must not be 0."""
    assert v > 0
    return v.bit_length()


def borrow(owner: object, n: int) -> bytes | bytearray:
    """Return the first n bytes of an object with the buffer protocol (bytes, Arrow buffer), without a copy.

    They are valid as long as the owner exists; it must neither move nor shrink them. Raises ValueError if
    the owner has fewer bytes.
    """
    view = memoryview(owner).cast("B")  # type: ignore[arg-type]
    if len(view) < n:
        raise ValueError(f"{len(view)} bytes where {n} should be")
    return view[:n]  # type: ignore[return-value]


def tail(buf: bytes | bytearray, at: int) -> bytes | bytearray:
    """Return the bytes from `at` on, without a copy. They are valid as long as buf is valid."""
    return memoryview(buf)[at:]  # type: ignore[return-value]


def alloc_pointers(n: int) -> Any:
    """Return an array for n pointers; compiled, a block of bytes."""
    return [None] * n


def put_pointer(array: Any, i: int, p: bytes | bytearray) -> None:
    """Store p at index i."""
    array[i] = p


def pointer_at(array: Any, i: int) -> bytes | bytearray:
    """Return the pointer at index i."""
    p: bytes | bytearray = array[i]
    return p


def f64le(buf: bytes | bytearray, at: int) -> float:
    """Return the little-endian IEEE double at `at`."""
    number: float = struct.unpack_from("<d", buf, at)[0]
    return number


def truncate(v: float) -> int:
    """Return v without its fraction; it must fit into an i64."""
    return int(v)


def has_crc32c() -> bool:
    """Return whether crc32c() works here: compiled, on a processor that has the instruction."""
    return False


def crc32c(buf: bytes | bytearray, at: int, n: int, crc: int) -> int:
    """Return the CRC-32C `crc` continued with the n bytes at `at`, without inverting it before or after.

    Call it only if has_crc32c() is true. Raises NotImplementedError in the interpreter.
    """
    raise NotImplementedError("crc32c() exists only compiled: ask has_crc32c() first")
