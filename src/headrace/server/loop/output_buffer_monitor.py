"""Limits on replies that a client leaves unread (client-output-buffer-limit).

    normal   hard  soft  seconds     ordinary clients
    slave    hard  soft  seconds     replicas: not checked here, but in server/replication/primary_side.py
    pubsub   hard  soft  seconds     subscribers, monitors, and clients with CLIENT TRACKING BCAST

A client with more than `hard` unread bytes is closed at once. A client that has had more than `soft` unread
bytes for `seconds` without interruption is closed, too. Zero means no limit. A client that reads as fast as
the server writes has nothing unread and costs nothing here.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import limits
from headrace.commands.session import Session
from headrace.commands.tracking_state import TrackingState
from headrace.server.config.buffer_limits import BufferLimit, OutputBufferLimits
from headrace.visibility import Public

UNAUTHENTICATED_UNSENT_BYTES = cython.declare(cython.longlong, limits.UNAUTHENTICATED_UNSENT_BYTES_MAX)


@cython.final
@cython.cclass
class OutputBufferMonitor:
    """The current limits, and the connections that are above a soft limit."""

    class_limits: Any
    smallest_limit: cython.longlong  # bytes; below it nothing needs to be checked
    any_over_soft_limit: cython.bint  # over_since_ms is not empty
    over_since_ms: dict[Any, int]  # by connection: when it exceeded its soft limit, ms since 1970
    disconnections: Public[cython.longlong]  # clients closed because of a limit
    reply_limit: cython.Py_ssize_t  # bytes of replies kept for one client, even within one request

    def __init__(self) -> None:
        self.over_since_ms = {}
        self.any_over_soft_limit = False
        self.disconnections = 0
        self.set_limits(OutputBufferLimits(BufferLimit(0, 0, 0), BufferLimit(0, 0, 0), BufferLimit(0, 0, 0)))

    def set_limits(self, buffers: OutputBufferLimits) -> None:
        """Set the limits."""
        self.class_limits = buffers
        self.smallest_limit = UNAUTHENTICATED_UNSENT_BYTES
        self.reply_limit = max(
            hard or limits.REPLY_BYTES_MAX for hard in (buffers.normal.hard, buffers.pubsub.hard)
        )
        for bound in (buffers.normal.hard, buffers.normal.soft, buffers.pubsub.hard, buffers.pubsub.soft):
            if 0 < bound < self.smallest_limit:
                self.smallest_limit = bound

    @cython.ccall
    def exceeds_hard_limit(
        self, connection: object, session: Session, n: cython.longlong, now: cython.longlong
    ) -> cython.bint:
        """Return whether n unread bytes are above the hard limit; record when a soft limit is first exceeded.

        Before authentication UNAUTHENTICATED_UNSENT_BYTES is a hard limit, too.
        """
        if n <= self.smallest_limit:
            if self.any_over_soft_limit:
                self._forget(connection)
            return False
        if session.must_authenticate and n > UNAUTHENTICATED_UNSENT_BYTES:
            return True
        limit = self._limit_of(session)
        if limit.soft > 0 and limit.seconds > 0 and n > limit.soft:
            self.over_since_ms.setdefault(connection, now)
            self.any_over_soft_limit = True
        elif self.any_over_soft_limit:
            self._forget(connection)
        hard: cython.longlong = limit.hard
        return 0 < hard < n

    @cython.cfunc
    def _limit_of(self, session: Session) -> Any:
        tracking: TrackingState | None = session.tracking
        listens: cython.bint = session.subscription_count > 0 or session.monitoring
        if tracking is not None and tracking.broadcasting:
            listens = True  # messages that it has not requested
        return self.class_limits.pubsub if listens else self.class_limits.normal

    @cython.cfunc
    def _forget(self, connection: object) -> cython.void:
        self.over_since_ms.pop(connection, None)
        self.any_over_soft_limit = len(self.over_since_ms) > 0

    def shift_recorded_times(self, by_ms: int) -> None:
        """Shift the recorded times: the clock was set by so many milliseconds."""
        self.over_since_ms = {connection: since + by_ms for connection, since in self.over_since_ms.items()}

    def take_overdue_connections(self, now_ms: int) -> list[Any]:
        """Return the connections that have been above a soft limit for too long; the caller closes them.

        Stops tracking those, closed connections, and those that are below the limit again.
        """
        found = []
        for connection, since in list(self.over_since_ms.items()):
            limit = self._limit_of(connection.session)
            unread = connection.session.reply.pending_bytes()
            if connection.closed or limit.soft == 0 or limit.seconds == 0 or unread <= limit.soft:
                self._forget(connection)
            elif now_ms - since >= 1000 * limit.seconds:
                self._forget(connection)
                found.append(connection)
        return found
