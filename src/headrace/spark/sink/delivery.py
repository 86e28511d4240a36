"""Requests on their way to a server, until it has confirmed them: here at least once.

XADDs go in a pipeline: while the server works on a chunk the next one is encoded. What is unconfirmed when
the connection breaks is sent again. See exactly_once for the other way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.retry import ReconnectDelay
from headrace.client.servers import Servers
from headrace.errors import CommandError, HeadraceError, ProtocolError
from headrace.resp.replies import INCOMPLETE, ReplyParser
from headrace.spark.sink.reply_counter import ReplyCounter
from headrace.spark.sink.write_timeouts import DISK_ERROR, describe_disk_error, wait_for_reply

RECEIVE_BYTES = 1 << 16
BUFFERED_ROWS = 1000  # chunks of a few rows, for many streams, are sent when they are so many together
BUFFERED_BYTES = 1 << 20


class ConcurrentAttempt(HeadraceError):
    """Another attempt of this task has written meanwhile; a look at the marker will tell what."""


@dataclass
class RowChunk:
    """Rows [at, stop) of a batch, in requests.

    first: the number of the first of them among all that the task has for this stream.
    """

    stream: bytes
    requests: bytes | bytearray
    first_row: int
    start: int
    stop: int
    encode: Callable[[int, int], bytes | bytearray]  # rows [at, stop) again
    requested_ids: Callable[[int, int], list[str | None]] | None = (
        None  # the IDs they ask for, if they ask for any
    )
    marker_before: bytes | None = None  # what the marker says before them

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.stop - self.start

    @property
    def end_row(self) -> int:
        """The number of the row after them."""
        return self.first_row + self.rows


class SinkConnection:
    """One connection to the server of a stream, and what comes in over it."""

    def __init__(self, servers: Servers, stream: bytes) -> None:
        self._servers = servers
        self._stream = stream.decode(errors="surrogateescape")
        self._connection = servers.open_raw(self._stream)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._counter = ReplyCounter()
        self._parser = ReplyParser()

    def send(self, requests: bytes | bytearray) -> None:
        """Send what is encoded."""
        self._connection.send_encoded(requests)

    def count_replies(self, replies: int) -> ReplyCounter:
        """Wait for so many replies, and say how they were."""
        self._counter.expect(replies)
        while not self._counter.done():
            self._counter.feed(self._receive())
        return self._counter

    def request(self, requests: bytes, replies: int) -> list[Any]:
        """Send, and return the replies; errors among them as ReplyError. Nothing else may be on its way."""
        self.send(requests)
        answers: list[Any] = []
        while len(answers) < replies:
            answer = self._parser.next()
            if answer is INCOMPLETE:
                self._parser.feed(self._receive())
            else:
                answers.append(answer)
        return answers

    def _receive(self) -> bytes:
        wait_for_reply(self._connection, self._servers, self._stream)
        n = self._connection.receive(self._buffer)
        return bytes(memoryview(self._buffer)[:n])

    def raise_error(self, text: str) -> None:
        """Raise an error reply: ServerUnavailable if it will pass, here or at another server."""
        self._connection.raise_if_unavailable(text, follow_ask=False)
        if text.startswith(DISK_ERROR):
            raise CommandError(describe_disk_error(text))
        raise CommandError(f"{text} (adding entries to the stream {self._stream!r})")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class ChunkWriter:
    """What both ways share: a link that is made when needed, and patience with a server that is away.

    unsettled   chunks taken and not yet confirmed, in order
    rows        how many are confirmed that were not when the task began
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._connection: SinkConnection | None = None
        self._reconnect_delay = ReconnectDelay(servers.reconnect_timeout)
        self.unconfirmed: deque[RowChunk] = deque()
        self.confirmed_rows = 0

    def connection_for(self, stream: bytes) -> SinkConnection:
        """The connection; if there is none, one to the server of the stream."""
        if self._connection is None:
            self._connection = SinkConnection(self._servers, stream)
        return self._connection

    def with_retries(self, work: Callable[[], Any], again: Callable[[], Any]) -> None:
        """Do the work; whenever the connection is lost over it, do `again` over a new one."""
        while True:
            try:
                work()
                return
            except ConcurrentAttempt:
                self.close()
            except (ProtocolError, *CONNECTION_ERRORS) as away:
                self.close()
                self._reconnect_delay.wait(away)
            work = again

    def confirm_first(self) -> None:
        """The first of the unsettled chunks is written."""
        self.confirmed_rows += self.unconfirmed.popleft().rows
        self.reset_delay()

    def reset_delay(self) -> None:
        """Something was achieved: the next loss is waited out as long as the first."""
        self._reconnect_delay.reset()

    def close(self) -> None:
        """Close the connection; what is unsettled may or may not be written."""
        link, self._connection = self._connection, None
        if link is not None:
            link.close()


class AtLeastOnceWriter(ChunkWriter):
    """A pipeline of XADDs.

    gathered    small chunks, as one, which is not yet sent
    """

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self._buffered: RowChunk | None = None

    def prepare(self, streams: Iterable[bytes]) -> None:
        """Nothing has to be known of a stream."""

    def rows_done(self, stream: bytes) -> int:
        """How many of the task's rows for the stream need not be written."""
        return 0

    def write(self, chunk: RowChunk) -> None:
        """Send a chunk, or keep it until there is more; wait for the one before."""
        together = self._buffered
        if together is None:
            self._buffered = together = replace(chunk, requests=bytearray(chunk.requests))
        else:
            together.requests += chunk.requests
            together.stop += chunk.rows
        if together.rows >= BUFFERED_ROWS or len(together.requests) >= BUFFERED_BYTES:
            self._send_buffered()

    def flush(self) -> None:
        """Wait until all is confirmed."""
        self._send_buffered()
        self.with_retries(self._await_all, self._resend_all)

    def _send_buffered(self) -> None:
        chunk, self._buffered = self._buffered, None
        if chunk is not None:
            self.unconfirmed.append(chunk)
            self.with_retries(lambda: self._send(chunk), self._resend_all)

    def _send(self, chunk: RowChunk) -> None:
        self.connection_for(chunk.stream).send(chunk.requests)
        while len(self.unconfirmed) > 1:
            self._await_first()

    def _resend_all(self) -> None:
        while self.unconfirmed:
            chunk = self.unconfirmed[0]
            if chunk.requested_ids is not None:
                raise CommandError(
                    "The connection was lost, and rows with IDs of their own cannot be sent twice: write "
                    'them with the option delivery "exactly-once".'
                )
            self.connection_for(chunk.stream).send(chunk.requests)
            self._await_first()

    def _await_all(self) -> None:
        while self.unconfirmed:
            self._await_first()

    def _await_first(self) -> None:
        """Wait for the answers to the first of the unsettled chunks."""
        chunk = self.unconfirmed[0]
        link = self.connection_for(chunk.stream)
        for _, _, text in link.count_replies(chunk.rows).errors:
            link.raise_error(text)
        self.confirm_first()
