"""Moving and copying values: RENAME, RENAMENX, COPY, MOVE.

The expiry is moved, too. Readers blocked on either key are retried: a stream has appeared or disappeared.
"""

from __future__ import annotations

import cython

from headrace.commands import arguments, dead_letter_rules, strict_rules
from headrace.commands.call import Call
from headrace.commands.keys import databases
from headrace.commands.keys.databases import NoSuchDatabase
from headrace.commands.spec import Command
from headrace.errors import CommandError, InvalidSyntax, NoSuchKey
from headrace.keyspace import keyspace
from headrace.keyspace.keyspace import Database
from headrace.streams.stream import Stream


class SameObject(CommandError):
    text = "ERR source and destination objects are the same"


@cython.cfunc
def database_at(call: Call, text: bytes) -> Database:
    """Return the database of that number. Raises NoSuchDatabase."""
    database: Database | None = call.keyspace.database(databases.parse_i32(text))
    if database is None:
        raise NoSuchDatabase()
    return database


@cython.ccall
def put_with_expiry(database: Database, key: bytes, value: object, moment: cython.longlong) -> cython.void:
    """Remove the key's old value, then store the new one with its expiry in milliseconds (-1: none)."""
    database.remove(key)
    database.put(key, value)
    if moment >= 0:
        database.set_expiry(key, moment)
    database.mark_modified(key)
    database.signal_ready(key)


@cython.cfunc
def remove_moved(database: Database, key: bytes) -> cython.void:
    """Remove a key whose value was moved. Only the change of the new key is counted."""
    database.remove(key)
    database.invalidate_watchers(key)
    database.signal_ready(key)


@cython.cfunc
def notify_in_database(database: Database, event: bytes, key: bytes) -> cython.void:
    """Publish a generic event of a key in this database, which may not be the session's."""
    if database.keyspace.settings.notify_keyspace_events:
        database.keyspace.notifier.notify("g", event, key, database.index)


@cython.ccall
def notify_overwritten(database: Database, key: bytes, former: bytes, value: object) -> cython.void:
    """Publish that the value was overwritten, and its type changed; `former` is the old type."""
    if former == b"none" or not database.keyspace.settings.notify_keyspace_events:
        return
    database.keyspace.notifier.notify("o", b"overwritten", key, database.index)
    if former != keyspace.type_name(value):
        database.keyspace.notifier.notify("c", b"type_changed", key, database.index)


@cython.cfunc
def rename(call: Call, replace: cython.bint) -> cython.bint:
    """Move the value of argv[1] and its expiry to the key argv[2]; return whether that succeeded.

    Without `replace`, nothing is changed and the result is False if the other key exists. If both keys are
    the same, nothing is changed and the result is `replace`.

    Raises:
        NoSuchKey: if the first key does not exist.
        CommandError: if a rule forbids to store the value there, or to replace the value there.
    """
    database: Database = call.database
    key: bytes = call.argv[1]
    target: bytes = call.argv[2]
    value = database.find(key)
    if value is None:
        raise NoSuchKey()
    if key == target:
        return replace
    if not replace and database.contains(target):
        return False
    dead_letter_rules.check_value_to_store(call, database, target, value, value)
    strict_rules.check_key_removal(call, database, target)
    moment: cython.longlong = database.expiry(key)
    former = keyspace.type_name(database.find(target))
    remove_moved(database, key)
    put_with_expiry(database, target, value, moment)
    call.notify("g", b"rename_from", key)
    call.notify("g", b"rename_to", target)
    notify_overwritten(database, target, former, value)
    call.record_verbatim()
    return True


def run_rename(call: Call) -> None:
    """RENAME: move the value to another key, whose value is replaced."""
    rename(call, True)
    call.reply.ok()


def run_renamenx(call: Call) -> None:
    """RENAMENX: move the value to another key if that does not exist; reply whether it was moved."""
    call.reply.integer(1 if rename(call, False) else 0)


