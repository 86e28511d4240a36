"""redis-py on the engine in this process: its own connection class, with an EngineSession for a socket.

    redis.Redis ── pool ── EngineConnection ── EngineSocket ── EngineSession ── engine
    packs, parses, retries, pools: redis-py's   sendall, recv   bytes in, bytes out

All features of redis-py's connections work: pipelines, transactions, pub/sub, both protocols, both parsers. A
library that makes its own pool uses `connection_class(database)` as its `connection_class`.

Differences from a socket: no default timeout (no bytes are lost), and no pause before the retry when
CLIENT KILL closed a connection.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast

import redis
from redis.backoff import NoBackoff
from redis.connection import UnixDomainSocketConnection
from redis.retry import Retry

from headrace.api.backend import Backend
from headrace.client import redis_clients
from headrace.errors import DatabaseClosed, UsageError

if TYPE_CHECKING:
    from headrace.api.local.engine_session import EngineSession

CLOSED_MESSAGE = "The engine has closed the connection."
RETRIES = 3
ENGINE_ADDRESS = "the engine in this process"


class ConnectableDatabase(Protocol):
    """What the connections of redis-py need of a Database."""

    @property
    def backend(self) -> Backend:
        """What executes requests: the engine of this process, or a server."""

    @property
    def durable(self) -> bool:
        """Whether a request that changes data waits for the disk."""

    def engine_session(self, on_reply: Callable[[], None] | None = None) -> EngineSession:
        """Return a new connection to the engine; on_reply is called when a later reply has come."""


class EngineSocket:
    """The part of a connected socket that redis-py uses, over a session with the engine.

    One thread sends and receives; any thread may call close(), which ends a waiting recv().
    """

    def __init__(self, engine_session: EngineSession, timeout: float | None = None) -> None:
        self._engine_session = engine_session
        self._timeout = timeout
        self._unread = memoryview(b"")

    def sendall(self, data: bytes | memoryview) -> None:
        """Execute the requests in data. On return those that do not block are as durable as `fsync` promises.

        Raises:
            NotOnDisk: if they were executed, but the log could not be synced.
            OSError: if the database is closed; redis-py may then send the requests again.
        """
        try:
            self._engine_session.send(data if type(data) is bytes else bytes(data))
        except DatabaseClosed as gone:
            raise BrokenPipeError(errno.EPIPE, str(gone)) from gone

    def recv(self, most: int, flags: int = 0) -> bytes:
        """Return up to `most` bytes; b"" when the connection is closed. MSG_PEEK keeps them.

        Raises TimeoutError, or BlockingIOError with a timeout of 0.
        """
        if not self._unread:
            self._fetch(self._timeout)
        taken = bytes(self._unread[:most])
        if not flags & socket.MSG_PEEK:
            self._unread = self._unread[len(taken) :]
        return taken

    def recv_into(self, buffer: bytearray | memoryview, size: int = 0, flags: int = 0) -> int:
        """Receive into the buffer, as recv(); return the number of bytes."""
        data = self.recv(size or len(buffer), flags)
        buffer[: len(data)] = data
        return len(data)

    def readable(self, timeout: float | None) -> bool:
        """Return whether there is something to receive within `timeout` seconds; None: no limit.

        Raises ConnectionResetError if the connection is closed.
        """
        if self._unread:
            return True
        self._unread = memoryview(self._engine_session.receive(timeout))
        if not self._unread and self._engine_session.closed:
            raise ConnectionResetError(CLOSED_MESSAGE)
        return len(self._unread) > 0

    def _fetch(self, timeout: float | None) -> None:
        """Wait for bytes. There are none if the session is closed."""
        self._unread = memoryview(self._engine_session.receive(timeout))
        if self._unread or self._engine_session.closed:
            return
        if timeout == 0:
            raise BlockingIOError(socket.EWOULDBLOCK, "nothing to receive")
        raise TimeoutError("timed out")

    def settimeout(self, seconds: float | None) -> None:
        """Set how long recv() waits, in seconds; None: no limit."""
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        """Return the timeout in seconds."""
        return self._timeout

    def shutdown(self, how: int) -> None:
        """Do nothing: close() ends both directions."""

    def close(self) -> None:
        """End the session: its waits, watches and subscriptions."""
        self._engine_session.close()


class EngineConnectionBase:
    """Common part of redis-py's synchronous and asynchronous connections to the engine of `database`.

    They count as local, like a Unix socket; an address that a pool has from a URL is ignored.
    connection_class() makes a subclass for each Database.
    """

    database: ConnectableDatabase
    port = 0

    def __init__(
        self,
        host: str = "",
        port: int = 0,
        path: str = "",
        socket_timeout: float | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(path=ENGINE_ADDRESS, socket_timeout=socket_timeout, **settings)  # type: ignore[call-arg]


class EngineConnection(EngineConnectionBase, UnixDomainSocketConnection):
    """redis-py's connection to the engine."""

    def _connect(self) -> EngineSocket:
        try:
            return EngineSocket(self.database.engine_session(), self.socket_timeout)
        except DatabaseClosed as gone:
            raise ConnectionRefusedError(errno.ECONNREFUSED, str(gone)) from gone

    def activate_maint_notifications_handling_if_enabled(self, check_health: bool = True) -> None:
        """Do nothing: there is no server to move. redis-py 7 calls it for each RESP3 connection."""

    def pack_commands(self, commands: Iterable[Iterable[Any]]) -> list[bytes]:
        """Pack a pipeline into one piece, so that it is synced once."""
        return [b"".join(piece for words in commands for piece in self.pack_command(*words))]  # type: ignore[no-untyped-call]

    def can_read(self, timeout: float | None = 0) -> bool:
        """Return whether there is something to read.

        redis-py asks the kernel; this method asks the parser and the EngineSocket.
        """
        if self._sock is None:
            self.connect()  # type: ignore[no-untyped-call]
        try:
            return self._parser_has_data() or cast(EngineSocket, self._sock).readable(timeout)
        except OSError as gone:
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redis.ConnectionError(f"Error while reading from {self._host_error()}: {gone}") from gone  # type: ignore[no-untyped-call]

    def _parser_has_data(self) -> bool:
        """Return whether the parser has bytes that read_response() has not returned yet."""
        reader = getattr(self._parser, "_reader", None)  # of hiredis
        if reader is not None:
            return bool(reader.has_data())
        buffer = getattr(self._parser, "_buffer", None)
        return isinstance(buffer, redis._parsers.socket.SocketBuffer) and buffer.unread_bytes() > 0


