"""Strings compared and changed in one step: DIGEST, DELEX, MSETEX.

DIGEST  key
DELEX   key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]
MSETEX  numkeys key value [key value ...] [NX | XX]
        [EX seconds | PX milliseconds | EXAT unix-seconds | PXAT unix-milliseconds | KEEPTTL]

Effects are SET, MSET and DEL, which every version of Redis knows.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments, strict_rules
from headrace.commands.call import Call
from headrace.commands.key_specs import KeyFlags
from headrace.commands.keys import expire
from headrace.commands.spec import Command
from headrace.commands.string import set_options, strings
from headrace.commands.string.set_options import SetOptions
from headrace.errors import CommandError, NotAnInteger, WrongArgumentCount, WrongType
from headrace.keyspace.keyspace import Database

NUMKEYS_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)
FIRST_PAIR_AT = cython.declare(cython.Py_ssize_t, 2)  # of MSETEX


class BadKeyCount(CommandError):
    text = "ERR invalid numkeys value"


class BadPairCount(CommandError):
    text = "ERR wrong number of key-value pairs"


class NotAString(CommandError):
    text = "ERR Key should be of string type if conditions are specified"


class BadCondition(CommandError):
    text = "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"


def run_digest(call: Call) -> None:
    """DIGEST: reply with the hash of the string, 16 hexadecimal digits, or null."""
    value = call.database.string(call.argv[1])
    if value is None:
        call.reply.null()
    else:
        call.reply.bulk(set_options.digest_of(value))


def run_delex(call: Call) -> None:
    """DELEX: remove the key if the condition holds or none is given; reply 1 if it was removed, else 0."""
    argv: list[bytes] = call.argv
    key: bytes = argv[1]
    if len(argv) != 2 and len(argv) != 4:
        raise WrongArgumentCount("delex")
    if len(argv) == 4 and not condition_holds(call, key):
        call.reply.integer(0)
        return
    strict_rules.check_key_removal(call, call.database, key)
    call.reply.integer(1 if expire.remove_key(call, key) else 0)


def delex_key_flags(argv: list[bytes]) -> KeyFlags:
    """Return the flags of the key of a DELEX: it reads the value only with a comparison."""
    return ("RW", "access", "delete") if len(argv) > 2 else ("RM", "delete")


@cython.cfunc
def condition_holds(call: Call, key: bytes) -> cython.bint:
    """Return whether the key exists and the condition of a DELEX holds.

    Raises NotAString, BadCondition or BadDigest.
    """
    try:
        value = strings.read_for_update(call, key)
    except WrongType:
        raise NotAString() from None
    if value is None:
        return False
    condition: cython.int = set_options.parse_comparison(call.argv[2])
    if condition == set_options.ALWAYS:
        raise BadCondition()
    return set_options.comparison_holds(condition, value, call.argv[3])


def msetex_key_positions(argv: list[bytes]) -> list[int]:
    """Return the positions of MSETEX's keys; argv[1] is their number."""
    try:
        count = arguments.parse_i64(argv[1])
    except NotAnInteger:
        raise BadKeyCount() from None
    if not 0 < count <= NUMKEYS_MAX:
        raise BadKeyCount()
    if FIRST_PAIR_AT + 2 * count > len(argv):
        raise BadPairCount()
    return list(range(FIRST_PAIR_AT, FIRST_PAIR_AT + 2 * count, 2))


def run_msetex(call: Call) -> None:
    """MSETEX: store several values with one expiry if the condition holds for all keys; reply 1 or 0."""
    argv: list[bytes] = call.argv
    database: Database = call.database
    positions = msetex_key_positions(argv)
    options: SetOptions = SetOptions()
    options.read_msetex(argv, FIRST_PAIR_AT + 2 * len(positions))
    moment: cython.longlong = 0
    if options.unit != set_options.NO_EXPIRY_UNIT:
        moment = set_options.expiry_ms(call, options.unit, options.expiry_text)
    if options.condition != set_options.ALWAYS:
        wanted: cython.bint = options.condition == set_options.IF_PRESENT
        for at in positions:
            if database.contains(argv[at]) != wanted:
                call.reply.integer(0)
                return
    for at in positions:  # all are stored or none
        strict_rules.check_key_removal(call, database, argv[at])
    start = call.effects.next_index()
    for at in positions:
        if options.unit != set_options.NO_EXPIRY_UNIT:
            strings.store_with_expiry(call, argv[at], argv[at + 1], moment)
        elif options.keep_ttl:
            strings.store_keeping_expiry(call, argv[at], argv[at + 1])
        else:
            strings.store_without_expiry(call, argv[at], argv[at + 1], None)
    if options.unit == set_options.NO_EXPIRY_UNIT and not options.keep_ttl:
        call.record([b"MSET", *argv[FIRST_PAIR_AT : FIRST_PAIR_AT + 2 * len(positions)]])
    call.effects.make_atomic(start)
    call.reply.integer(1)


COMMANDS = [
    Command(
        "digest",
        2,
        run_digest,
        "readonly fast",
        keys="1: RO access",
        group="string",
        since="8.4.0",
        summary="Returns the XXH3 hash of the string at a key, in hexadecimal.",
        syntax="key",
        complexity="O(N), N being the length of the string",
    ),
    Command(
        "delex",
        -2,
        run_delex,
        "write fast",
        keys="1: RW delete variable_flags",
        varying_use=delex_key_flags,
        group="string",
        since="8.4.0",
        summary="Removes a key, if its string or the hash of it compares as requested.",
        syntax="key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]",
        complexity="O(N), N being the length of the string",
    ),
    Command(
        "msetex",
        -4,
        run_msetex,
        "write denyoom",
        keys="numkeys 1/2: OW update",
        find_keys=msetex_key_positions,
        tips="request_policy:multi_shard response_policy:all_succeeded",
        group="string",
        since="8.4.0",
        summary="Stores several strings at once, optionally with a condition and an expiry.",
        syntax="numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds"
        " | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        complexity="O(N), N being the number of keys",
    ),
]
