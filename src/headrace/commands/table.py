"""The command table: all rows, family by family. Dispatch, COMMAND and the reference page use it."""

from __future__ import annotations

import cython

from headrace.commands.connection import client, connection, monitor, pubsub, transactions
from headrace.commands.group import acknowledge, claim, group_read, groups, lag, nack, pending
from headrace.commands.keys import databases, dump, expire, keys, object, rename
from headrace.commands.server import (
    acl,
    admin,
    cluster,
    debug,
    functions,
    introspection,
    latency,
    lolwut,
    modules,
    replication,
    saving,
    scripts,
    server_info,
    slowlog,
)
from headrace.commands.spec import Command
from headrace.commands.stream import add, arrow, configure, count, delete, idempotency, info, read, trim
from headrace.commands.string import conditional, counters, lcs, strings, substrings

COMMAND_MODULES = (
    connection,
    client,
    acl,
    transactions,
    pubsub,
    keys,
    databases,
    expire,
    rename,
    dump,
    object,
    strings,
    conditional,
    substrings,
    lcs,
    counters,
    add,
    read,
    count,
    lag,
    arrow,
    delete,
    trim,
    configure,
    idempotency,
    groups,
    group_read,
    acknowledge,
    nack,
    pending,
    claim,
    info,
    admin,
    slowlog,
    latency,
    monitor,
    replication,
    cluster,
    modules,
    saving,
    debug,
    lolwut,
    scripts,
    functions,
    server_info,
    introspection,
)

COMMANDS: list[Command] = [command for family in COMMAND_MODULES for command in family.COMMANDS]

COMMANDS_BY_NAME: dict[bytes, Command] = {command.name: command for command in COMMANDS}
COMMANDS_BY_NAME |= {command.name.upper(): command for command in COMMANDS}


def command_of_name(name: bytes) -> Command:
    """Return the command or subcommand of a full name in lower case: b"xinfo|groups". Raises KeyError."""
    container, _, word = name.partition(b"|")
    return COMMANDS_BY_NAME[container].subcommands[word] if word else COMMANDS_BY_NAME[container]


def find_command(word: bytes) -> Command | None:
    """Return the command of that name, ignoring case, or None."""
    found = COMMANDS_BY_NAME.get(word)
    return found if found is not None else COMMANDS_BY_NAME.get(word.lower())
