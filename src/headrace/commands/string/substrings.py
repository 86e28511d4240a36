"""Parts of strings: APPEND, STRLEN, GETRANGE, SETRANGE.

A string that is changed in place becomes a bytearray, and stays one until it is replaced.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.string import strings
from headrace.errors import CommandError
from headrace.keyspace.keyspace import Database
from headrace.limits import BULK_BYTES_MAX


class StringTooLong(CommandError):
    text = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"


class OffsetOutOfRange(CommandError):
    text = "ERR offset is out of range"


def run_strlen(call: Call) -> None:
    """STRLEN: reply with the length in bytes; 0 without the key."""
    value = call.database.string(call.argv[1])
    call.reply.integer(0 if value is None else len(value))


def run_append(call: Call) -> None:
    """APPEND: append to the string; reply with its length."""
    database: Database = call.database
    key: bytes = call.argv[1]
    suffix: bytes = call.argv[2]
    value = database.string(key)
    if value is None:
        database.put(key, suffix)
        call.reply.integer(len(suffix))
    else:
        if len(value) + len(suffix) > BULK_BYTES_MAX:
            raise StringTooLong()
        before: cython.Py_ssize_t = len(value)
        grown: bytearray = value if isinstance(value, bytearray) else bytearray(value)
        grown[before:] = suffix
        if grown is value:
            database.account_growth(before, len(grown))
        database.replace(key, grown)
        call.reply.integer(len(grown))
    call.finish_change(key, "$", b"append", call.argv)


def run_setrange(call: Call) -> None:
    """SETRANGE: overwrite from an offset on, padded with zero bytes if needed; reply with the length."""
    database: Database = call.database
    key: bytes = call.argv[1]
    piece: bytes = call.argv[3]
    offset: cython.longlong = arguments.parse_i64(call.argv[2])
    if offset < 0:
        raise OffsetOutOfRange()
    value = database.string(key)
    if not piece:
        call.reply.integer(0 if value is None else len(value))
        return
    if offset > BULK_BYTES_MAX - len(piece):
        raise StringTooLong()
    grown: bytearray = value if isinstance(value, bytearray) else bytearray(value or b"")
    before: cython.Py_ssize_t = len(grown)
    if offset > len(grown):
        grown[before:] = bytes(offset - before)
    grown[offset : offset + len(piece)] = piece
    if value is None:
        database.put(key, grown)
    else:
        if grown is value:
            database.account_growth(before, len(grown))
        database.replace(key, grown)
    call.finish_change(key, "$", b"setrange", call.argv)
    call.reply.integer(len(grown))


def run_getrange(call: Call) -> None:
    """GETRANGE: reply with the bytes from start to end, both included; negative ones count from the end."""
    start: cython.longlong = arguments.parse_i64(call.argv[2])
    end: cython.longlong = arguments.parse_i64(call.argv[3])
    value = call.database.string(call.argv[1])
    size: cython.longlong = 0 if value is None else len(value)
    if start < 0 and end < 0 and start > end:
        call.reply.bulk(b"")
        return
    if start < 0:
        start = max(start + size, 0)
    if end < 0:
        end = max(end + size, 0)
    end = min(end, size - 1)
    if value is None or start > end:
        call.reply.bulk(b"")
        return
    strings.write_string(call.reply, value[start : end + 1])


COMMANDS = [
    Command(
        "append",
        3,
        run_append,
        "write denyoom fast",
        keys="1: RW insert",
        group="string",
        since="2.0.0",
        summary="Adds bytes to the end of a string; without the key it stores them.",
        syntax="key value",
        complexity="O(N), N being the length of what is added",
    ),
    Command(
        "strlen",
        2,
        run_strlen,
        "readonly fast",
        keys="1: RO",
        group="string",
        since="2.2.0",
        summary="Returns the length of a string in bytes.",
        syntax="key",
    ),
    Command(
        "getrange",
        4,
        run_getrange,
        "readonly",
        keys="1: RO access",
        group="string",
        since="2.4.0",
        summary="Returns a part of a string.",
        syntax="key start end",
        complexity="O(N), N being the length of the part",
    ),
    Command(
        "substr",
        4,
        run_getrange,
        "readonly",
        keys="1: RO access",
        group="string",
        summary="The old name of GETRANGE.",
        syntax="key start end",
        complexity="O(N), N being the length of the part",
    ),
    Command(
        "setrange",
        4,
        run_setrange,
        "write denyoom",
        keys="1: RW update",
        group="string",
        since="2.2.0",
        summary="Overwrites a part of a string, filling with zero bytes up to it.",
        syntax="key offset value",
        complexity="O(N), N being the length of the part, and of the zero bytes",
    ),
]
