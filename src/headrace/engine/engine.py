"""The entry point for requests of clients: execute(session, argv, now_ms).

    look up the command -> arity -> permission -> subscriber mode -> write gate -> queue inside MULTI -> run
    -> drop a muted reply -> deliver messages -> serve waiters whose keys have new data

Errors become replies: a CommandError with its own text; any other exception as "internal error", with a
traceback in the server's log. Each request gets one reply. The commands of logs and primaries are executed by
replaying.py. The engine reads no clock: `now_ms` is milliseconds since 1970, passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from headrace.commands.call import Call, CallerPolicy
from headrace.commands.connection.subscriptions import PubSub
from headrace.commands.connection.tracking_table import Tracking
from headrace.commands.scripts_interface import RunningScript
from headrace.commands.server.replication import ACKNOWLEDGEMENT_WAIT_KEY
from headrace.commands.server.saving import SYNC_WAIT_KEY
from headrace.commands.server_interface import ServerInterface
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.commands.stats import CommandRow, Stats
from headrace.commands.table import COMMANDS
from headrace.commands.tracking_state import TrackingState
from headrace.engine import dispatch, error_replies
from headrace.engine.authorization import Authorization
from headrace.engine.clock import earlier_time
from headrace.engine.dispatch import Dispatcher
from headrace.engine.parking import Parking
from headrace.engine.rule_runner import RuleRunner
from headrace.engine.script_runner import RowRunner, ScriptRunner
from headrace.engine.timing import Timing
from headrace.engine.write_gate import WriteGate, no_timeout_reply
from headrace.errors import CommandError, WrongArgumentCount
from headrace.keyspace.blocking import Blocking, Waiter, WakeOrder, never_serve
from headrace.keyspace.cold_storage import ColdStorage, RunStore
from headrace.keyspace.effects import Effects
from headrace.keyspace.eviction import Eviction
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.log_rate_limiter import LogRateLimiter
from headrace.keyspace.rule_registry import RuleRegistry
from headrace.keyspace.settings import Settings
from headrace.resp.writer import ReplyWriter
from headrace.streams.cold_run import ColdRun
from headrace.streams.memory_account import MemoryAccount
from headrace.visibility import Public

SWEEP_INTERVAL_MS = cython.declare(cython.longlong, 100)  # minimum time between two sweeps of expired keys
NEVER_MS = 1 << 62  # later than any clock


@cython.final
@cython.cclass
class Engine(RowRunner):
    """One keyspace, its commands, and the sessions that use it. Not thread-safe: one thread owns it."""

    keyspace: Keyspace
    server: ServerInterface
    clients: dict[int, Session]  # by id, oldest first
    # Sessions that received data outside their own request: flush them, then continue their requests.
    woken_sessions: Public[list[Session]]
    killed_sessions: Public[list[Session]]  # killed by another client: close them
    pubsub: PubSub
    tracking: Tracking
    scripts: ScriptRunner
    auth: Authorization  # authentication and permissions
    write_gate: WriteGate  # shut while loading, pausing or rejecting writes
    dispatcher: Dispatcher
    effects: Effects
    rule_registry: RuleRegistry
    rule_runner: RuleRunner
    stats: Stats
    timing: Timing
    rows: dict[bytes, CommandRow]  # by the first argument of a request, in lower and upper case
    http_log_limiter: LogRateLimiter  # of the log: clients that speak HTTP
    # The previous request's first argument and its row: they save 100 instructions when this request begins
    # with the same object (see resp/token_cache.py).
    last_command_name: bytes | None
    last_row: CommandRow | None
    rows_by_full_name: dict[bytes, CommandRow]  # subcommands too, as "config|get"
    request_call: Call
    exec_call: Call  # for the commands that EXEC runs
    waiter_call: Call  # for waiters
    cold_storage: Public[ColdStorage | None]  # None: all nodes are in memory
    parking: Parking | None  # None: cold runs are loaded at once
    held_ready_keys: dict[tuple[int, bytes], None]  # keys with new data for clients that a pause holds
    last_client_id: cython.longlong
    last_sweep_ms: cython.longlong

    def __init__(self, settings: Settings | None = None, server: ServerInterface | None = None) -> None:
        self.keyspace = Keyspace(settings if settings is not None or server is None else server.settings)
        self.server = server if server is not None else ServerInterface(self.keyspace.settings)
        self.clients = {}
        self.woken_sessions = []
        self.killed_sessions = []
        self.pubsub = PubSub(self.keyspace, self.clients)
        self.tracking = self.pubsub.tracking
        self.auth = Authorization(self.clients, self.kill)
        self.effects = Effects()
        self.write_gate = WriteGate(Eviction(self.keyspace, self.effects))
        self.stats = Stats()
        self.timing = Timing(self.keyspace.settings, self.pubsub)
        self.rows, self.rows_by_full_name, self.held_ready_keys = {}, {}, {}
        self.last_command_name = self.last_row = None
        self.http_log_limiter = LogRateLimiter(1, error_replies.HTTP_LOG_INTERVAL_MS)
        self.last_client_id = self.last_sweep_ms = 0
        self.cold_storage = self.parking = None
        self.dispatcher = Dispatcher(
            self.keyspace, self.effects, self.stats, self.timing, self.auth, self.write_gate
        )
        self.request_call = self._new_call(dispatch.REQUEST_POLICY)
        self.exec_call = self._new_call(dispatch.QUEUED_POLICY)
        self.waiter_call = self._new_call(dispatch.WAITER_POLICY)
        self.rule_registry = self.keyspace.rule_registry
        self.rule_runner = RuleRunner(
            self.keyspace,
            self.write_gate,
            self.dispatcher,
            self._new_call(dispatch.RULE_POLICY),
            self.rows_by_full_name,
        )
        self.scripts = ScriptRunner(
            self._new_call(dispatch.SCRIPT_POLICY),
            self.auth,
            self.write_gate,
            self.rows,
            self.rows_by_full_name,
            self,
            self.timing,
            self.run_nested,
        )
        for command in COMMANDS:
            row = self._add(command)
            self.rows[command.name] = row
            self.rows[command.name.upper()] = row
            for sub in command.unique_subcommands():
                self._add(sub)

    def _new_call(self, policy: CallerPolicy) -> Call:
        return Call(self, self.keyspace, self.server, self.effects, policy)

    def _add(self, command: Command) -> CommandRow:
        row = CommandRow(command)
        self.stats.rows.append(row)
        self.rows_by_full_name[command.name] = row
        return row

    # Cold storage.

    def open_cold_storage(self, store: RunStore, limit: int) -> ColdStorage:
        """Let the oldest nodes of streams become cold while the data take more than `limit` bytes.

        limit 0: nodes become cold only by the rules HOT-BYTES and HOT-AGE. A snapshot or log that refers to
        cold runs can be loaded in any case. Returns the cold storage.
        """
        self.cold_storage = self.keyspace.cold_storage = ColdStorage(self.keyspace, store, limit)
        return self.cold_storage

    def enable_parking(self, load: Callable[[ColdRun], object]) -> None:
        """Let requests of clients wait for cold runs, instead of loading them at once.

        load: starts to read a run; on_run_loaded() must be called when that has ended.
        """
        assert self.cold_storage is not None
        self.parking = Parking(self.dispatcher, self.stats, self.cold_storage, load)
        self.cold_storage.store.load_in_background = self.parking.load_ahead

    def has_left_out_removals(self) -> bool:
        """Return whether removals of the log were left out; see commands/stream/left_out_removals.py."""
        return self.cold_storage is not None and self.cold_storage.left_out_removal_count > 0

    @cython.ccall
    def waits_for_run(self, session: Session) -> cython.bint:
        """Return whether the session's request waits until a cold run is read, which does not take long."""
        return self.parking is not None and self.parking.waits_for_run(session)

    def on_run_loaded(self, run: ColdRun, stored: Any, now_ms: int) -> None:
        """Execute the requests that waited for a run; add the sessions with a reply to `woken_sessions`.

        stored: what RunSource.load returned; None if it failed.
        """
        assert self.parking is not None
        waiter: Waiter
        for waiter in self.parking.on_loaded(run, stored):
            assert isinstance(waiter.session, Session)
            session: Session = waiter.session
            if session.waiter is waiter and session.id in self.clients and not session.killed:
                self._stop_waiting(session)
                self.execute(session, waiter.argv, now_ms)
                if session.waiter is None:
                    self.woken_sessions.append(session)

    # Sessions.

    def create_session(self, address: bytes = b"", local_address: bytes = b"", now_ms: int = 0) -> Session:
        """Create a session for a new client. The caller must end it with close()."""
        self.last_client_id += 1
        made = Session(self.last_client_id, address, local_address)
        made.created_ms = made.last_request_ms = now_ms
        self.clients[made.id] = made
        self.stats.connection_count += 1
        return made

    def close(self, session: Session) -> None:
        """End a session: remove its waits, watches, subscriptions and queue. May be called twice."""
        self.clients.pop(session.id, None)
        self.unwatch(session)
        self.pubsub.unsubscribe_all(session)
        self.tracking.remove_client(session)
        session.queue = None
        session.closing = True
        self._stop_waiting(session)
        if self.parking is not None:
            self.parking.forget_session(session)

    def kill(self, session: Session) -> None:
        """Mark another client's session as killed; the server closes those in `killed_sessions`."""
        session.closing = True
        session.killed = True
        self._stop_waiting(session)
        self.killed_sessions.append(session)

    @cython.ccall
    def unwatch(self, session: Session) -> cython.void:
        """Remove all watches of the session."""
        if session.watch is not None:
            self.keyspace.unwatch(session.watch)
            session.watch = None

    def set_effect_recording(self, on: bool) -> None:
        """Turn the recording of effects on or off. While it is on, the caller must call effects.take()."""
        self.effects.recording = on
        self.keyspace.on_expired = self.effects.record_expired if on else None

    @cython.ccall
    def take_woken(self) -> list[Session]:
        """Send due broadcasts to clients with tracking; then return `woken_sessions` and clear it."""
        if self.tracking.broadcast_due and self.scripts.running is None:
            self.tracking.broadcast(self.woken_sessions)
        woken: list[Session] = self.woken_sessions
        self.woken_sessions = []
        return woken

    # Requests.

    @cython.ccall
    @cython.nonecheck(False)  # all that is read here is set before the first request
    def execute(self, session: Session, argv: list[bytes], now_ms: cython.longlong) -> cython.void:
        """Execute one request of at least one argument; write its reply to the session. Raises no Exception.

        Afterwards the session may be blocked (session.waiter). Then no further request of it may be executed
        until it is in `woken_sessions`.
        """
        reply: ReplyWriter = session.reply
        mark: cython.Py_ssize_t = reply.mark()
        call: Call = self.request_call
        memory: MemoryAccount = self.write_gate.memory
        session.last_request_ms = now_ms
        self.keyspace.now = now_ms
        call.now = now_ms
        row: CommandRow | None = self.last_row
        word: bytes = argv[0]
        if word is not self.last_command_name:
            row = self.last_row = self.rows.get(word)
            self.last_command_name = word
        if row is None or not row.has_no_subcommands:
            row = self._resolve_row(session, row, argv)
            if row is None:
                self._finish_client_state(session, None, argv, mark)
                return
        session.last_command = row.command
        if not (len(argv) == row.arity if row.arity > 0 else len(argv) >= -row.arity):
            self._reject(session, row, WrongArgumentCount(row.command.name.decode()))
        elif session.restricted_user is not None and self._reject_unauthorized(session, row, argv, False):
            pass  # rejected already
        elif (
            session.subscription_count
            and reply.protocol == 2
            and not error_replies.allowed_while_subscribed(row.command)
        ):
            self._reject(session, row, error_replies.SubscriberModeOnly(row.command.name.decode()))
        elif (self.write_gate.may_reject or memory.total > memory.limit) and self._reject_or_pause(
            session, row, argv
        ):
            pass  # rejected already, or paused
        elif session.queue is not None and row.command.queueable:
            self._queue(session, row, argv)
        else:
            call.session = session
            call.reply = reply
            call.argv = argv
            if self.parking is None:
                self.dispatcher.run(call, row)
            else:
                self.parking.run_or_park(call, row)
        if session.needs_follow_up:
            self._finish_client_state(session, row, argv, mark)
        if self.pubsub.outbox:
            self.pubsub.deliver(self.woken_sessions, session)
        if self.keyspace.blocking.ready_keys:
            self._serve_ready()
        if self.rule_registry.changed_streams:
            self._apply_rules()

    @cython.ccall
    def run_transaction(self, session: Session, queue: list[tuple[CommandRow, list[bytes]]]) -> cython.void:
        """Run the queued commands of an EXEC: each writes one reply, which may be an error; none blocks."""
        call: Call = self.exec_call
        row: CommandRow
        argv: list[bytes]
        call.now = self.keyspace.now
        call.session = session
        call.reply = session.reply
        self.effects.begin_transaction()
        try:
            for row, argv in queue:
                if session.restricted_user is None or not self._reject_unauthorized(session, row, argv, True):
                    call.argv = argv
                    self.dispatcher.run(call, row)
                    if session.needs_follow_up and row.readonly and session.tracking is not None:
                        self.tracking.on_read(session.tracking, row.command, argv)
        finally:  # a signal handler may raise here
            self.effects.end_transaction()

    @cython.ccall
    def run_script_call(self, call: Call, row: CommandRow) -> cython.void:
        """Run a command of a script; if the script's client uses tracking, track the keys that were read."""
        running: RunningScript | None = self.scripts.running
        session: Session | None = running.session if running is not None else None
        self.timing.begin()  # the time of the script itself is not the command's
        self.dispatcher.run(call, row)
        if row.readonly and session is not None and session.tracking is not None:
            self.tracking.on_read(session.tracking, row.command, call.argv)
        if self.pubsub.outbox and session is not None and self.pubsub.is_outbox_full():
            self.pubsub.deliver_to_others(self.woken_sessions, session)

    def run_nested(self, serve: Callable[[], None]) -> None:
        """Run a function that executes requests of other clients, in the middle of a request.

        What the interrupted request has caused so far (messages, keys with new data, streams with work for
        their rules) is handled when that request ends.
        """
        call: Call = self.request_call
        kept = call.session, call.reply, call.argv, call.command, call.database, call.now
        now: cython.longlong = self.keyspace.now
        counts: cython.bint = self.keyspace.counts_lookups
        blocking: Blocking = self.keyspace.blocking
        outbox: list[Any] = self.pubsub.outbox  # emptied, not replaced: Tracking has it, too
        keys, messages, ruled = (
            dict(blocking.ready_keys),
            outbox.copy(),
            dict(self.rule_registry.changed_streams),
        )
        blocking.ready_keys.clear()
        self.rule_registry.changed_streams.clear()
        outbox.clear()
        try:
            serve()
        finally:
            blocking.ready_keys.update(keys)
            self.rule_registry.changed_streams.update(ruled)
            outbox[:0] = messages
            call.session, call.reply, call.argv, call.command, call.database, call.now = kept
            self.keyspace.now = now
            self.keyspace.counts_lookups = counts

    @cython.cfunc
    def _resolve_row(self, session: Session, row: CommandRow | None, argv: list[bytes]) -> CommandRow | None:
        """Find the row of a mixed-case name or a subcommand; reject an unknown one and return None."""
        if row is None:
            row = self.rows.get(argv[0].lower())
            if row is None:
                self._reject(
                    session, None, error_replies.unknown_command_error(session, argv, self.http_log_limiter)
                )
                return None
        if row.has_no_subcommands or len(argv) == 1:
            return row
        sub = row.command.subcommand(argv[1])
        if sub is None:
            self._reject(session, None, error_replies.unknown_subcommand_error(argv))
            return None
        return self.rows_by_full_name[sub.name]

    @cython.cfunc
    def _queue(self, session: Session, row: CommandRow, argv: list[bytes]) -> cython.void:
        """Queue the request for EXEC, or reject it if the command is not allowed in a transaction."""
        if "no_multi" in row.command.flags:
            self._reject(session, row, error_replies.NotAllowedInTransaction())
            return
        session.enqueue(row, argv)
        session.reply.simple(b"QUEUED")

    @cython.cfunc
    def _reject(self, session: Session, row: CommandRow | None, error: CommandError) -> cython.void:
        """Reply with an error to a request that was not run; its transaction, if any, will fail."""
        if row is not None:
            row.rejected_calls += 1
            if row.command.name == b"exec":  # a malformed EXEC also ends the transaction
                session.queue = None
                self.unwatch(session)
                error = error_replies.ExecAborted(error)
        session.transaction_failed = session.queue is not None
        self.dispatcher.reply_error(session, error)

    @cython.cfunc
    def _finish_client_state(
        self, session: Session, row: CommandRow | None, argv: list[bytes], mark: cython.Py_ssize_t
    ) -> cython.void:
        """Finish a request of a client that has muted replies or tracks keys. row: None if it was unknown."""
        state: TrackingState | None = session.tracking
        if session.reply_mode and session.waiter is None:
            self._drop_muted_reply(session, mark)
        if state is None or not state.is_on:
            return
        if row is not None and row.readonly and self.request_call.argv is argv:  # neither rejected nor queued
            self.tracking.on_read(state, row.command, argv)
        if row is not None and row.command.name.startswith(b"client|"):
            return  # CLIENT CACHING applies to the next request of another kind
        if session.waiter is None and session.queue is None:
            state.caching_command_sent = False

    @cython.cfunc
    def _drop_muted_reply(self, session: Session, mark: cython.Py_ssize_t) -> cython.void:
        """Remove the reply written since `mark` if CLIENT REPLY turned replies off."""
        if session.is_muted() and not session.force_reply:
            session.reply.rewind(mark)
        session.force_reply = False
        session.advance_reply_mode()

    # Rules of streams and groups.

    @cython.cfunc
    def _apply_rules(self) -> cython.void:
        """Apply the rules of streams that were changed, and serve the clients that wait for the results."""
        while self.rule_registry.changed_streams:
            self.rule_runner.run_ready(self.keyspace.now)
            if self.pubsub.outbox:
                self.pubsub.deliver(self.woken_sessions, None)
            self._serve_ready()

    # Waiting.

    def after_nonclient_change(self) -> None:
        """Deliver messages and serve waiters after a change that no client made."""
        self.pubsub.deliver(self.woken_sessions, None)
        self._serve_ready()

    @cython.cfunc
    def _serve_ready(self) -> cython.void:
        """Retry the waiters of every key with new data, in order of arrival, until no key is left."""
        blocking: Blocking = self.keyspace.blocking
        wake_order: WakeOrder
        waiter: Waiter | None
        served: cython.bint
        while blocking.ready_keys:
            for index, key in blocking.take_ready():
                wake_order = blocking.wake_order(index, key)
                waiter = wake_order.next()
                while waiter is not None:
                    served = not waiter.alive
                    if not served and waiter.begin_retry_if_useful(
                        blocking.round_number, self.keyspace.databases[index], key
                    ):
                        served = self._retry_waiter(waiter, key)
                    wake_order.record_result(waiter, served)
                    waiter = wake_order.next()

    @cython.cfunc
    def _retry_waiter(self, waiter: Waiter, key: bytes) -> cython.bint:
        """Retry one waiter; return True if it was served, and unblock its session."""
        row: CommandRow = self.rows_by_full_name[waiter.command_name]
        call: Call = self._prepare_waiter_call(waiter, row)
        session: Session = call.session
        mark: cython.Py_ssize_t = call.reply.mark()
        served: cython.bint
        if self.write_gate.paused_until and self.write_gate.is_held_by_pause(session, row):
            self.held_ready_keys[waiter.database, key] = None
            return False
        served = self.dispatcher.run_again(call, row, waiter)
        if served:
            if session.needs_follow_up and row.readonly and session.tracking is not None:
                self.tracking.remember(session.tracking, waiter.keys)
            self._wake_session(session, mark)
        if self.pubsub.outbox:
            self.pubsub.deliver(self.woken_sessions, session)
        return served

    @cython.cfunc
    def _prepare_waiter_call(self, waiter: Waiter, row: CommandRow) -> Call:
        """Return a call set up for the waiter's request."""
        call: Call = self.waiter_call
        assert isinstance(waiter.session, Session)
        session: Session = waiter.session
        call.now = self.keyspace.now
        call.session = session
        call.reply = session.reply
        call.argv = waiter.argv
        call.command = row.command
        call.database = self.keyspace.databases[waiter.database]
        return call

    @cython.cfunc
    def _wake_session(self, session: Session, mark: cython.Py_ssize_t) -> cython.void:
        """Unblock the session, whose reply begins at `mark`."""
        self.stats.unblocked_count += 1
        self._stop_waiting(session)
        if session.needs_follow_up:
            self._drop_muted_reply(session, mark)
            if session.tracking is not None:
                session.tracking.caching_command_sent = False
        self.woken_sessions.append(session)

    @cython.cfunc
    def _stop_waiting(self, session: Session) -> cython.void:
        if session.waiter is not None:
            self.keyspace.blocking.remove(session.waiter)
            session.waiter = None
            self.write_gate.paused_sessions.pop(session, None)

    def unblock(self, session: Session, error: CommandError | None = None) -> bool:
        """End a blocked session's wait with its timeout reply or an error; return whether it was blocked.

        Paused requests, those that wait for a cold run, and a SHUTDOWN are not ended.
        """
        waiter = session.waiter
        if waiter is not None and waiter.serve is not never_serve:
            self._time_out(waiter, error)
            return True
        return False

    def end_shutdown_wait(self, session: Session, error: CommandError) -> None:
        """Reply to a session whose SHUTDOWN waits, because the shutdown has failed."""
        waiter = session.waiter
        if waiter is not None:
            self._time_out(waiter, error)

    def unblock_all(self, error: CommandError) -> None:
        """End the wait of every blocked session that unblock() ends, with the error; close these sessions."""
        for session in list(self.clients.values()):
            if self.unblock(session, error):
                session.closing = True

    @cython.cfunc
    def _time_out(self, waiter: Waiter, error: CommandError | None) -> cython.void:
        call: Call = self._prepare_waiter_call(waiter, self.rows_by_full_name[waiter.command_name])
        mark: cython.Py_ssize_t = call.reply.mark()
        if error is None:
            waiter.on_timeout(call)
        else:
            self.dispatcher.reply_error(call.session, error)
        self._wake_session(call.session, mark)

    def has_sync_waiters(self) -> bool:
        """Return whether a session waits for a sync of the log (WAITAOF)."""
        return (0, SYNC_WAIT_KEY) in self.keyspace.blocking.queues

    def on_log_synced(self, now_ms: int) -> None:
        """Retry sessions that wait for a sync: more of the log is synced, or the log was disabled."""
        self.keyspace.now = now_ms
        self.keyspace.blocking.signal(0, SYNC_WAIT_KEY)
        self._serve_ready()

    def on_replicas_acknowledged(self, now_ms: int) -> None:
        """Retry sessions that wait for replicas (WAIT, WAITAOF): one has acknowledged more, or has left."""
        self.keyspace.now = now_ms
        self.keyspace.blocking.signal(0, ACKNOWLEDGEMENT_WAIT_KEY)
        self._serve_ready()

    # Time.

    def set_active_expiry(self, on: bool) -> None:
        """Set whether tick() deletes expired keys (DEBUG SET-ACTIVE-EXPIRE); an access always does."""
        self.last_sweep_ms = 0 if on else NEVER_MS

    def on_clock_set(self, by_ms: int) -> None:
        """Shift waits, pauses and idle times, after the clock was set by `by_ms` milliseconds (signed)."""
        self.keyspace.blocking.shift_deadlines(by_ms)
        self.write_gate.shift_pauses(by_ms)
        self.rule_runner.reapply_all_next_time()
        for session in self.clients.values():
            session.created_ms += by_ms
            session.last_request_ms += by_ms
        if self.last_sweep_ms != NEVER_MS:
            self.last_sweep_ms = 0

    @cython.ccall
    def tick(self, now_ms: cython.longlong) -> cython.void:
        """Run the work that is due at this time. Raises no Exception.

        Ends waits and pauses, deletes expired keys, applies rules, moves nodes to files, compacts nodes, and
        frees removed values, each in a bounded step.
        """
        waiter: Waiter
        self.keyspace.now = now_ms
        if self.write_gate.loading:
            return
        if self.keyspace.settings.stream_compact_tombstones:
            self.keyspace.compaction.step(now_ms)
        if self.keyspace.lazy_free.containers:
            self.keyspace.lazy_free.step(now_ms)
        if self.cold_storage is not None:
            self.cold_storage.step(now_ms)
        for waiter in self.keyspace.blocking.pop_expired(now_ms):
            self._time_out(waiter, None)
        self.keyspace.blocking.fire(now_ms)
        if self.write_gate.paused_until and self.write_gate.paused_until <= now_ms:
            self.resume_paused(now_ms)
        if self.write_gate.paused_until:
            return
        if now_ms >= self.last_sweep_ms + SWEEP_INTERVAL_MS and not self.keyspace.sweep_step():
            self.last_sweep_ms = now_ms
        if self.rule_registry.streams:
            self.rule_runner.tick(now_ms)
        self.pubsub.deliver(self.woken_sessions, None)
        self._serve_ready()
        if self.rule_registry.changed_streams:
            self._apply_rules()

    @cython.ccall
    def next_deadline(self) -> cython.longlong:
        """Return when tick() next has work, in milliseconds since 1970; -1 means never."""
        earliest: cython.longlong = self.keyspace.blocking.next_deadline()
        if self.keyspace.settings.stream_compact_tombstones:
            earliest = earlier_time(earliest, self.keyspace.compaction.next_step_ms())
        if self.keyspace.lazy_free.containers:
            earliest = earlier_time(earliest, self.keyspace.lazy_free.next_step_ms())
        if self.cold_storage is not None:
            earliest = earlier_time(earliest, self.cold_storage.next_step_ms(self.keyspace.now))
        if self.write_gate.paused_until:
            return earlier_time(earliest, self.write_gate.paused_until)  # a pause keeps expired keys
        if self.rule_registry.streams:
            earliest = earlier_time(earliest, self.rule_runner.next_due(self.keyspace.now))
        death: cython.longlong = self.keyspace.next_expiry()
        return (
            earliest
            if death < 0
            else earlier_time(earliest, max(death, self.last_sweep_ms + SWEEP_INTERVAL_MS))
        )

    @cython.cfunc
    def _reject_unauthorized(
        self, session: Session, row: CommandRow, argv: list[bytes], queued: cython.bint
    ) -> cython.bint:
        """Reject the request and return True if the session's user may not run it."""
        error = self.auth.permission_error(session, row.command, argv, self.keyspace.now, queued)
        if error is not None:
            self._reject(session, row, error)
        return error is not None

    @cython.cfunc
    def _reject_or_pause(self, session: Session, row: CommandRow, argv: list[bytes]) -> cython.bint:
        """Reject or pause the request if it may not run now; return whether it was."""
        error: CommandError | None
        try:
            error = self.write_gate.error_for(session, row, argv)  # may evict, and for that apply rules
        except Exception as exception:
            error = error_replies.command_error(exception, row.command)
        if error is not None:
            self._reject(session, row, error)
            return True
        return self.write_gate.paused_until != 0 and self._pause_request(session, row, argv)

    @cython.cfunc
    def _pause_request(self, session: Session, row: CommandRow, argv: list[bytes]) -> cython.bint:
        """Make the request wait if a pause applies to it; return whether it waits."""
        if self.write_gate.paused_until <= self.keyspace.now:
            self.resume_paused(self.keyspace.now)
            if not self.write_gate.paused_until:
                return False
        if not self.write_gate.is_held_by_pause(session, row):
            return False
        waiter = Waiter(
            session, session.database, argv, [], 0, never_serve, no_timeout_reply, row.command.name
        )
        session.waiter = waiter
        self.keyspace.blocking.add_waiter(waiter)
        self.write_gate.paused_sessions[session] = None
        return True

    def resume_paused(self, now_ms: int) -> None:
        """End the pauses that are over and execute the requests held, in order of arrival."""
        self.timing.begin()
        self.rule_runner.reapply_all_next_time()
        paused = self.write_gate.pop_paused_sessions(now_ms)
        self.keyspace.blocking.ready_keys.update(self.held_ready_keys)
        self.held_ready_keys = {}
        self._serve_ready()  # these clients have waited longer
        for session in paused:
            waiter: Waiter | None = session.waiter
            if waiter is not None and session.id in self.clients and not session.killed:
                self._stop_waiting(session)
                self.execute(session, waiter.argv, now_ms)
                if session.waiter is None:
                    self.woken_sessions.append(session)
