"""How much of its answers a client may leave unread: at once, and for how long.

    normal   hard  soft  seconds     who asks and is answered
    slave    hard  soft  seconds     replicas: read and shown, there are none
    pubsub   hard  soft  seconds     who listens: to channels, or as a monitor

A client with more than `hard` unread is closed at once; one that has had more than `soft` unread for
`seconds`, without a pause, is closed then. Zero is no limit. Who is read from as fast as it is written to
has nothing unread, and nothing here is done for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cython

from headrace import limits
from headrace.commands.session import Session

STRANGER_MAX = cython.declare(cython.longlong, limits.UNAUTHENTICATED_UNSENT_BYTES_MAX)


@dataclass(frozen=True)
class BufferLimit:
    """The limits of one class, in bytes and seconds. Without seconds a soft limit never bites."""

    hard: int
    soft: int
    seconds: int


@dataclass(frozen=True)
class Buffers:
    """The limits of all classes."""

    normal: BufferLimit
    slave: BufferLimit
    pubsub: BufferLimit


@cython.final
@cython.cclass
class Unread:
    """The limits that hold now, and who is above a soft one."""

    buffers: Any
    least: cython.longlong  # bytes: nobody is noted who has less unread
    lagging: cython.bint  # somebody is above his soft limit
    since: dict[Any, int]  # who, by connection, and since when, in milliseconds since 1970

    reply_limit: cython.Py_ssize_t  # bytes of replies kept of one client, even within one request

    def __init__(self) -> None:
        self.since = {}
        self.lagging = False
        self.apply(Buffers(BufferLimit(0, 0, 0), BufferLimit(0, 0, 0), BufferLimit(0, 0, 0)))

    def apply(self, buffers: Buffers) -> None:
        """These are the limits from now on."""
        self.buffers = buffers
        self.least = STRANGER_MAX
        self.reply_limit = max(
            hard or limits.REPLY_BYTES_MAX for hard in (buffers.normal.hard, buffers.pubsub.hard)
        )
        for bound in (buffers.normal.hard, buffers.normal.soft, buffers.pubsub.hard, buffers.pubsub.soft):
            if 0 < bound < self.least:
                self.least = bound

    @cython.ccall
    def too_much(
        self, connection: object, session: Session, n: cython.longlong, now: cython.longlong
    ) -> cython.bint:
        """Whether the client may not have n bytes unread. From a soft limit on it is noted."""
        if n <= self.least:
            if self.lagging:
                self._forget(connection)
            return False
        if session.unauthenticated and n > STRANGER_MAX:
            return True
        limit = self._limit_of(session)
        if limit.soft > 0 and limit.seconds > 0 and n > limit.soft:
            self.since.setdefault(connection, now)
            self.lagging = True
        elif self.lagging:
            self._forget(connection)
        hard: cython.longlong = limit.hard
        return 0 < hard < n

    @cython.cfunc
    def _limit_of(self, session: Session) -> Any:
        listens: cython.bint = session.subscription_count > 0 or session.monitoring
        return self.buffers.pubsub if listens else self.buffers.normal

    @cython.cfunc
    def _forget(self, connection: object) -> cython.void:
        self.since.pop(connection, None)
        self.lagging = len(self.since) > 0

    def shift(self, by_ms: int) -> None:
        """The clock was set by so much: a client has lagged no longer for it."""
        self.since = {connection: since + by_ms for connection, since in self.since.items()}

    def overdue(self, now_ms: int) -> list[Any]:
        """The connections whose time is up. Those that are gone are forgotten."""
        found = []
        for connection, since in list(self.since.items()):
            limit = self._limit_of(connection.session)
            unread = connection.session.reply.pending()
            if connection.closed or limit.soft == 0 or limit.seconds == 0 or unread <= limit.soft:
                self._forget(connection)
            elif now_ms - since >= 1000 * limit.seconds:
                self._forget(connection)
                found.append(connection)
        return found
