"""The engine of this process behind a lock: the near Link.

    a thread  ─ lock ─ execute ─ unlock ─ commit (wait for the disk) ─ reply
    a waiter  ─ lock ─ execute: it waits ─ unlock ─ sleep on its bell ─ lock ─ take the answer ─ unlock ─ ...

Two locks, and one order: `lock` is the engine's and held for one request; whoever waits for the disk holds
the storage's commit lock, and takes the engine's inside of it, never the other way round. Nobody sleeps,
syncs or calls a stranger's code with the engine's lock. Who is answered by another's request is rung after
the lock is given back, and commits what it was given before it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import cython

from headrace.api.clock import NEVER_MS, Clock
from headrace.api.link import Bell, Fields, Stop
from headrace.api.refusals import as_error
from headrace.commands.session import Session
from headrace.engine.engine import Engine
from headrace.engine.stats import Row
from headrace.errors import CommandError, DatabaseClosed, HeadraceError
from headrace.resp.reader import Reader

XADD = b"XADD"
STREAMS = b"STREAMS"
IDLE_MAX = cython.declare(cython.Py_ssize_t, 64)  # sessions kept for the next request
CLOSED = "the database is closed"
FORKED = "this process was forked from the one that opened the database: open it again here"


@cython.cfunc
def word_of(value: object) -> bytes:
    """A field's name or value as bytes: str in UTF-8, numbers in decimal."""
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        raise TypeError("a bool is no field value: write 0 or 1, or use a codec")
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a field is bytes, str, int or float, not {type(value).__name__}")


