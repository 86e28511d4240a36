"""A session: the state of one client."""

from __future__ import annotations

from typing import Any

import cython

from headrace.access.user import User
from headrace.commands.spec import Command
from headrace.commands.stats import CommandRow
from headrace.commands.tracking_state import TrackingState
from headrace.keyspace.blocking import Waiter
from headrace.keyspace.watching import Watch
from headrace.resp.writer import ReplyWriter
from headrace.visibility import Public

ARGUMENT_OVERHEAD_BYTES = cython.declare(cython.Py_ssize_t, 48)  # of a queued argument

# Modes of CLIENT REPLY.
REPLY_ON = cython.declare(cython.int, 0)
REPLY_OFF = cython.declare(cython.int, 1)
REPLY_SKIP_NEXT = cython.declare(cython.int, 2)  # set by the running request; the next one is skipped, too
REPLY_SKIP = cython.declare(cython.int, 3)  # the running request gets no reply


@cython.final
@cython.cclass
class Session:
    """One client's state. The engine creates it; the server (or a test) owns its connection.

    While `waiter` is not None, the session's further requests must not be executed.
    Once `closing` is set, the server sends what `reply` holds and closes the connection.
    """

    id: cython.longlong
    reply: ReplyWriter
    database: Public[cython.Py_ssize_t]
    name: Public[bytes]
    library_name: Public[bytes]
    library_version: Public[bytes]
    user_name: Public[bytes]  # the user's name
    user: Public[User | None]  # None: a session of this program, which may do everything
    # whose rules are checked (see engine/authorization.py); None: all is allowed
    restricted_user: Public[User | None]
    authenticated: Public[cython.bint]  # it has authenticated, or needed no password
    must_authenticate: Public[cython.bint]  # it must authenticate before anything else
    address: Public[bytes]  # "ip:port" of the client
    local_address: Public[bytes]
    file_number: Public[cython.int]  # of the socket; -1 when there is none
    created_ms: Public[cython.longlong]
    last_request_ms: Public[cython.longlong]  # of the last request
    last_command: Public[Command | None]
    queue: Public[list[tuple[CommandRow, list[bytes]]] | None]  # the requests since MULTI; None outside of it
    queue_bytes: cython.Py_ssize_t  # memory of the queue
    transaction_failed: Public[cython.bint]  # a request since MULTI was rejected: EXEC will fail
    watch: Public[Watch | None]
    waiter: Public[Waiter | None]  # what the session is blocked on
    # the log's length when this session last changed data; -1: never
    last_write_offset: Public[cython.longlong]
    # of the last write that enough replicas had when WAIT or WAITAOF replied; as last_write_offset
    confirmed_offset: Public[cython.longlong]
    writes_lost: Public[cython.bint]  # data of another primary has replaced writes that were not confirmed
    awaited_offset: Public[cython.longlong]  # of the stream to replicas: what the latest WAIT waits for
    is_replica: Public[cython.bint]  # it has sent PSYNC or SYNC, and receives the stream
    closing: Public[cython.bint]
    killed: Public[cython.bint]  # closed by another client: nothing more is sent
    # its requests come from a log: each was executed once before
    replayed: Public[cython.bint]
    is_rule_session: Public[cython.bint]  # its requests are those of rules
    is_script: Public[cython.bint]  # its requests are the commands of scripts, for the clients that run these
    reply_mode: Public[cython.int]
    # replies are muted or reads are tracked: the engine has work after each request
    needs_follow_up: cython.bint
    tracking: Public[TrackingState | None]  # from the first CLIENT TRACKING ON to the end of the session
    force_reply: Public[cython.bint]  # send the latest reply even if CLIENT REPLY is off
    # channels, patterns and shard channels; in RESP2 few commands are allowed while it is not 0
    subscription_count: Public[cython.int]
    subscription_bytes: Public[cython.Py_ssize_t]  # about the memory of its subscriptions
    monitoring: Public[cython.bint]  # it receives MONITOR lines
    channels: dict[bytes, None]  # in the order of subscription
    patterns: dict[bytes, None]
    shard_channels: dict[bytes, None]
    no_evict: Public[cython.bint]
    no_touch: Public[cython.bint]
    # a Connection, EngineSession or Wakeup: only the session's owner uses it, and knows its type
    transport: Public[Any]

    def __init__(self, number: cython.longlong, address: bytes = b"", local_address: bytes = b"") -> None:
        self.id = number
        self.reply = ReplyWriter()
        self.address = address
        self.local_address = local_address
        self.file_number = -1
        self.created_ms = 0
        self.last_request_ms = 0
        self.last_command = None
        self.name = b""
        self.library_name = b""
        self.library_version = b""
        self.user_name = b"default"
        self.user = None
        self.restricted_user = None
        self.authenticated = True
        self.must_authenticate = False
        self.closing = False
        self.killed = False
        self.waiter = None
        self.transport = None
        self.watch = None
        self.last_write_offset = self.confirmed_offset = -1
        self.writes_lost = False
        self.awaited_offset = 0
        self.is_replica = False
        self.replayed = False
        self.is_rule_session = False
        self.is_script = False
        self.force_reply = False
        self.subscription_count = 0
        self.subscription_bytes = 0
        self.monitoring = False
        self.channels = {}
        self.patterns = {}
        self.shard_channels = {}
        self.tracking = None
        self.reset()

    def on_data_replaced(self) -> None:
        """Mark unconfirmed writes as lost: the data of another primary has replaced all data."""
        if self.last_write_offset > self.confirmed_offset:
            self.writes_lost = True
            self.confirmed_offset = self.last_write_offset

    @cython.ccall
    def reset(self) -> cython.void:
        """Set the fields to those of a new connection, except id, addresses, library and user.

        The caller must have removed the watch and the subscriptions, and disabled tracking.
        """
        self.database = 0
        self.name = b""
        self.queue = None
        self.queue_bytes = 0
        self.transaction_failed = False
        self.reply_mode = REPLY_ON
        self.update_needs_follow_up()
        self.no_evict = False
        self.no_touch = False
        self.reply.protocol = 2

    @cython.ccall
    def enqueue(self, row: CommandRow, argv: list[bytes]) -> cython.void:
        """Queue a request inside MULTI."""
        queue: list[tuple[CommandRow, list[bytes]]] | None = self.queue
        word: bytes
        assert queue is not None
        if not queue:
            self.queue_bytes = 0
        queue.append((row, argv))
        for word in argv:
            self.queue_bytes += len(word) + ARGUMENT_OVERHEAD_BYTES

    @cython.ccall
    def multi_queue_bytes(self) -> cython.Py_ssize_t:
        """Return the memory of the requests queued for EXEC."""
        return self.queue_bytes if self.queue else 0

    @cython.ccall
    def set_reply_on(self) -> cython.void:
        """CLIENT REPLY ON: send replies."""
        self.reply_mode = REPLY_ON
        self.update_needs_follow_up()

    @cython.ccall
    def set_reply_off(self) -> cython.void:
        """CLIENT REPLY OFF: send no replies, starting with this request's."""
        self.reply_mode = REPLY_OFF
        self.update_needs_follow_up()

    @cython.ccall
    def set_reply_skip(self) -> cython.void:
        """CLIENT REPLY SKIP: send no reply to this request and the next one."""
        if self.reply_mode != REPLY_OFF:
            self.reply_mode = REPLY_SKIP_NEXT
            self.update_needs_follow_up()

    @cython.ccall
    def is_muted(self) -> cython.bint:
        """Return whether the reply to the request that has just run is dropped."""
        return self.reply_mode != REPLY_ON

    @cython.ccall
    def advance_reply_mode(self) -> cython.void:
        """Advance CLIENT REPLY SKIP to the next request."""
        if self.reply_mode == REPLY_SKIP_NEXT:
            self.reply_mode = REPLY_SKIP
        elif self.reply_mode == REPLY_SKIP:
            self.reply_mode = REPLY_ON
            self.update_needs_follow_up()

    @cython.ccall
    def update_needs_follow_up(self) -> cython.void:
        """Set needs_follow_up. Called after each change of the reply mode or of tracking."""
        tracking: TrackingState | None = self.tracking
        self.needs_follow_up = self.reply_mode != REPLY_ON or (tracking is not None and tracking.is_on)
