"""One connection on which packed requests go out and their answers are compared, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import redis

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.requests import EXEC, MULTI, Request

# A server that has nothing to say for so long is taken for dead.
SILENCE_SECONDS = 60.0


class Link(AbstractContextManager["Link"]):
    """A connection to the server at a redis:// URL, opened on first use."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self.client = redis.Redis.from_url(
                url,
                protocol=2,
                decode_responses=False,
                socket_timeout=SILENCE_SECONDS,
                single_connection_client=False,
            )
        except ValueError as error:
            raise UsageError(
                f"{url}: not a server's address; expected redis://host:port, rediss:// or unix://"
            ) from error
        self._connection: redis.Connection | None = None

    def __exit__(self, *failure: object) -> None:
        if self._connection is not None:
            self._connection.disconnect()  # type: ignore[no-untyped-call]
        self.client.close()

    def last_id(self, stream: str) -> tuple[int, int] | None:
        """The last ID the stream ever gave out, or None if there is no such stream."""
        with self.failures_explained():
            if not self.client.exists(stream):
                return None
            information = self.client.xinfo_stream(stream)
        ms, _, seq = information["last-generated-id"].decode().partition("-")
        return int(ms), int(seq)

    def length(self, stream: str) -> int:
        """How many entries the stream has."""
        with self.failures_explained():
            return int(self.client.xlen(stream))

    def send(self, request: Request) -> None:
        """Sends a batch; its answer is still to be confirmed."""
        with self.failures_explained():
            if self._connection is None:
                self._connection = self.client.connection_pool.get_connection()
            self._connection.send_packed_command(  # type: ignore[no-untyped-call]
                [MULTI, request.body, EXEC], check_health=False
            )

    def confirm(self, request: Request) -> None:
        """Waits for a batch's answer. HeadraceError with the server's words if it is not the right one."""
        with self.failures_explained():
            expected, seen = memoryview(request.answer), 0
            while seen < len(expected):
                piece = self._receive(len(expected) - seen)
                if piece != expected[seen : seen + len(piece)]:
                    raise HeadraceError(self._refusal(bytes(expected[:seen]) + piece, request))
                seen += len(piece)

    def _receive(self, most: int) -> bytes:
        # redis-py has no public way to the bytes of an answer; its parser would cost more than the server.
        assert self._connection is not None
        stream: Any = self._connection._sock
        piece: bytes = stream.recv(min(most, 1 << 18))
        if not piece:
            raise redis.ConnectionError("the server closed the connection")
        return piece

    def _refusal(self, seen: bytes, request: Request) -> str:
        """The first error in an answer that began as seen; the rest of its line may still be on the way."""
        while True:
            *lines, unfinished = seen.split(b"\r\n")
            for line in lines:
                if line.startswith(b"-"):
                    return f"the server refused the rows: {line[1:].decode(errors='replace')}"
            if len(seen) > 2 * len(request.answer) + 4096:
                return f"the server gave an answer that XADD does not give: {unfinished[:80]!r}"
            seen += self._receive(1 << 16)

    @contextmanager
    def failures_explained(self) -> Iterator[None]:
        """Turns what the client library raises into one line that says what to look at."""
        try:
            yield
        except redis.ResponseError as error:
            raise HeadraceError(f"{self.url}: the server refused: {error}") from error
        except (redis.RedisError, OSError) as error:
            raise HeadraceError(
                f"{self.url}: {error}; is a server running there? (headrace serve)"
            ) from error
