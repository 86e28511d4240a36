"""Conditions under which requests must not run: loading, failed writes, replication, a pause, full memory.

    busy_error        most requests are rejected with this text: a script runs
    write_error       writes are rejected with this text, because they could not be stored
    memory            requests that need more memory are rejected when it is full and nothing can be evicted
    too_few_replicas  writes are rejected: fewer good replicas than min-replicas-to-write
    read_only         writes are rejected: this is a replica
    stale             requests that need the data are rejected: the link to the primary is down
    loading           requests that need the data are rejected until it is loaded
    paused_until      requests wait; it is when the first of the pauses ends

A pause has an owner: a client, a failover, or a shutdown. Ending it does not end those of other owners.

The conditions are checked in the order of this table. Only write_error differs from the order of Redis:
eviction is a write, too.

A request checks one flag, `may_reject`, and two numbers; it checks the rest only if needed. Full memory
does not reject the watermarks of archives: they let entries be evicted that the rule KEEP-UNARCHIVED has
kept.
"""

from __future__ import annotations

import cython

from headrace import companion_keys
from headrace.commands.call import Call
from headrace.commands.session import Session
from headrace.commands.stats import CommandRow
from headrace.engine.error_replies import Loading, PrimaryLinkDown, ReadOnlyReplica
from headrace.errors import CommandError, ServerOutOfMemory, TooFewReplicas
from headrace.keyspace import watermark
from headrace.keyspace.eviction import Eviction
from headrace.streams.memory_account import MemoryAccount

# They may write, although they lack the write flag.
SCRIPT_COMMANDS = frozenset({b"eval", b"evalsha", b"fcall"})


def no_timeout_reply(call: Call) -> None:
    """Do nothing. The `on_timeout` function that goes with never_serve(): there is no deadline."""


def may_write(row: CommandRow) -> bool:
    """Return whether the command can change data."""
    return row.command.write or row.command.name in SCRIPT_COMMANDS


def needs_memory(session: Session, row: CommandRow, argv: list[bytes]) -> bool:
    """Return whether the request, or a command that its EXEC runs, may take more memory."""
    if row.command.denyoom:
        return not publishes_watermark(row, argv)
    if session.queue is None or row.command.name != b"exec":
        return False
    return any(
        queued.command.denyoom and not publishes_watermark(queued, words) for queued, words in session.queue
    )


def publishes_watermark(row: CommandRow, argv: list[bytes]) -> bool:
    """Return whether the request publishes how far a stream is archived."""
    return (
        row.command.name == b"set"
        and len(argv) == 3
        and companion_keys.stream_of_watermark_key(argv[1]) is not None
        and watermark.has_watermark_size(argv[2])
    )


def needs_fresh_data(session: Session, row: CommandRow) -> bool:
    """Return whether the request, or one that it executes, must not run on stale data."""
    if "stale" not in row.command.flags:
        return True
    if session.queue is None or row.command.name != b"exec":
        return False
    return any("stale" not in queued.command.flags for queued, _ in session.queue)


def is_write_request(session: Session, row: CommandRow) -> bool:
    """Return whether the request is a write command, or an EXEC with one; a script checks when it writes."""
    if row.command.write:
        return True
    if session.queue is None or row.command.name != b"exec":
        return False
    return any(queued.command.write for queued, _ in session.queue)


def has_write(queue: list[tuple[CommandRow, list[bytes]]]) -> bool:
    """Return whether one of the queued requests may write."""
    return any(may_write(queued) for queued, _ in queue)


# Owners of pauses.
CLIENT_PAUSE, FAILOVER_PAUSE, SHUTDOWN_PAUSE = "client", "failover", "shutdown"


