"""Expiry of keys: EXPIRE, TTL and their variants, PERSIST.

The effect is always the absolute time, `PEXPIREAT key time`, or DEL if that has passed. In a replay a time
that has passed does not remove the key at once: the log contains later changes of the key, and its removal.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments, strict_rules
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.string.set_options import InvalidExpireTime
from headrace.errors import CommandError, to_text
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
    """Return the conditions in argv[3] and after, as bits: NX, XX, GT, LT.

    Raises CommandError if a word is unknown, or if conditions contradict each other.
    """
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
            raise CommandError("ERR Unsupported option " + to_text(word))
    if conditions & NX and conditions != NX:
        raise NxAndOther()
    if conditions & GT and conditions & LT:
        raise GtAndLt()
    return conditions


@cython.cfunc
def conditions_hold(conditions: cython.int, moment: cython.longlong, current: cython.longlong) -> cython.bint:
    """Return whether the expiry may change from `current` (-1: never, later than any time) to `moment`."""
    if conditions & NX and current != -1:
        return False
    if conditions & XX and current == -1:
        return False
    if conditions & GT and (current == -1 or moment <= current):
        return False
    return not (conditions & LT and current != -1 and moment >= current)


@cython.ccall
def remove_key(call: Call, key: bytes) -> cython.bint:
    """Remove the key, recorded as DEL; return whether it existed."""
    if not call.database.remove(key):
        return False
    call.finish_change_and_retry_waiters(key, "g", b"del", [b"DEL", key])
    return True


@cython.cfunc
def set_expiry(call: Call, key: bytes, moment: cython.longlong) -> cython.void:
    """Set an existing key's expiry, in milliseconds since 1970; recorded as PEXPIREAT."""
    call.database.set_expiry(key, moment)
    call.finish_change(key, "g", b"expire", [b"PEXPIREAT", key, b"%d" % moment])


@cython.cfunc
def expire(call: Call, base: cython.longlong, in_seconds: cython.bint) -> cython.void:
    """Set the expiry to base (in milliseconds) plus the given amount, if the conditions hold.

    The reply is 1; 0 if a condition does not hold or there is no key. If the time has passed, the key is
    removed.
    """
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
    value = database.find(key)
    if value is None or not conditions_hold(conditions, moment, database.expiry(key)):
        call.reply.integer(0)
        return
    strict_rules.check_expiry(call, key, value)
    if moment <= call.now and not call.replayed():
        remove_key(call, key)
    else:
        set_expiry(call, key, moment)
    call.reply.integer(1)


def run_expire(call: Call) -> None:
    """EXPIRE: set the expiry in seconds from now on."""
    expire(call, call.now, True)


def run_pexpire(call: Call) -> None:
    """PEXPIRE: set the expiry in milliseconds from now on."""
    expire(call, call.now, False)


def run_expireat(call: Call) -> None:
    """EXPIREAT: set the expiry to a time in seconds since 1970."""
    expire(call, 0, True)


def run_pexpireat(call: Call) -> None:
    """PEXPIREAT: set the expiry to a time in milliseconds since 1970."""
    expire(call, 0, False)


@cython.cfunc
def expiry_of(call: Call) -> cython.longlong:
    """Return when the key expires, in milliseconds since 1970; -1 means never, -2 that there is no key."""
    if call.database.find(call.argv[1]) is None:
        return -2
    return call.database.expiry(call.argv[1])


@cython.cfunc
def rounded_seconds(ms: cython.longlong) -> cython.longlong:
    """Round milliseconds to the nearest second."""
    return ms // 1000 + (1 if ms % 1000 >= 500 else 0)


def run_ttl(call: Call) -> None:
    """TTL: reply with the seconds until the key expires; -1 if it does not, -2 if there is no key."""
    moment: cython.longlong = expiry_of(call)
    call.reply.integer(moment if moment < 0 else rounded_seconds(moment - call.now))


def run_pttl(call: Call) -> None:
    """PTTL: reply with the milliseconds until the key expires; -1: it does not, -2: there is no key."""
    moment: cython.longlong = expiry_of(call)
    call.reply.integer(moment if moment < 0 else moment - call.now)


def run_expiretime(call: Call) -> None:
    """EXPIRETIME: reply with the expiry in seconds since 1970; -1: it has none, -2: there is no key."""
    moment: cython.longlong = expiry_of(call)
    call.reply.integer(moment if moment < 0 else rounded_seconds(moment))


def run_pexpiretime(call: Call) -> None:
    """PEXPIRETIME: reply with the expiry in milliseconds since 1970; -1: none, -2: there is no key."""
    call.reply.integer(expiry_of(call))


def run_persist(call: Call) -> None:
    """PERSIST: remove the expiry; reply whether there was one."""
    database: Database = call.database
    key: bytes = call.argv[1]
    if database.find(key) is None or not database.clear_expiry(key):
        call.reply.integer(0)
        return
    call.finish_change(key, "g", b"persist", call.argv)
    call.reply.integer(1)


COMMANDS = [
    Command(
        "expire",
        -3,
        run_expire,
        "write fast",
        keys="1: RW update",
        summary="Sets a key's time to live in seconds.",
        syntax="key seconds [NX | XX | GT | LT]",
    ),
    Command(
        "pexpire",
        -3,
        run_pexpire,
        "write fast",
        keys="1: RW update",
        since="2.6.0",
        summary="Sets a key's time to live in milliseconds.",
        syntax="key milliseconds [NX | XX | GT | LT]",
    ),
    Command(
        "expireat",
        -3,
        run_expireat,
        "write fast",
        keys="1: RW update",
        since="1.2.0",
        summary="Sets a key's expiry, in seconds since 1970.",
        syntax="key unix-time-seconds [NX | XX | GT | LT]",
    ),
    Command(
        "pexpireat",
        -3,
        run_pexpireat,
        "write fast",
        keys="1: RW update",
        since="2.6.0",
        summary="Sets a key's expiry, in milliseconds since 1970.",
        syntax="key unix-time-milliseconds [NX | XX | GT | LT]",
    ),
    Command(
        "ttl",
        2,
        run_ttl,
        "readonly fast",
        keys="1: RO access",
        tips="nondeterministic_output",
        summary="Returns a key's time to live in seconds.",
        syntax="key",
    ),
    Command(
        "pttl",
        2,
        run_pttl,
        "readonly fast",
        keys="1: RO access",
        tips="nondeterministic_output",
        since="2.6.0",
        summary="Returns a key's time to live in milliseconds.",
        syntax="key",
    ),
    Command(
        "expiretime",
        2,
        run_expiretime,
        "readonly fast",
        keys="1: RO access",
        since="7.0.0",
        summary="Returns a key's expiry, in seconds since 1970.",
        syntax="key",
    ),
    Command(
        "pexpiretime",
        2,
        run_pexpiretime,
        "readonly fast",
        keys="1: RO access",
        since="7.0.0",
        summary="Returns a key's expiry, in milliseconds since 1970.",
        syntax="key",
    ),
    Command(
        "persist",
        2,
        run_persist,
        "write fast",
        keys="1: RW update",
        since="2.2.0",
        summary="Removes a key's expiry.",
        syntax="key",
    ),
]
