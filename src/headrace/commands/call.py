"""The context of a command: session, arguments, time, database and reply."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import cython

from headrace.commands.arguments import Arguments
from headrace.commands.engine_interface import EngineInterface
from headrace.commands.server_interface import ServerInterface
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.keyspace.blocking import Waiter
from headrace.keyspace.effects import Effects
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.resp.writer import ReplyWriter
from headrace.visibility import Public


def write_null_array(call: Call) -> None:
    """Reply with a null array: the usual reply to a timeout."""
    call.reply.null_array()


def write_null(call: Call) -> None:
    """Reply with null to a timeout."""
    call.reply.null()


def write_wait_reply(call: Call) -> None:
    """Reply to WAIT: how many replicas have the caller's writes."""
    call.reply.integer(call.server.replication.count_acknowledged_replicas(call.session.awaited_offset))


def write_waitaof_reply(call: Call) -> None:
    """Reply to WAITAOF: whether the caller's writes are synced here, and on how many replicas."""
    call.reply.array(2)
    call.reply.integer(1 if call.server.synced_log_offset() > call.session.last_write_offset else 0)
    call.reply.integer(call.server.replication.count_synced_replicas(call.session.awaited_offset))


TIMEOUT_REPLY_WRITERS: dict[str, Callable[[Call], None]] = {
    "null_array": write_null_array,
    "null": write_null,
    "acknowledged": write_wait_reply,
    "synced": write_waitaof_reply,
}


@cython.final
@cython.cclass
class CallerPolicy:
    """How commands run for a kind of caller (client, script, rule, log); engine/dispatch.py lists them."""

    may_block: cython.bint
    replies_with_errors: cython.bint  # an error becomes the reply; otherwise it is raised
    counted_in_stats: cython.bint  # in the statistics of commands
    leaves_out_unreadable_removals: cython.bint  # see commands/stream/left_out_removals.py

    def __init__(
        self,
        may_block: cython.bint = False,
        replies: cython.bint = True,
        counted: cython.bint = True,
        leaves_out_unreadable_removals: cython.bint = False,
    ) -> None:
        self.may_block = may_block
        self.replies_with_errors = replies
        self.counted_in_stats = counted
        self.leaves_out_unreadable_removals = leaves_out_unreadable_removals


