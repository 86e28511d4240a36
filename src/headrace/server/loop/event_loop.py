"""The turn: what is done between two waits, in this order and no other.

    timer → wait → hear: read who has sent → time: waits that are over → requests: execute within a budget
          → woken readers → commit: the log, as durable as promised → answers → timer ...

Nothing on this way asks the interpreter for anything, unless there is something to do: to a client that sends
one request at a time every turn is the cost of a request.

When commit says that what was executed is not safe, the answers of those who have changed data in this turn
are held, and with them their connections: nothing of theirs is read or sent until release().

Whoever has sent more than the budget goes on in the next turn, which then does not wait. A client that does
not read its answers stalls nobody: what its socket does not take stays here, and past a limit its requests
wait too.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable

import cython

from headrace import limits
from headrace.commands.session import Session
from headrace.engine.clock import RealClock
from headrace.engine.clock_watch import ClockWatch
from headrace.engine.engine import Engine
from headrace.errors import ProtocolError
from headrace.resp.buffer_pool import BufferPool
from headrace.resp.parser import RequestParser
from headrace.resp.writer import ReplyWriter
from headrace.server.loop import descriptors
from headrace.server.loop.client_limits import Unread
from headrace.server.loop.connection import Connection
from headrace.server.loop.handshakes import Handshakes
from headrace.server.loop.tls_connection import Secure
from headrace.visibility import Public

READ_BYTES = cython.declare(cython.Py_ssize_t, 64 * 1024)  # from one client in one turn, of a long request
SHARE_BYTES = cython.declare(cython.Py_ssize_t, 16 * 1024)  # and of short ones: the others wait for them all
REQUESTS_MAX = cython.declare(cython.Py_ssize_t, 256)  # of one client in one turn
REQUESTS_OF_ALL = cython.declare(cython.Py_ssize_t, 4096)  # in one turn, about: in a crowd each gets fewer
UNSENT_MAX = cython.declare(cython.Py_ssize_t, limits.UNSENT_BYTES_MAX)
STRANGER_MAX = cython.declare(cython.Py_ssize_t, limits.UNAUTHENTICATED_REQUEST_BYTES_MAX)
AHEAD_MAX = cython.declare(cython.Py_ssize_t, limits.BLOCKED_CLIENT_BUFFER_BYTES_MAX)
EVENTS_MAX = cython.declare(cython.Py_ssize_t, 1024)
WAIT_MAX_MS = cython.declare(cython.longlong, 24 * 3600 * 1000)  # epoll takes no more than 24 days

IN = cython.declare(cython.uint, 0x1)  # epoll's own numbers
OUT = cython.declare(cython.uint, 0x4)
GONE = cython.declare(cython.uint, 0x2018)  # an error, a hang-up, or the other side has sent its last

NO_MEMORY = "there is no memory for its request"
LOG = logging.getLogger("headrace")


@cython.final
@cython.cclass
class Turn:
    """All connections and their requests. One thread runs it."""

    engine: Engine
    clock: RealClock
    clock_watch: ClockWatch
    # makes durable what was executed, before any answer leaves; did it?
    commit: Public[Callable[[], bool] | None]
    unsettled: Public[cython.bint]  # commit is to be called even if nothing was changed
    rests_from: cython.longlong  # from then until the other, in milliseconds, the timer has nothing to do
    rests_until: cython.longlong
    interrupted: cython.bint  # run() is to return
    bulk_max: Public[cython.longlong]  # the longest word a new client may send
    query_max: Public[cython.longlong]  # bytes a client may have sent that are not executed, or it goes
    unread: Unread  # how much of its answers a client may leave unread, or it goes
    received: Public[cython.longlong]
    sent: Public[cython.longlong]
    poller: select.epoll
    poll_fd: cython.int  # its descriptor
    events: bytearray  # what it has found
    events_p: cython.p_uchar
    handlers: dict[int, Callable[[], None]]  # descriptors that are no client's: what to do when readable
    connections: dict[int, Connection]
    handshakes: Handshakes  # of those who encrypt
    ready: list[Connection]
    answered: list[Connection]
    held: list[Connection]
    request_pool: BufferPool  # for clients that send much at once, one after the other
    reply_pool: BufferPool
    scratch: bytearray
    p: cython.p_uchar

    def __init__(self, engine: Engine, clock: RealClock) -> None:
        self.engine, self.clock, self.commit = engine, clock, None
        self.unsettled = self.interrupted = False
        self.rests_from = self.rests_until = 0
        self.bulk_max, self.query_max = limits.BULK_BYTES_MAX, limits.QUERY_BYTES_MAX
        self.unread, self.handshakes = Unread(), Handshakes()
        self.clock_watch = ClockWatch(clock, engine.adjust_clock, self.unread.shift)
        self.received = self.sent = 0
        self.poller = select.epoll()
        self.poll_fd = self.poller.fileno()
        self.events = bytearray(EVENTS_MAX * descriptors.EVENT_BYTES)
        self.events_p = self.events
        self.handlers, self.connections = {}, {}
        self.ready, self.answered, self.held = [], [], []
        self.request_pool, self.reply_pool = BufferPool(), BufferPool()
        self.scratch = bytearray(READ_BYTES)
        self.p = self.scratch

    def listen(self, fd: int, handler: Callable[[], None]) -> None:
        """Call handler in every turn in which fd can be read."""
        self.handlers[fd] = handler
        self.poller.register(fd, IN)

    def forget(self, fd: int) -> None:
        """The opposite of listen()."""
        del self.handlers[fd]
        self.poller.unregister(fd)

    def add(self, fd: int, address: bytes, local_address: bytes, secure: Secure | None = None) -> Connection:
        """A client on a connected, non-blocking descriptor, which is the turn's from now on. OSError."""
        self.poller.register(fd, IN)
        session = self.engine.session(address, local_address, self.clock.now_ms())
        self.engine.auth.begin_session(session)
        connection: Connection = Connection(fd, session, secure)
        connection.parser.pool = self.request_pool
        session.reply.pool = self.reply_pool
        session.reply.limit = self.unread.reply_limit
        connection.parser.bulk_max = self.bulk_max
        session.file_number = fd
        session.transport = connection
        self.connections[fd] = connection
        if secure is not None:
            self.handshakes.begin(connection)
        connection.watched = IN
        return connection

    def close(self) -> None:
        """Send what can be sent at once, but nothing that is held, and close every connection."""
        for connection in list(self.connections.values()):
            if not connection.held:
                self._flush(connection)
            self.drop(connection)
        self.poller.close()

    def run(self, timer: Callable[[int], int]) -> None:
        """Turns until interrupt(). timer(now) does what comes round and answers how many milliseconds may
        pass until the next call, -1 for any number; it is not called while rest() holds, unless hurry() is.
        """
        now: cython.longlong
        wait: cython.longlong
        while not self.interrupted:
            now = self.clock.now_ms()
            if self.rests_from <= now < self.rests_until:  # else it is time, or the clock was set back
                wait = self.rests_until - now
            else:
                wait = timer(now)
            self.once(wait)
            descriptors.run_signal_handlers()
        self.interrupted = False

    @cython.ccall
    def rest(self, since: cython.longlong, until: cython.longlong) -> cython.void:
        """Between these two times run() need not call its timer."""
        self.rests_from = since
        self.rests_until = until

    @cython.ccall
    def hurry(self) -> cython.void:
        """Have run() call its timer before the next turn."""
        self.rests_until = self.rests_from

    @cython.ccall
    def interrupt(self) -> cython.void:
        """Have run() return after the turn it is in, or at once when it is not running. From any thread."""
        self.interrupted = True

    @cython.ccall
    def once(self, timeout_ms: cython.longlong) -> cython.void:
        """One turn; waits up to timeout_ms, or for ever if that is negative, unless there is work left."""
        engine: Engine = self.engine
        events: cython.p_uchar = self.events_p
        i: cython.Py_ssize_t
        deadline: cython.longlong = engine.next_deadline()
        wait: cython.int = self._patience(timeout_ms, deadline)
        found: cython.Py_ssize_t = descriptors.wait(self.poll_fd, events, EVENTS_MAX, wait)
        now: cython.longlong = self.clock.now_ms()
        self.handshakes.steps = 0
        offset: cython.longlong = engine.effects.offset
        for i in range(found):
            self._hear_of(descriptors.event_fd(events, i), descriptors.event_what(events, i))
        if 0 <= deadline <= now:
            self.clock_watch.follow()  # a wait ends when its time has passed, not when the clock is set
            engine.tick(now)
        if self.ready:
            engine.timing.begin()
            self._execute(now)
        if engine.woken or engine.killed_sessions:
            self._serve_woken()
        if self.commit is not None and (engine.effects.items or self.unsettled):
            self.unsettled = False
            if not self.commit():
                self._hold_answers(offset)
            if engine.woken or engine.killed_sessions:  # who waited for the commit itself
                self._serve_woken()
        if self.answered:
            self._send_answers()

    @cython.cfunc
    def _patience(self, most_ms: cython.longlong, deadline: cython.longlong) -> cython.int:
        """How long to wait: not at all with work left, at most until the engine has something to do."""
        if self.ready or self.engine.woken:
            return 0
        left: cython.longlong = -1 if most_ms < 0 else min(most_ms, WAIT_MAX_MS)
        if deadline >= 0:
            until: cython.longlong = min(max(deadline - self.clock.now_ms(), 0), WAIT_MAX_MS)
            if left < 0 or until < left:
                left = until
        return left

    @cython.cfunc
    def _hear_of(self, fd: cython.int, what: cython.uint) -> cython.void:
        """Something has happened to that descriptor."""
        connection: Connection | None = self.connections.get(fd)
        if connection is not None:
            self._hear(connection, what)
        elif fd in self.handlers:
            self.handlers[fd]()

    @cython.cfunc
    def _hear(self, connection: Connection, what: cython.uint) -> cython.void:
        """Epoll says there is something to read, room to write, or nobody there."""
        if what & OUT:
            self._touch(connection)
        if connection.ready:
            return  # what it has sent before comes first
        if connection.watched & IN:
            if what & (IN | GONE):
                self._read(connection)
        elif what & GONE:
            self.drop(connection)

    @cython.cfunc
    def _read(self, connection: Connection) -> cython.void:
        parser: RequestParser = connection.parser
        pending: cython.Py_ssize_t = parser.pending()
        most: cython.Py_ssize_t = SHARE_BYTES if pending < SHARE_BYTES else READ_BYTES
        if connection.session.unauthenticated:
            most = max(STRANGER_MAX - pending, 1)
        n: cython.Py_ssize_t
        if connection.secure is None:
            n = descriptors.read(connection.fd, self.p, 0, most)
        else:
            n = self.handshakes.read(connection, self.scratch)
            if connection.secure.rest:
                self._watch(connection)
        if n > 0:
            self.received += n
            try:
                parser.feed_from(self.p, 0, n)
            except MemoryError:
                self.refuse(connection, NO_MEMORY)
                return
            if parser.pending() + connection.session.multi_queue_bytes() > self.query_max:
                self.refuse(connection, "it has sent more than client-query-buffer-limit unserved")
            elif connection.session.waiting is None:
                connection.ready = True
                self.ready.append(connection)
            elif connection.ended:
                self.drop(connection)
            else:
                self._watch(connection)
        elif n == 0 and connection.session.waiting is None:
            connection.ended = True
            self._touch(connection)
        elif n != descriptors.WOULD_BLOCK:
            self.drop(connection)

    @cython.cfunc
    def _execute(self, now: cython.longlong) -> cython.void:
        """Execute requests of everyone who has some, each within the budget."""
        batch: list[Connection] = self.ready
        connection: Connection
        share: cython.Py_ssize_t = REQUESTS_MAX
        if len(batch) * REQUESTS_MAX > REQUESTS_OF_ALL:
            share = max(REQUESTS_OF_ALL // len(batch), 1)
        self.ready = []
        for connection in batch:
            connection.ready = False
            if not connection.closed and not connection.held:
                self._execute_of(connection, now, share)
                self._touch(connection)

    @cython.cfunc
    def _execute_of(
        self, connection: Connection, now: cython.longlong, left: cython.Py_ssize_t
    ) -> cython.void:
        session: Session = connection.session
        parser: RequestParser = connection.parser
        answer: ReplyWriter = session.reply
        argv: list[bytes] | None
        if session.waiting is not None or session.closing:
            return
        try:
            while left > 0:
                parser.stranger = session.unauthenticated
                argv = parser.next()
                if argv is None:
                    if session.unauthenticated and parser.pending() >= STRANGER_MAX:
                        self.refuse(connection, "it has sent too much before it said who it is")
                    return
                self.engine.execute(session, argv, now)
                left -= 1
                if session.waiting is not None or session.closing:
                    return
                if answer.pending() > UNSENT_MAX:
                    connection.halted = True
                    return
        except ProtocolError as wrong:
            answer.error(b"ERR " + str(wrong).encode("latin-1", "replace"))
            session.closing = True
            LOG.info("closing %s: %s", session.address.decode(errors="replace"), wrong)
            return
        except MemoryError:
            self.refuse(connection, NO_MEMORY)
            return
        connection.ready = True
        self.ready.append(connection)

    @cython.cfunc
    def _serve_woken(self) -> cython.void:
        """Those answered by another's request go on with their own; those killed by one go."""
        session: Session
        connection: Connection | None
        woken: list[Session] = self.engine.woken
        dropped: list[Session] = self.engine.killed_sessions
        self.engine.woken = []
        self.engine.killed_sessions = []
        for session in dropped:
            connection = session.transport
            if connection is not None:
                self.drop(connection)
        for session in woken:
            connection = session.transport
            if connection is None:
                continue
            self._touch(connection)
            if not connection.ready and connection.parser.pending() > 0:
                connection.ready = True
                self.ready.append(connection)

    @cython.cfunc
    def _touch(self, connection: Connection) -> cython.void:
        """See to the connection when answers are sent."""
        if not connection.answered:
            connection.answered = True
            self.answered.append(connection)

    @cython.cfunc
    def _send_answers(self) -> cython.void:
        batch: list[Connection] = self.answered
        connection: Connection
        self.answered = []
        for connection in batch:
            connection.answered = False
            if not connection.closed and not connection.held:
                self._flush(connection)

    @cython.cfunc
    def _hold_answers(self, offset: cython.longlong) -> cython.void:
        """Put aside, as they are, all who have changed data since the log was that long, until release()."""
        connection: Connection
        others: list[Connection] = []
        for connection in self.answered:
            if connection.closed or connection.held or connection.session.last_write_offset < offset:
                others.append(connection)
                continue
            connection.answered = False
            connection.held = True
            self.held.append(connection)
            self._watch(connection)
        self.answered = others

    def release(self) -> None:
        """What was executed is safe now: the held answers are sent, and their clients go on."""
        connection: Connection
        batch: list[Connection] = self.held
        self.held = []
        for connection in batch:
            connection.held = False
            if connection.closed:
                continue
            if not connection.ready and not connection.halted and connection.parser.pending() > 0:
                connection.ready = True
                self.ready.append(connection)
            self._flush(connection)

    @cython.cfunc
    def _flush(self, connection: Connection) -> cython.void:
        """Send what the socket takes; then the connection goes on, or waits for room, or ends."""
        session: Session = connection.session
        answer: ReplyWriter = session.reply
        n: cython.Py_ssize_t = answer.pending()
        if answer.overflowed:
            self.refuse(connection, f"more than {answer.limit} bytes of replies (client-output-buffer-limit)")
            return
        if n > 0 or connection.secure is not None:
            if connection.secure is None:
                n = descriptors.write(connection.fd, answer.p, answer.start, n)
            else:
                n = connection.secure.write(connection.fd, answer.p, answer.start, n)
            if n == descriptors.BROKEN:
                self.drop(connection)
                return
            if n > 0:
                self.sent += n
                answer.sent(n)
            n = answer.pending()
            if (n > 0 or self.unread.lagging) and self.unread.too_much(
                connection, session, n, self.clock.now_ms()
            ):
                self.refuse(connection, "it has left more than client-output-buffer-limit unread")
                return
        if connection.halted and n <= UNSENT_MAX:
            connection.halted = False
            connection.ready = True
            self.ready.append(connection)
        if n == 0 and (session.closing or (connection.ended and not connection.ready)):
            self.drop(connection)
        else:
            self._watch(connection)

    @cython.cfunc
    def _watch(self, connection: Connection) -> cython.void:
        """Have epoll report what the connection's state can use, and nothing it cannot."""
        session: Session = connection.session
        unsent: cython.Py_ssize_t = session.reply.pending()
        watched: cython.uint = OUT if unsent > 0 else 0
        if connection.secure is not None and connection.secure.rest:
            watched = OUT
        if connection.held:
            watched = 0 if connection.ended else GONE
        elif not connection.ended and not session.closing and unsent <= UNSENT_MAX:
            if session.waiting is None or connection.parser.pending() <= AHEAD_MAX:
                watched |= IN
            else:
                watched |= GONE
        if watched != connection.watched:
            connection.watched = watched
            self.poller.modify(connection.fd, watched)

    @cython.ccall
    def refuse(self, connection: Connection, reason: str) -> cython.void:
        """Close the connection, and have the log say why."""
        LOG.warning("closing %s: %s", connection.session.address.decode(errors="replace"), reason)
        self.drop(connection)

    @cython.ccall
    def drop(self, connection: Connection) -> cython.void:
        """Close the connection and end its session."""
        if connection.closed:
            return
        connection.closed = True
        connection.session.transport = None
        self.engine.close(connection.session)
        del self.connections[connection.fd]
        if connection.secure is not None:
            self.handshakes.part(connection)
        self.poller.unregister(connection.fd)
        os.close(connection.fd)