@cython.final
@cython.cclass
class WriteGate:
    """Decides whether a request may run now.

    It is open if `may_reject` is False and memory is not full. `paused_until` is 0 without a pause.
    """

    may_reject: cython.bint
    loading: cython.bint
    busy_error: bytes | None
    write_error: bytes | None
    pauses: dict[str, tuple[int, bool]]  # owner -> until when (ms since 1970), whether of writes only
    paused_until: cython.longlong  # milliseconds since 1970
    pauses_writes_only: cython.bint
    read_only: cython.bint
    stale: cython.bint
    too_few_replicas: cython.bint
    ignores_memory: cython.bint  # a replica keeps what its primary keeps (replica-ignore-maxmemory)
    paused_sessions: dict[Session, None]  # whose requests are held, in order of arrival
    memory: MemoryAccount
    eviction: Eviction

    def __init__(self, eviction: Eviction) -> None:
        self.eviction = eviction
        self.memory = eviction.keyspace.memory
        self.may_reject = False
        self.loading = False
        self.busy_error = None
        self.write_error = None
        self.pauses = {}
        self.paused_until = 0
        self.pauses_writes_only = False
        self.read_only = False
        self.stale = False
        self.too_few_replicas = False
        self.ignores_memory = False
        self.paused_sessions = {}

    @cython.cfunc
    def _update_may_reject(self) -> cython.void:
        self.may_reject = (
            self.loading
            or self.busy_error is not None
            or self.write_error is not None
            or self.paused_until != 0
            or self.read_only
            or self.stale
            or self.too_few_replicas
        )

    @cython.ccall
    def set_loading(self, on: cython.bint) -> cython.void:
        """Set whether the data is being loaded."""
        self.loading = on
        self._update_may_reject()

    def set_busy(self, text: bytes | None) -> None:
        """Reject, with this text, requests that cannot end the running script; None: no slow script runs."""
        if self.busy_error != text:
            self.busy_error = text
            self._update_may_reject()

    @cython.ccall
    def reject_writes(self, text: bytes | None) -> cython.void:
        """Reject all writes with this error from now on; None accepts them again."""
        self.write_error = text
        self._update_may_reject()

    @cython.ccall
    def set_read_only(self, on: cython.bint) -> cython.void:
        """Set whether this is a replica that accepts no writes of clients."""
        self.read_only = on
        self._update_may_reject()

    @cython.ccall
    def set_stale(self, on: cython.bint) -> cython.void:
        """Set whether clients may not see the data, because the link to the primary is down."""
        self.stale = on
        self._update_may_reject()

    @cython.ccall
    def set_too_few_replicas(self, on: cython.bint) -> cython.void:
        """Set whether writes are rejected because too few replicas would receive them in time."""
        self.too_few_replicas = on
        self._update_may_reject()

    @cython.ccall
    def set_ignores_memory(self, on: cython.bint) -> cython.void:
        """Set whether nothing is evicted or rejected here when memory is full."""
        self.ignores_memory = on

    def pause(self, paused_until: int, writes_only: bool, owner: str = CLIENT_PAUSE) -> None:
        """Pause requests until that time, in milliseconds since 1970.

        A running pause of the same owner is only extended or made stricter.
        """
        if owner in self.pauses:
            until, only_writes = self.pauses[owner]
            paused_until, writes_only = max(paused_until, until), writes_only and only_writes
        self.pauses[owner] = paused_until, writes_only
        self._apply_pauses()

    def end_pause(self, owner: str = CLIENT_PAUSE) -> None:
        """End the owner's pause; the engine then executes the paused requests before any other."""
        if owner in self.pauses:
            self.pauses[owner] = 1, self.pauses[owner][1]
            self.paused_until = 1

    def _apply_pauses(self) -> None:
        pauses = self.pauses.values()
        self.paused_until = min((until for until, _ in pauses), default=0)
        self.pauses_writes_only = bool(pauses) and all(writes_only for _, writes_only in pauses)
        self.eviction.keyspace.pause_expiry = self.paused_until != 0
        self._update_may_reject()

    def shift_pauses(self, by_ms: int) -> None:
        """Shift the ends of the pauses by the milliseconds by which the clock was set."""
        for owner, (until, writes_only) in self.pauses.items():
            self.pauses[owner] = max(until + by_ms, 1), writes_only
        self._apply_pauses()

    def pop_paused_sessions(self, now: int) -> dict[Session, None]:
        """Remove the pauses that have ended; return all sessions that were held.

        The engine executes their requests; those that another pause holds are paused again.
        """
        found = self.paused_sessions
        self.paused_sessions = {}
        self.pauses = {owner: pause for owner, pause in self.pauses.items() if pause[0] > now}
        self._apply_pauses()
        return found

    @cython.ccall
    def error_for(self, session: Session, row: CommandRow, argv: list[bytes]) -> CommandError | None:
        """Return the error for a request that must not run now, or None. Replayed commands always run.

        Entries may be evicted to make room for the request.
        PING is rejected like writes, as in Redis, so that monitoring notices the failure.
        """
        if session.replayed:
            return None
        if self.busy_error is not None:
            return None if "allow_busy" in row.command.flags else CommandError(self.busy_error.decode())
        if self.write_error is not None and (is_write_request(session, row) or row.command.name == b"ping"):
            return CommandError(self.write_error.decode())
        if self.memory.total > self.memory.limit and not self.loading and self.paused_until == 0:
            error: CommandError | None = self._memory_error(session, row, argv)
            if error is not None:
                return error
        if (self.too_few_replicas or self.read_only) and is_write_request(session, row):
            return TooFewReplicas() if self.too_few_replicas else ReadOnlyReplica()
        if self.stale and needs_fresh_data(session, row):
            return PrimaryLinkDown()
        if self.loading and "loading" not in row.command.flags:
            return Loading()
        return None

    @cython.ccall
    def is_held_by_pause(self, session: Session, row: CommandRow) -> cython.bint:
        """Return whether a pause holds the request now. Call it only in a pause.

        Requests of replicas are not held: without their acknowledgements they would be disconnected. Neither
        are WAIT and WAITAOF that have begun to wait: they touch no data.
        """
        if session.is_replica:
            return False
        if session.waiter is not None and not row.readonly and not row.command.write:
            return False
        return not self.pauses_writes_only or self.request_may_write(session, row)

    @cython.ccall
    def error_for_write(self) -> CommandError | None:
        """Return the error for a write that waited and may not run now, or None."""
        if self.write_error is not None:
            return CommandError(self.write_error.decode())
        if self.too_few_replicas:
            return TooFewReplicas()
        return ReadOnlyReplica() if self.read_only else None

    def check_script(self, session: Session) -> None:
        """Raise CommandError if no script may run now, because the data is stale."""
        if self.stale and not session.replayed:
            raise PrimaryLinkDown()

    def check_writing_script_start(self, session: Session, allow_oom: bool) -> None:
        """Raise CommandError if a script that declares to write must not start now."""
        if session.replayed:
            return
        if self.write_error is not None:
            raise CommandError(self.write_error.decode())
        if (
            self.memory.total > self.memory.limit
            and not allow_oom
            and not self.ignores_memory
            and not self.eviction.make_room(0)
        ):
            raise ServerOutOfMemory()
        error = self.error_for_write()
        if error is not None:
            raise error

    def check_script_write(self, session: Session, origin: str) -> None:
        """Raise CommandError if a script may not write now. origin: the script and the line that writes."""
        error = None if session.replayed else self.error_for_write()
        if error is not None:
            raise CommandError(f"{error} {origin}")

    @cython.cfunc
    def _memory_error(self, session: Session, row: CommandRow, argv: list[bytes]) -> CommandError | None:
        """Return the error for a request that needs memory if not enough can be freed; None otherwise."""
        if (
            self.ignores_memory
            or not needs_memory(session, row, argv)
            or self.eviction.make_room(sum(map(len, argv)))
        ):
            return None
        return ServerOutOfMemory()

    @cython.ccall
    def request_may_write(self, session: Session, row: CommandRow) -> cython.bint:
        """Return whether the request may write: by its command, or as an EXEC with a queued write."""
        if may_write(row):
            return True
        if session.queue is None or row.command.name != b"exec":
            return False
        return has_write(session.queue)