@cython.final
@cython.cclass
class Call:
    """One run of a command. The engine reuses the same object for each request: do not keep it.

    A command writes exactly one reply to `reply`, or raises a CommandError, or calls wait().
    """

    engine: EngineInterface
    server: ServerInterface
    keyspace: Keyspace
    session: Public[Session]
    reply: Public[ReplyWriter]
    database: Public[Database]
    command: Public[Command]
    argv: Public[list[bytes]]
    now: Public[cython.longlong]  # milliseconds since 1970
    policy: Public[CallerPolicy]
    effects: Effects  # only while they are `recording` should a command build the arguments of record()
    effect_items: list[tuple[int, list[bytes]]]  # the items of effects: saves record() a look-up
    _arguments: Arguments

    def __init__(
        self,
        engine: EngineInterface,
        keyspace: Keyspace,
        server: ServerInterface,
        effects: Effects,
        policy: CallerPolicy,
    ) -> None:
        self.engine = engine
        self.keyspace = keyspace
        self.server = server
        self.effects = effects
        self.effect_items = effects.items
        self.policy = policy
        self.now = 0
        self._arguments = Arguments([], 0)

    @cython.ccall
    def arguments(self) -> Arguments:
        """Return a cursor at the first argument after the command's (and subcommand's) name."""
        arguments: Arguments = self._arguments
        arguments.argv = self.argv
        arguments.at = self.command.name_argument_count
        return arguments

    @cython.ccall
    def replayed(self) -> cython.bint:
        """Return whether the request comes from a log: it was executed once, and must succeed again."""
        return self.session.replayed

    @cython.ccall
    def record(self, words: list[bytes]) -> cython.void:
        """Record an effect: a request that a log or replica must execute. No-op while recording is off."""
        if self.effects.recording:
            self.effect_items.append((self.database.index, words))

    @cython.ccall
    def record_verbatim(self) -> cython.void:
        """Record the request as the effect."""
        if self.effects.recording:
            self.effect_items.append((self.database.index, self.argv))

    @cython.ccall
    def finish_change(self, key: bytes, cls: str, event: bytes, effect: list[bytes] | None) -> cython.void:
        """Finish one change of the key: count it, invalidate watchers, publish the event, record the effect.

        Args:
            key: in the session's database.
            cls: the event's class, a letter: see keyspace/events.py.
            event: the name of the event.
            effect: the request to record; None if the command records one effect for several keys.
        """
        _finish_change(self, key, cls, event, effect)

    @cython.ccall
    def finish_change_and_retry_waiters(
        self, key: bytes, cls: str, event: bytes, effect: list[bytes] | None
    ) -> cython.void:
        """Do what finish_change() does, and retry clients blocked on the key after the command."""
        _finish_change(self, key, cls, event, effect)
        self.database.signal_ready(key)

    @cython.ccall
    def count_and_record_changes(self, count: cython.longlong) -> cython.void:
        """Count changes and record the request. Watchers are not invalidated and no event is published."""
        self.keyspace.changes += count
        if self.effects.recording:
            self.effect_items.append((self.database.index, self.argv))

    @cython.ccall
    def notify(self, cls: str, event: bytes, key: bytes) -> cython.void:
        """Publish an event of the key, if its class (a letter, see keyspace/events.py) is enabled."""
        if self.keyspace.settings.notify_keyspace_events:
            self.keyspace.notifier.notify(cls, event, key, self.database.index)

    @cython.ccall
    def count_lookup(self, key: bytes, value: object) -> cython.void:
        """Count a hit, or a miss if the value is None. A miss also publishes the event `keymiss`.

        Commands that read a key and write call this. For read-only commands Database.find() counts.
        """
        if self.keyspace.counts_lookups:
            return
        if value is None:
            self.keyspace.misses += 1
            self.notify("m", b"keymiss", key)
        else:
            self.keyspace.hits += 1

    @cython.ccall
    def wait(
        self,
        keys: list[bytes],
        deadline_ms: cython.longlong,
        serve: Callable[[Call], bool],
        on_timeout: str = "null_array",
        wait_class: Hashable = None,
        may_be_served: Callable[[Database, bytes], bool] | None = None,
    ) -> cython.void:
        """Block the session until `serve` replies or the deadline passes. CallerPolicy.may_block must be set.

        Args:
            keys: the command is retried when one of them has new data.
            deadline_ms: milliseconds since 1970; 0 means never.
            serve: retries the command with a call of the session; returns whether it replied. It may raise
                a CommandError, which is a reply, too.
            on_timeout: a name in TIMEOUT_REPLY_WRITERS.
            wait_class: hashable; if one waiter of a class finds nothing, the later ones are not tried. None:
                no class, the waiter is always tried.
            may_be_served: called with (database, key) before a retry; returns False if it would find nothing.
        """
        assert self.policy.may_block, "a command may not block here"
        timeout = TIMEOUT_REPLY_WRITERS[on_timeout]
        database = self.database.index
        waiter = Waiter(
            self.session,
            database,
            self.argv,
            keys,
            deadline_ms,
            serve,
            timeout,
            self.command.name,
            wait_class,
            may_be_served,
        )
        self.session.waiter = waiter
        self.keyspace.blocking.add_waiter(waiter)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _finish_change(call: Call, key: bytes, cls: str, event: bytes, effect: list[bytes] | None) -> cython.int:
    """See Call.finish_change(). Returns 0: an int is cheaper to check for an exception than void."""
    database: Database = call.database
    database.mark_modified(key)
    if call.keyspace.settings.notify_keyspace_events:
        call.keyspace.notifier.notify(cls, event, key, database.index)
    if call.effects.recording and effect is not None:
        call.effect_items.append((database.index, effect))
    return 0
