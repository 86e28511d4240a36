"""The engine of this process behind a lock: the near Link.

    a thread  ─ lock ─ execute ─ unlock ─ commit (wait for the disk) ─ reply
    a waiter  ─ lock ─ execute: it waits ─ unlock ─ sleep on its bell ─ lock ─ take the answer ─ unlock ─ ...

Two locks, and one order: `lock` is the engine's and held for one request; whoever waits for the disk holds
the storage's commit lock, and takes the engine's inside of it, never the other way round. Nobody sleeps,
syncs or calls a stranger's code with the engine's lock. Who is answered by another's request is rung after
the lock is given back, and commits what it was given before it returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

import cython

from headrace.api.backend import Bell, Fields, Stop
from headrace.api.codecs import field_encoding
from headrace.api.local.clock import NEVER_MS, Clock, elapsed_by, follower_of
from headrace.api.local.timer_thread import Keeper
from headrace.api.remote.server_errors import as_error
from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.engine.stats import CommandRow
from headrace.errors import CommandError, DatabaseClosed, HeadraceError
from headrace.resp.reader import Reader
from headrace.visibility import Public

XADD = b"XADD"
STREAMS = b"STREAMS"
IDLE_MAX = cython.declare(cython.Py_ssize_t, 64)  # sessions kept for the next request
FAR_MS = cython.declare(cython.longlong, 1 << 62)  # no clock comes that far
FAR_S = 1e9  # thirty years: for ever
CLOSED = "the database is closed"
PAUSED = "ERR CLIENT PAUSE holds this back: use a client of its own to wait for the end of the pause"


@cython.final
@cython.cclass
class Door:
    """All ways into one engine. Every method may be called from any thread."""

    __weakref__: object
    engine: Engine
    clock: Clock
    follow_clock: Callable[[], None]  # have waits last as long as they were to, if the clock was set
    elapsed: Callable[[], int]  # milliseconds that pass however the clock is set
    now: Callable[[], int]
    lock: Any
    storage: Public[Any]  # what makes durable, or None in memory
    far: bool
    gone: Any  # a deque of sessions to be closed by whoever has the engine next: see let_go()
    idle: list[Session]
    keeper: Public[Any]  # who looks after what is due, once something is
    safe: Public[cython.longlong]  # what sessions wrote before that is durable: see settle()
    reader: Reader
    refusal: str | None  # why nothing goes any more
    ringing: list[Any]  # who is to be rung once the lock is free
    sleepers: dict[Any, None]  # bells of those in pause()
    watched_ms: cython.longlong  # when the keeper comes again by itself

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine, self.clock, self.now = engine, clock, clock.now_ms
        self.elapsed, self.follow_clock = elapsed_by(clock), follower_of(clock, engine.adjust_clock)
        self.lock, self.reader = Lock(), Reader()
        self.storage = self.keeper = self.refusal = None
        self.far, self.safe, self.watched_ms = False, 0, FAR_MS
        self.gone, self.idle, self.ringing = deque(), [], []
        self.sleepers = {}

    # The lock.

    @cython.ccall
    def enter(self) -> cython.void:
        """Take the engine. DatabaseClosed if it is gone; leave() gives it back, whatever happens."""
        if self.refusal is not None:
            raise DatabaseClosed(self.refusal)
        self.lock.acquire()
        if self.refusal is not None:
            self.lock.release()
            raise DatabaseClosed(self.refusal)
        if self.gone:
            self._close_gone()

    @cython.ccall
    def leave(self) -> cython.void:
        """Give the engine back. Then comes settle(), in any case."""
        due: cython.longlong = -1
        try:
            if self.engine.woken or self.engine.killed_sessions:
                self._serve_woken()
            due = self.engine.next_deadline()
        finally:
            self.lock.release()
        if 0 <= due < self.watched_ms:
            self.watched_ms = due
            self.rouse()

    @cython.cfunc
    def _leave_quickly(self) -> cython.void:
        """leave(), after a request that makes nothing due by the clock."""
        try:
            if self.engine.woken or self.engine.killed_sessions:
                self._serve_woken()
        finally:
            self.lock.release()

    def do(self, work: Callable[[], Any]) -> Any:
        """What work() returns, done with the engine in hand. Then comes settle(), in any case.

        For who is not compiled: where Python runs, a signal handler may raise between enter() and its `try`.
        """
        self.enter()
        try:
            return work()
        finally:
            self.leave()

    @cython.ccall
    def settle(self, written: cython.longlong) -> cython.void:
        """Return when what a session wrote, by its `written`, is as durable as promised; ring the woken.

        NotOnDisk if that cannot be now.
        """
        try:
            if written >= self.safe and self.storage is not None:
                self.storage.commit(written)
        finally:
            while self.ringing:
                try:
                    bell = self.ringing.pop()
                except IndexError:  # another thread, that is here too, was quicker
                    break
                bell.ring()

    def let_go(self, session: Session) -> None:
        """Close the session, now or before the next request runs. Never waits for the lock.

        A connection may be given up by the garbage collector, in a thread that has the engine's lock.
        """
        self.gone.append(session)
        if self.refusal is None and self.lock.acquire(False):
            self._close_gone()
            self._leave_quickly()
            self.settle(-1)

    @cython.cfunc
    def _close_gone(self) -> cython.void:
        session: Session
        while self.gone:
            session = self.gone.popleft()
            session.transport = None
            self.engine.close(session)

    @cython.ccall
    def rouse(self) -> cython.void:
        """Something is due sooner than the keeper knows."""
        if self.keeper is None:
            self.keeper = Keeper(self)
        self.keeper.rouse()

    def tick(self, now_ms: int) -> int:
        """For the keeper: do what is due by the clock; when there is something again, or NEVER_MS."""
        engine: Engine = self.engine
        due: cython.longlong
        self.enter()
        try:
            self.follow_clock()
            due = engine.next_deadline()
            if 0 <= due <= now_ms:
                engine.tick(now_ms)
                due = engine.next_deadline()
            self.watched_ms = due if due >= 0 else FAR_MS
        finally:
            self.leave()
        self.settle(-1)
        return due if due >= 0 else NEVER_MS

    @cython.cfunc
    def _serve_woken(self) -> cython.void:
        """Those who were answered by another's request go on with their own."""
        engine: Engine = self.engine
        session: Session
        while engine.woken or engine.killed_sessions:
            woken, dropped = engine.woken, engine.killed_sessions
            engine.woken = []
            engine.killed_sessions = []
            for session in dropped:
                engine.close(session)
            for session in [*dropped, *woken]:
                bell = session.transport
                if bell is not None:
                    bell.go_on(engine.keyspace.now)
                    self.ringing.append(bell)

    @cython.cfunc
    def _session(self) -> Session:
        """A session for one request, or for one wait."""
        return self.idle.pop() if self.idle else self.engine.session(now_ms=self.now())

    @cython.cfunc
    def _put_back(self, session: Session) -> cython.void:
        """The session has nothing left to say. One that has a state of its own is of no use to others."""
        session.transport = None
        stateful: cython.bint = (
            session.queue is not None or session.watch is not None or session.subscription_count != 0
        )
        if (
            stateful
            or session.database != 0
            or session.reply_mode != 0
            or session.closing
            or session.answer.protocol != 2
            or session.answer.pending() > 0
            or len(self.idle) >= IDLE_MAX
        ):
            self.engine.close(session)
        else:
            self.idle.append(session)

    # One request.

    def execute(self, *words: bytes) -> Any:
        """Carry out one command. One that waits does so here, as long as it says."""
        return self.run(list(words), None)

    def wait(self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None) -> Any:
        """Carry out a read that waits for something to read; None when there was nothing."""
        argv = list(words)
        if seconds is None or seconds > 0:
            ms = 0 if seconds is None or seconds > FAR_S else max(1, round(seconds * 1000))
            at = argv.index(STREAMS)
            argv[at:at] = [b"BLOCK", b"%d" % ms]
        return self.run(argv, stop)

    @cython.ccall
    def run(self, argv: list[bytes], stop: object) -> object:
        """Execute, sleep if the command does, commit, and return the reply; CommandError."""
        if not argv:
            raise ValueError("a command has at least a name")
        return self._run(argv, stop, False)

    @cython.cfunc
    def _run(self, argv: list[bytes], stop: object, quick: cython.bint) -> object:
        reply: object = None
        bell: object = None
        written: cython.longlong = -1
        self.enter()
        try:
            session: Session = self._session()
            before: cython.longlong = session.last_write_offset
            self.engine.execute(session, argv, self.now())
            if session.waiting is None:
                written = self._written(session, before)
                reply = self._reply(session)
            else:
                bell = session.transport = Bell()
                quick = True  # the one who waits looks after that himself
        finally:
            if quick:
                self._leave_quickly()
            else:
                self.leave()
        self.settle(written)
        if bell is not None:
            return self._sleep(session, bell, stop, before)
        return raised(reply)

    @cython.cfunc
    def _written(self, session: Session, before: cython.longlong) -> cython.longlong:
        """In which batch the session has written since it stood at before; -1 if it has not."""
        written: cython.longlong = session.last_write_offset
        return written if written != before or written == self.engine.effects.offset else -1

    @cython.cfunc
    def _reply(self, session: Session) -> object:
        """What the session was answered; it is put back."""
        killed: cython.bint = session.answer.pending() == 0
        reply: object = None if killed else self.reader.take(session.answer)
        self._put_back(session)
        if killed and session.closing:
            return HeadraceError("the command was cut off: CLIENT KILL has closed its session")
        return reply

    @cython.cfunc
    def _sleep(self, session: Session, bell: Any, stop: Any, before: cython.longlong) -> object:
        """Wait for the session's answer outside of the lock, and return it."""
        answered: cython.bint = False
        reply: object = None
        written: cython.longlong = -1
        if stop is not None:
            stop.listen(bell)
        try:
            while not answered:
                waiter = session.waiting
                if waiter is not None:
                    self.clock.sleep(bell, waiter.deadline or NEVER_MS)
                self.enter()
                try:
                    if session.waiting is not None and stop is not None and stop.is_set():
                        self.engine.unblock(session)
                    if session.waiting is not None:
                        self.follow_clock()
                        self.engine.tick(self.now())
                    answered = session.waiting is None
                    if answered:
                        written = self._written(session, before)
                        reply = self._reply(session)
                finally:
                    self.leave()
                self.settle(written)
        finally:
            if stop is not None:
                stop.forget(bell)
            if not answered:
                self._abandon(session)
        return raised(reply)

    @cython.cfunc
    def _abandon(self, session: Session) -> cython.void:
        """The thread that waited is called away: nothing is served to the session any more."""
        if self.refusal is None:
            self.lock.acquire()
            self.engine.close(session)
            self.lock.release()

    # Many requests.

    def execute_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        """Carry out many commands in a row, as one if atomic; nothing else comes between them."""
        batch: list[Any] = [list(words) for words in requests]
        replies: list[Any] = []
        refused: object = None
        written: cython.longlong = -1
        self.enter()
        try:
            now: cython.longlong = self.now()
            session: Session = self._session()
            before: cython.longlong = session.last_write_offset
            if atomic:
                self._at_once(session, [b"MULTI"], now)
            for words in batch:
                replies.append(self._at_once(session, words, now))
            if atomic:
                done = self._at_once(session, [b"EXEC"], now)
                if isinstance(done, CommandError):
                    refused = next(filter(is_refusal, replies), done)
                else:
                    replies = done
            written = self._written(session, before)
            self._put_back(session)
        finally:
            self.leave()
        self.settle(written)
        raised(refused)
        return [as_error(str(reply)) if isinstance(reply, CommandError) else reply for reply in replies]

    @cython.cfunc
    def _at_once(self, session: Session, argv: list[bytes], now: cython.longlong) -> Any:
        """The reply. What would wait gives up, as inside of MULTI: nobody else is let in to end the wait."""
        self.engine.execute(session, argv, now)
        if session.waiting is not None and not self.engine.unblock(session):
            self.engine.close(session)
            return CommandError(PAUSED)
        return self.reader.take(session.answer)

    # The fast ways to add.

    def add(
        self,
        key: bytes,
        id: bytes,
        fields: Fields,
        options: Sequence[bytes] = (),
    ) -> bytes | None:
        """XADD; the new ID."""
        argv: list[bytes] = [XADD, key, *options, id] if options else [XADD, key, id]
        field_encoding.put(argv, fields)
        reply: Any = self._run(argv, None, not options)
        return reply  # type: ignore[no-any-return]

    def add_many(self, key: bytes, entries: Iterable[Fields], options: Sequence[bytes] = ()) -> list[bytes]:
        """An XADD each, as one transaction; the IDs."""
        head: list[bytes] = [XADD, key, *options, b"*"]
        queue: list[Any] = []
        row: CommandRow = self.engine.rows[XADD]
        for fields in entries:
            argv: list[bytes] = head[:]
            field_encoding.put(argv, fields)
            queue.append((row, argv))
        if not queue:
            return []
        written: cython.longlong = -1
        self.enter()
        try:
            session: Session = self._session()
            before: cython.longlong = session.last_write_offset
            session.queue = queue
            replies = self._at_once(session, [b"EXEC"], self.now())
            written = self._written(session, before)
            self._put_back(session)
        finally:
            self.leave()
        self.settle(written)
        ids: list[bytes] = raised(replies)
        raised(next(filter(is_refusal, ids), None))
        return ids

    # Time.

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.now()

    def pause(self, seconds: float, stop: Stop | None = None) -> bool:
        """Sleep; True if stop ended it. DatabaseClosed if the database is closed meanwhile."""
        bell = Bell()
        until = self.elapsed() + round(max(0.0, min(seconds, FAR_S)) * 1000)
        self.sleepers[bell] = None
        if stop is not None:
            stop.listen(bell)
        try:
            while self.refusal is None and (left := until - self.elapsed()) > 0:
                if stop is not None and stop.is_set():
                    break
                self.clock.sleep(bell, self.now() + left)
        finally:
            del self.sleepers[bell]
            if stop is not None:
                stop.forget(bell)
        if self.refusal is not None:
            raise DatabaseClosed(self.refusal)
        return stop is not None and stop.is_set()

    # The end.

    @property
    def durable(self) -> bool:
        """Whether a request that changes data waits for the disk."""
        return self.storage is not None and self.storage.policy == "always"

    def close(self) -> None:
        """Let go of the engine, with all on the disk; who waits gets DatabaseClosed. Twice does nothing."""
        if self.refusal is None:
            with self.lock:
                self.refusal = self.refusal or CLOSED
                bells = [session.transport for session in self.engine.clients.values()]
            for bell in [*bells, *self.sleepers]:
                if bell is not None:
                    bell.ring()
            if self.keeper is not None:
                self.keeper.bell.ring()
        if self.storage is not None and not self.storage.closed:
            self.storage.close()

    def forked(self, refusal: str) -> None:
        """Refuse everything in the child of a fork: a thread that is not here may hold the lock."""
        self.refusal = refusal
        if self.storage is not None:
            self.storage.abandon()


def is_refusal(reply: object) -> bool:
    """Whether the reply stands for a command that was refused."""
    return isinstance(reply, CommandError)


@cython.cfunc
def raised(reply: Any) -> Any:
    """The reply, unless it is a refusal."""
    if isinstance(reply, CommandError):
        raise as_error(str(reply))
    if isinstance(reply, HeadraceError):
        raise reply
    return reply
