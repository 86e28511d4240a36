"""The rows, all of them, family by family. Dispatch, COMMAND and the reference page derive from it."""

from __future__ import annotations

import cython

from headrace.commands import (
    acknowledge,
    acl,
    admin,
    append,
    arrow,
    claim,
    client,
    connection,
    count,
    counters,
    databases,
    debug,
    delete,
    dump,
    expire,
    group_read,
    groups,
    idempotency,
    info,
    introspection,
    keys,
    latency,
    monitor,
    nack,
    object,
    pending,
    pubsub,
    read,
    rename,
    saving,
    scripts,
    server_info,
    slowlog,
    strings,
    substrings,
    transactions,
    trim,
)
from headrace.commands.spec import Command

FAMILIES = (
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
    substrings,
    counters,
    append,
    read,
    count,
    arrow,
    delete,
    trim,
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
    saving,
    debug,
    scripts,
    server_info,
    introspection,
)

COMMANDS: list[Command] = [command for family in FAMILIES for command in family.COMMANDS]

TABLE: dict[bytes, Command] = {command.name: command for command in COMMANDS}
TABLE |= {command.name.upper(): command for command in COMMANDS}


def find(word: bytes) -> Command | None:
    """The command of that name, in any case; None when there is none."""
    found = TABLE.get(word)
    return found if found is not None else TABLE.get(word.lower())
