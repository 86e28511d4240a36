"""The one door: execute(session, argv, now). Everything that changes data passes here.

    find the row → arity → may he? → only listening? → the gate → queue inside MULTI → run → mute
    → send messages → serve whom the news wakes

Errors raised anywhere below are answered here and nowhere else: a CommandError with its own text, a bug
with an apology and a traceback in the log; either way one reply a request, and the data stays.
The engine reads no clock: `now` is milliseconds since 1970, handed in.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.connection.subscriptions import PubSub
from headrace.commands.server.saving import SYNCED
from headrace.commands.server_interface import ServerInterface
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.commands.table import COMMANDS
from headrace.engine import error_replies
from headrace.engine.authorization import Authorization
from headrace.engine.clock import earlier_time
from headrace.engine.effects import Effects
from headrace.engine.stats import CommandRow, Stats
from headrace.engine.timing import Timing
from headrace.engine.write_gate import WriteGate, never_serve, no_timeout_reply
from headrace.errors import CommandError, WrongArgumentCount
from headrace.keyspace.blocking import Blocking, Waiter, WakeOrder
from headrace.keyspace.eviction import Eviction
from headrace.keyspace.keyspace import Keyspace
from headrace.keyspace.settings import Settings
from headrace.resp.writer import ReplyWriter
from headrace.streams.memory_account import MemoryAccount
from headrace.visibility import Public

SWEEP_INTERVAL_MS = cython.declare(cython.longlong, 100)  # how often, at most, dead keys are swept
NEVER_MS = 1 << 62  # no clock comes that far


@cython.final
@cython.cclass
class Engine:
    """One keyspace, its commands, and the sessions that use it. One thread owns it."""

    keyspace: Keyspace
    server: ServerInterface
    clients: dict[int, Session]  # by id, oldest first
    # answered outside a request of their own: flush them, go on with their requests
    woken: Public[list[Session]]
    killed_sessions: Public[list[Session]]  # killed by another client: close them
    pubsub: PubSub
    scripts: dict[bytes, str]  # the digests that EVALSHA finds: see commands/server/scripts.py
    auth: Authorization  # who everybody is, and what they may do
    write_gate: WriteGate  # shut while something keeps requests from running
    effects: Effects
    stats: Stats
    timing: Timing
    rows: dict[bytes, CommandRow]  # by the first word of a request, lower and upper case at the ready
    last_name: bytes | None  # the first word of the request before, and its row: 100 instructions saved when
    last_row: CommandRow | None  # this one begins with the same object (see resp/token_cache.py)
    by_name: dict[bytes, CommandRow]  # subcommands too, as "config|get"
    call: Call
    exec_call: Call  # for what EXEC runs
    waiter_call: Call  # for waiters
    next_client: cython.longlong
    last_sweep_ms: cython.longlong

    def __init__(self, settings: Settings | None = None, server: ServerInterface | None = None) -> None:
        self.keyspace = Keyspace(settings if settings is not None or server is None else server.settings)
        self.server = server if server is not None else ServerInterface(self.keyspace.settings)
        self.clients = {}
        self.woken = []
        self.killed_sessions = []
        self.pubsub = PubSub(self.keyspace.events)
        self.scripts = {}
        self.auth = Authorization(self.clients, self.kill)
        self.effects = Effects()
        self.write_gate = WriteGate(Eviction(self.keyspace, self.effects))
        self.stats = Stats()
        self.timing = Timing(self.keyspace.settings, self.pubsub)
        self.rows, self.by_name = {}, {}
        self.last_name = self.last_row = None
        self.next_client = self.last_sweep_ms = 0
        self.call = Call(self, self.keyspace, self.server, self.effects)
        self.exec_call = Call(self, self.keyspace, self.server, self.effects)
        self.waiter_call = Call(self, self.keyspace, self.server, self.effects)
        self.exec_call.may_block = self.waiter_call.may_block = False
        for command in COMMANDS:
            row = self._add(command)
            self.rows[command.name] = row
            self.rows[command.name.upper()] = row
            for sub in command.unique_subcommands():
                self._add(sub)

    def _add(self, command: Command) -> CommandRow:
        row = CommandRow(command)
        self.stats.rows.append(row)
        self.by_name[command.name] = row
        return row

    # Sessions.

    def session(self, address: bytes = b"", local_address: bytes = b"", now_ms: int = 0) -> Session:
        """A new client. Its owner ends it with close()."""
        self.next_client += 1
        made = Session(self.next_client, address, local_address)
        made.created_ms = made.active_ms = now_ms
        self.clients[made.id] = made
        self.stats.connections += 1
        return made

    def close(self, session: Session) -> None:
        """The client is gone: nothing waits, watches, listens or is queued for it. Twice does nothing."""
        self.clients.pop(session.id, None)
        self.unwatch(session)
        self.pubsub.unsubscribe_all(session)
        session.queue = None
        session.closing = True
        self._stop_waiting(session)

    def kill(self, session: Session) -> None:
        """Close another client's session: its transport finds it in `dropped`."""
        session.closing = True
        session.killed = True
        self._stop_waiting(session)
        self.killed_sessions.append(session)

    @cython.ccall
    def unwatch(self, session: Session) -> cython.void:
        """The session watches nothing any more."""
        if session.watch is not None:
            self.keyspace.unwatch(session.watch)
            session.watch = None

    def record_effects(self, on: bool) -> None:
        """Whether effects are kept from now on, for their taker to take()."""
        self.effects.recording = on
        self.call.recording = on
        self.exec_call.recording = on
        self.waiter_call.recording = on
        self.keyspace.on_expired = self.effects.record_expired if on else None

    # Requests.

    @cython.ccall
    def execute(self, session: Session, argv: list[bytes], now_ms: cython.longlong) -> cython.void:
        """Carry out one request, of at least one word, and leave its reply in session.answer.

        The session may wait afterwards (session.waiting): then no request of its own may follow until
        it is in `woken`. Raises nothing.
        """
        answer: ReplyWriter = session.answer
        mark: cython.Py_ssize_t = answer.mark()
        call: Call = self.call
        memory: MemoryAccount = self.write_gate.memory
        session.active_ms = now_ms
        self.keyspace.now = now_ms
        call.now = now_ms
        row: CommandRow | None = self.last_row
        word: bytes = argv[0]
        if word is not self.last_name:
            row = self.last_row = self.rows.get(word)
            self.last_name = word
        if row is None or not row.is_plain:
            row = self._resolve_row(session, row, argv)
            if row is None:
                self._drop_muted_reply(session, mark)
                return
        session.last_command = row.command
        if not (len(argv) == row.arity if row.arity > 0 else len(argv) >= -row.arity):
            self._reject(session, row, WrongArgumentCount(row.command.name.decode()))
        elif session.restricted_user is not None and self._reject_unauthorized(session, row, argv, False):
            pass  # it was refused
        elif (
            session.subscription_count
            and answer.protocol == 2
            and not error_replies.allowed_while_subscribed(row.command)
        ):
            self._reject(session, row, error_replies.SubscriberModeOnly(row.command.name.decode()))
        elif (self.write_gate.shut or memory.total > memory.limit) and self._reject_or_pause(
            session, row, argv
        ):
            pass  # it was refused, or it waits
        elif session.queue is not None and row.command.queueable:
            self._queue(session, row, argv)
        else:
            call.session = session
            call.answer = answer
            call.argv = argv
            self._run(call, row)
        if session.reply_mode and session.waiting is None:
            self._drop_muted_reply(session, mark)
        if self.pubsub.outbox:
            self.pubsub.deliver(self.woken)
        if self.keyspace.blocking.ready:
            self._serve_ready()

    @cython.ccall
    def execute_queue(self, session: Session, queue: list[tuple[CommandRow, list[bytes]]]) -> cython.void:
        """Run what EXEC found queued: one reply each, errors too, and none of them blocks."""
        call: Call = self.exec_call
        row: CommandRow
        argv: list[bytes]
        call.now = self.keyspace.now
        call.session = session
        call.answer = session.answer
        self.effects.begin_transaction()
        try:
            for row, argv in queue:
                if session.restricted_user is None or not self._reject_unauthorized(session, row, argv, True):
                    call.argv = argv
                    self._run(call, row)
        finally:  # a signal handler may raise in here
            self.effects.end_transaction()

    @cython.cfunc
    def _run(self, call: Call, row: CommandRow) -> cython.void:
        """Run the row's command; whatever happens, it has answered or it waits."""
        keyspace: Keyspace = self.keyspace
        mark: cython.Py_ssize_t = call.answer.mark()
        effects: cython.Py_ssize_t = len(self.effects.items)
        since: cython.longlong = self.timing.lap_ns
        call.command = row.command
        call.database = keyspace.databases[call.session.database]
        keyspace.counts_lookups = row.readonly
        row.calls += 1
        self.stats.commands += 1
        try:
            row.run(call)
        except Exception as exception:
            row.failed += 1
            call.answer.rewind(mark)
            self._reply_error(call.session, error_replies.command_error(exception, row.command))
        if len(self.effects.items) != effects:
            call.session.last_write_offset = self.effects.offset
        if self.timing.enabled:
            self.timing.record_run(call, row, since)

    @cython.cfunc
    def _resolve_row(self, session: Session, row: CommandRow | None, argv: list[bytes]) -> CommandRow | None:
        """The row of a name in mixed case, or of a subcommand; None when it was refused for there is none."""
        if row is None:
            row = self.rows.get(argv[0].lower())
            if row is None:
                self._reject(session, None, error_replies.unknown_command(session, argv))
                return None
        if row.is_plain or len(argv) == 1:
            return row
        sub = row.command.subcommand(argv[1])
        if sub is None:
            self._reject(session, None, error_replies.unknown_subcommand(argv))
            return None
        return self.by_name[sub.name]

    @cython.cfunc
    def _queue(self, session: Session, row: CommandRow, argv: list[bytes]) -> cython.void:
        """Keep the request for EXEC."""
        if "no_multi" in row.command.flags:
            self._reject(session, row, error_replies.NotInTransaction())
            return
        session.enqueue(row, argv)
        session.answer.simple(b"QUEUED")

    @cython.cfunc
    def _reject(self, session: Session, row: CommandRow | None, error: CommandError) -> cython.void:
        """Refuse a request that was not run: it spoils the transaction it was meant for."""
        if row is not None:
            row.rejected += 1
            if row.command.name == b"exec":  # a malformed EXEC ends the transaction all the same
                session.queue = None
                self.unwatch(session)
                error = error_replies.ExecAborted(error)
        session.transaction_failed = session.queue is not None
        self._reply_error(session, error)

    @cython.cfunc
    def _reply_error(self, session: Session, error: CommandError) -> cython.void:
        text = error_replies.wire_text(error)
        self.stats.count_error(text)
        session.answer.error(text)

    @cython.cfunc
    def _drop_muted_reply(self, session: Session, mark: cython.Py_ssize_t) -> cython.void:
        """Take back the answer since mark when CLIENT REPLY wants none."""
        if session.is_muted() and not session.force_reply:
            session.answer.rewind(mark)
        session.force_reply = False
        session.advance_reply_mode()

    # Waiting.

    @cython.cfunc
    def _serve_ready(self) -> cython.void:
        """Try the waiters of every key with news, first come first served, until there is no more news."""
        blocking: Blocking = self.keyspace.blocking
        wake_order: WakeOrder
        waiter: Waiter | None
        served: cython.bint
        while blocking.ready:
            for index, key in blocking.take_ready():
                wake_order = blocking.wake_order(index, key)
                waiter = wake_order.next()
                while waiter is not None:
                    served = not waiter.alive
                    if not served and waiter.should_retry(
                        blocking.round, self.keyspace.databases[index], key
                    ):
                        served = self._retry_waiter(waiter)
                    wake_order.record_result(waiter, served)
                    waiter = wake_order.next()

    @cython.cfunc
    def _retry_waiter(self, waiter: Waiter) -> cython.bint:
        """Let the waiter try again; if it answered, its session goes on, and True is returned."""
        call: Call = self._prepare_waiter_call(waiter)
        mark: cython.Py_ssize_t = call.answer.mark()
        effects: cython.Py_ssize_t = self.effects.position()
        row: CommandRow = self.by_name[waiter.command.name]
        since: cython.longlong = self.timing.lap_ns
        served: bool
        try:
            if call.session.restricted_user is not None:
                self.auth.check_waiter(waiter, call.now)
            if self.write_gate.write_error is not None and row.command.write:
                raise CommandError(self.write_gate.write_error.decode())
            served = waiter.serve(call)
        except Exception as exception:
            served = True
            row.failed += 1
            call.answer.rewind(mark)
            self._reply_error(call.session, error_replies.command_error(exception, row.command))
        if self.effects.position() != effects:
            call.session.last_write_offset = self.effects.offset
        if served:
            self.timing.record_unblocked(row, since)
            self._wake(call.session, mark)
        if self.pubsub.outbox:
            self.pubsub.deliver(self.woken)
        return served

    @cython.cfunc
    def _prepare_waiter_call(self, waiter: Waiter) -> Call:
        """A call as the waiter's own request had it, but it may not block again and has no words."""
        call: Call = self.waiter_call
        session: Session = waiter.session
        call.now = self.keyspace.now
        call.session = session
        call.answer = session.answer
        call.argv = []
        call.command = waiter.command
        call.database = self.keyspace.databases[waiter.database]
        self.keyspace.counts_lookups = call.command.readonly
        return call

    @cython.cfunc
    def _wake(self, session: Session, mark: cython.Py_ssize_t) -> cython.void:
        """The session has its answer, which began at mark, and goes on."""
        self.stats.unblocked += 1
        self._stop_waiting(session)
        if session.reply_mode:
            self._drop_muted_reply(session, mark)
        self.woken.append(session)

    @cython.cfunc
    def _stop_waiting(self, session: Session) -> cython.void:
        if session.waiting is not None:
            self.keyspace.blocking.remove(session.waiting)
            session.waiting = None
            self.write_gate.paused_requests.pop(session, None)

    def unblock(self, session: Session, error: CommandError | None = None) -> bool:
        """End the session's wait, as at its deadline or with an error; False when it does not wait."""
        waiter = session.waiting
        if waiter is not None and waiter.serve is not never_serve:
            self._time_out(waiter, error)
            return True
        return False

    @cython.cfunc
    def _time_out(self, waiter: Waiter, error: CommandError | None) -> cython.void:
        call: Call = self._prepare_waiter_call(waiter)
        mark: cython.Py_ssize_t = call.answer.mark()
        if error is None:
            waiter.on_timeout(call)
        else:
            self._reply_error(call.session, error)
        self._wake(call.session, mark)

    def on_log_synced(self, now_ms: int) -> None:
        """More of the log is synced, or there is no log any more: who waits for that is tried again."""
        self.keyspace.now = now_ms
        self.keyspace.blocking.signal(0, SYNCED)
        self._serve_ready()

    # Time.

    def set_active_expiry(self, on: bool) -> None:
        """Whether tick() buries dead keys; else they go when they are asked for."""
        self.last_sweep_ms = 0 if on else NEVER_MS

    def adjust_clock(self, by_ms: int) -> None:
        """By so many milliseconds, forward or (negative) back: spans of time that have begun stay as long."""
        self.keyspace.blocking.shift(by_ms)
        self.write_gate.shift(by_ms)
        for session in self.clients.values():
            session.created_ms += by_ms
            session.active_ms += by_ms
        if self.last_sweep_ms != NEVER_MS:
            self.last_sweep_ms = 0

    @cython.ccall
    def tick(self, now_ms: cython.longlong) -> cython.void:
        """Time has passed: end waits and the pause, bury dead keys, give memory back. Raises nothing."""
        waiter: Waiter
        self.keyspace.now = now_ms
        if self.write_gate.loading:
            return
        if self.keyspace.settings.stream_compact_tombstones:
            self.keyspace.compaction.step(now_ms)
        for waiter in self.keyspace.blocking.pop_expired(now_ms):
            self._time_out(waiter, None)
        self.keyspace.blocking.fire(now_ms)
        if self.write_gate.paused_until and self.write_gate.paused_until <= now_ms:
            self.resume_paused(now_ms)
        if self.write_gate.paused_until:
            return
        if now_ms >= self.last_sweep_ms + SWEEP_INTERVAL_MS and not self.keyspace.sweep():
            self.last_sweep_ms = now_ms
        self.pubsub.deliver(self.woken)
        self._serve_ready()

    @cython.ccall
    def next_deadline(self) -> cython.longlong:
        """When tick() has something to do next, in milliseconds since 1970; -1 for never."""
        earliest: cython.longlong = self.keyspace.blocking.next_deadline()
        if self.keyspace.settings.stream_compact_tombstones:
            earliest = earlier_time(earliest, self.keyspace.compaction.next_step_ms())
        if self.write_gate.paused_until:
            return earlier_time(earliest, self.write_gate.paused_until)  # a pause keeps what is dead
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
        """Whether the session's user may not do that: then it has been refused."""
        error = self.auth.permission_error(session, row.command, argv, self.keyspace.now, queued)
        if error is not None:
            self._reject(session, row, error)
        return error is not None

    @cython.cfunc
    def _reject_or_pause(self, session: Session, row: CommandRow, argv: list[bytes]) -> cython.bint:
        """Whether the request may not run now: then it has been refused, or waits for the end of a pause."""
        error: CommandError | None = self.write_gate.error_for(session, row, argv)
        if error is not None:
            self._reject(session, row, error)
            return True
        return self.write_gate.paused_until != 0 and self._pause_request(session, row, argv)

    @cython.cfunc
    def _pause_request(self, session: Session, row: CommandRow, argv: list[bytes]) -> cython.bint:
        """Whether CLIENT PAUSE holds the request back: then it waits, and runs when the pause ends."""
        if self.write_gate.paused_until <= self.keyspace.now:
            self.resume_paused(self.keyspace.now)
            return False
        if self.write_gate.writes_only and not self.write_gate.is_write(session, row):
            return False
        waiter = Waiter(session, session.database, [], 0, never_serve, no_timeout_reply, row.command)
        session.waiting = waiter
        self.keyspace.blocking.wait(waiter)
        self.write_gate.paused_requests[session] = argv
        return True

    def resume_paused(self, now_ms: int) -> None:
        """End the pause and execute what it held back, in the order it came."""
        self.timing.begin()
        for session, argv in self.write_gate.take_paused().items():
            if session.waiting is not None and session.id in self.clients and not session.killed:
                self._stop_waiting(session)
                self.execute(session, argv, now_ms)
                if session.waiting is None:
                    self.woken.append(session)
