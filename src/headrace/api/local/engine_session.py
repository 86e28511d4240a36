"""A client of the engine without a socket: requests in as bytes, replies out as bytes, RESP2 or RESP3.

It corresponds to a connection of a server: it has a session of its own for MULTI, SELECT, SUBSCRIBE, HELLO
and CLIENT. Requests may be sent ahead of replies. Requests after a blocked one are executed when it is
unblocked, by the thread that unblocked it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from headrace.api.backend import Wakeup
from headrace.api.local.local_engine import LocalEngine
from headrace.commands.session import Session
from headrace.errors import DatabaseClosed, ProtocolError
from headrace.resp.parser import RequestParser


class EngineSession:
    """One session. One thread sends and one (or the same) receives; any thread may call close().

    on_reply() is called from any thread, when there may be something to receive() or the session may be
    closed. It must not block, and must not call the database.
    """

    def __init__(self, local_engine: LocalEngine, on_reply: Callable[[], None] | None = None) -> None:
        self._local_engine = local_engine
        self._on_reply = on_reply
        self._wakeup = Wakeup()
        self._parser = RequestParser()
        self._closed = False
        self._committed_offset = -1  # the session's last write offset that was committed
        self._session: Session = local_engine.run_locked(
            lambda: local_engine.engine.create_session(now_ms=local_engine.now_ms())
        )
        self._session.transport = self

    @property
    def closed(self) -> bool:
        """Whether the session is closed and nothing is left to receive."""
        session = self._session
        if self._closed or session.killed or self._local_engine.closed_reason is not None:
            return True
        return session.closing and session.reply.pending_bytes() == 0

    def __repr__(self) -> str:
        return f"EngineSession({'closed' if self.closed else 'open'})"

    def send(self, data: bytes) -> None:
        """Execute the requests in data, which may be split anywhere. On return their changes are durable.

        Raises NotOnDisk if the changes are in memory but not durable, DatabaseClosed if the database is
        closed.
        """
        answered = self._local_engine.run_locked(partial(self._execute, data))
        self._commit()
        if answered:
            self.wake()

    def _execute(self, data: bytes) -> bool:
        session = self._session
        self._parser.feed(data)
        self.execute_buffered_requests(self._local_engine.now_ms())
        return session.reply.pending_bytes() > 0 or session.closing

    def receive(self, timeout: float | None) -> bytes:
        """Return all replies that were not received yet; b"" after `timeout` seconds without any.

        A timeout of None waits without limit. If `closed`, return b"" at once. Raises NotOnDisk if a request
        that was blocked has changed data since, and the change is not durable.
        """
        until = 0.0 if timeout is None else time.monotonic() + timeout
        while True:
            data = self._take()
            if data or self.closed:
                return data
            left = None if timeout is None else until - time.monotonic()
            if left is not None and left <= 0:
                return b""
            self._wakeup.wait(left)

    def _take(self) -> bytes:
        try:
            data: bytes = self._local_engine.run_locked(self._take_replies)
        except DatabaseClosed:
            return b""
        self._commit()
        return data

    def _take_replies(self) -> bytes:
        session = self._session
        return b"" if self._closed or session.killed else session.reply.take()

    def _commit(self) -> None:
        """Return when the session's changes are durable, or raise NotOnDisk once."""
        written = self._session.last_write_offset
        try:
            self._local_engine.commit_and_wake(written if written != self._committed_offset else -1)
        finally:
            self._committed_offset = written

    def close(self) -> None:
        """End the session: its waits, watches and subscriptions. A second call does nothing.

        It takes no lock, so that a finalizer may call it wherever the garbage collector runs.
        """
        if not self._closed:
            self._closed = True
            self._local_engine.discard_session(self._session)
        self.wake()

    # Called by LocalEngine: execute_buffered_requests() with the engine's lock, wake() without it.

    def execute_buffered_requests(self, now_ms: int) -> None:
        """Execute buffered requests up to one that blocks. Called with the engine's lock."""
        session, execute, next_request = self._session, self._local_engine.engine.execute, self._parser.next
        try:
            while session.waiter is None and not session.closing:
                words = next_request()
                if words is None:
                    return
                execute(session, words, now_ms)
        except ProtocolError as wrong:
            session.reply.error(b"ERR " + str(wrong).encode("latin-1", "replace"))
            session.closing = True

    def wake(self) -> None:
        """Report that there may be something to receive. Called without the engine's lock."""
        self._wakeup.wake()
        if self._on_reply is not None:
            self._on_reply()
