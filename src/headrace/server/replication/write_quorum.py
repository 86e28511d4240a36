"""Hold replies to writes until enough replicas have acknowledged the writes (write-quorum).

    turn     requests run ─ commit: log, stream, REPLCONF GETACK ─ clients that wrote are held
    ack      enough replicas have applied the stream up to the end of that turn: the replies are sent
    timeout  the replies are replaced by NOQUORUM: the writes are stored here, and a failover may lose them

Other clients can read a write before the replicas have it. While fewer replicas are connected than the
quorum needs, writes are rejected before they run, as with min-replicas-to-write.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headrace.errors import CommandError, NotConfirmed, ProtocolError
from headrace.plurals import plural
from headrace.resp.reply_parser import INCOMPLETE, Push, ReplyParser
from headrace.resp.writer import ReplyWriter
from headrace.server.config.config import Config
from headrace.server.loop.connection import Connection
from headrace.server.replication.primary_side import PrimarySide

LOG = logging.getLogger("headrace")
NOT_WAITING = -1  # ms until the next timeout
EPOLL_OUT = 0x4  # epoll's event of a socket that takes bytes again: a part of earlier replies is unsent


def not_confirmed_error(until: str) -> NotConfirmed:
    """Return the error for writes that were not confirmed; until: such as "within 5000 ms"."""
    return NotConfirmed(f"{NotConfirmed.text} {until}: a failover may lose them")


@dataclass(slots=True)
class HeldClient:
    """A client whose replies are held."""

    offset: int  # of the stream: its end after the client's last write, which a replica acknowledges
    since_ms: int
    is_partially_sent: (
        bool  # the socket has taken a part of an earlier reply: the bytes cannot be read as replies
    )


class WriteQuorum:
    """Holds the replies to writes until enough replicas have acknowledged the writes. Only on a primary."""

    def __init__(self, config: Config, replicas: PrimarySide) -> None:
        self.config = config
        self.primary_side = replicas
        self.loop = replicas.loop
        self.held_clients: dict[Connection, HeldClient] = {}
        self.timeouts = 0  # clients that got NOQUORUM

    @property
    def size(self) -> int:
        """How many replicas must have a write; 0: its reply is sent at once."""
        return self.config.number("write-quorum")

    def apply_config_and_role(self, is_replica: bool) -> None:
        """Apply the configuration and the role. The clients of a former primary get NOQUORUM."""
        active = self.size > 0 and not is_replica
        if active == (self.loop.await_replicas is not None):
            return
        self.loop.await_replicas = self.hold if active else None
        self.primary_side.always_request_acknowledgements = active
        if is_replica:
            self._fail(list(self.held_clients), not_confirmed_error("before this server became a replica"))
        elif not active:
            self._release(list(self.held_clients))

    def hold(self, connections: list[Connection]) -> None:
        """Hold the replies of clients that have written in this turn. Called after its commit."""
        end, now = self.primary_side.changes_end, self.loop.clock.now_ms()
        for connection in connections:
            held = self.held_clients.get(connection)
            if held is not None:
                held.offset = end
            elif not connection.awaiting_commit:  # otherwise the log is not ready: see release_replies()
                self.held_clients[connection] = HeldClient(
                    end, now, bool(connection.watched_events & EPOLL_OUT)
                )

    def on_acknowledged(self) -> None:
        """Send the replies to writes that enough replicas have now."""
        if self.held_clients:
            safe = self.primary_side.primary.offset_of_quorum(self.size)
            self._release(
                [connection for connection, held in self.held_clients.items() if held.offset <= safe]
            )

    def tick(self, now: int) -> int:
        """Send the replies to confirmed writes, and fail those that have waited too long.

        Returns in how many milliseconds there is more to do; NOT_WAITING for never.
        """
        self._forget_closed()
        self.on_acknowledged()
        limit = self.config.number("write-quorum-timeout")
        if not self.held_clients or not limit:
            return NOT_WAITING
        late = [connection for connection, held in self.held_clients.items() if now - held.since_ms >= limit]
        self._fail(late, not_confirmed_error(f"within {limit} ms"))
        return min((held.since_ms + limit - now for held in self.held_clients.values()), default=NOT_WAITING)

    def _forget_closed(self) -> None:
        for connection in [connection for connection in self.held_clients if connection.closed]:
            del self.held_clients[connection]

    def _release(self, connections: list[Connection]) -> None:
        for connection in connections:
            del self.held_clients[connection]
        self.loop.release_connections(connections)

    def _fail(self, connections: list[Connection], error: NotConfirmed) -> None:
        """Replace the replies; close a client whose unsent bytes are not just whole replies."""
        waiting = [connection for connection in connections if not connection.closed]
        for connection in waiting:
            session = connection.session
            listens = session.reply.protocol == 2 and (session.subscription_count or session.monitoring)
            if (
                self.held_clients[connection].is_partially_sent
                or listens
                or not replace_replies(session.reply, error)
            ):
                self.loop.drop_with_reason(connection, str(error))
        if waiting:
            self.timeouts += len(waiting)
            LOG.warning("%s: %s", plural(len(waiting), "client"), error)
        self._release(connections)


def replace_replies(reply: ReplyWriter, error: CommandError) -> bool:
    """Replace each unsent reply by the error, and keep push messages.

    Returns:
        False if the bytes are not just whole replies; then nothing was changed.
    """
    data = reply.take()
    kept: list[bytes] = []
    parser = ReplyParser()
    parser.feed(data)
    line = b"-%s\r\n" % str(error).encode()
    at = 0
    try:
        while at < len(data):
            found = parser.next()
            if found is INCOMPLETE:
                break
            end = len(data) - parser.unread_byte_count()
            kept.append(data[at:end] if isinstance(found, Push) else line)
            at = end
    except ProtocolError:
        pass
    reply.raw(b"".join(kept) if at == len(data) else data)
    return at == len(data)
