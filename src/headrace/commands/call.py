"""What a command is given: who calls, with which words, when, on what, and where the answer goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from headrace.commands.arguments import Arguments
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.keyspace.blocking import Waiter
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.resp.writer import ReplyWriter
from headrace.visibility import Public


def answer_null_array(call: Call) -> None:
    """What most blocked commands answer when their time is up."""
    call.answer.null_array()


def answer_null(call: Call) -> None:
    """The other answer when the time is up."""
    call.answer.null()


def answer_zero(call: Call) -> None:
    """What WAIT answers: no replica has the writes."""
    call.answer.integer(0)


def answer_synced(call: Call) -> None:
    """What WAITAOF answers: whether the caller's writes are synced here, and on how many replicas."""
    call.answer.array(2)
    call.answer.integer(1 if call.server.log_synced() > call.session.last_write_offset else 0)
    call.answer.integer(0)


ON_TIMEOUT: dict[str, Callable[[Any], None]] = {
    "null_array": answer_null_array,
    "null": answer_null,
    "zero": answer_zero,
    "synced": answer_synced,
}


@cython.final
@cython.cclass
class Call:
    """One command's run. The engine fills the same Call anew for each request: keep nothing of it.

    A command writes exactly one reply to `answer`, or raises a CommandError, or calls wait().
    """

    engine: Any
    server: Any
    keyspace: Keyspace
    session: Public[Session]
    answer: Public[ReplyWriter]
    database: Public[Database]
    command: Public[Command]
    argv: Public[list[bytes]]
    now: Public[cython.longlong]  # milliseconds since 1970
    may_block: Public[cython.bint]
    # someone listens to effects: only then is record() worth building words for
    recording: Public[cython.bint]
    effects: Any
    records: list[tuple[int, list[bytes]]]  # the items of effects: record() has no time to ask for them
    _arguments: Arguments

    def __init__(self, engine: Any, keyspace: Keyspace, server: Any, effects: Any) -> None:
        self.engine = engine
        self.keyspace = keyspace
        self.server = server
        self.effects = effects
        self.records = effects.items
        self.recording = False
        self.may_block = True
        self.now = 0
        self._arguments = Arguments([], 0)

    @cython.ccall
    def arguments(self) -> Arguments:
        """A cursor on the first word after the command's (and subcommand's) name."""
        arguments: Arguments = self._arguments
        arguments.argv = self.argv
        arguments.at = self.command.name_length
        return arguments

    @cython.ccall
    def replayed(self) -> cython.bint:
        """Whether the request comes from a log or a master: it was carried out once, and must be again."""
        return self.session.replayed

    @cython.ccall
    def record(self, words: list[bytes]) -> cython.void:
        """The effect: what a log or a replica must repeat, in this order. Nothing while nobody listens."""
        if self.recording:
            self.records.append((self.database.index, words))

    @cython.ccall
    def record_verbatim(self) -> cython.void:
        """The effect is the request as it came."""
        if self.recording:
            self.records.append((self.database.index, self.argv))

    @cython.ccall
    def notify(self, cls: str, event: bytes, key: bytes) -> cython.void:
        """The event, of the class with this letter (see keyspace/events.py), has happened to the key."""
        if self.keyspace.settings.notify_keyspace_events:
            self.keyspace.events.notify(cls, event, key, self.database.index)

    @cython.ccall
    def notify_miss(self, key: bytes) -> cython.void:
        """A key is not there that a command meant to read; for commands that only read, find() has told."""
        if not self.keyspace.counts_lookups:
            self.notify("m", b"keymiss", key)

    @cython.ccall
    def wait(
        self,
        keys: list[bytes],
        deadline_ms: cython.longlong,
        serve: Callable[[Any], bool],
        on_timeout: str = "null_array",
        wait_class: object = None,
        may_be_served: Callable[[Any, bytes], bool] | None = None,
    ) -> cython.void:
        """Park the session until serve answers or the deadline (0 for never) passes. Only when may_block.

        serve(call) is tried again, with the session's own call, whenever one of the keys has news; it says
        whether it answered. A CommandError it raises is an answer, too. on_timeout names one of ON_TIMEOUT.
        In a lane, when one finds nothing, neither do those behind him; has_news(database, key) spares a try
        that would be in vain (see keyspace/blocking.py).
        """
        assert self.may_block, "a command may not block here"
        timeout = ON_TIMEOUT[on_timeout]
        database = self.database.index
        waiter = Waiter(
            self.session, database, keys, deadline_ms, serve, timeout, self.command, wait_class, may_be_served
        )
        self.session.waiting = waiter
        self.keyspace.blocking.wait(waiter)
