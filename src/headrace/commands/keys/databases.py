"""Commands on whole databases: KEYS, SCAN, RANDOMKEY, DBSIZE, FLUSHDB, FLUSHALL, SWAPDB."""

from __future__ import annotations

import re

import cython

from headrace.commands import arguments, strict_rules
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax
from headrace.keyspace import keyspace
from headrace.keyspace.glob import Glob

# As in Redis 8: a plus sign and leading zeros are allowed, a negative number is not.
CURSOR_PATTERN = re.compile(rb"-0+|\+?0*([0-9]{1,20})")
U64_MAX = 0xFFFFFFFFFFFFFFFF

COUNT_DEFAULT = 10

I32_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)


class NotI32(CommandError):
    text = "ERR value is out of range, value must between -2147483648 and 2147483647"


class NoSuchDatabase(CommandError):
    text = "ERR DB index is out of range"


class InvalidCursor(CommandError):
    text = "ERR invalid cursor"


def run_keys(call: Call) -> None:
    """KEYS: reply with every key that matches the pattern."""
    pattern: Glob | None = None if call.argv[1] == b"*" else Glob(call.argv[1])
    mark: cython.Py_ssize_t = call.reply.open_array()
    found: cython.Py_ssize_t = 0
    keys: list[bytes] = call.database.keys()
    key: bytes
    for key in keys:
        if pattern is None or pattern.matches(key):
            call.reply.bulk(key)
            found += 1
    call.reply.close_array(mark, found)


def parse_cursor(text: bytes) -> int:
    """Parse the cursor of a SCAN. Raises InvalidCursor."""
    found = CURSOR_PATTERN.fullmatch(text)
    cursor = int(found[1] or b"0") if found is not None else -1
    if not 0 <= cursor <= U64_MAX:
        raise InvalidCursor()
    return cursor


def run_scan(call: Call) -> None:
    """SCAN: reply with the next cursor and some keys, filtered by pattern and type."""
    argv: list[bytes] = call.argv
    cursor: int = parse_cursor(argv[1])
    count: cython.longlong = COUNT_DEFAULT
    pattern: bytes | None = None
    kind: bytes | None = None
    at: cython.Py_ssize_t
    for at in range(2, len(argv), 2):
        if at + 1 == len(argv):
            raise InvalidSyntax()
        if arguments.is_keyword(argv[at], b"COUNT"):
            count = arguments.parse_i64(argv[at + 1])
            if count < 1:
                raise InvalidSyntax()
        elif arguments.is_keyword(argv[at], b"MATCH"):
            pattern = argv[at + 1]
        elif arguments.is_keyword(argv[at], b"TYPE"):
            kind = argv[at + 1].lower()
        else:
            raise InvalidSyntax()
    following, keys = call.database.scan(cursor, count)
    if pattern is not None and pattern != b"*":
        glob: Glob = Glob(pattern)
        keys = [key for key in keys if glob.matches(key)]
    if kind is not None:
        keys = [key for key in keys if keyspace.type_name(call.database.find(key)) == kind]
    call.reply.array(2)
    call.reply.bulk(b"%d" % following)
    call.reply.value(keys)


def run_randomkey(call: Call) -> None:
    """RANDOMKEY: reply with a random key, or null."""
    call.reply.value(call.database.random_key())


def run_dbsize(call: Call) -> None:
    """DBSIZE: reply with the number of keys."""
    call.reply.integer(call.database.size())


@cython.cfunc
def check_flush_options(argv: list[bytes]) -> cython.void:
    """Raise InvalidSyntax for options other than ASYNC or SYNC (no effect: see keyspace/lazy_free.py)."""
    if len(argv) > 2:
        raise InvalidSyntax()
    if len(argv) == 2 and not (
        arguments.is_keyword(argv[1], b"ASYNC") or arguments.is_keyword(argv[1], b"SYNC")
    ):
        raise InvalidSyntax()


