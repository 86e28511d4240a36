"""The engine of this process behind a lock: the local Backend.

    a thread          ─ lock ─ execute ─ unlock ─ commit (wait for the disk) ─ reply
    a blocked thread  ─ lock ─ execute: blocked ─ unlock ─ sleep on its wakeup ─ lock ─ take reply ─ unlock

Two locks with one order: `lock` is the engine's and is held for one request. A thread that waits for the disk
holds the storage's commit lock. It may take `lock` while it holds the commit lock, never the reverse. No
thread sleeps, syncs or calls foreign code while it holds the engine's lock. Threads that a request unblocked
are woken after the lock is released, and commit their own changes before they return.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, TypeVar

import cython

from headrace.api.backend import Fields, Stop, Wakeable, Wakeup, ids_or_raise
from headrace.api.codecs import field_encoding
from headrace.api.local.background import TimerThread
from headrace.api.local.clock import NEVER_MS, Clock, clock_change_checker, elapsed_ms_function
from headrace.api.local.storage import Storage
from headrace.client.server_errors import command_error
from headrace.commands.session import Session
from headrace.commands.stats import CommandRow
from headrace.engine.engine import Engine
from headrace.errors import CommandError, DatabaseClosed, HeadraceError
from headrace.keyspace.keyspace_image import KeyspaceImage
from headrace.resp.local_reply_reader import LocalReplyReader
from headrace.visibility import Public

T = TypeVar("T")

XADD = b"XADD"
STREAMS = b"STREAMS"
IDLE_SESSIONS_MAX = cython.declare(cython.Py_ssize_t, 64)  # sessions kept for the next request
NEVER_DUE_MS = cython.declare(cython.longlong, 1 << 62)  # later than any deadline
FOREVER_S = 1e9  # thirty years: longer waits have no limit
CLOSED_MESSAGE = "the database is closed"
PAUSED_MESSAGE = (
    "ERR not available during CLIENT PAUSE: use a separate client to wait for the end of the pause"
)


@cython.final
@cython.cclass
class LocalEngine:
    """Access to one engine. Every method may be called from any thread."""

    __weakref__: object
    engine: Engine
    clock: Clock
    adjust_to_clock: Callable[[], None]  # corrects the deadlines of waits if the clock was set
    elapsed_ms: Callable[[], int]  # milliseconds that setting the clock does not change
    now: Callable[[], int]
    lock: Lock
    snapshot_lock: Lock  # held while a snapshot is written; taken before all other locks
    storage: Public[Storage | None]  # None for a database in memory
    is_remote: bool
    discarded_sessions: deque[Session]  # to close with the lock: see discard_session()
    idle_sessions: list[Session]
    timer: Public[TimerThread | None]  # once something is due
    durable_before_batch: Public[cython.longlong]  # batches before this one are durable: see storage.py
    reader: LocalReplyReader
    closed_reason: str | None  # why the database is closed; None if it is open
    to_wake: list[Wakeable]  # once the lock is released
    sleeping_wakeups: dict[Wakeup, None]  # of threads in sleep()
    timer_due_ms: cython.longlong  # when the timer thread wakes by itself (ms)

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine, self.clock, self.now = engine, clock, clock.now_ms
        self.elapsed_ms, self.adjust_to_clock = (
            elapsed_ms_function(clock),
            clock_change_checker(clock, engine.on_clock_set),
        )
        self.lock, self.snapshot_lock, self.reader = Lock(), Lock(), LocalReplyReader()
        self.storage = self.timer = self.closed_reason = None
        self.is_remote, self.durable_before_batch, self.timer_due_ms = False, 0, NEVER_DUE_MS
        self.discarded_sessions, self.idle_sessions, self.to_wake = deque(), [], []
        self.sleeping_wakeups = {}

    # The lock.

    @cython.ccall
    def acquire(self) -> cython.void:
        """Take the engine's lock. Call release() after it. Raises DatabaseClosed, without taking the lock."""
        if self.closed_reason is not None:
            raise DatabaseClosed(self.closed_reason)
        self.lock.acquire()
        if self.closed_reason is not None:
            self.lock.release()
            raise DatabaseClosed(self.closed_reason)
        if self.discarded_sessions:
            self._close_discarded()

    @cython.ccall
    def release(self) -> cython.void:
        """Release the engine's lock. The caller must call commit_and_wake() after it, even after an error."""
        due: cython.longlong = -1
        try:
            if self.engine.woken_sessions or self.engine.killed_sessions:
                self._resume_woken()
            due = self.engine.next_deadline()
        finally:
            self.lock.release()
        if 0 <= due < self.timer_due_ms:
            self.timer_due_ms = due
            self.wake_timer()

    @cython.cfunc
    def _release_without_timer(self) -> cython.void:
        """Release the lock after a request that makes nothing due by the clock."""
        try:
            if self.engine.woken_sessions or self.engine.killed_sessions:
                self._resume_woken()
        finally:
            self.lock.release()

    def run_locked(self, work: Callable[[], T]) -> T:
        """Run work() with the engine's lock and return its result. Call commit_and_wake() after it.

        For interpreted callers, in which a signal handler may raise between acquire() and its `try`.
        """
        self.acquire()
        try:
            return work()
        finally:
            self.release()

    def freeze(self) -> KeyspaceImage:
        """Return an image of the data as they are now. Call it with snapshot_lock and lock held."""
        return self.engine.keyspace.freeze(self.now())

    @cython.ccall
    def commit_and_wake(self, written: cython.longlong) -> cython.void:
        """Wait until batch `written` is as durable as fsync= promises (-1: no batch); wake unblocked threads.

        Raises NotOnDisk if the disk rejects the batch.
        """
        try:
            if written >= self.durable_before_batch and self.storage is not None:
                self.storage.commit(written)
        finally:
            while self.to_wake:
                try:
                    wakeup = self.to_wake.pop()
                except IndexError:  # another thread has taken it
                    break
                wakeup.wake()

    def discard_session(self, session: Session) -> None:
        """Close the session, now or before the next request. It never waits for the lock.

        The garbage collector may drop a connection in a thread that holds the engine's lock.
        """
        self.discarded_sessions.append(session)
        if self.closed_reason is None and self.lock.acquire(False):
            self._close_discarded()
            self._release_without_timer()
            self.commit_and_wake(-1)

    @cython.cfunc
    def _close_discarded(self) -> cython.void:
        session: Session
        while self.discarded_sessions:
            session = self.discarded_sessions.popleft()
            session.transport = None
            self.engine.close(session)

    @cython.ccall
    def wake_timer(self) -> cython.void:
        """Wake the timer thread, because something is due earlier than it knows."""
        if self.timer is None:
            self.timer = TimerThread(self)
        self.timer.wake()

    def run_due(self) -> int:
        """Run due tasks of log and engine; return when the next is due, in Unix milliseconds, or NEVER_MS.

        For the timer thread: an error is a bug, and is logged.
        """
        due = NEVER_MS
        try:
            now_ms = self.now()
            if self.storage is not None:
                due = self.storage.tick(now_ms)
            with contextlib.suppress(HeadraceError):  # a failed commit is reported to the writer
                later = self.tick(now_ms)
                due = later if due == NEVER_MS else due if later == NEVER_MS else min(due, later)
        except Exception:
            logging.getLogger("headrace").exception("a bug in the timer thread of a database")
        return due

    def tick(self, now_ms: int) -> int:
        """Run due tasks of the engine; return when the next is due, in Unix milliseconds, or NEVER_MS."""
        engine: Engine = self.engine
        due: cython.longlong
        self.acquire()
        try:
            self.adjust_to_clock()
            due = engine.next_deadline()
            if 0 <= due <= now_ms:
                engine.tick(now_ms)
                due = engine.next_deadline()
            self.timer_due_ms = due if due >= 0 else NEVER_DUE_MS
        finally:
            self.release()
        self.commit_and_wake(-1)
        return due if due >= 0 else NEVER_MS

    @cython.cfunc
    def _resume_woken(self) -> cython.void:
        """Execute the buffered requests of sessions that another session's request unblocked."""
        engine: Engine = self.engine
        session: Session
        while engine.woken_sessions or engine.killed_sessions:
            woken, dropped = engine.take_woken(), engine.killed_sessions
            engine.killed_sessions = []
            for session in dropped:
                engine.close(session)
            for session in [*dropped, *woken]:
                wakeup = session.transport
                if wakeup is not None:
                    wakeup.execute_buffered_requests(engine.keyspace.now)
                    self.to_wake.append(wakeup)

    @cython.cfunc
    def _take_session(self) -> Session:
        """Return a session for one request or one wait."""
        return (
            self.idle_sessions.pop() if self.idle_sessions else self.engine.create_session(now_ms=self.now())
        )

    @cython.cfunc
    def _return_session(self, session: Session) -> cython.void:
        """Keep the session for the next request; close it if it has state of its own."""
        session.transport = None
        stateful: cython.bint = (
            session.queue is not None
            or session.watch is not None
            or session.subscription_count != 0
            or session.tracking is not None
        )
        if (
            stateful
            or session.database != 0
            or session.reply_mode != 0
            or session.closing
            or session.reply.protocol != 2
            or session.reply.pending_bytes() > 0
            or len(self.idle_sessions) >= IDLE_SESSIONS_MAX
        ):
            self.engine.close(session)
        else:
            self.idle_sessions.append(session)

    # One request.

    def request(self, *words: bytes) -> Any:
        """Execute one command. A blocking command blocks this thread."""
        return self.execute_and_wait(list(words), None)

    def execute_blocking_read(
        self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None
    ) -> Any:
        """Execute a read that waits for entries. Returns None after a timeout, or when `stop` is set."""
        argv = list(words)
        if seconds is None or seconds > 0:
            ms = 0 if seconds is None or seconds > FOREVER_S else max(1, round(seconds * 1000))
            at = argv.index(STREAMS)
            argv[at:at] = [b"BLOCK", b"%d" % ms]
        return self.execute_and_wait(argv, stop)

    @cython.ccall
    def execute_and_wait(self, argv: list[bytes], stop: Stop | None) -> object:
        """Execute a command, sleep if it blocks, commit, and return the reply. Raises CommandError."""
        if not argv:
            raise ValueError("a command needs at least a name")
        return self._execute_and_commit(argv, stop, False)

    @cython.cfunc
    def _execute_and_commit(self, argv: list[bytes], stop: Stop | None, quick: cython.bint) -> object:
        reply: object = None
        wakeup: Wakeup | None = None
        written: cython.longlong = -1
        self.acquire()
        try:
            session: Session = self._take_session()
            before: cython.longlong = session.last_write_offset
            self.engine.execute(session, argv, self.now())
            if session.waiter is None:
                written = self._written_batch_number(session, before)
                reply = self._take_reply(session)
            else:
                wakeup = session.transport = Wakeup()
                quick = True  # the blocked thread ticks the engine itself
        finally:
            if quick and (
                wakeup is not None or self.engine.cold_storage is None
            ):  # else nodes may become cold
                self._release_without_timer()
            else:
                self.release()
        self.commit_and_wake(written)
        if wakeup is not None:
            return self._wait_for_reply(session, wakeup, stop, before)
        return reply_or_raise(reply)

    @cython.cfunc
    def _written_batch_number(self, session: Session, before: cython.longlong) -> cython.longlong:
        """Return the number of the batch in which the session has written since `before`; -1: none."""
        written: cython.longlong = session.last_write_offset
        return written if written != before or written == self.engine.effects.log_offset else -1

    @cython.cfunc
    def _take_reply(self, session: Session) -> object:
        """Return the session's reply, or an error if the session was killed. The session is given back."""
        killed: cython.bint = session.reply.pending_bytes() == 0
        reply: object = None if killed else self.reader.read_reply(session.reply)
        self._return_session(session)
        if killed and session.closing:
            return HeadraceError("the command was cut off: CLIENT KILL has closed its session")
        return reply

    @cython.cfunc
    def _wait_for_reply(
        self, session: Session, wakeup: Wakeup, stop: Stop | None, before: cython.longlong
    ) -> object:
        """Wait for the session's reply outside of the lock, and return it."""
        answered: cython.bint = False
        reply: object = None
        written: cython.longlong = -1
        if stop is not None:
            stop.add_wakeup(wakeup)
        try:
            while not answered:
                waiter = session.waiter
                if waiter is not None:
                    self.clock.sleep(wakeup, waiter.deadline or NEVER_MS)
                self.acquire()
                try:
                    if session.waiter is not None and stop is not None and stop.is_set():
                        self.engine.unblock(session)
                    if session.waiter is not None:
                        self.adjust_to_clock()
                        self.engine.tick(self.now())
                    answered = session.waiter is None
                    if answered:
                        written = self._written_batch_number(session, before)
                        reply = self._take_reply(session)
                finally:
                    self.release()
                self.commit_and_wake(written)
        finally:
            if stop is not None:
                stop.remove_wakeup(wakeup)
            if not answered:
                self._abandon_session(session)
        return reply_or_raise(reply)

    @cython.cfunc
    def _abandon_session(self, session: Session) -> cython.void:
        """Close the session of a thread whose wait was interrupted."""
        if self.closed_reason is None:
            self.lock.acquire()
            self.engine.close(session)
            self.lock.release()

    # Many requests.

    def request_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        """Execute many commands in a row, as a transaction if atomic; no other request comes between them.

        Errors are elements of the returned list. Raises CommandError if a transaction is rejected.
        """
        batch: list[list[bytes]] = [list(words) for words in requests]
        replies: list[Any] = []
        rejection: object = None
        written: cython.longlong = -1
        self.acquire()
        try:
            now: cython.longlong = self.now()
            session: Session = self._take_session()
            before: cython.longlong = session.last_write_offset
            if atomic:
                self._execute_without_waiting(session, [b"MULTI"], now)
            for words in batch:
                replies.append(self._execute_without_waiting(session, words, now))
            if atomic:
                done = self._execute_without_waiting(session, [b"EXEC"], now)
                if isinstance(done, CommandError):
                    rejection = next(filter(is_error_reply, replies), done)
                else:
                    replies = done
            written = self._written_batch_number(session, before)
            self._return_session(session)
        finally:
            self.release()
        self.commit_and_wake(written)
        reply_or_raise(rejection)
        return [command_error(str(reply)) if isinstance(reply, CommandError) else reply for reply in replies]

    @cython.cfunc
    def _execute_without_waiting(self, session: Session, argv: list[bytes], now: cython.longlong) -> Any:
        """Return the reply.

        A blocking command times out at once, as in MULTI: no other request could unblock it.
        """
        self.engine.execute(session, argv, now)
        if session.waiter is not None and not self.engine.unblock(session):
            self.engine.close(session)
            return CommandError(PAUSED_MESSAGE)
        return self.reader.read_reply(session.reply)

    # Fast paths to add entries.

    def add(
        self,
        key: bytes,
        id: bytes,
        fields: Fields,
        options: Sequence[bytes] = (),
    ) -> bytes | None:
        """Execute XADD; return the ID, or None if NOMKSTREAM or IFLAST prevented the add."""
        argv: list[bytes] = [XADD, key, *options, id] if options else [XADD, key, id]
        field_encoding.append_fields(argv, fields)
        reply: Any = self._execute_and_commit(argv, None, not options)
        return reply  # type: ignore[no-any-return]

    def add_many(self, key: bytes, entries: Iterable[Fields], options: Sequence[bytes] = ()) -> list[bytes]:
        """Execute one XADD for each entry as a transaction; return the IDs.

        Raises the first error if entries are rejected, with `stored_ids`.
        """
        head: list[bytes] = [XADD, key, *options, b"*"]
        queue: list[tuple[CommandRow, list[bytes]]] = []
        row: CommandRow = self.engine.rows[XADD]
        for fields in entries:
            argv: list[bytes] = head[:]
            field_encoding.append_fields(argv, fields)
            queue.append((row, argv))
        if not queue:
            return []
        written: cython.longlong = -1
        self.acquire()
        try:
            session: Session = self._take_session()
            before: cython.longlong = session.last_write_offset
            session.queue = queue
            replies = self._execute_without_waiting(session, [b"EXEC"], self.now())
            written = self._written_batch_number(session, before)
            self._return_session(session)
        finally:
            self.release()
        self.commit_and_wake(written)
        return ids_or_raise(reply_or_raise(replies))

    # Time.

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970."""
        return self.now()

    def sleep(self, seconds: float, stop: Stop | None = None) -> bool:
        """Sleep.

        Returns True if stop ended the sleep. Raises DatabaseClosed if the database is closed meanwhile.
        """
        wakeup = Wakeup()
        until = self.elapsed_ms() + round(max(0.0, min(seconds, FOREVER_S)) * 1000)
        self.sleeping_wakeups[wakeup] = None
        if stop is not None:
            stop.add_wakeup(wakeup)
        try:
            while self.closed_reason is None and (left := until - self.elapsed_ms()) > 0:
                if stop is not None and stop.is_set():
                    break
                self.clock.sleep(wakeup, self.now() + left)
        finally:
            del self.sleeping_wakeups[wakeup]
            if stop is not None:
                stop.remove_wakeup(wakeup)
        if self.closed_reason is not None:
            raise DatabaseClosed(self.closed_reason)
        return stop is not None and stop.is_set()

    # Closing.

    @property
    def durable(self) -> bool:
        """Whether a request that changes data waits for the disk."""
        return self.storage is not None and self.storage.fsync_policy == "always"

    def without_retries(self) -> LocalEngine:
        """Return this engine: it is never away."""
        return self

    def close(self) -> None:
        """Sync everything and release the engine; calls that wait in other threads raise DatabaseClosed.

        A second call does nothing.
        """
        if self.closed_reason is None:
            with self.lock:
                self.closed_reason = self.closed_reason or CLOSED_MESSAGE
                wakeups = [session.transport for session in self.engine.clients.values()]
            for wakeup in [*wakeups, *self.sleeping_wakeups]:
                if wakeup is not None:
                    wakeup.wake()
            if self.timer is not None:
                self.timer.wakeup.wake()
        if self.storage is not None and not self.storage.closed:
            self.storage.close()

    def close_after_fork(self, reason: str) -> None:
        """Close the engine in a forked child, without a lock: a thread of the parent may hold the lock."""
        self.closed_reason = reason
        if self.storage is not None:
            self.storage.close_without_writing()


def is_error_reply(reply: object) -> bool:
    """Return whether the reply is an error."""
    return isinstance(reply, CommandError)


@cython.cfunc
def reply_or_raise(reply: Any) -> Any:
    """Return the reply; raise it if it is an error."""
    if isinstance(reply, CommandError):
        raise command_error(str(reply))
    if isinstance(reply, HeadraceError):
        raise reply
    return reply
