"""Replace tail calls in a compiled chunk of LuaJIT by ordinary ones.

A tail call removes the caller from the stack: an error below `return redis.call(...)` would have no line.
In Redis that is a call of a C function, which keeps its caller. The chunk comes from LuaJIT's own compiler.

    ESC L J, version, flags: ULEB128, name unless stripped: ULEB128 n, n bytes
    functions, each: ULEB128 size, then that many bytes; size 0 ends the chunk
        flags, parameters, frame size, upvalues: byte each | ULEB128: constants (2 counts), instructions
        unless stripped: ULEB128: bytes of debug information, and if there are any: first line, lines
        instructions (4 bytes each) | upvalues, constants | the line of each instruction | other such

An instruction is {opcode, A, D} or {opcode, A, C, B}. A tail call becomes a jump to two instructions that are
appended to its function: the call, and a return of all its results.
"""

from __future__ import annotations

CHUNK_HEADER = b"\x1bLJ\x02"
STRIPPED, BIG_ENDIAN = 2, 1
CALL_MULTIPLE, CALL, TAIL_CALL_MULTIPLE, TAIL_CALL, RETURN_MULTIPLE, JUMP = 65, 66, 67, 68, 73, 88
ORDINARY_CALL_OPCODES = {TAIL_CALL: CALL, TAIL_CALL_MULTIPLE: CALL_MULTIPLE}
JUMP_BIAS = 0x8000
JUMP_MAX = 0x7FFF
INSTRUCTION_BYTES = 4


def without_tail_calls(chunk: bytes) -> bytes:
    """Return the chunk with ordinary calls; unchanged if it has another format."""
    if not chunk.startswith(CHUNK_HEADER):
        return chunk
    flags, at = _number(chunk, len(CHUNK_HEADER))
    if flags & (STRIPPED | BIG_ENDIAN):
        return chunk
    size, at = _number(chunk, at)
    at += size
    parts = [chunk[:at]]
    while True:
        size, at = _number(chunk, at)
        if not size:
            break
        function = _function_without_tail_calls(chunk[at : at + size])
        parts += [_uleb(len(function)), function]
        at += size
    return b"".join([*parts, b"\0"])


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the ULEB128 number at an offset, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _uleb(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _function_without_tail_calls(data: bytes) -> bytes:
    """Return one function without tail calls."""
    head, at = data[:4], 4
    counts = []
    for _ in range(4):
        value, at = _number(data, at)
        counts.append(value)
    _, _, count, debug_bytes = counts
    if not debug_bytes:
        return data
    first_line, at = _number(data, at)
    lines, at = _number(data, at)
    width = 1 if lines < 1 << 8 else 2 if lines < 1 << 16 else 4
    code = bytearray(data[at : at + INSTRUCTION_BYTES * count])
    middle = data[at + len(code) : len(data) - debug_bytes]
    debug = data[len(data) - debug_bytes :]
    line_of, rest = bytearray(debug[: width * count]), debug[width * count :]
    for i in range(count):
        opcode = code[INSTRUCTION_BYTES * i]
        distance = len(code) // INSTRUCTION_BYTES - i - 1
        if opcode in ORDINARY_CALL_OPCODES and distance <= JUMP_MAX:
            slot, operand = code[INSTRUCTION_BYTES * i + 1 : INSTRUCTION_BYTES * i + 3]
            code += bytes((ORDINARY_CALL_OPCODES[opcode], slot, operand, 0, RETURN_MULTIPLE, slot, 0, 0))
            jump = bytes((JUMP, slot)) + (JUMP_BIAS + distance).to_bytes(2, "little")
            code[INSTRUCTION_BYTES * i : INSTRUCTION_BYTES * (i + 1)] = jump
            line_of += 2 * line_of[width * i : width * (i + 1)]
    counts[2:] = [len(code) // INSTRUCTION_BYTES, len(line_of) + len(rest)]
    return b"".join([head, *map(_uleb, [*counts, first_line, lines]), code, middle, line_of, rest])
