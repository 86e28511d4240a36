"""redis-py on the engine in this process: its own connection class, with a conversation for a socket.

    redis.Redis ── pool ── EngineConnection ── EngineSocket ── Conversation ── engine
    packs, parses, retries, pools: redis-py's   sendall, recv   bytes in, bytes out

What redis-py does with a connection stays as it is: pipelines, transactions, pub/sub, either protocol, either
parser. A library that makes its own pool takes `connection_class(database)` as its `connection_class`.

What differs from a socket: no default timeout (nothing gets lost on the way), and no pause before the next
try when a connection was closed by CLIENT KILL.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import redis
from redis.backoff import NoBackoff
from redis.connection import UnixDomainSocketConnection
from redis.retry import Retry

from headrace.api.remote import remote_clients
from headrace.errors import DatabaseClosed, UsageError

if TYPE_CHECKING:
    from headrace.api.database import Database
    from headrace.api.local.engine_session import Conversation

CLOSED = "The engine has closed the connection."
RETRIES = 3
HERE = "the engine in this process"


class EngineSocket:
    """As much of a connected socket as redis-py uses, over a conversation with the engine.

    One thread sends and receives; close() may come from any, and wakes the one that waits in recv().
    """

    def __init__(self, conversation: Conversation, timeout: float | None = None) -> None:
        self._conversation = conversation
        self._timeout = timeout
        self._unread = memoryview(b"")

    def sendall(self, data: bytes | memoryview) -> None:
        """Have the requests in data executed; on return those that do not wait are, durable as promised.

        NotOnDisk when they are in memory but not that durable; what redis-py retries are OSErrors.
        """
        try:
            self._conversation.send(data if type(data) is bytes else bytes(data))
        except DatabaseClosed as gone:
            raise BrokenPipeError(errno.EPIPE, str(gone)) from gone

    def recv(self, most: int, flags: int = 0) -> bytes:
        """Up to `most` bytes, b"" when the connection is closed. MSG_PEEK leaves them where they are.

        Raises TimeoutError, or BlockingIOError with a timeout of 0.
        """
        if not self._unread:
            self._fetch(self._timeout)
        taken = bytes(self._unread[:most])
        if not flags & socket.MSG_PEEK:
            self._unread = self._unread[len(taken) :]
        return taken

    def recv_into(self, buffer: bytearray | memoryview, size: int = 0, flags: int = 0) -> int:
        """As recv(), into the buffer; returns how many bytes."""
        data = self.recv(size or len(buffer), flags)
        buffer[: len(data)] = data
        return len(data)

    def readable(self, timeout: float | None) -> bool:
        """Whether there is something to receive now or within `timeout` seconds; None for any time.

        Raises ConnectionResetError when there is not, and never will be.
        """
        if self._unread:
            return True
        self._unread = memoryview(self._conversation.receive(timeout))
        if not self._unread and self._conversation.closed:
            raise ConnectionResetError(CLOSED)
        return len(self._unread) > 0

    def _fetch(self, timeout: float | None) -> None:
        """Wait for bytes; none when the conversation is over."""
        self._unread = memoryview(self._conversation.receive(timeout))
        if self._unread or self._conversation.closed:
            return
        if timeout == 0:
            raise BlockingIOError(socket.EWOULDBLOCK, "nothing to receive")
        raise TimeoutError("timed out")

    def settimeout(self, seconds: float | None) -> None:
        """How long recv() waits; None for ever."""
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        """The seconds that settimeout() set."""
        return self._timeout

    def shutdown(self, how: int) -> None:
        """What a socket needs before close(); here close() does it all."""

    def close(self) -> None:
        """End the session: what it waited for, watched and listened to is let go."""
        self._conversation.close()


class Local:
    """What redis-py's connections to the engine of `database` have in common, be they asynchronous or not.

    They are local as over a Unix socket, and addresses that a pool has from a URL are ignored. Their
    connection_class() makes a subclass for each Database.
    """

    database: Database
    port = 0

    def __init__(
        self,
        host: str = "",
        port: int = 0,
        path: str = "",
        socket_timeout: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(path=HERE, socket_timeout=socket_timeout, **settings)  # type: ignore[call-arg]


class EngineConnection(Local, UnixDomainSocketConnection):
    """redis-py's connection to the engine."""

    def _connect(self) -> EngineSocket:
        try:
            return EngineSocket(self.database.conversation(), self.socket_timeout)
        except DatabaseClosed as gone:
            raise ConnectionRefusedError(errno.ECONNREFUSED, str(gone)) from gone

    def activate_maint_notifications_handling_if_enabled(self, check_health: bool = True) -> None:
        """No server is moved away here. (redis-py 7 asks over every connection that speaks RESP3.)"""

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        """A pipeline in one piece: what is sent together is synced together."""
        return [b"".join(piece for words in commands for piece in self.pack_command(*words))]  # type: ignore[no-untyped-call]

    def can_read(self, timeout: float | None = 0) -> bool:
        """As redis-py's, which asks the kernel; here the parser and the socket are asked."""
        if self._sock is None:
            self.connect()  # type: ignore[no-untyped-call]
        try:
            return self._parser_holds_some() or cast(EngineSocket, self._sock).readable(timeout)
        except OSError as gone:
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redis.ConnectionError(f"Error while reading from {self._host_error()}: {gone}") from gone  # type: ignore[no-untyped-call]

    def _parser_holds_some(self) -> bool:
        """Whether bytes were received that are not yet answered by read_response()."""
        reader = getattr(self._parser, "_reader", None)  # of hiredis
        if reader is not None:
            return bool(reader.has_data())
        buffer = getattr(self._parser, "_buffer", None)
        return isinstance(buffer, redis._parsers.socket.SocketBuffer) and buffer.unread_bytes() > 0


def connection_class(database: Database) -> type[EngineConnection]:
    """redis-py's connection class bound to the database, for whoever makes a pool of connections.

    UsageError if the database is a server elsewhere: redis-py's own classes lead there.
    """
    check_near(database)
    return type("EngineConnection", (EngineConnection,), {"database": database, "__module__": __name__})


def check_near(database: Database) -> None:
    """UsageError unless the engine is in this process."""
    if database.link.far:
        raise UsageError("the database is a server elsewhere: give the library its URL")


def settings_of(settings: dict[str, Any], retry: type[Any] = Retry) -> dict[str, Any]:
    """The settings of a pool: what the user gave, over what suits an engine in this process."""
    return {"socket_timeout": None, "retry": retry(NoBackoff(), RETRIES), **settings}


def client(
    database: Database,
    *,
    pool_class: type[redis.ConnectionPool] = redis.ConnectionPool,
    single_connection_client: bool = False,
    **settings: Any,
) -> redis.Redis:
    """A redis-py client of the engine; its settings are those of redis-py's connections and pools.

    `decode_responses`, `protocol`, `db`, `client_name`, `health_check_interval`, `socket_timeout`,
    `max_connections` and so on; `pool_class=redis.BlockingConnectionPool` to wait for a free connection.
    Closing the client closes its connections, not the database. Of a database that is a server elsewhere it
    is redis-py's client of that server, with the settings of its URL.
    """
    if database.link.far:
        return remote_clients.client(cast(Any, database.link).server, **settings)  # type: ignore[no-any-return]
    pool = pool_class(connection_class=connection_class(database), **settings_of(settings))
    made = redis.Redis(connection_pool=pool, single_connection_client=single_connection_client)
    made.auto_close_connection_pool = True
    return made
