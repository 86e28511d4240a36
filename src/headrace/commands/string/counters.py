"""Strings as numbers: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT."""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.string import long_double
from headrace.errors import CommandError
from headrace.keyspace.keyspace import Database

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


class CounterOverflow(CommandError):
    text = "ERR increment or decrement would overflow"


class DecrementOverflow(CommandError):
    text = "ERR decrement would overflow"


@cython.cfunc
def add(call: Call, amount: cython.longlong) -> cython.void:
    """Add the amount to the number at the key (0 if it does not exist); reply with the sum."""
    database: Database = call.database
    key: bytes = call.argv[1]
    value = database.string(key)
    number: cython.longlong = 0
    if value is not None:
        number = arguments.parse_i64(value if isinstance(value, bytes) else bytes(value))
    if amount >= 0:
        if number > I64_MAX - amount:
            raise CounterOverflow()
    elif number < -I64_MAX - 1 - amount:
        raise CounterOverflow()
    number += amount
    store_number(database, key, value, b"%d" % number)
    call.finish_change(key, "$", b"incrby", call.argv)
    call.reply.integer(number)


@cython.cfunc
def store_number(database: Database, key: bytes, before: object, after: bytes) -> cython.void:
    """Store the result; an expiry stays."""
    if before is None:
        database.put(key, after)
    else:
        database.replace(key, after)


def run_incr(call: Call) -> None:
    """INCR: add one."""
    add(call, 1)


def run_decr(call: Call) -> None:
    """DECR: subtract one."""
    add(call, -1)


def run_incrby(call: Call) -> None:
    """INCRBY: add an integer."""
    add(call, arguments.parse_i64(call.argv[2]))


def run_decrby(call: Call) -> None:
    """DECRBY: subtract an integer."""
    amount: cython.longlong = arguments.parse_i64(call.argv[2])
    if amount == -I64_MAX - 1:  # its negative does not fit 64 bits
        raise DecrementOverflow()
    add(call, -amount)


def run_incrbyfloat(call: Call) -> None:
    """INCRBYFLOAT: add a number. The effect is the sum, because other machines may round differently."""
    database: Database = call.database
    key: bytes = call.argv[1]
    value = database.string(key)
    total = long_double.add(b"0" if value is None else bytes(value), call.argv[2])
    store_number(database, key, value, total)
    call.finish_change(key, "$", b"incrbyfloat", [b"SET", key, total, b"KEEPTTL"])
    call.reply.bulk(total)


COMMANDS = [
    Command(
        "incr",
        2,
        run_incr,
        "write denyoom fast",
        keys="1: RW access update",
        group="string",
        summary="Adds one to the integer at a key, which begins as 0.",
        syntax="key",
    ),
    Command(
        "decr",
        2,
        run_decr,
        "write denyoom fast",
        keys="1: RW access update",
        group="string",
        summary="Subtracts one from the integer at a key, which begins as 0.",
        syntax="key",
    ),
    Command(
        "incrby",
        3,
        run_incrby,
        "write denyoom fast",
        keys="1: RW access update",
        group="string",
        summary="Adds to the integer at a key, which begins as 0.",
        syntax="key increment",
    ),
    Command(
        "decrby",
        3,
        run_decrby,
        "write denyoom fast",
        keys="1: RW access update",
        group="string",
        summary="Subtracts from the integer at a key, which begins as 0.",
        syntax="key decrement",
    ),
    Command(
        "incrbyfloat",
        3,
        run_incrbyfloat,
        "write denyoom fast",
        keys="1: RW access update",
        group="string",
        since="2.6.0",
        summary="Adds to the number at a key, which begins as 0.",
        syntax="key increment",
    ),
]
