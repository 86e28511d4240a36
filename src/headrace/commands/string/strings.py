"""Whole strings: SET, GET and their variants.

Effects do not depend on the time of a replay: `SET k v EX 10` is recorded as `SET k v PXAT time`.
"""

from __future__ import annotations

import cython

from headrace.commands import strict_rules
from headrace.commands.call import Call
from headrace.commands.key_specs import KeyFlags
from headrace.commands.keys import expire
from headrace.commands.spec import Command
from headrace.commands.string import set_options
from headrace.commands.string.set_options import SetOptions
from headrace.errors import WrongArgumentCount
from headrace.keyspace.keyspace import Database
from headrace.resp.writer import ReplyWriter

# With them SET reads the value that it replaces.
READING_OPTIONS = frozenset({b"GET", b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"})


@cython.cfunc
def write_string(reply: ReplyWriter, value: bytes | bytearray | None) -> cython.void:
    """Write a string value, or null for None."""
    if value is None:
        reply.null()
    elif isinstance(value, bytes):
        reply.bulk(value)
    else:
        reply.bulk(bytes(value))


@cython.cfunc
def read_for_update(call: Call, key: bytes) -> bytes | bytearray | None:
    """Return the string that a command reads before it writes; None if there is no key. Raises WrongType."""
    value = call.database.string(key)
    call.count_lookup(key, value)
    return value


@cython.cfunc
def store_without_expiry(call: Call, key: bytes, value: bytes, effect: list[bytes] | None) -> cython.void:
    """Store the value without expiry, whatever the key held. effect: None if the caller records one.

    Raises EntriesKept if the rule STRICT of a stream at the key forbids its removal.
    """
    if len(call.keyspace.rule_registry.streams):
        strict_rules.check_key_removal(call, call.database, key)
    call.database.put(key, value)
    call.finish_change_and_retry_waiters(
        key, "$", b"set", effect
    )  # readers blocked on a stream here must get an error


@cython.cfunc
def store_with_expiry(call: Call, key: bytes, value: bytes, moment: cython.longlong) -> cython.void:
    """Store the value with an expiry in milliseconds since 1970; record the effect. Raises EntriesKept."""
    effect = [b"SET", key, value, b"PXAT", b"%d" % moment] if call.effects.recording else None
    store_without_expiry(call, key, value, effect)
    call.database.set_expiry(key, moment)
    call.notify("g", b"expire", key)


@cython.cfunc
def store_keeping_expiry(call: Call, key: bytes, value: bytes) -> cython.void:
    """Store the value, keep the expiry of the key, and record the effect. Raises EntriesKept."""
    database: Database = call.database
    if not database.contains(key):
        store_without_expiry(call, key, value, [b"SET", key, value] if call.effects.recording else None)
        return
    if len(call.keyspace.rule_registry.streams):
        strict_rules.check_key_removal(call, database, key)
    if call.keyspace.settings.notify_keyspace_events:
        database.notify_put(key, value)
    database.replace(key, value)
    effect = [b"SET", key, value, b"KEEPTTL"] if call.effects.recording else None
    call.finish_change_and_retry_waiters(key, "$", b"set", effect)


@cython.cfunc
def conditions_of_set_hold(call: Call, options: SetOptions, key: bytes) -> cython.bint:
    """Return whether the conditions of SET hold. Raises WrongType or BadDigest if one cannot be compared."""
    comparison: cython.int = options.comparison
    if options.condition != set_options.ALWAYS and (
        call.database.contains(key) != (options.condition == set_options.IF_PRESENT)
    ):
        return False
    if comparison == set_options.ALWAYS:
        return True
    value = call.database.string(key) if options.get else read_for_update(call, key)
    if value is None:
        return comparison in (set_options.IF_NOT_EQUAL, set_options.IF_NOT_DIGEST)
    return set_options.comparison_holds(comparison, value, options.operand)


def run_get(call: Call) -> None:
    """GET: reply with the string, or null."""
    write_string(call.reply, call.database.string(call.argv[1]))


def run_set(call: Call) -> None:
    """SET: store the value if the condition holds; reply OK or null, with GET the previous value."""
    argv: list[bytes] = call.argv
    if len(argv) > 3:
        set_with_options(call)
        return
    store_without_expiry(call, argv[1], argv[2], argv)
    call.reply.ok()


@cython.cfunc
def set_with_options(call: Call) -> cython.void:
    key: bytes = call.argv[1]
    value: bytes = call.argv[2]
    options: SetOptions = SetOptions()
    options.read_set(call.argv)
    moment: cython.longlong = 0
    if options.unit != set_options.NO_EXPIRY_UNIT:
        moment = set_options.expiry_ms(call, options.unit, options.expiry_text)
    if options.get:
        write_string(call.reply, read_for_update(call, key))
    if not conditions_of_set_hold(call, options, key):
        if not options.get:
            call.reply.null()
        return
    if options.unit != set_options.NO_EXPIRY_UNIT:
        store_with_expiry(call, key, value, moment)
    elif options.keep_ttl:
        store_keeping_expiry(call, key, value)
    else:
        store_without_expiry(call, key, value, [b"SET", key, value] if call.effects.recording else None)
    if not options.get:
        call.reply.ok()


def run_setnx(call: Call) -> None:
    """SETNX: store the value if the key does not exist; reply whether it was stored."""
    key: bytes = call.argv[1]
    if call.database.contains(key):
        call.reply.integer(0)
        return
    store_without_expiry(call, key, call.argv[2], call.argv)
    call.reply.integer(1)


def run_setex(call: Call) -> None:
    """SETEX: store the value with an expiry in seconds."""
    moment: cython.longlong = set_options.expiry_ms(call, set_options.EX, call.argv[2])
    store_with_expiry(call, call.argv[1], call.argv[3], moment)
    call.reply.ok()


def run_psetex(call: Call) -> None:
    """PSETEX: store the value with an expiry in milliseconds."""
    moment: cython.longlong = set_options.expiry_ms(call, set_options.PX, call.argv[2])
    store_with_expiry(call, call.argv[1], call.argv[3], moment)
    call.reply.ok()


def run_getset(call: Call) -> None:
    """GETSET: store the value; reply with the previous one, or null."""
    key: bytes = call.argv[1]
    write_string(call.reply, read_for_update(call, key))
    store_without_expiry(call, key, call.argv[2], [b"SET", key, call.argv[2]])


def run_getdel(call: Call) -> None:
    """GETDEL: reply with the string, or null, and remove the key."""
    key: bytes = call.argv[1]
    value = read_for_update(call, key)
    write_string(call.reply, value)
    if value is not None:
        expire.remove_key(call, key)


def run_getex(call: Call) -> None:
    """GETEX: reply with the string, or null; set or remove its expiry by the options."""
    key: bytes = call.argv[1]
    options: SetOptions = SetOptions()
    options.read_getex(call.argv)
    value = read_for_update(call, key)
    if value is None:
        call.reply.null()
        return
    if options.unit != set_options.NO_EXPIRY_UNIT:
        moment: cython.longlong = set_options.expiry_ms(call, options.unit, options.expiry_text)
        if moment <= call.now and not call.replayed():
            expire.remove_key(call, key)
        else:
            expire.set_expiry(call, key, moment)
    elif options.persist and call.database.clear_expiry(key):
        call.finish_change(key, "g", b"persist", [b"PERSIST", key])
    write_string(call.reply, value)


def run_mget(call: Call) -> None:
    """MGET: reply with the string of each key; null if it does not exist or has another type."""
    argv: list[bytes] = call.argv
    at: cython.Py_ssize_t
    call.reply.array(len(argv) - 1)
    for at in range(1, len(argv)):
        value = call.database.find(argv[at])
        write_string(call.reply, value if isinstance(value, (bytes, bytearray)) else None)


@cython.cfunc
def store_pairs(call: Call) -> cython.void:
    argv: list[bytes] = call.argv
    at: cython.Py_ssize_t
    if len(call.keyspace.rule_registry.streams):
        for at in range(1, len(argv), 2):  # all are stored or none
            strict_rules.check_key_removal(call, call.database, argv[at])
    for at in range(1, len(argv), 2):
        store_without_expiry(call, argv[at], argv[at + 1], None)
    call.record_verbatim()


def run_mset(call: Call) -> None:
    """MSET: store several values."""
    if len(call.argv) % 2 == 0:
        raise WrongArgumentCount("mset")
    store_pairs(call)
    call.reply.ok()


def run_msetnx(call: Call) -> None:
    """MSETNX: store several values if none of the keys exists; reply whether they were stored."""
    argv: list[bytes] = call.argv
    at: cython.Py_ssize_t
    if len(argv) % 2 == 0:
        raise WrongArgumentCount("msetnx")
    for at in range(1, len(argv), 2):
        if call.database.contains(argv[at]):
            call.reply.integer(0)
            return
    store_pairs(call)
    call.reply.integer(1)


def key_flags_of_set(argv: list[bytes]) -> KeyFlags:
    """Return the flags of the key of a SET: it reads the old value only with GET or a comparison."""
    reads = any(word.upper() in READING_OPTIONS for word in argv[3:])
    return ("RW", "access", "update") if reads else ("OW", "update")


COMMANDS = [
    Command(
        "get",
        2,
        run_get,
        "readonly fast",
        keys="1: RO access",
        group="string",
        summary="Returns the string at a key.",
        syntax="key",
    ),
    Command(
        "set",
        -3,
        run_set,
        "write denyoom",
        keys="1: RW access update variable_flags",
        varying_use=key_flags_of_set,
        group="string",
        summary="Stores a string, optionally with a condition and an expiry; replaces any value.",
        syntax="key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET]"
        " [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    ),
    Command(
        "setnx",
        3,
        run_setnx,
        "write denyoom fast",
        keys="1: OW insert",
        group="string",
        summary="Stores a string if the key does not exist.",
        syntax="key value",
    ),
    Command(
        "setex",
        4,
        run_setex,
        "write denyoom",
        keys="1: OW update",
        group="string",
        since="2.0.0",
        summary="Stores a string for a number of seconds.",
        syntax="key seconds value",
    ),
    Command(
        "psetex",
        4,
        run_psetex,
        "write denyoom",
        keys="1: OW update",
        group="string",
        since="2.6.0",
        summary="Stores a string for a number of milliseconds.",
        syntax="key milliseconds value",
    ),
    Command(
        "getset",
        3,
        run_getset,
        "write denyoom fast",
        keys="1: RW access update",
        group="string",
        summary="Stores a string and returns the one it replaces.",
        syntax="key value",
    ),
    Command(
        "getdel",
        2,
        run_getdel,
        "write fast",
        keys="1: RW access delete",
        group="string",
        since="6.2.0",
        summary="Returns the string at a key and removes the key.",
        syntax="key",
    ),
    Command(
        "getex",
        -2,
        run_getex,
        "write fast",
        keys="1: RW access update",
        group="string",
        since="6.2.0",
        summary="Returns the string at a key and sets or drops the key's expiry.",
        syntax="key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds"
        " | PERSIST]",
    ),
    Command(
        "mget",
        -2,
        run_mget,
        "readonly fast",
        keys="1..-1: RO access",
        tips="request_policy:multi_shard",
        group="string",
        summary="Returns the strings at several keys.",
        syntax="key [key ...]",
        complexity="O(N), N being the number of keys",
    ),
    Command(
        "mset",
        -3,
        run_mset,
        "write denyoom",
        keys="1..-1/2: OW update",
        tips="request_policy:multi_shard response_policy:all_succeeded",
        group="string",
        since="1.0.1",
        summary="Stores several strings at once.",
        syntax="key value [key value ...]",
        complexity="O(N), N being the number of keys",
    ),
    Command(
        "msetnx",
        -3,
        run_msetnx,
        "write denyoom",
        keys="1..-1/2: OW insert",
        group="string",
        since="1.0.1",
        summary="Stores several strings at once, or none if one of the keys exists.",
        syntax="key value [key value ...]",
        complexity="O(N), N being the number of keys",
    ),
]
