"""Arithmetic that Lua 5.1 lacks: integers and floats as bytes, and operations on bits."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

WORD = 0xFFFFFFFF


def pack(form: bytes, value: float) -> bytes:
    """Return the bytes of a number in the format of the module struct; an integer is cut to the size."""
    kind = form[-1:]
    if kind in b"fd":
        try:
            return struct.pack(form.decode(), value)
        except OverflowError:
            return struct.pack(form.decode(), math.copysign(math.inf, value))
    size = struct.calcsize(form.decode())
    whole = int(value) if math.isfinite(value) else -(1 << 63)
    order = "big" if form[:1] == b">" else "little"
    return (whole & ((1 << 8 * size) - 1)).to_bytes(size, "big" if order == "big" else "little")


def unpack(form: bytes, data: bytes) -> float:
    """Return the number that the bytes are."""
    return float(struct.unpack(form.decode(), data)[0])


def _word(value: float) -> int:
    return round(value) & WORD if math.isfinite(value) else 0


def _rotate(value: int, by: int) -> int:
    by &= 31
    return (value << by | value >> (32 - by)) & WORD


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


OPERATIONS: dict[bytes, Callable[[int, int], int]] = {
    b"tobit": lambda a, b: a,
    b"bnot": lambda a, b: ~a,
    b"band": lambda a, b: a & b,
    b"bor": lambda a, b: a | b,
    b"bxor": lambda a, b: a ^ b,
    b"lshift": lambda a, b: a << (b & 31),
    b"rshift": lambda a, b: a >> (b & 31),
    b"arshift": lambda a, b: _signed(a) >> (b & 31),
    b"rol": _rotate,
    b"ror": lambda a, b: _rotate(a, -b),
    b"bswap": lambda a, b: int.from_bytes(a.to_bytes(4, "little"), "big"),
}


def bit_operation(name: bytes, a: float, b: float) -> int:
    """Return the result of an operation on 32-bit words, as a signed number."""
    return _signed(OPERATIONS[name](_word(a), _word(b)) & WORD)
