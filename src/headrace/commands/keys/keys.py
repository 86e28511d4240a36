"""Commands on keys of any type: DEL, UNLINK, EXISTS, TOUCH, TYPE."""

from __future__ import annotations

import cython

from headrace.commands import strict_rules
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.keyspace import keyspace
from headrace.keyspace.keyspace import Database


def run_del(call: Call) -> None:
    """DEL and UNLINK: remove keys; reply how many existed."""
    database: Database = call.database
    argv: list[bytes] = call.argv
    removed: cython.longlong = 0
    at: cython.Py_ssize_t
    if len(call.keyspace.rule_registry.streams):
        for at in range(1, len(argv)):
            strict_rules.check_key_removal(call, database, argv[at])
    for at in range(1, len(argv)):
        if database.remove(argv[at]):
            call.finish_change_and_retry_waiters(argv[at], "g", b"del", None)
            removed += 1
    if removed:
        call.record_verbatim()
    call.reply.integer(removed)


def run_exists(call: Call) -> None:
    """EXISTS and TOUCH: reply how many of the keys exist; a key named twice counts twice."""
    argv: list[bytes] = call.argv
    found: cython.longlong = 0
    at: cython.Py_ssize_t
    for at in range(1, len(argv)):
        if call.database.find(argv[at]) is not None:
            found += 1
    call.reply.integer(found)


def run_type(call: Call) -> None:
    """TYPE: reply string, stream or none."""
    call.reply.simple(keyspace.type_name(call.database.find(call.argv[1])))


COMMANDS = [
    Command(
        "del",
        -2,
        run_del,
        "write",
        keys="1..-1: RM delete",
        tips="request_policy:multi_shard response_policy:agg_sum",
        summary="Removes keys.",
        syntax="key [key ...]",
        complexity="O(N), N being the number of keys, and of the nodes of the streams among them",
    ),
    Command(
        "unlink",
        -2,
        run_del,
        "write fast",
        keys="1..-1: RM delete",
        tips="request_policy:multi_shard response_policy:agg_sum",
        since="4.0.0",
        summary="Removes keys, as DEL does.",
        syntax="key [key ...]",
        complexity="O(N), N being the number of keys, and of the nodes of the streams among them",
    ),
    Command(
        "exists",
        -2,
        run_exists,
        "readonly fast",
        keys="1..-1: RO",
        tips="request_policy:multi_shard response_policy:agg_sum",
        summary="Counts the keys that exist.",
        syntax="key [key ...]",
        complexity="O(N), N being the number of keys",
    ),
    Command(
        "touch",
        -2,
        run_exists,
        "readonly fast",
        keys="1..-1: RO",
        tips="request_policy:multi_shard response_policy:agg_sum",
        since="3.2.1",
        summary="Counts the keys that exist, as EXISTS does.",
        syntax="key [key ...]",
        complexity="O(N), N being the number of keys",
    ),
    Command(
        "type",
        2,
        run_type,
        "readonly fast",
        keys="1: RO",
        summary="Returns the type of a key's value.",
        syntax="key",
    ),
]
