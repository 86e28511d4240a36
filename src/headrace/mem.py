"""Byte primitives, as the interpreter runs them; mem.pxd says the same in C for compiled callers.

Never compiled itself. A function here takes a buffer and an index, never an address, so that both
meanings can exist; interpreted, an index past the end raises instead of reading stray memory.
"""

from __future__ import annotations

import math
import struct

_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def block(n: int) -> bytearray:
    """Room for n bytes of any content, for its maker alone; compiled, one piece of memory."""
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


def take(buf: bytes | bytearray, at: int, n: int) -> bytes:
    """The n bytes at `at`, as a new bytes object."""
    assert 0 <= at <= at + n <= len(buf), "take past the end"
    return bytes(buf[at : at + n])


def compare(a: bytes | bytearray, a_at: int, b: bytes | bytearray, b_at: int, n: int) -> int:
    """Below, at or above zero as the n bytes of a sort before, with or after those of b."""
    assert 0 <= a_at <= a_at + n <= len(a), "compare past the end"
    assert 0 <= b_at <= b_at + n <= len(b), "compare past the end"
    left = a[a_at : a_at + n]
    right = b[b_at : b_at + n]
    return (left > right) - (left < right)


def copy_word(target: bytearray, target_at: int, source: bytes | bytearray, source_at: int, n: int) -> None:
    """The same as copy, for what is mostly a few bytes: a call less."""
    copy(target, target_at, source, source_at, n)


def same_word(a: bytes | bytearray, a_at: int, b: bytes | bytearray, b_at: int, n: int) -> bool:
    """Whether the n bytes of a, mostly few, are those of b."""
    return compare(a, a_at, b, b_at, n) == 0


def eight_digits(buf: bytes | bytearray, at: int) -> int:
    """The number that the eight digits at `at` say; -1 if they are not all digits."""
    text = take(buf, at, 8)
    return int(text) if text.isdigit() else -1


def find(buf: bytes | bytearray, at: int, end: int, byte: int) -> int:
    """The first place of byte in buf[at:end]; -1 when it is not there."""
    assert 0 <= at <= end <= len(buf), "find past the end"
    return buf.find(byte, at, end)


def u16le(buf: bytes | bytearray, at: int) -> int:
    """The little-endian u16 at `at`."""
    return buf[at] | buf[at + 1] << 8


def put_u16le(buf: bytearray, at: int, v: int) -> None:
    """Write v at `at` as a little-endian u16."""
    assert at + 2 <= len(buf), "put past the end"
    buf[at : at + 2] = v.to_bytes(2, "little")


def u32le(buf: bytes | bytearray, at: int) -> int:
    """The little-endian u32 at `at`."""
    return buf[at] | buf[at + 1] << 8 | buf[at + 2] << 16 | buf[at + 3] << 24


def put_u32le(buf: bytearray, at: int, v: int) -> None:
    """Write v at `at` as a little-endian u32."""
    assert at + 4 <= len(buf), "put past the end"
    buf[at : at + 4] = v.to_bytes(4, "little")


def u64le(buf: bytes | bytearray, at: int) -> int:
    """The little-endian u64 at `at`."""
    assert at + 8 <= len(buf), "read past the end"
    return int.from_bytes(buf[at : at + 8], "little")


def put_u64le(buf: bytearray, at: int, v: int) -> None:
    """Write v at `at` as a little-endian u64."""
    assert at + 8 <= len(buf), "put past the end"
    buf[at : at + 8] = v.to_bytes(8, "little")


def u64be(buf: bytes | bytearray, at: int) -> int:
    """The big-endian u64 at `at`."""
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
    """The i64 with the same 64 bits as the u64 v."""
    return v - ((v & _SIGN) << 1)


def as_unsigned(v: int) -> int:
    """The u64 with the same 64 bits as the i64 v."""
    return v & _MASK


def add_u64(a: int, b: int) -> int:
    """a + b modulo 2^64."""
    return (a + b) & _MASK


def sub_u64(a: int, b: int) -> int:
    """a - b modulo 2^64."""
    return (a - b) & _MASK


def resize(buf: bytearray, n: int) -> None:
    """Make buf n bytes long, keeping its head; what is new holds anything. Borrow pointers into it anew."""
    if n < len(buf):
        del buf[n:]
    else:
        buf.extend(bytes(n - len(buf)))


def put_f64le(buf: bytearray, at: int, v: float) -> None:
    """Write v at `at` as a little-endian IEEE double."""
    assert at + 8 <= len(buf), "put past the end"
    struct.pack_into("<d", buf, at, v)


def put_f32le(buf: bytearray, at: int, v: float) -> None:
    """Write v at `at` as a little-endian IEEE single; what is too large becomes infinity."""
    assert at + 4 <= len(buf), "put past the end"
    try:
        struct.pack_into("<f", buf, at, v)
    except OverflowError:
        struct.pack_into("<f", buf, at, math.copysign(math.inf, v))


def f64_of(buf: bytes | bytearray, at: int, n: int) -> float:
    """The double nearest to the number that the n bytes at `at` say, digits and signs, point and exponent.

    ValueError when they say none. Of other bytes than those nothing is promised.
    """
    assert 0 <= at <= at + n <= len(buf), "read past the end"
    return float(bytes(buf[at : at + n]))


def is_utf8(buf: bytes | bytearray, at: int, n: int) -> bool:
    """Whether the n bytes at `at` are well-formed UTF-8."""
    assert 0 <= at <= at + n <= len(buf), "read past the end"
    try:
        buf[at : at + n].decode()
    except UnicodeDecodeError:
        return False
    return True


def mul_u64(a: int, b: int) -> int:
    """a * b modulo 2^64."""
    return (a * b) & _MASK


def mul_high_u64(a: int, b: int) -> int:
    """The upper 64 bits of the 128 that a * b has."""
    return (a * b) >> 64


def swap_u64(v: int) -> int:
    """The eight bytes of v in opposite order."""
    return int.from_bytes(v.to_bytes(8, "little"), "big")


def zeros_below(v: int) -> int:
    """How many zero bits are below the lowest one that is set in v, which must not be 0."""
    assert v > 0
    return (v & -v).bit_length() - 1


def bits_of(v: int) -> int:
    """How many bits v has, up to the highest that is set; v must not be 0."""
    assert v > 0
    return v.bit_length()


def borrow(owner: object, n: int) -> bytes | bytearray:
    """The first n bytes of an object that lends its memory (bytes, an Arrow buffer), not copied.

    They are there as long as the owner is, which must neither move nor shrink them; ValueError when it has
    fewer.
    """
    view = memoryview(owner).cast("B")  # type: ignore[arg-type]
    if len(view) < n:
        raise ValueError(f"{len(view)} bytes where {n} should be")
    return view[:n]  # type: ignore[return-value]


def f64le(buf: bytes | bytearray, at: int) -> float:
    """The little-endian IEEE double at `at`."""
    number: float = struct.unpack_from("<d", buf, at)[0]
    return number


def truncate(v: float) -> int:
    """v without its fraction; it must lie within an i64."""
    return int(v)