def run_flushdb(call: Call) -> None:
    """FLUSHDB: remove all keys of the database."""
    check_flush_options(call.argv)
    strict_rules.check_flush(call, call.database)
    call.keyspace.flush_database(call.database)
    call.record_verbatim()
    call.reply.ok()


def run_flushall(call: Call) -> None:
    """FLUSHALL: remove all keys of all databases."""
    check_flush_options(call.argv)
    strict_rules.check_flush(call, None)
    call.keyspace.flush_all()
    if not call.replayed():
        call.server.on_flushall(call.now)
    call.record_verbatim()
    call.reply.ok()


@cython.cfunc
def parse_i32(text: bytes) -> cython.Py_ssize_t:
    """Parse a 32-bit integer. Raises NotAnInteger or NotI32."""
    number: cython.longlong = arguments.parse_i64(text)
    if not -I32_MAX - 1 <= number <= I32_MAX:
        raise NotI32()
    return number


@cython.cfunc
def parse_database_index(text: bytes, error: str) -> cython.Py_ssize_t:
    """Parse the number of a database. Raises CommandError with the text `error`."""
    try:
        return parse_i32(text)
    except CommandError:
        raise CommandError(error) from None


def run_swapdb(call: Call) -> None:
    """SWAPDB: exchange the keys of two databases; clients stay in theirs."""
    first: cython.Py_ssize_t = parse_database_index(call.argv[1], "ERR invalid first DB index")
    second: cython.Py_ssize_t = parse_database_index(call.argv[2], "ERR invalid second DB index")
    if call.keyspace.database(first) is None or call.keyspace.database(second) is None:
        raise NoSuchDatabase()
    call.keyspace.swap(first, second)
    call.record_verbatim()
    call.reply.ok()


COMMANDS = [
    Command(
        "keys",
        2,
        run_keys,
        "readonly",
        tips="request_policy:all_shards nondeterministic_output_order",
        summary="Returns all keys that match a pattern.",
        syntax="pattern",
        complexity="O(N), N being the number of keys in the database",
        categories="dangerous",
    ),
    Command(
        "scan",
        -2,
        run_scan,
        "readonly",
        tips="nondeterministic_output request_policy:special response_policy:special",
        since="2.8.0",
        summary="Returns some keys and a cursor to continue from.",
        syntax="cursor [MATCH pattern] [COUNT count] [TYPE type]",
        complexity="O(1) for a call, O(N) for all keys",
    ),
    Command(
        "randomkey",
        1,
        run_randomkey,
        "readonly",
        tips="request_policy:all_shards response_policy:special nondeterministic_output",
        summary="Returns a random key.",
    ),
    Command(
        "dbsize",
        1,
        run_dbsize,
        "readonly fast",
        tips="request_policy:all_shards response_policy:agg_sum",
        group="server",
        summary="Counts the keys of the database.",
        categories="keyspace",
    ),
    Command(
        "flushdb",
        -1,
        run_flushdb,
        "write",
        tips="request_policy:all_shards response_policy:all_succeeded",
        group="server",
        summary="Removes all keys of the database.",
        syntax="[ASYNC | SYNC]",
        complexity="O(N), N being the number of keys in the database",
        categories="keyspace dangerous",
    ),
    Command(
        "flushall",
        -1,
        run_flushall,
        "write",
        tips="request_policy:all_shards response_policy:all_succeeded",
        group="server",
        summary="Removes all keys of all databases.",
        syntax="[ASYNC | SYNC]",
        complexity="O(N), N being the number of keys in all databases",
        categories="keyspace dangerous",
    ),
    Command(
        "swapdb",
        3,
        run_swapdb,
        "write fast",
        group="server",
        since="4.0.0",
        summary="Exchanges the keys of two databases.",
        syntax="index1 index2",
        complexity="O(N), N being the number of clients that watch or wait for keys of the two",
        categories="keyspace dangerous",
    ),
]