@cython.final
@cython.cclass
class Door:
    """All ways into one engine. Every method may be called from any thread."""

    __slots__ = (
        "__weakref__",
        "clock",
        "engine",
        "far",
        "idle",
        "keeper",
        "lock",
        "now",
        "reader",
        "refusal",
        "ringing",
        "safe",
        "sleepers",
        "storage",
    )

    __weakref__: object
    engine: Engine
    clock: Clock
    now: Callable[[], int]
    lock: Any
    storage: Any  # what makes durable, or None in memory
    far: bool
    idle: list[Session]
    keeper: Any  # who looks after what is due, once something is
    safe: cython.longlong  # what sessions wrote before that is durable: see settle()
    reader: Reader
    refusal: str | None  # why nothing goes any more
    ringing: list[Any]  # who is to be rung once the lock is free
    sleepers: dict[Any, None]  # bells of those in pause()

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        self.now = clock.now_ms
        self.lock = Lock()
        self.storage = None
        self.far = False
        self.idle = []
        self.keeper = None
        self.safe = 0
        self.reader = Reader()
        self.refusal = None
        self.ringing = []
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

    @cython.ccall
    def leave(self) -> cython.void:
        """Give the engine back. Then comes settle(), in any case."""
        try:
            if self.engine.woken or self.engine.dropped:
                self._serve_woken()
        finally:
            self.lock.release()

    @cython.ccall
    def settle(self, written: cython.longlong) -> cython.void:
        """Return when what a session wrote, by its `written`, is as durable as promised; ring the woken.

        NotOnDisk if that cannot be now.
        """
        try:
            if written >= self.safe and self.storage is not None:
                self.storage.commit(written)
        finally:
            if self.ringing:
                ringing = self.ringing
                self.ringing = []
                for bell in ringing:
                    bell.ring()

    @cython.ccall
    def look(self, waits: cython.bint) -> cython.void:
        """Something may be due one day now, if only the end of a wait: have somebody see to it."""

    @cython.cfunc
    def _serve_woken(self) -> cython.void:
        """Those who were answered by another's request go on with their own."""
        engine: Engine = self.engine
        session: Session
        while engine.woken or engine.dropped:
            woken, dropped = engine.woken, engine.dropped
            engine.woken = []
            engine.dropped = []
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
            session.queue is not None or session.watch is not None or session.subscribed != 0
        )
        if (
            stateful
            or session.database != 0
            or session.reply != 0
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
            ms = 0 if seconds is None else max(1, round(seconds * 1000))
            at = argv.index(STREAMS)
            argv[at:at] = [b"BLOCK", b"%d" % ms]
        return self.run(argv, stop)

    @cython.ccall
    def run(self, argv: list[bytes], stop: object) -> object:
        """Execute, sleep if the command does, commit, and return the reply; CommandError."""
        if not argv:
            raise ValueError("a command has at least a name")
        reply: object = None
        bell: object = None
        written: cython.longlong = -1
        self.enter()
        try:
            session: Session = self._session()
            self.engine.execute(session, argv, self.now())
            if session.waiting is None:
                written = session.written
                reply = self._reply(session)
            else:
                bell = session.transport = Bell()
        finally:
            self.leave()
        self.settle(written)
        if bell is not None:
            return self._sleep(session, bell, stop)
        self.look(False)
        return raised(reply)

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
    def _sleep(self, session: Session, bell: Any, stop: Any) -> object:
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
                        self.engine.tick(self.now())
                    answered = session.waiting is None
                    if answered:
                        written = session.written
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
        replies: list[Any] = []
        written: cython.longlong = -1
        self.enter()
        try:
            now: cython.longlong = self.now()
            session: Session = self._session()
            if atomic:
                self.engine.execute(session, [b"MULTI"], now)
                self.reader.take(session.answer)
            for words in requests:
                self.engine.execute(session, list(words), now)
                if session.waiting is not None:  # as inside of MULTI: nobody else is let in to end it
                    self.engine.unblock(session)
                replies.append(self.reader.take(session.answer))
            if atomic:
                replies = self._exec(session, replies, now)
            written = session.written
            self._put_back(session)
        finally:
            self.leave()
        self.settle(written)
        self.look(False)
        return [as_error(str(reply)) if isinstance(reply, CommandError) else reply for reply in replies]

    @cython.cfunc
    def _exec(self, session: Session, queued: list[Any], now: cython.longlong) -> list[Any]:
        """EXEC: the replies. CommandError, and nothing is done, if a request was refused before."""
        self.engine.execute(session, [b"EXEC"], now)
        replies: Any = self.reader.take(session.answer)
        if isinstance(replies, CommandError):
            self._put_back(session)
            refused = [reply for reply in queued if isinstance(reply, CommandError)]
            raise as_error(str(refused[0] if refused else replies))
        return list(replies)

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
        put_fields(argv, fields)
        reply: Any = self.run(argv, None)
        return reply  # type: ignore[no-any-return]

    def add_many(self, key: bytes, entries: Iterable[Fields], options: Sequence[bytes] = ()) -> list[bytes]:
        """An XADD each, as one transaction; the IDs."""
        head: list[bytes] = [XADD, key, *options, b"*"]
        queue: list[Any] = []
        row: Row = self.engine.rows[XADD]
        for fields in entries:
            argv: list[bytes] = head[:]
            put_fields(argv, fields)
            queue.append((row, argv))
        if not queue:
            return []
        written: cython.longlong = -1
        self.enter()
        try:
            session: Session = self._session()
            session.queue = queue
            replies = self._exec(session, [], self.now())
            written = session.written
            self._put_back(session)
        finally:
            self.leave()
        self.settle(written)
        refused = [reply for reply in replies if isinstance(reply, CommandError)]
        if refused:
            raise as_error(str(refused[0]))
        return replies

    # Time.

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.now()

    def pause(self, seconds: float, stop: Stop | None = None) -> bool:
        """Sleep; True if stop ended it. DatabaseClosed if the database is closed meanwhile."""
        bell = Bell()
        until = self.now() + max(0, round(seconds * 1000))
        self.sleepers[bell] = None
        if stop is not None:
            stop.listen(bell)
        try:
            while self.refusal is None and self.now() < until and not (stop is not None and stop.is_set()):
                self.clock.sleep(bell, until)
        finally:
            del self.sleepers[bell]
            if stop is not None:
                stop.forget(bell)
        if self.refusal is not None:
            raise DatabaseClosed(self.refusal)
        return stop is not None and stop.is_set()

    # The end.

    def close(self) -> None:
        """Let go of the engine; who waits gets DatabaseClosed. Twice does nothing."""
        if self.refusal is not None:
            return
        with self.lock:
            if self.refusal is not None:
                return
            self.refusal = CLOSED
            bells = [session.transport for session in self.engine.clients.values()]
        for bell in [*bells, *self.sleepers]:
            if bell is not None:
                bell.ring()

    def forked(self) -> None:
        """This is the child of a fork: the lock may be held by a thread that does not exist here."""
        self.refusal = FORKED


@cython.cfunc
def put_fields(argv: list[bytes], fields: object) -> cython.void:
    """Append names and values."""
    mapping: Mapping[Any, Any] = fields  # type: ignore[assignment]
    if not mapping:
        raise ValueError("an entry has at least one field")
    for name, value in mapping.items():
        argv.append(word_of(name))
        argv.append(word_of(value))


@cython.cfunc
def raised(reply: object) -> object:
    """The reply, unless it is a refusal."""
    if isinstance(reply, CommandError):
        raise as_error(str(reply))
    if isinstance(reply, HeadraceError):
        raise reply
    return reply
