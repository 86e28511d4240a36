"""When a key dies: EXPIRE and TTL with their relatives, PERSIST.

Recorded is always the moment, `PEXPIREAT key moment`, or DEL when that is past already. Replayed, a moment
that has passed since does not end the key at once: what the key went through before its end follows.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.string.set_options import InvalidExpireTime
from headrace.errors import CommandError
from headrace.keyspace.keyspace import Database

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)

NX = cython.declare(cython.int, 1)
XX = cython.declare(cython.int, 2)
GT = cython.declare(cython.int, 4)
LT = cython.declare(cython.int, 8)


class NxAndOther(CommandError):
    text = "ERR NX and XX, GT or LT options at the same time are not compatible"


class GtAndLt(CommandError):
    text = "ERR GT and LT options at the same time are not compatible"


@cython.cfunc
def parse_conditions(argv: list[bytes]) -> cython.int:
    """The options from the fourth word on, together; refuses those that contradict."""
    conditions: cython.int = 0
    at: cython.Py_ssize_t
    for at in range(3, len(argv)):
        word: bytes = argv[at]
        if arguments.is_keyword(word, b"NX"):
            conditions |= NX
        elif arguments.is_keyword(word, b"XX"):
            conditions |= XX
        elif arguments.is_keyword(word, b"GT"):
            conditions |= GT
        elif arguments.is_keyword(word, b"LT"):
            conditions |= LT
        else:
            raise CommandError("ERR Unsupported option " + word.decode("utf-8", "surrogateescape"))
    if conditions & NX and conditions != NX:
        raise NxAndOther()
    if conditions & GT and conditions & LT:
        raise GtAndLt()
    return conditions


@cython.cfunc
def conditions_hold(conditions: cython.int, moment: cython.longlong, current: cython.longlong) -> cython.bint:
    """Whether a key that dies at current (-1: never, which is later than any moment) may die at moment."""
    if conditions & NX and current != -1:
        return False
    if conditions & XX and current == -1:
        return False
    if conditions & GT and (current == -1 or moment <= current):
        return False
    return not (conditions & LT and current != -1 and moment >= current)


@cython.cfunc
def expire(call: Call, base: cython.longlong, in_seconds: cython.bint) -> cython.void:
    """Let the key die at base plus the amount given, if the conditions hold; answer whether they did."""
    database: Database = call.database
    key: bytes = call.argv[1]
    conditions: cython.int = parse_conditions(call.argv)
    moment: cython.longlong = arguments.parse_i64(call.argv[2])
    if in_seconds:
        if not -(I64_MAX // 1000) <= moment <= I64_MAX // 1000:
            raise InvalidExpireTime(call.command.name.decode())
        moment *= 1000
    if moment > I64_MAX - base:
        raise InvalidExpireTime(call.command.name.decode())
    moment += base
    if database.find(key) is None or not conditions_hold(conditions, moment, database.expiry(key)):
        call.answer.integer(0)
        return
    if moment <= call.now and not call.replayed():
        database.remove(key)
        call.notify("g", b"del", key)
        database.signal_ready(key)
        if call.recording:
            call.record([b"DEL", key])
    else:
        database.set_expiry(key, moment)
        call.notify("g", b"expire", key)
        if call.recording:
            call.record([b"PEXPIREAT", key, b"%d" % moment])
    database.mark_modified(key)
    call.answer.integer(1)


def run_expire(call: Call) -> None:
    """EXPIRE: die in so many seconds."""
    expire(call, call.now, True)


def run_pexpire(call: Call) -> None:
    """PEXPIRE: die in so many milliseconds."""
    expire(call, call.now, False)


def run_expireat(call: Call) -> None:
    """EXPIREAT: die at a moment given in seconds since 1970."""
    expire(call, 0, True)


def run_pexpireat(call: Call) -> None:
    """PEXPIREAT: die at a moment given in milliseconds since 1970."""
    expire(call, 0, False)


@cython.cfunc
def expiry_of(call: Call) -> cython.longlong:
    """When the key dies; -1 for never, -2 without the key: what TTL and its relatives answer."""
    if call.database.find(call.argv[1]) is None:
        return -2
    return call.database.expiry(call.argv[1])


@cython.cfunc
def seconds(ms: cython.longlong) -> cython.longlong:
    """The nearest second."""
    return ms // 1000 + (1 if ms % 1000 >= 500 else 0)


def run_ttl(call: Call) -> None:
    """TTL: seconds to live."""
    moment: cython.longlong = expiry_of(call)
    call.answer.integer(moment if moment < 0 else seconds(moment - call.now))


def run_pttl(call: Call) -> None:
    """PTTL: milliseconds to live."""
    moment: cython.longlong = expiry_of(call)
    call.answer.integer(moment if moment < 0 else moment - call.now)


def run_expiretime(call: Call) -> None:
    """EXPIRETIME: the moment of death in seconds since 1970."""
    moment: cython.longlong = expiry_of(call)
    call.answer.integer(moment if moment < 0 else seconds(moment))


def run_pexpiretime(call: Call) -> None:
    """PEXPIRETIME: the moment of death in milliseconds since 1970."""
    call.answer.integer(expiry_of(call))


def run_persist(call: Call) -> None:
    """PERSIST: live for good; answer whether the key was to die."""
    database: Database = call.database
    key: bytes = call.argv[1]
    if database.find(key) is None or not database.clear_expiry(key):
        call.answer.integer(0)
        return
    call.notify("g", b"persist", key)
    database.mark_modified(key)
    if call.recording:
        call.record_verbatim()
    call.answer.integer(1)


COMMANDS = [
    Command(
        "expire",
        -3,
        run_expire,
        "write fast",
        keys=(1, 1, 1),
        summary="Lets a key die after a number of seconds.",
        syntax="key seconds [NX | XX | GT | LT]",
    ),
    Command(
        "pexpire",
        -3,
        run_pexpire,
        "write fast",
        keys=(1, 1, 1),
        since="2.6.0",
        summary="Lets a key die after a number of milliseconds.",
        syntax="key milliseconds [NX | XX | GT | LT]",
    ),
    Command(
        "expireat",
        -3,
        run_expireat,
        "write fast",
        keys=(1, 1, 1),
        since="1.2.0",
        summary="Lets a key die at a moment given in seconds since 1970.",
        syntax="key unix-time-seconds [NX | XX | GT | LT]",
    ),
    Command(
        "pexpireat",
        -3,
        run_pexpireat,
        "write fast",
        keys=(1, 1, 1),
        since="2.6.0",
        summary="Lets a key die at a moment given in milliseconds since 1970.",
        syntax="key unix-time-milliseconds [NX | XX | GT | LT]",
    ),
    Command(
        "ttl",
        2,
        run_ttl,
        "readonly fast",
        keys=(1, 1, 1),
        summary="Returns how many seconds a key has to live.",
        syntax="key",
    ),
    Command(
        "pttl",
        2,
        run_pttl,
        "readonly fast",
        keys=(1, 1, 1),
        since="2.6.0",
        summary="Returns how many milliseconds a key has to live.",
        syntax="key",
    ),
    Command(
        "expiretime",
        2,
        run_expiretime,
        "readonly fast",
        keys=(1, 1, 1),
        since="7.0.0",
        summary="Returns when a key dies, in seconds since 1970.",
        syntax="key",
    ),
    Command(
        "pexpiretime",
        2,
        run_pexpiretime,
        "readonly fast",
        keys=(1, 1, 1),
        since="7.0.0",
        summary="Returns when a key dies, in milliseconds since 1970.",
        syntax="key",
    ),
    Command(
        "persist",
        2,
        run_persist,
        "write fast",
        keys=(1, 1, 1),
        since="2.2.0",
        summary="Lets a key live for good.",
        syntax="key",
    ),
]
