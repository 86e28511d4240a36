"""The event loop. One turn does this, in this order:

    timer → background work → tasks → poll → read requests from ready sockets → time out blocked clients
          → execute, within a budget → clients woken by other requests
          → commit: write the log, as durable as promised → send replies

A client that sends one request at a time pays for a whole turn, so each step checks for work before it
calls the interpreter.

If commit() returns False, the replies to clients that changed data in this turn are held, together with
their connections: nothing is read from them or sent to them until release_replies(). With await_replicas()
they are held after the commit, too, until release_connections().

A client that closes its sending side is closed when the requests that it has sent are executed and replied
to. It is closed at once if one of these requests blocks, as XREAD BLOCK does.

A client that has sent more than the budget continues in the next turn, which then does not wait in poll.
A client that does not read its replies does not stall others: unsent bytes stay in its buffer. Above a first
limit its requests are read but wait; above a second one they stay in its socket. All clients share the memory
for that (_may_buffer_more), and each may use half of what the others leave.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable

import cython

from headrace import limits, system
from headrace.commands.session import Session
from headrace.engine.clock import RealClock
from headrace.engine.clock_watch import ClockWatch
from headrace.engine.engine import Engine
from headrace.errors import ProtocolError
from headrace.resp.buffer_pool import BufferPool
from headrace.resp.parser import RequestParser
from headrace.resp.writer import ReplyWriter
from headrace.server.loop import descriptors
from headrace.server.loop.connection import Connection
from headrace.server.loop.handshakes import Handshakes
from headrace.server.loop.output_buffer_monitor import OutputBufferMonitor
from headrace.server.loop.tls_connection import TlsConnection
from headrace.visibility import Public

READ_BYTES = cython.declare(cython.Py_ssize_t, 64 * 1024)  # from one client in one turn, of a long request
# Of short requests: other clients wait for all.
SHORT_READ_BYTES = cython.declare(cython.Py_ssize_t, 32 * 1024)
REQUESTS_PER_CLIENT_MAX = cython.declare(cython.Py_ssize_t, 256)  # of one client in one turn
REQUESTS_PER_TURN_MAX = cython.declare(cython.Py_ssize_t, 4096)  # of all clients in one turn, about
UNSENT_MAX = cython.declare(cython.Py_ssize_t, limits.UNSENT_BYTES_MAX)
EXCESS_BUFFER_MAX = cython.declare(cython.Py_ssize_t, limits.UNSENT_BYTES_OF_ALL_MAX)
UNAUTHENTICATED_REQUEST_BYTES = cython.declare(cython.Py_ssize_t, limits.UNAUTHENTICATED_REQUEST_BYTES_MAX)
BLOCKED_BUFFER_MAX = cython.declare(cython.Py_ssize_t, limits.BLOCKED_CLIENT_BUFFER_BYTES_MAX)
EVENTS_MAX = cython.declare(cython.Py_ssize_t, 1024)
WAIT_MAX_MS = cython.declare(cython.longlong, 24 * 3600 * 1000)  # epoll accepts at most 24 days

IN = cython.declare(cython.uint, 0x1)  # epoll's event bits
OUT = cython.declare(cython.uint, 0x4)
HANGUP = cython.declare(cython.uint, 0x2018)  # an error, a hang-up, or the client has closed its sending side

NO_MEMORY = "not enough memory for its request"
LOG = logging.getLogger("headrace")


@cython.final
@cython.cclass
class EventLoop:
    """All connections and their requests. One thread runs it."""

    engine: Engine
    clock: RealClock
    clock_watch: ClockWatch
    # writes executed changes to the log before any reply is sent; returns whether they are safe
    commit: Public[Callable[[], bool] | None]
    # gets the clients whose replies wait for replicas, after the commit; see replication/write_quorum.py
    await_replicas: Public[Callable[[list[Connection]], None] | None]
    # work between turns: does some of it, and returns in how many ms to call it again. None: no work
    background_work: Public[Callable[[], int] | None]
    background_at_ns: cython.longlong  # when to call it
    timer: Callable[[int], int] | None  # see set_timer()
    tasks: list[Callable[[], None]]  # see call_between_turns()
    in_task: cython.bint
    commit_required: Public[cython.bint]  # call commit in this turn even if nothing was changed
    timer_idle_from: cython.longlong  # ms; the timer has nothing to do from then until the next
    timer_idle_until: cython.longlong
    interrupted: cython.bint  # run() is to return
    bulk_max: Public[cython.longlong]  # bytes of the longest argument that a new client may send
    # Bytes of requests not yet executed; a client with more is closed.
    query_buffer_max: Public[cython.longlong]
    output_monitor: OutputBufferMonitor  # closes clients that leave too many reply bytes unread
    query_limit_disconnections: Public[cython.longlong]
    # Bytes of unread replies above UNSENT_MAX, and of requests that wait for them.
    excess_buffer_bytes: cython.Py_ssize_t
    received_bytes: Public[cython.longlong]
    sent_bytes: Public[cython.longlong]
    poller: select.epoll
    poll_fd: cython.int  # its descriptor
    event_buffer: bytearray  # the events that the last poll returned
    events_p: cython.p_uchar
    listener_fds: set[int]  # the descriptors of listeners
    handlers: dict[int, Callable[[], None]]  # of descriptors that belong to no client: called when readable
    connections: dict[int, Connection]
    handshakes: Handshakes  # of TLS clients
    ready_connections: list[Connection]
    to_flush: list[Connection]
    awaiting_commit: list[Connection]
    request_pool: BufferPool  # for clients that send much at once, one after the other
    reply_pool: BufferPool
    scratch: bytearray
    scratch_p: cython.p_uchar

    def __init__(self, engine: Engine, clock: RealClock) -> None:
        self.engine, self.clock, self.commit, self.background_work = engine, clock, None, None
        self.await_replicas = self.timer = None
        self.tasks, self.in_task = [], False
        self.commit_required = self.interrupted = False
        self.timer_idle_from = self.timer_idle_until = self.background_at_ns = 0
        self.bulk_max, self.query_buffer_max = limits.BULK_BYTES_MAX, limits.QUERY_BYTES_MAX
        self.output_monitor, self.handshakes = OutputBufferMonitor(), Handshakes()
        self.clock_watch = ClockWatch(clock, engine.on_clock_set, self.output_monitor.shift_recorded_times)
        self.excess_buffer_bytes = 0
        self.received_bytes = self.sent_bytes = self.query_limit_disconnections = 0
        self.poller = select.epoll()
        self.poll_fd = self.poller.fileno()
        self.event_buffer = bytearray(EVENTS_MAX * descriptors.EVENT_BYTES)
        self.events_p = self.event_buffer
        self.handlers, self.connections = {}, {}
        self.listener_fds = set()
        self.ready_connections, self.to_flush, self.awaiting_commit = [], [], []
        self.request_pool, self.reply_pool = BufferPool(), BufferPool()
        self.scratch = bytearray(READ_BYTES)
        self.scratch_p = self.scratch

    def add_reader(self, fd: int, handler: Callable[[], None]) -> None:
        """Call handler in every turn in which fd is readable."""
        self.handlers[fd] = handler
        self.poller.register(fd, IN)

    def add_listener(self, fd: int, handler: Callable[[], None]) -> None:
        """Call handler in every turn in which fd is readable, also while a script runs."""
        self.listener_fds.add(fd)
        self.add_reader(fd, handler)

    def remove_reader(self, fd: int) -> None:
        """Stop watching a descriptor given to add_reader()."""
        del self.handlers[fd]
        self.listener_fds.discard(fd)
        self.poller.unregister(fd)

    def add_connection(
        self, fd: int, address: bytes, local_address: bytes, tls: TlsConnection | None = None
    ) -> Connection:
        """Serve a connected, non-blocking descriptor from now on; close it at the end. Raises OSError."""
        self.poller.register(fd, IN)
        session = self.engine.create_session(address, local_address, self.clock.now_ms())
        self.engine.auth.begin_session(session)
        connection: Connection = Connection(fd, session, tls)
        connection.parser.pool = self.request_pool
        session.reply.pool = self.reply_pool
        session.reply.limit = self.output_monitor.reply_limit
        connection.parser.bulk_max = self.bulk_max
        session.file_number = fd
        session.transport = connection
        self.connections[fd] = connection
        if tls is not None:
            self.handshakes.start(connection)
        connection.watched_events = IN
        return connection

    def close(self) -> None:
        """Send, without blocking, the replies of connections that do not await a commit; close them all."""
        for connection in list(self.connections.values()):
            if not connection.awaiting_commit:
                self._flush(connection)
            self.drop(connection)
        self.poller.close()

    def set_timer(self, timer: Callable[[int], int]) -> None:
        """Call timer(now) between two turns when it is due.

        It does periodic work and returns in how many milliseconds it is due again, -1 for never. It is not
        called within the window of set_timer_idle_window(), unless run_timer_now() is called.
        """
        self.timer = timer

    def call_between_turns(self, task: Callable[[], None]) -> None:
        """Call task once, before the next turn; while another task runs, after that one.

        A task that takes long must call run_turn_with_timer() regularly, so that clients are served.
        """
        self.tasks.append(task)

    def run(self) -> None:
        """Run turns until interrupt()."""
        while not self.interrupted:
            self.run_turn_with_timer(-1)
            system.run_signal_handlers()
        self.interrupted = False

    @cython.ccall
    def run_turn_with_timer(self, wait_max: cython.longlong) -> cython.void:
        """Do what is due between two turns, and run a turn, which waits up to wait_max ms; -1: no limit."""
        now: cython.longlong = self.clock.now_ms()
        wait: cython.longlong = -1
        again: cython.longlong
        # Outside of the window the timer is due, or the clock was set back.
        if self.timer_idle_from <= now < self.timer_idle_until:
            wait = self.timer_idle_until - now
        elif self.timer is not None:
            wait = self.timer(now)
        if self.background_work is not None:
            again = self._work_in_background(self.background_work)
            if wait < 0 or again < wait:
                wait = again
        if self.tasks and self.run_tasks():
            wait = 0
        if wait_max >= 0 and (wait < 0 or wait_max < wait):
            wait = wait_max
        self.run_once(wait)

    def run_tasks(self) -> bool:
        """Run the tasks of call_between_turns(), unless one is running; return whether any ran."""
        if self.in_task or not self.tasks:
            return False
        tasks: list[Callable[[], None]] = self.tasks
        self.tasks = []
        self.in_task = True
        try:
            for task in tasks:
                task()
        finally:
            self.in_task = False
        return True

    @cython.cfunc
    def _work_in_background(self, work: Callable[[], int]) -> cython.longlong:
        """Do some of the work between turns if it is due; return in how many ms at most the rest is due."""
        again: cython.longlong = 1
        if system.monotonic_ns() >= self.background_at_ns:
            again = work()
            self.background_at_ns = system.monotonic_ns() + again * 1_000_000
        return again

    @cython.ccall
    def set_timer_idle_window(self, since: cython.longlong, until: cython.longlong) -> cython.void:
        """Let run() skip its timer between these two times, in milliseconds since 1970."""
        self.timer_idle_from = since
        self.timer_idle_until = until

    @cython.ccall
    def run_timer_now(self) -> cython.void:
        """Make run() call its timer before the next turn."""
        self.timer_idle_until = self.timer_idle_from

    @cython.ccall
    def interrupt(self) -> cython.void:
        """Make run() return after the current turn, or at once when it is called next. Thread-safe."""
        self.interrupted = True

    @cython.ccall
    def run_once(self, timeout_ms: cython.longlong) -> cython.void:
        """Run one turn; wait up to timeout_ms (negative: without limit) unless there is work left."""
        engine: Engine = self.engine
        events: cython.p_uchar = self.events_p
        i: cython.Py_ssize_t
        deadline: cython.longlong = engine.next_deadline()
        wait: cython.int = self._poll_timeout(timeout_ms, deadline)
        found: cython.Py_ssize_t = descriptors.wait(self.poll_fd, events, EVENTS_MAX, wait)
        now: cython.longlong = self.clock.now_ms()
        self.handshakes.steps_in_turn = 0
        offset: cython.longlong = engine.effects.log_offset
        for i in range(found):
            self._dispatch_event(descriptors.event_fd(events, i), descriptors.event_mask(events, i))
        if 0 <= deadline <= now:
            # A blocked client times out by elapsed time, not when the clock is set.
            self.clock_watch.check_clock()
            engine.tick(now)
        if self.ready_connections:
            engine.timing.begin()
            self._execute(now)
        if engine.woken_sessions or engine.killed_sessions:
            self._serve_woken(None)
        if self.commit is not None and (engine.effects.items or self.commit_required):
            self.commit_required = False
            if not self.commit():
                self._hold_replies(offset)
            elif self.await_replicas is not None:
                self._hold_for_replicas(self.await_replicas, self._writers_since(offset))
            if engine.woken_sessions or engine.killed_sessions:  # clients that waited for the commit itself
                self._serve_woken(None)
        if self.to_flush:
            self._send_replies()

    @cython.cfunc
    def _poll_timeout(self, most_ms: cython.longlong, deadline: cython.longlong) -> cython.int:
        """Return the milliseconds to wait: 0 with work left, at most until the deadline, -1 for no limit."""
        if self.ready_connections or self.to_flush or self.engine.woken_sessions:
            return 0
        left: cython.longlong = -1 if most_ms < 0 else min(most_ms, WAIT_MAX_MS)
        if deadline >= 0:
            until: cython.longlong = min(max(deadline - self.clock.now_ms(), 0), WAIT_MAX_MS)
            if left < 0 or until < left:
                left = until
        return left

    @cython.cfunc
    def _dispatch_event(self, fd: cython.int, mask: cython.uint) -> cython.void:
        """Handle an event of a descriptor."""
        connection: Connection | None = self.connections.get(fd)
        if connection is not None:
            self._on_event(connection, mask)
        elif fd in self.handlers:
            self.handlers[fd]()

    @cython.cfunc
    def _on_event(self, connection: Connection, mask: cython.uint) -> cython.void:
        """Handle epoll's event of a client: readable, writable, or closed by the other side."""
        if mask & OUT:
            self.schedule_flush(connection)
        if connection.has_ready_requests:
            return  # earlier requests are executed first
        if connection.watched_events & IN:
            if mask & (IN | HANGUP):
                self._read(connection)
        elif mask & HANGUP:
            self.drop(connection)

    @cython.cfunc
    def _read(self, connection: Connection) -> cython.void:
        parser: RequestParser = connection.parser
        pending: cython.Py_ssize_t = parser.pending_bytes()
        most: cython.Py_ssize_t = SHORT_READ_BYTES if pending < SHORT_READ_BYTES else READ_BYTES
        if connection.session.must_authenticate:
            most = max(UNAUTHENTICATED_REQUEST_BYTES - pending, 1)
        n: cython.Py_ssize_t
        try:
            n = self._receive(connection, most, pending >= SHORT_READ_BYTES)
        except MemoryError:
            self.drop_with_reason(connection, NO_MEMORY)
            return
        if n > 0:
            self.received_bytes += n
            if parser.pending_bytes() + connection.session.multi_queue_bytes() > self.query_buffer_max:
                self.query_limit_disconnections += 1
                self.drop_with_reason(
                    connection, "it has sent more unexecuted requests than client-query-buffer-limit allows"
                )
            elif connection.throttled:
                self._watch(connection)
            elif connection.session.waiter is None:
                connection.has_ready_requests = True
                self.ready_connections.append(connection)
            elif connection.eof and not self.engine.waits_for_run(connection.session):
                self.drop(connection)
            else:
                self._watch(connection)
        elif n == 0 and (connection.session.waiter is None or self.engine.waits_for_run(connection.session)):
            connection.eof = True
            self.schedule_flush(connection)
        elif n != descriptors.WOULD_BLOCK:
            self.drop(connection)

    @cython.cfunc
    def _receive(
        self, connection: Connection, most: cython.Py_ssize_t, is_long: cython.bint
    ) -> cython.Py_ssize_t:
        """Read up to `most` bytes into the parser's buffer; return what descriptors.read() returns.

        is_long: the rest of a long request probably follows, so a copy less is worth a larger buffer. After a
        MemoryError the connection is useless.
        """
        parser: RequestParser = connection.parser
        n: cython.Py_ssize_t
        if connection.tls is None and is_long:
            parser.make_room(most)
            n = descriptors.read(connection.fd, parser.p, parser.filled, most)
            if n > 0:
                parser.filled += n
            return n
        if connection.tls is None:
            n = descriptors.read(connection.fd, self.scratch_p, 0, most)
        else:
            n = self.handshakes.read(connection, self.scratch)
            if connection.tls.unsent_encrypted:
                self._watch(connection)
        if n > 0:
            parser.feed_from(self.scratch_p, 0, n)
        return n

    @cython.cfunc
    def _execute(self, now: cython.longlong) -> cython.void:
        """Execute requests of every ready client, each within the budget."""
        batch: list[Connection] = self.ready_connections
        connection: Connection
        share: cython.Py_ssize_t = REQUESTS_PER_CLIENT_MAX
        if len(batch) * REQUESTS_PER_CLIENT_MAX > REQUESTS_PER_TURN_MAX:
            share = max(REQUESTS_PER_TURN_MAX // len(batch), 1)
        self.ready_connections = []
        for connection in batch:
            connection.has_ready_requests = False
            if not connection.closed and not connection.awaiting_commit:
                self._execute_requests_of(connection, now, share)
                self.schedule_flush(connection)

    def serve_while_busy(self, busy: Session) -> None:
        """Run a turn in the middle of a request of the session `busy`, which stays as it is.

        Only listeners and other clients are served. Requests of those clients are rejected unless they can
        end the running one. Nothing is committed: replies to changes of this turn wait for its commit.
        """
        events: bytearray = bytearray(EVENTS_MAX * descriptors.EVENT_BYTES)
        connection: Connection | None
        i: cython.Py_ssize_t
        now: cython.longlong = self.clock.now_ms()
        uncommitted: list[Connection] = self._take_uncommitted()
        kept: list[Connection] = self.ready_connections  # those of this turn are in a batch of _execute()
        batch: list[Connection] = []
        self.ready_connections = []
        for connection in self.connections.values():
            if connection.has_ready_requests and connection.session is not busy:
                connection.has_ready_requests = False
                batch.append(connection)
        found: cython.Py_ssize_t = descriptors.wait(self.poll_fd, events, EVENTS_MAX, 0)
        for i in range(found):
            fd = descriptors.event_fd(events, i)
            connection = self.connections.get(fd)
            if connection is not None:
                if connection.session is not busy:
                    self._on_event(connection, descriptors.event_mask(events, i))
            elif fd in self.listener_fds:
                self.handlers[fd]()
        self.ready_connections += batch
        self._execute(now)
        kept += self.ready_connections
        self.ready_connections = kept
        if self.engine.woken_sessions or self.engine.killed_sessions:
            self._serve_woken(busy)
        # The reply of the busy session is not complete, and its earlier changes may not be in the log.
        others: list[Connection] = []
        for connection in self.to_flush:
            if connection.session is busy:
                uncommitted.append(connection)
            else:
                others.append(connection)
        self.to_flush = others
        self._send_replies()
        self.to_flush += uncommitted

    @cython.cfunc
    def _take_uncommitted(self) -> list[Connection]:
        """Remove the connections from `to_flush` whose changes are not in the log yet; return them."""
        engine: Engine = self.engine
        batch: list[Connection] = self.to_flush
        connection: Connection
        taken: list[Connection] = []
        self.to_flush = []
        for connection in batch:
            if connection.session.last_write_offset >= engine.effects.log_offset:
                taken.append(connection)
            else:
                self.to_flush.append(connection)
        return taken

    @cython.cfunc
    def _execute_requests_of(
        self, connection: Connection, now: cython.longlong, left: cython.Py_ssize_t
    ) -> cython.void:
        session: Session = connection.session
        parser: RequestParser = connection.parser
        reply: ReplyWriter = session.reply
        argv: list[bytes] | None
        if session.waiter is not None or session.closing:
            return
        try:
            while left > 0:
                parser.unauthenticated = session.must_authenticate
                argv = parser.next()
                if argv is None:
                    if session.must_authenticate and parser.pending_bytes() >= UNAUTHENTICATED_REQUEST_BYTES:
                        self.drop_with_reason(connection, "it has sent too many bytes before authenticating")
                    if session.is_replica:
                        session.last_request_ms = (
                            now  # it may have sent a line feed: it is loading a snapshot
                        )
                    return
                self.engine.execute(session, argv, now)
                left -= 1
                if session.waiter is not None or session.closing:
                    return
                if reply.pending_bytes() > UNSENT_MAX and not self._may_buffer_more(connection):
                    connection.throttled = True
                    return
        except ProtocolError as wrong:
            reply.error(b"ERR " + str(wrong).encode("latin-1", "replace"))
            session.closing = True
            LOG.info("closing %s: %s", session.address.decode(errors="replace"), wrong)
            return
        except MemoryError:
            self.drop_with_reason(connection, NO_MEMORY)
            return
        connection.has_ready_requests = True
        self.ready_connections.append(connection)

    @cython.cfunc
    def _serve_woken(self, busy: Session | None) -> cython.void:
        """Continue clients that another request has woken; close those that another request has killed.

        busy: a session in the middle of a request; it is continued or closed after that request.
        """
        session: Session
        connection: Connection | None
        woken: list[Session] = self.engine.take_woken()
        dropped: list[Session] = self.engine.killed_sessions
        self.engine.killed_sessions = []
        for session in dropped:
            if session is busy:
                self.engine.killed_sessions.append(session)
                continue
            connection = session.transport
            if connection is not None:
                self.drop(connection)
        for session in woken:
            if session is busy:
                self.engine.woken_sessions.append(session)
                continue
            connection = session.transport
            if connection is None:
                continue
            self.schedule_flush(connection)
            if not connection.has_ready_requests and connection.parser.pending_bytes() > 0:
                connection.has_ready_requests = True
                self.ready_connections.append(connection)

    @cython.ccall
    def schedule_flush(self, connection: Connection) -> cython.void:
        """Schedule the connection for _send_replies() in this turn."""
        if not connection.flush_scheduled:
            connection.flush_scheduled = True
            self.to_flush.append(connection)

    @cython.cfunc
    def _send_replies(self) -> cython.void:
        batch: list[Connection] = self.to_flush
        connection: Connection
        self.to_flush = []
        for connection in batch:
            connection.flush_scheduled = False
            if not connection.closed and not connection.awaiting_commit:
                self._flush(connection)

    @cython.cfunc
    def _hold_replies(self, offset: cython.longlong) -> cython.void:
        """Hold connections that changed data since the log had that offset, until release_replies()."""
        connection: Connection
        others: list[Connection] = []
        for connection in self.to_flush:
            if (
                connection.closed
                or connection.awaiting_commit
                or connection.session.last_write_offset < offset
            ):
                others.append(connection)
                continue
            connection.flush_scheduled = False
            connection.awaiting_commit = True
            self.awaiting_commit.append(connection)
            self._watch(connection)
        self.to_flush = others

    def has_held_replies(self) -> bool:
        """Return whether replies are held."""
        return any(not connection.closed for connection in self.awaiting_commit)

    def release_replies(self) -> None:
        """Release the replies held for a commit, which is durable now.

        With `await_replicas` they are held until replicas have the writes; otherwise they are sent.
        """
        connection: Connection
        batch: list[Connection] = self.awaiting_commit
        self.awaiting_commit = []
        for connection in batch:
            connection.awaiting_commit = False
        if self.await_replicas is not None:
            self._hold_for_replicas(self.await_replicas, [c for c in batch if not c.closed])
        else:
            self.release_connections(batch)

    @cython.cfunc
    def _writers_since(self, offset: cython.longlong) -> list[Connection]:
        """Return the connections with replies that changed data since the log had that offset."""
        connection: Connection
        found: list[Connection] = []
        for connection in self.to_flush:
            if connection.session.last_write_offset >= offset and not connection.closed:
                found.append(connection)
        return found

    @cython.cfunc
    def _hold_for_replicas(
        self, hold: Callable[[list[Connection]], None], batch: list[Connection]
    ) -> cython.void:
        """Hold connections until release_connections(): replicas must have their changes."""
        connection: Connection
        hold(batch)
        for connection in batch:
            connection.awaiting_commit = True
            self._watch(connection)

    def release_connections(self, batch: list[Connection]) -> None:
        """Send the replies of these connections in this turn, and continue their requests."""
        connection: Connection
        for connection in batch:
            connection.awaiting_commit = False
            if connection.closed:
                continue
            if (
                not connection.has_ready_requests
                and not connection.throttled
                and connection.parser.pending_bytes() > 0
            ):
                connection.has_ready_requests = True
                self.ready_connections.append(connection)
            self.schedule_flush(connection)

    @cython.cfunc
    def _flush(self, connection: Connection) -> cython.void:
        """Send what the socket accepts. Then continue, wait until it is writable, or close it."""
        session: Session = connection.session
        reply: ReplyWriter = session.reply
        if connection.output_source is not None:
            connection.output_source.fill_output_buffer()
        n: cython.Py_ssize_t = reply.pending_bytes()
        if reply.overflowed:
            self.output_monitor.disconnections += 1
            self.drop_with_reason(
                connection, f"more than {reply.limit} bytes of replies (client-output-buffer-limit)"
            )
            return
        if n > 0 or connection.tls is not None:
            if connection.tls is None:
                n = descriptors.write(connection.fd, reply.p, reply.start, n)
            else:
                n = connection.tls.write(connection.fd, reply.p, reply.start, n)
            if n == descriptors.BROKEN:
                self.drop(connection)
                return
            if n > 0:
                self.sent_bytes += n
                reply.mark_sent(n)
            if connection.output_source is not None:
                connection.output_source.fill_output_buffer()
            n = reply.pending_bytes()
            if (n > 0 or self.output_monitor.any_over_soft_limit) and self.output_monitor.exceeds_hard_limit(
                connection, session, n, self.clock.now_ms()
            ):
                self.output_monitor.disconnections += 1
                self.drop_with_reason(
                    connection, "it has left more reply bytes unread than client-output-buffer-limit allows"
                )
                return
        if connection.throttled and n <= UNSENT_MAX:
            connection.throttled = False
            connection.has_ready_requests = True
            self.ready_connections.append(connection)
        if n == 0 and (session.closing or (connection.eof and not self._has_requests(connection))):
            self.drop(connection)
        else:
            self._watch(connection)

    @cython.cfunc
    def _has_requests(self, connection: Connection) -> cython.bint:
        """Return whether requests are to be executed before the connection is closed."""
        return connection.has_ready_requests or self.engine.waits_for_run(connection.session)

    @cython.cfunc
    def _may_buffer_more(self, connection: Connection) -> cython.bint:
        """Recount the connection's excess buffered bytes; return whether they may grow."""
        unsent: cython.Py_ssize_t = connection.session.reply.pending_bytes()
        excess: cython.Py_ssize_t = 0
        if unsent > UNSENT_MAX:
            excess = unsent - UNSENT_MAX + connection.parser.pending_bytes()
        self.excess_buffer_bytes += excess - connection.excess_buffer_bytes
        connection.excess_buffer_bytes = excess
        return 2 * excess <= EXCESS_BUFFER_MAX - self.excess_buffer_bytes

    @cython.cfunc
    def _watch(self, connection: Connection) -> cython.void:
        """Make epoll report the events that the connection's state can use, and no others."""
        session: Session = connection.session
        unsent: cython.Py_ssize_t = session.reply.pending_bytes()
        watched: cython.uint = OUT if unsent > 0 else 0
        if connection.tls is not None and connection.tls.unsent_encrypted:
            watched = OUT
        if connection.awaiting_commit:
            watched = 0 if connection.eof else HANGUP
        elif (
            not connection.eof
            and not session.closing
            and (
                (unsent <= UNSENT_MAX and connection.excess_buffer_bytes == 0)
                or self._may_buffer_more(connection)
            )
        ):
            if session.waiter is None or connection.parser.pending_bytes() <= BLOCKED_BUFFER_MAX:
                watched |= IN
            elif not self.engine.waits_for_run(session):
                watched |= HANGUP
        if watched != connection.watched_events:
            connection.watched_events = watched
            self.poller.modify(connection.fd, watched)

    @cython.ccall
    def drop_with_reason(self, connection: Connection, reason: str) -> cython.void:
        """Close the connection and log the reason."""
        LOG.warning("closing %s: %s", connection.session.address.decode(errors="replace"), reason)
        self.drop(connection)

    @cython.ccall
    def drop(self, connection: Connection) -> cython.void:
        """Close the connection and end its session."""
        if connection.closed:
            return
        connection.closed = True
        connection.session.transport = None
        if connection.output_source is not None:
            connection.output_source.on_connection_closed()
            connection.output_source = None
        self.excess_buffer_bytes -= connection.excess_buffer_bytes
        self.engine.close(connection.session)
        del self.connections[connection.fd]
        if connection.tls is not None:
            self.handshakes.close_tls(connection)
        self.poller.unregister(connection.fd)
        os.close(connection.fd)
