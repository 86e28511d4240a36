"""redis.asyncio on the engine in this process: redis-py's connection over asyncio's streams.

    redis.asyncio.Redis ── EngineConnection ── StreamReader, StreamWriter ── EngineTransport ── EngineSession

Requests run where they are written, in the loop's thread. With a log that is synced at every request they run
in a thread of the loop's executor, because the disk would block the loop. Later replies, to blocking commands
and subscriptions, wake the loop from any thread.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, cast

import redis.asyncio
from redis.asyncio.connection import UnixDomainSocketConnection
from redis.asyncio.retry import Retry

from headrace.api.local.redispy import ConnectableDatabase, EngineConnectionBase, pool_settings, require_local
from headrace.client import redis_clients
from headrace.errors import DatabaseClosed

READ_LIMIT = 1 << 16  # bytes: with twice as many unread in the stream, replies stay in the session


class EngineTransport(asyncio.Transport):
    """An asyncio transport whose other end is the engine.

    Only the loop calls its methods, except _on_reply(), which other threads call.
    """

    def __init__(
        self,
        database: ConnectableDatabase,
        protocol: asyncio.StreamReaderProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._thread_id = threading.get_ident()
        self._sending = False  # the loop's own thread executes: it delivers the replies afterwards
        self._unsent: list[bytes] = []  # written while the executor was busy
        self._executor_busy = False
        self._delivery_scheduled = False  # _deliver_replies() is scheduled
        self._paused = False
        self._closing = True  # until there is a session to close
        self._durable = database.durable
        self._engine_session = database.engine_session(weak_callback(self._on_reply))
        self._closing = False

    def __del__(self) -> None:
        if not self._closing:
            self._engine_session.close()

    # Requests.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Execute the requests in data."""
        if self._closing:
            return
        if self._durable:
            self._unsent.append(bytes(data))
            if not self._executor_busy:
                self._send_in_executor()
            return
        self._sending = True
        try:
            self._engine_session.send(bytes(data))
        except DatabaseClosed as gone:
            raise BrokenPipeError(errno.EPIPE, str(gone)) from gone
        finally:
            self._sending = False
        self._deliver_replies()

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write all pieces at once, so that they are synced together."""
        self.write(b"".join(pieces))

    def _send_in_executor(self) -> None:
        """Send everything written so far, in a thread that may wait for the disk."""
        data = b"".join(self._unsent)
        self._unsent.clear()
        self._executor_busy = True
        self._loop.run_in_executor(None, self._engine_session.send, data).add_done_callback(self._on_sent)

    def _on_sent(self, done: asyncio.Future[None]) -> None:
        self._executor_busy = False
        try:
            done.result()
        except Exception as wrong:  # whatever send() raised ends the connection
            self._close(wrong)
            return
        self._deliver_replies()
        if self._unsent and not self._closing:
            self._send_in_executor()

    # Replies.

    def _on_reply(self) -> None:
        """Schedule delivery: there is something to receive, or the session is closed.

        Called from any thread.
        """
        if (
            self._delivery_scheduled
            or self._closing
            or (self._sending and threading.get_ident() == self._thread_id)
        ):
            return
        self._delivery_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._deliver_replies)
        except RuntimeError:  # the loop is closed: no replies can be delivered
            self._closing = True
            self._engine_session.close()

    def _deliver_replies(self) -> None:
        """Pass the replies to the protocol."""
        self._delivery_scheduled = False
        while not self._paused and not self._closing:
            try:
                data = self._engine_session.receive(0)
            except Exception as error:  # such as NotOnDisk: the replies are lost
                self._close(error)
                return
            if data:
                self._protocol.data_received(data)
            else:
                if self._engine_session.closed:
                    self._close(None)
                return

    def pause_reading(self) -> None:
        """Stop delivering replies."""
        self._paused = True

    def resume_reading(self) -> None:
        """Continue delivering replies."""
        self._paused = False
        self._loop.call_soon(self._deliver_replies)

    def is_reading(self) -> bool:
        """Return whether replies are delivered."""
        return not self._paused and not self._closing

    # Closing.

    def is_closing(self) -> bool:
        """Return whether the transport is closed, by close() or by the other end."""
        return self._closing

    def close(self) -> None:
        """End the session: its waits, watches and subscriptions."""
        self._close(None)

    def abort(self) -> None:
        """Close at once. The same as close(), because nothing is buffered."""
        self._close(None)

    def _close(self, wrong: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self._unsent.clear()
        self._engine_session.close()
        reason = BrokenPipeError(errno.EPIPE, str(wrong)) if isinstance(wrong, DatabaseClosed) else wrong
        if not self._loop.is_closed():
            self._loop.call_soon(self._protocol.connection_lost, reason)


def weak_callback(method: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls the method while its object exists, without keeping it alive."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        strong = weak()
        if strong is not None:
            strong()

    return call


class AsyncEngineConnection(EngineConnectionBase, UnixDomainSocketConnection):
    """redis-py's asynchronous connection to the engine."""

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport = EngineTransport(self.database, protocol, loop)
        except DatabaseClosed as gone:
            raise ConnectionRefusedError(errno.ECONNREFUSED, str(gone)) from gone
        protocol.connection_made(transport)
        self._reader = reader
        self._writer = asyncio.StreamWriter(transport, protocol, reader, loop)


def connection_class(database: ConnectableDatabase) -> type[AsyncEngineConnection]:
    """Return redis-py's asynchronous connection class bound to the database.

    Raises UsageError if the database is on a server.
    """
    require_local(database)
    named = {"database": database, "__module__": __name__}
    return type("AsyncEngineConnection", (AsyncEngineConnection,), named)


def async_client(
    database: ConnectableDatabase,
    *,
    pool_class: type[redis.asyncio.ConnectionPool] = redis.asyncio.ConnectionPool,
    single_connection_client: bool = False,
    **settings: Any,
) -> redis.asyncio.Redis:
    """Return a redis.asyncio client of the engine. Settings are those of redis-py's connections and pools.

    `await client.aclose()` closes its connections, not the database. For a database on a server, return
    redis-py's client of that server, with the settings of the URL.
    """
    if database.backend.is_remote:
        return redis_clients.async_client(cast(Any, database.backend).url_or_client, **settings)  # type: ignore[no-any-return]
    pool = pool_class(connection_class=connection_class(database), **pool_settings(settings, Retry))
    made = redis.asyncio.Redis(connection_pool=pool, single_connection_client=single_connection_client)
    made.auto_close_connection_pool = True
    return made
