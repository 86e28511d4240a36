"""What keeps requests from running: data that are being loaded, a disk in trouble, CLIENT PAUSE.

    loading     what needs the data is refused until they are there
    refusal     what may write is refused, with this text, for it could not be kept
    until       requests wait: until then, or until the pause is ended
    memory      what needs more of it is refused when data weigh more than they may, and nothing can go

A request looks at one flag, `shut`, and at two numbers, and at the rest only when it must.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.commands.session import Session
from headrace.engine.error_replies import Loading, OutOfMemory
from headrace.engine.stats import CommandRow
from headrace.errors import CommandError
from headrace.keyspace.eviction import Eviction
from headrace.streams.memory_account import MemoryAccount

# They may write, although their rows do not say so.
SCRIPTS = frozenset({b"eval", b"evalsha"})


def never_serve(call: Any) -> bool:
    """How a held request is served: by nothing but the end of the pause."""
    return False


def no_timeout_reply(call: Any) -> None:
    """What a held request answers when its time is up: it never is, it has no deadline of its own."""


def may_write(row: CommandRow) -> bool:
    """Whether the command can change data."""
    return row.command.write or row.command.name in SCRIPTS


def needs_memory(session: Session, row: CommandRow) -> bool:
    """Whether the request could make the data grow, or what the client has queued. An EXEC may go wrong."""
    if row.command.denyoom:
        return True
    if session.queue is None:
        return False
    if row.command.name == b"exec":
        return any(queued.command.denyoom for queued, _ in session.queue)
    return row.command.queueable


def has_write(queue: list[tuple[CommandRow, list[bytes]]]) -> bool:
    """Whether one of the queued requests may write."""
    return any(may_write(queued) for queued, _ in queue)


@cython.final
@cython.cclass
class WriteGate:
    """Open while `shut` is False and memory not full; then that is all. No pause while `until` is 0."""

    shut: cython.bint
    loading: cython.bint
    write_error: bytes | None
    paused_until: cython.longlong  # milliseconds since 1970
    writes_only: cython.bint
    paused_requests: dict[Any, list[bytes]]  # session -> argv, first come first
    memory: MemoryAccount
    eviction: Eviction

    def __init__(self, eviction: Eviction) -> None:
        self.eviction = eviction
        self.memory = eviction.keyspace.memory
        self.shut = False
        self.loading = False
        self.write_error = None
        self.paused_until = 0
        self.writes_only = False
        self.paused_requests = {}

    @cython.cfunc
    def _update_shut(self) -> cython.void:
        self.shut = self.loading or self.write_error is not None or self.paused_until != 0

    @cython.ccall
    def set_loading(self, on: cython.bint) -> cython.void:
        """Whether the data are being loaded."""
        self.loading = on
        self._update_shut()

    @cython.ccall
    def reject_writes(self, text: bytes | None) -> cython.void:
        """From now on whatever may write is answered with this error; None: no longer."""
        self.write_error = text
        self._update_shut()

    @cython.ccall
    def pause(self, paused_until: cython.longlong, writes_only: cython.bint) -> cython.void:
        """Pause until then. A pause never gets shorter or milder but by ending it."""
        if self.paused_until:
            paused_until = max(paused_until, self.paused_until)
            writes_only = writes_only and self.writes_only
        self.paused_until = paused_until
        self.writes_only = writes_only
        self._update_shut()

    @cython.ccall
    def end_pause(self) -> cython.void:
        """The pause is over; the engine executes what was held back before anything else."""
        if self.paused_until:
            self.paused_until = 1

    def shift(self, by_ms: int) -> None:
        """The clock was set by so much: a pause lasts as long as it was to."""
        if self.paused_until:
            self.paused_until = max(self.paused_until + by_ms, 1)

    @cython.ccall
    def take_paused(self) -> dict[Any, list[bytes]]:
        """End the pause for good; what it held back is the caller's."""
        found = self.paused_requests
        self.paused_requests = {}
        self.paused_until = 0
        self.writes_only = False
        self._update_shut()
        return found

    @cython.ccall
    def error_for(self, session: Session, row: CommandRow, argv: list[bytes]) -> CommandError | None:
        """The error that the session's request gets now, or None. What a log repeats is never refused.

        PING is refused like writes, as by Redis: whoever watches over the server learns of its trouble.
        """
        if session.replayed:
            return None
        if self.write_error is not None and (self.is_write(session, row) or row.command.name == b"ping"):
            return CommandError(self.write_error.decode())
        if self.loading and "loading" not in row.command.flags:
            return Loading()
        if self.memory.total > self.memory.limit and not self.loading and self.paused_until == 0:
            return self._memory_error(session, row, argv)
        return None

    @cython.cfunc
    def _memory_error(self, session: Session, row: CommandRow, argv: list[bytes]) -> CommandError | None:
        """What a request is told that needs memory, when there is none and none can be made free."""
        if not needs_memory(session, row) or self.eviction.make_room(sum(map(len, argv))):
            return None
        return OutOfMemory()

    @cython.ccall
    def is_write(self, session: Session, row: CommandRow) -> cython.bint:
        """Whether the request may write: its command can, or it is an EXEC with such a one in its queue."""
        if may_write(row):
            return True
        if session.queue is None or row.command.name != b"exec":
            return False
        return has_write(session.queue)
