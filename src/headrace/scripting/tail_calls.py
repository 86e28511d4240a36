"""Replace tail calls in a compiled chunk of Lua 5.1 by ordinary ones.

A tail call removes the caller from the stack: an error below `return redis.call(...)` would have no line.
In Redis that is a call of a C function, which keeps its caller. The chunk comes from Lua's own compiler.

    header (12 bytes), then a function:
    source | line, last line: int | upvalues, parameters, vararg, stack: byte each
    n: int, n instructions | n, n constants | n, n functions | n, n lines | n, n locals | n, n upvalues
"""

from __future__ import annotations

import struct

HEADER = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"  # 64 bits, little-endian, floats: what this understands
OPCODE_MASK = 0x3F
CALL, TAIL_CALL = 28, 29
NIL, BOOLEAN, NUMBER, STRING = 0, 1, 3, 4
CONSTANT_BYTES = {NIL: 0, BOOLEAN: 1, NUMBER: 8}


def without_tail_calls(chunk: bytes) -> bytes:
    """Return the chunk with ordinary calls; unchanged if it has another format."""
    if not chunk.startswith(HEADER):
        return chunk
    code = bytearray(chunk)
    _function(code, len(HEADER))
    return bytes(code)


def _int(code: bytearray, at: int) -> int:
    value: int = struct.unpack_from("<i", code, at)[0]
    return value


def _skip_string(code: bytearray, at: int) -> int:
    size: int = struct.unpack_from("<Q", code, at)[0]
    return at + 8 + size


def _function(code: bytearray, at: int) -> int:
    """Change the function at `at`; return the offset after it."""
    at = _skip_string(code, at) + 12
    count = _int(code, at)
    at += 4
    for i in range(at, at + 4 * count, 4):
        if code[i] & OPCODE_MASK == TAIL_CALL:
            code[i] = code[i] & ~OPCODE_MASK & 0xFF | CALL
    at += 4 * count
    count = _int(code, at)
    at += 4
    for _ in range(count):
        kind = code[at]
        at = _skip_string(code, at + 1) if kind == STRING else at + 1 + CONSTANT_BYTES[kind]
    count = _int(code, at)
    at += 4
    for _ in range(count):
        at = _function(code, at)
    at += 4 + 4 * _int(code, at)
    count = _int(code, at)
    at += 4
    for _ in range(count):
        at = _skip_string(code, at) + 8
    count = _int(code, at)
    at += 4
    for _ in range(count):
        at = _skip_string(code, at)
    return at
