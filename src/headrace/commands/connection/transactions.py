"""MULTI, EXEC, DISCARD, WATCH and UNWATCH: transactions, with optimistic locking."""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.errors import CommandError
from headrace.keyspace.keyspace import Database
from headrace.keyspace.watching import Watch


class NestedMulti(CommandError):
    text = "ERR MULTI calls can not be nested"


class WatchInMulti(CommandError):
    text = "ERR WATCH inside MULTI is not allowed"


class ExecWithoutMulti(CommandError):
    text = "ERR EXEC without MULTI"


class DiscardWithoutMulti(CommandError):
    text = "ERR DISCARD without MULTI"


class TransactionAborted(CommandError):
    text = "EXECABORT Transaction discarded because of previous errors."


def run_multi(call: Call) -> None:
    """MULTI: queue further requests."""
    session: Session = call.session
    if session.queue is not None:
        raise NestedMulti()
    session.queue = []
    session.transaction_failed = False
    call.reply.ok()


def run_exec(call: Call) -> None:
    """EXEC: run all queued requests, or none: null if a watched key has changed."""
    session: Session = call.session
    queue = session.queue
    if queue is None:
        raise ExecWithoutMulti()
    failed: cython.bint = session.transaction_failed
    unchanged: cython.bint = watched_keys_unchanged(call)
    end_transaction(call)
    if failed:
        raise TransactionAborted()
    if not unchanged:
        call.reply.null_array()
        return
    call.reply.array(len(queue))
    call.engine.run_transaction(session, queue)


@cython.cfunc
def watched_keys_unchanged(call: Call) -> cython.bint:
    """Return whether no watched key has changed or expired."""
    watch: Watch | None = call.session.watch
    if watch is None:
        return True
    database: Database
    for (index, key), was_hidden in watch.keys.items():
        database = call.keyspace.databases[index]
        if not database.contains(key) and not was_hidden and database.is_hidden(key):
            return False
    return not watch.invalidated


@cython.cfunc
def end_transaction(call: Call) -> cython.void:
    """End MULTI and remove all watches."""
    call.session.queue = None
    call.session.transaction_failed = False
    call.engine.unwatch(call.session)


def run_discard(call: Call) -> None:
    """DISCARD: drop the queued requests and all watches."""
    if call.session.queue is None:
        raise DiscardWithoutMulti()
    end_transaction(call)
    call.reply.ok()


def run_watch(call: Call) -> None:
    """WATCH: make the next EXEC fail if one of these keys changes first."""
    session: Session = call.session
    if session.queue is not None:
        raise WatchInMulti()
    if session.watch is None:
        session.watch = Watch()
    for key in call.argv[1:]:
        call.database.watch(key, session.watch)
    call.reply.ok()


def run_unwatch(call: Call) -> None:
    """UNWATCH: remove all watches."""
    call.engine.unwatch(call.session)
    call.reply.ok()


COMMANDS = [
    Command(
        "multi",
        1,
        run_multi,
        "noscript loading stale fast allow_busy at_once",
        group="transactions",
        since="1.2.0",
        summary="Begins a transaction: further requests are queued until EXEC.",
    ),
    Command(
        "exec",
        1,
        run_exec,
        "noscript loading stale skip_slowlog at_once",
        group="transactions",
        since="1.2.0",
        summary="Runs all requests queued since MULTI, without other clients' requests in between.",
        complexity="Depends on the commands in the transaction",
    ),
    Command(
        "discard",
        1,
        run_discard,
        "noscript loading stale fast allow_busy at_once",
        group="transactions",
        since="2.0.0",
        summary="Drops all requests queued since MULTI.",
        complexity="O(N), N being the number of queued commands",
    ),
    Command(
        "watch",
        -2,
        run_watch,
        "noscript loading stale fast allow_busy at_once",
        keys="1..-1: RO",
        group="transactions",
        since="2.2.0",
        summary="Makes the next EXEC fail if one of these keys changes first.",
        syntax="key [key ...]",
        complexity="O(1) for every key",
    ),
    Command(
        "unwatch",
        1,
        run_unwatch,
        "noscript loading stale fast allow_busy",
        group="transactions",
        since="2.2.0",
        summary="Removes all watches.",
    ),
]
