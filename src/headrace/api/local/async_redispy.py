"""redis.asyncio on the engine in this process: redis-py's connection over asyncio's own streams.

    redis.asyncio.Redis ── EngineConnection ── StreamReader, StreamWriter ── EngineTransport ── Conversation

The requests run where they are written, in the loop's thread; with a log that is synced at every request they
run in a thread of the loop's executor, for the disk would stop the loop. Answers that come later, to blocking
commands and channels, wake the loop from whichever thread gave them.
"""

from __future__ import annotations

import asyncio
import errno
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import redis.asyncio
from redis.asyncio.connection import UnixDomainSocketConnection
from redis.asyncio.retry import Retry

from headrace.api.local.redispy import Local, check_near, settings_of
from headrace.api.remote import remote_clients
from headrace.errors import DatabaseClosed

if TYPE_CHECKING:
    from headrace.api.database import Database

READ_LIMIT = 1 << 16  # twice so many bytes unread in the stream, and the answers stay in the session


class EngineTransport(asyncio.Transport):
    """An asyncio transport whose other end is the engine.

    All its methods are the loop's; only _answered() is called from other threads.
    """

    def __init__(
        self, database: Database, protocol: asyncio.StreamReaderProtocol, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._thread = threading.get_ident()
        self._sending = False  # the loop's own thread executes: what is answered is taken afterwards
        self._unsent: list[bytes] = []  # written while the executor was at work
        self._at_work = False
        self._called = False  # _hear() is on its way
        self._paused = False
        self._closing = True  # until there is a conversation
        self._durable = database.durable
        self._conversation = database.conversation(weakly(self._answered))
        self._closing = False

    def __del__(self) -> None:
        if not self._closing:
            self._conversation.close()

    # Requests.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Have the requests in data executed."""
        if self._closing:
            return
        if self._durable:
            self._unsent.append(bytes(data))
            if not self._at_work:
                self._send_elsewhere()
            return
        self._sending = True
        try:
            self._conversation.send(bytes(data))
        except DatabaseClosed as gone:
            raise BrokenPipeError(errno.EPIPE, str(gone)) from gone
        finally:
            self._sending = False
        self._hear()

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """The pieces at once, so that they are synced together."""
        self.write(b"".join(pieces))

    def _send_elsewhere(self) -> None:
        """Send all that was written, in a thread that may wait for the disk."""
        data = b"".join(self._unsent)
        self._unsent.clear()
        self._at_work = True
        self._loop.run_in_executor(None, self._conversation.send, data).add_done_callback(self._sent)

    def _sent(self, done: asyncio.Future[None]) -> None:
        self._at_work = False
        try:
            done.result()
        except Exception as wrong:  # and the loop lets nothing else through
            self._end(wrong)
            return
        self._hear()
        if self._unsent and not self._closing:
            self._send_elsewhere()

    # Answers.

    def _answered(self) -> None:
        """There is something to receive, or the conversation is over. Called from any thread."""
        if self._called or self._closing or (self._sending and threading.get_ident() == self._thread):
            return
        self._called = True
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:  # the loop is closed: nobody listens any more
            self._closing = True
            self._conversation.close()

    def _hear(self) -> None:
        """Hand over what was answered."""
        self._called = False
        while not self._paused and not self._closing:
            data = self._conversation.receive(0)
            if data:
                self._protocol.data_received(data)
            else:
                if self._conversation.closed:
                    self._end(None)
                return

    def pause_reading(self) -> None:
        """Leave answers where they are."""
        self._paused = True

    def resume_reading(self) -> None:
        """Go on handing answers over."""
        self._paused = False
        self._loop.call_soon(self._hear)

    def is_reading(self) -> bool:
        """Whether answers are handed over."""
        return not self._paused and not self._closing

    # The end.

    def is_closing(self) -> bool:
        """Whether close() was called, or the other end is gone."""
        return self._closing

    def close(self) -> None:
        """End the session: what it waited for, watched and listened to is let go."""
        self._end(None)

    def abort(self) -> None:
        """The same: nothing is buffered on the way out."""
        self._end(None)

    def _end(self, wrong: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        self._unsent.clear()
        self._conversation.close()
        reason = BrokenPipeError(errno.EPIPE, str(wrong)) if isinstance(wrong, DatabaseClosed) else wrong
        if not self._loop.is_closed():
            self._loop.call_soon(self._protocol.connection_lost, reason)


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Calls the method as long as its object is there, and keeps nobody alive."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        strong = weak()
        if strong is not None:
            strong()

    return call


class AsyncEngineConnection(Local, UnixDomainSocketConnection):
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


def connection_class(database: Database) -> type[AsyncEngineConnection]:
    """redis-py's asynchronous connection class bound to the database, for whoever makes a pool.

    UsageError if the database is a server elsewhere: redis-py's own classes lead there.
    """
    check_near(database)
    named = {"database": database, "__module__": __name__}
    return type("AsyncEngineConnection", (AsyncEngineConnection,), named)


def async_client(
    database: Database,
    *,
    pool_class: type[redis.asyncio.ConnectionPool] = redis.asyncio.ConnectionPool,
    single_connection_client: bool = False,
    **settings: Any,
) -> redis.asyncio.Redis:
    """A redis.asyncio client of the engine; its settings are those of redis-py's connections and pools.

    `await client.aclose()` closes its connections, not the database. Of a database that is a server elsewhere
    it is redis-py's client of that server, with the settings of its URL.
    """
    if database.link.far:
        return remote_clients.async_client(cast(Any, database.link).server, **settings)  # type: ignore[no-any-return]
    pool = pool_class(connection_class=connection_class(database), **settings_of(settings, Retry))
    made = redis.asyncio.Redis(connection_pool=pool, single_connection_client=single_connection_client)
    made.auto_close_connection_pool = True
    return made
