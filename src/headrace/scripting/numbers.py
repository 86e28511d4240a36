"""Arithmetic that Lua lacks: integers and floats as bytes."""

from __future__ import annotations

import math
import struct


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
