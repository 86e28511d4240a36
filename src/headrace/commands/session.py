"""What a command may know of its caller, and what the server may know of a session."""

from __future__ import annotations

from typing import Any

import cython

from headrace.keyspace.blocking import Waiter
from headrace.keyspace.watching import Watch
from headrace.resp.writer import ReplyWriter
from headrace.visibility import Public

ARGUMENT_OVERHEAD_BYTES = cython.declare(cython.Py_ssize_t, 48)  # a word of a queued request beside its bytes

# CLIENT REPLY: what happens to answers.
REPLY_ON = cython.declare(cython.int, 0)
REPLY_OFF = cython.declare(cython.int, 1)
REPLY_SKIP_NEXT = cython.declare(cython.int, 2)  # asked for by the request that runs now
REPLY_SKIP = cython.declare(cython.int, 3)  # the request that runs now gets no answer


@cython.final
@cython.cclass
class Session:
    """One client's state. The engine makes it, the server (or a test) owns its transport.

    While `waiting` is not None the session's further requests must not be executed.
    Once `closing` is set, the transport sends what `answer` holds and closes.
    """

    id: cython.longlong
    answer: ReplyWriter
    database: Public[cython.Py_ssize_t]
    name: Public[bytes]
    library_name: Public[bytes]
    library_version: Public[bytes]
    user: Public[bytes]  # his name
    # the access.user.User; None: one of this program's own sessions, which may do everything
    identity: Public[Any]
    restricted_user: Public[
        Any
    ]  # the User whose rules decide (see engine/authorization.py); None: all is allowed
    authenticated: Public[cython.bint]  # he has said who he is, or did not have to
    unauthenticated: Public[cython.bint]  # he must say who he is before anything else
    address: Public[bytes]  # "ip:port" of the client
    local_address: Public[bytes]
    file_number: Public[cython.int]  # of the socket; -1 when there is none
    created_ms: Public[cython.longlong]
    active_ms: Public[cython.longlong]  # of the last request
    last_command: Public[Any]  # the Command that ran last, or None
    queue: Public[list[Any] | None]  # the requests since MULTI, the engine's; None outside of it
    queue_bytes: cython.Py_ssize_t  # bytes that the queue takes
    transaction_failed: Public[cython.bint]  # a request since MULTI was refused: EXEC will be, too
    watch: Public[Watch | None]
    waiting: Public[Waiter | None]  # what the session is blocked on
    # how long the log was when this session last changed data; -1: it never did
    last_write_offset: Public[cython.longlong]
    closing: Public[cython.bint]
    killed: Public[cython.bint]  # closed by another client: nothing more is sent
    # its requests come from a log or a master: each was carried out once before
    replayed: Public[cython.bint]
    reply_mode: Public[cython.int]
    force_reply: Public[cython.bint]  # what was just answered is sent even when replies are off
    subscription_count: Public[
        cython.int
    ]  # to how many channels and patterns; in RESP2 it may do little else then
    monitoring: Public[cython.bint]  # it is shown what everybody asks for
    channels: dict[bytes, None]  # in the order they were subscribed to
    patterns: dict[bytes, None]
    no_evict: Public[cython.bint]
    no_touch: Public[cython.bint]
    transport: Public[Any]  # the server's connection object; the commands ask nothing of it

    def __init__(self, number: cython.longlong, address: bytes = b"", local_address: bytes = b"") -> None:
        self.id = number
        self.answer = ReplyWriter()
        self.address = address
        self.local_address = local_address
        self.file_number = -1
        self.created_ms = 0
        self.active_ms = 0
        self.last_command = None
        self.name = b""
        self.library_name = b""
        self.library_version = b""
        self.user = b"default"
        self.identity = None
        self.restricted_user = None
        self.authenticated = True
        self.unauthenticated = False
        self.closing = False
        self.killed = False
        self.waiting = None
        self.transport = None
        self.watch = None
        self.last_write_offset = -1
        self.replayed = False
        self.force_reply = False
        self.subscription_count = 0
        self.monitoring = False
        self.channels = {}
        self.patterns = {}
        self.reset()

    @cython.ccall
    def reset(self) -> cython.void:
        """As a new connection has it, but for id, addresses and library.

        Its watch and its channels must have been let go.
        """
        self.database = 0
        self.name = b""
        self.queue = None
        self.queue_bytes = 0
        self.transaction_failed = False
        self.reply_mode = REPLY_ON
        self.no_evict = False
        self.no_touch = False
        self.answer.protocol = 2

    @cython.ccall
    def enqueue(self, row: Any, argv: list[bytes]) -> cython.void:
        """Inside MULTI: keep the request for EXEC."""
        queue: list[Any] | None = self.queue
        word: bytes
        assert queue is not None
        if not queue:
            self.queue_bytes = 0
        queue.append((row, argv))
        for word in argv:
            self.queue_bytes += len(word) + ARGUMENT_OVERHEAD_BYTES

    @cython.ccall
    def multi_queue_bytes(self) -> cython.Py_ssize_t:
        """What the requests kept for EXEC take."""
        return self.queue_bytes if self.queue else 0

    @cython.ccall
    def reply_on(self) -> cython.void:
        """CLIENT REPLY ON: answers are sent."""
        self.reply_mode = REPLY_ON

    @cython.ccall
    def reply_off(self) -> cython.void:
        """CLIENT REPLY OFF: no answers, the one to this request included."""
        self.reply_mode = REPLY_OFF

    @cython.ccall
    def reply_skip(self) -> cython.void:
        """CLIENT REPLY SKIP: no answer to this request and to the next."""
        if self.reply_mode != REPLY_OFF:
            self.reply_mode = REPLY_SKIP_NEXT

    @cython.ccall
    def is_muted(self) -> cython.bint:
        """Whether the request that has just run gets no answer."""
        return self.reply_mode != REPLY_ON

    @cython.ccall
    def advance_reply_mode(self) -> cython.void:
        """A request has been answered, or not: what holds for the next one."""
        if self.reply_mode == REPLY_SKIP_NEXT:
            self.reply_mode = REPLY_SKIP
        elif self.reply_mode == REPLY_SKIP:
            self.reply_mode = REPLY_ON