def connection_class(database: ConnectableDatabase) -> type[EngineConnection]:
    """Return redis-py's connection class bound to the database. Raises UsageError if it is on a server."""
    require_local(database)
    return type("EngineConnection", (EngineConnection,), {"database": database, "__module__": __name__})


def require_local(database: ConnectableDatabase) -> None:
    """Raise UsageError unless the engine is in this process."""
    if database.backend.is_remote:
        raise UsageError("the database is on a server: pass the URL of the server instead")


def pool_settings(settings: dict[str, Any], retry: type[Any] = Retry) -> dict[str, Any]:
    """Return the settings of a pool: the user's, with defaults for an engine in this process."""
    return {"socket_timeout": None, "retry": retry(NoBackoff(), RETRIES), **settings}


def client(
    database: ConnectableDatabase,
    *,
    pool_class: type[redis.ConnectionPool] = redis.ConnectionPool,
    single_connection_client: bool = False,
    **settings: Any,
) -> redis.Redis:
    """Return a redis-py client of the database.

    Closing the client closes its connections, not the database. For a database on a server, return a new
    client for its URL, or the client that connect() was given.

    Args:
        pool_class: the connection pool: redis.BlockingConnectionPool waits for a free connection. Ignored for
            a database on a server.
        single_connection_client: as in redis-py. Ignored for a database on a server.
        settings: those of redis-py's connections and pools: `decode_responses`, `protocol`, `db`,
            `client_name`, `health_check_interval`, `socket_timeout`, `max_connections` and so on. For a
            database on a server they override the settings of its URL.

    Raises:
        UsageError: if there are settings, and connect() was given a client.
    """
    if database.backend.is_remote:
        return redis_clients.redis_client_of(cast(Any, database.backend).url_or_client, **settings)  # type: ignore[no-any-return]
    pool = pool_class(connection_class=connection_class(database), **pool_settings(settings))
    made = redis.Redis(connection_pool=pool, single_connection_client=single_connection_client)
    made.auto_close_connection_pool = True
    return made
