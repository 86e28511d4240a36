"""Arithmetic that Lua lacks: integers and floats as bytes. lua_numbers.pxd has the same functions in C.

This module is never compiled.
"""

from __future__ import annotations

import math
import struct

from headrace.scripting.lua import State


def _pack(form: bytes, value: float) -> bytes:
    """Return the bytes of a number in the format of the module struct; an integer is cut to the size."""
    kind = form[-1:]
    if kind in b"fd":
        try:
            return struct.pack(form.decode(), value)
        except OverflowError:
            return struct.pack(form.decode(), math.copysign(math.inf, value))
    size = struct.calcsize(form.decode())
    whole = int(value) if math.isfinite(value) else -(1 << 63)
    return (whole & ((1 << 8 * size) - 1)).to_bytes(size, "big" if form[:1] == b">" else "little")


def _unpack(form: bytes, data: bytes) -> float:
    """Return the number that the bytes hold in the format of the module struct."""
    return float(struct.unpack(form.decode(), data)[0])


def add_numbers(state: State) -> None:
    """Add pack_number() and unpack_number() to the shared table."""
    state.add_function(b"pack_number", lambda words: _pack(words[0], words[1]))
    state.add_function(b"unpack_number", lambda words: _unpack(words[0], words[1]))