def run_copy(call: Call) -> None:
    """COPY: store a copy under another key; reply whether it was stored."""
    argv: list[bytes] = call.argv
    key: bytes = argv[1]
    target: bytes = argv[2]
    database: Database = call.database
    replace: cython.bint = False
    at: cython.Py_ssize_t = 3
    while at < len(argv):
        if arguments.is_keyword(argv[at], b"REPLACE"):
            replace = True
        elif at + 1 < len(argv) and arguments.is_keyword(argv[at], b"DB"):
            at += 1
            database = database_at(call, argv[at])
        else:
            raise InvalidSyntax()
        at += 1
    if database is call.database and key == target:
        raise SameObject()
    value = call.database.find(key)
    call.count_lookup(key, value)
    if value is None or (database.contains(target) and not replace):
        call.reply.integer(0)
        return
    dead_letter_rules.check_value_to_store(call, database, target, value)
    strict_rules.check_key_removal(call, database, target)
    former = keyspace.type_name(database.find(target))
    put_with_expiry(database, target, duplicate(value), call.database.expiry(key))
    notify_in_database(database, b"copy_to", target)
    notify_overwritten(database, target, former, value)
    call.record_verbatim()
    call.reply.integer(1)


@cython.cfunc
def duplicate(value: object) -> object:
    """Return an independent copy of the value."""
    if isinstance(value, Stream):
        stream: Stream = value
        return stream.copy()
    return bytearray(value) if isinstance(value, bytearray) else value


def run_move(call: Call) -> None:
    """MOVE: move the value to another database, unless the key exists there; reply whether it was moved."""
    key: bytes = call.argv[1]
    database: Database = database_at(call, call.argv[2])
    if database is call.database:
        raise SameObject()
    value = call.database.find(key)
    if value is None or database.contains(key):
        call.reply.integer(0)
        return
    dead_letter_rules.check_value_to_store(call, database, key, value, value)
    moment: cython.longlong = call.database.expiry(key)
    remove_moved(call.database, key)
    put_with_expiry(database, key, value, moment)
    call.notify("g", b"move_from", key)
    notify_in_database(database, b"move_to", key)
    call.record_verbatim()
    call.reply.integer(1)


def copy_destination(argv: list[bytes]) -> tuple[int, bytes] | None:
    """Return the database that COPY names, and the key that it stores there; None if it names none."""
    found = None
    at = 3
    while at < len(argv):
        if arguments.is_keyword(argv[at], b"DB") and at + 1 < len(argv):
            at += 1
            found = databases.parse_i32(argv[at]), argv[2]
        at += 1
    return found


def move_destination(argv: list[bytes]) -> tuple[int, bytes]:
    """Return the database that MOVE names, and the key that it stores there."""
    return databases.parse_i32(argv[2]), argv[1]


COMMANDS = [
    Command(
        "rename",
        3,
        run_rename,
        "write schedules",
        keys="1: RW access delete, 2: OW update",
        summary="Moves a value to another key, whose value is replaced.",
        syntax="key newkey",
    ),
    Command(
        "renamenx",
        3,
        run_renamenx,
        "write fast schedules",
        keys="1: RW access delete, 2: OW insert",
        summary="Moves a value to another key if that does not exist.",
        syntax="key newkey",
    ),
    Command(
        "copy",
        -3,
        run_copy,
        "write denyoom schedules",
        keys="1: RO access, 2: OW update",
        stores_in=copy_destination,
        since="6.2.0",
        summary="Copies a value to another key.",
        syntax="source destination [DB destination-db] [REPLACE]",
        complexity="O(N), N being the number of a stream's nodes; O(1) for a string",
    ),
    Command(
        "move",
        3,
        run_move,
        "write fast schedules",
        keys="1: RW access update",
        stores_in=move_destination,
        summary="Moves a value to another database.",
        syntax="key db",
    ),
]
