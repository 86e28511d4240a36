"""A client of the engine without a socket: requests in as bytes, answers out as bytes, in either protocol.

What a connection is to a server this is to the engine in this process: it has a session of its own (MULTI,
SELECT, SUBSCRIBE, HELLO and CLIENT mean what they mean there), requests may be sent ahead of answers, and
those behind one that waits are executed when its wait is over, by whichever thread ended it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from headrace.api.backend import Bell
from headrace.api.local.local_engine import Door
from headrace.commands.session import Session
from headrace.errors import DatabaseClosed, ProtocolError
from headrace.resp.parser import RequestParser


class Conversation:
    """One session. One thread sends and one (or the same) receives; close() may come from any.

    on_answer() is called from any thread, and often in vain, when there may be something to receive(), or
    when the conversation is over. It must not block and not come back to the database.
    """

    def __init__(self, door: Door, on_answer: Callable[[], None] | None = None) -> None:
        self._door = door
        self._on_answer = on_answer
        self._bell = Bell()
        self._parser = RequestParser()
        self._ended = False
        self._settled = -1  # what the session wrote last, when settle() has returned
        self._session: Session = door.do(lambda: door.engine.session(now_ms=door.now_ms()))
        self._session.transport = self

    @property
    def closed(self) -> bool:
        """Whether it is over, and there is nothing more to receive."""
        session = self._session
        if self._ended or session.killed or self._door.refusal is not None:
            return True
        return session.closing and session.answer.pending() == 0

    def __repr__(self) -> str:
        return f"Conversation({'closed' if self.closed else 'open'})"

    def send(self, data: bytes) -> None:
        """Execute the requests in data, which may be cut anywhere; what they changed is durable.

        NotOnDisk: they are in memory, and not yet that. DatabaseClosed.
        """
        answered = self._door.do(partial(self._execute, data))
        self._settle()
        if answered:
            self.ring()

    def _execute(self, data: bytes) -> bool:
        session = self._session
        self._parser.feed(data)
        self.go_on(self._door.now_ms())
        return session.answer.pending() > 0 or session.closing

    def receive(self, timeout: float | None) -> bytes:
        """What was answered and not received yet, all of it; b"" when there was nothing for timeout seconds.

        None waits for ever. When it is over (`closed`) b"" comes at once. NotOnDisk: a request that had
        waited has changed data since, and that is not durable yet.
        """
        until = 0.0 if timeout is None else time.monotonic() + timeout
        while True:
            data = self._take()
            if data or self.closed:
                return data
            left = None if timeout is None else until - time.monotonic()
            if left is not None and left <= 0:
                return b""
            self._bell.wait(left)

    def _take(self) -> bytes:
        try:
            data: bytes = self._door.do(self._answers)
        except DatabaseClosed:
            return b""
        self._settle()
        return data

    def _answers(self) -> bytes:
        session = self._session
        return b"" if self._ended or session.killed else session.answer.take()

    def _settle(self) -> None:
        """Return when what the session has written is durable, or was said not to be."""
        written = self._session.last_write_offset
        try:
            self._door.settle(written if written != self._settled else -1)
        finally:
            self._settled = written

    def close(self) -> None:
        """End the session: what it waits for, watches and listens to is let go. Twice does nothing.

        Waits for nobody, so that a finalizer may call it wherever the garbage collector runs.
        """
        if not self._ended:
            self._ended = True
            self._door.let_go(self._session)
        self.ring()

    # For the door, which has the engine's lock when it calls go_on(), and not when it calls ring().

    def go_on(self, now_ms: int) -> None:
        """Execute what was sent, up to a request that waits."""
        session, execute, next_request = self._session, self._door.engine.execute, self._parser.next
        try:
            while session.waiting is None and not session.closing:
                words = next_request()
                if words is None:
                    return
                execute(session, words, now_ms)
        except ProtocolError as wrong:
            session.answer.error(b"ERR " + str(wrong).encode("latin-1", "replace"))
            session.closing = True

    def ring(self) -> None:
        """There may be something to receive."""
        self._bell.ring()
        if self._on_answer is not None:
            self._on_answer()
