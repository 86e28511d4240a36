"""OBJECT: the encoding of a value, with Redis's names, for clients that ask."""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.command_rows import help_row
from headrace.commands.spec import Command
from headrace.errors import CommandError, NotAnInteger
from headrace.streams.stream import Stream

EMBEDDED_STRING_BYTES_MAX = 44  # maximum size of a string that Redis stores in one piece with its header
SHARED_REFERENCE_COUNT = 2147483647  # of the integers 0 to 9999, which Redis stores once
MINUS = cython.declare(cython.int, 45)


class NoFrequency(CommandError):
    text = (
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when"
        " switching between policies at runtime LRU and LFU data will take some time to adjust."
    )


@cython.ccall
def encoding(value: object) -> bytes:
    """Return Redis's name for the encoding of the value."""
    if isinstance(value, Stream):
        return b"stream"
    if not isinstance(value, bytes):
        return b"raw"
    try:
        arguments.parse_i64(value)
    except NotAnInteger:
        return b"embstr" if len(value) <= EMBEDDED_STRING_BYTES_MAX else b"raw"
    return b"int"


@cython.cfunc
def value_of(call: Call) -> object:
    """Return the key's value, or None. A missing key counts as a miss, but without the event keymiss."""
    if call.database.contains(call.argv[2]):
        return call.database.find(call.argv[2])
    call.keyspace.misses += 1
    return None


@cython.cfunc
def is_shared(value: object) -> cython.bint:
    """Return whether Redis would share the value between all keys that hold it."""
    if not isinstance(value, bytes) or len(value) > len(b"9999"):
        return False
    return encoding(value) == b"int" and value[0] != MINUS


def run_encoding(call: Call) -> None:
    """OBJECT ENCODING: reply with the encoding, or null if the key does not exist."""
    value = value_of(call)
    call.reply.value(None if value is None else encoding(value))


def run_refcount(call: Call) -> None:
    """OBJECT REFCOUNT: reply with the number of references, or null if the key does not exist."""
    value = value_of(call)
    if value is None:
        call.reply.null()
    else:
        call.reply.integer(SHARED_REFERENCE_COUNT if is_shared(value) else 1)


def run_idletime(call: Call) -> None:
    """OBJECT IDLETIME: reply 0, or null if the key does not exist."""
    call.reply.value(None if value_of(call) is None else 0)


def run_freq(call: Call) -> None:
    """OBJECT FREQ: reply with an error, or null if the key does not exist."""
    if value_of(call) is not None:
        raise NoFrequency()
    call.reply.null()


SUBCOMMANDS = [
    Command(
        "object|encoding",
        3,
        run_encoding,
        "readonly",
        keys="2: RO",
        tips="nondeterministic_output",
        since="2.2.3",
        summary="Names the encoding of a value: int, embstr or raw for a string, stream for a stream.",
        syntax="key",
    ),
    Command(
        "object|freq",
        3,
        run_freq,
        "readonly",
        keys="2: RO",
        tips="nondeterministic_output",
        since="4.0.0",
        summary="Returns a key's access frequency. It is not counted: always an error.",
        syntax="key",
    ),
    Command(
        "object|idletime",
        3,
        run_idletime,
        "readonly",
        keys="2: RO",
        tips="nondeterministic_output",
        since="2.2.3",
        summary="Returns a key's idle time in seconds. It is not measured: always 0.",
        syntax="key",
    ),
    Command(
        "object|refcount",
        3,
        run_refcount,
        "readonly",
        keys="2: RO",
        tips="nondeterministic_output",
        since="2.2.3",
        summary="Counts references to a value: 1, or 2147483647 for the integers 0 to 9999.",
        syntax="key",
    ),
]

COMMANDS = [
    Command(
        "object",
        -2,
        None,
        since="2.2.3",
        summary="Describes how values are stored.",
        complexity="as the subcommand",
        subcommands=[*SUBCOMMANDS, help_row("object", SUBCOMMANDS, since="6.2.0")],
    ),
]
