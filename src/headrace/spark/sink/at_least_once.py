"""Send requests to a server until it has confirmed them, at least once.

XADDs are pipelined: while the server runs a chunk, the next one is encoded. Chunks that are unconfirmed when
the connection breaks are sent again. See exactly_once for delivery without duplicates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.retrying import ReconnectDelay
from headrace.client.server_errors import exec_abort_reason
from headrace.client.servers import Servers
from headrace.client.write_timeouts import DISK_ERROR_CODE, describe_disk_error, wait_for_reply
from headrace.errors import CommandError, HeadraceError, ProtocolError
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.resp.request import request
from headrace.spark.sink.replica_wait import (
    WritesUnconfirmed,
    barrier_write_request,
    check_confirmed,
    wait_request,
)
from headrace.spark.sink.reply_counter import ReplyCounter

RECEIVE_BYTES = 1 << 16
BUFFERED_ROWS_MAX = 1000  # small chunks, for many streams, are sent together when they reach this
BUFFERED_BYTES_MAX = 1 << 20
REPLICAS_UNKNOWN_MESSAGE = (
    "The connection was lost before the replicas had confirmed the rows (option waitReplicas): some may be "
    "missing after a failover. A new attempt of this task adds all its rows again. With the option delivery "
    "set to exactly-once only the missing rows are added."
)


class ConcurrentAttempt(HeadraceError):
    """Another attempt of this task has written rows at the same time; the marker says how many."""


@dataclass
class RowChunk:
    """Rows [start, stop) of a batch, encoded as requests.

    first_row      the number of the chunk's first row among all rows of the task for this stream
    encode         encodes rows [at, stop) again, and returns the digest after them
    list_requested_ids
                   returns the IDs of rows [at, stop); None if the server assigns all IDs
    digest_before  the digest of the rows before these; None if there are none
    digest_after   the digest of these rows and all before them
    marker_before  the value of the marker before these rows
    """

    stream: bytes
    requests: bytes | bytearray
    first_row: int
    start: int
    stop: int
    encode: Callable[[int, int, int | None], tuple[bytes | bytearray, int]]
    list_requested_ids: Callable[[int, int], list[str | None]] | None = None
    digest_before: int | None = None
    digest_after: int = 0
    marker_before: bytes | None = None

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    @property
    def end_row(self) -> int:
        """The number of the first row after this chunk."""
        return self.first_row + self.row_count


class SinkConnection:
    """One connection to the server of a stream, with the parsers of its replies."""

    def __init__(self, servers: Servers, stream: bytes) -> None:
        self._servers = servers
        self._stream = stream.decode(errors="surrogateescape")
        self._connection = servers.open_raw(self._stream)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._counter = ReplyCounter()
        self._parser = ReplyParser()

    def send(self, requests: bytes | bytearray) -> None:
        """Send encoded requests."""
        self._connection.send_encoded(requests)

    def await_replies(self, replies: int, keep_strings: bool = False) -> ReplyCounter:
        """Wait for this number of replies; return the counter, which has their errors."""
        self._counter.expect(replies, keep_strings)
        while not self._counter.received_all():
            self._counter.feed(self._receive())
        return self._counter

    def request(self, requests: bytes, replies: int) -> list[Any]:
        """Send requests; return the replies, errors as CommandError. No other reply may be outstanding."""
        self.send(requests)
        answers: list[Any] = []
        while len(answers) < replies:
            answer = self._parser.next()
            if answer is INCOMPLETE:
                self._parser.feed(self._receive())
            else:
                answers.append(answer)
        return answers

    def check_wait_reply(self, replicas: int) -> None:
        """Receive and check the reply to wait_request(); do nothing if `replicas` is 0.

        Raises:
            WritesUnconfirmed: if fewer than `replicas` replicas have confirmed in time.
            ServerUnavailable: if the server became a replica.
            CommandError: if the server rejects WAIT.
        """
        if replicas:
            counter = self.await_replies(1)
            reply = CommandError(counter.errors[0][2]) if counter.errors else counter.last_reply_string
            check_confirmed(reply, replicas, self._stream)

    def wait_for_replicas(self, replicas: int) -> None:
        """Wait until this many replicas have all that the server has now.

        Raises:
            WritesUnconfirmed: if fewer than `replicas` replicas have confirmed in time.
            ServerUnavailable: if the server became a replica.
            CommandError: if the server rejects the request.
        """
        if replicas:
            key = self._stream.encode(errors="surrogateescape")
            written, reply = self.request(barrier_write_request(key) + wait_request(replicas), 2)
            if isinstance(written, CommandError):
                self.raise_error(str(written))
            check_confirmed(reply, replicas, self._stream)

    def _receive(self) -> bytes:
        wait_for_reply(self._connection, self._servers, self._stream)
        n = self._connection.receive(self._buffer)
        return bytes(memoryview(self._buffer)[:n])

    def request_or_raise(self, requests: bytes, replies: int) -> list[Any]:
        """Send requests and return the replies; pass the first error among them to raise_error()."""
        answers = self.request(requests, replies)
        self.raise_first_error(answers)
        return answers

    def execute_if(self, key: bytes, value: bytes | None, requests: Sequence[bytes]) -> bool:
        """Execute requests in one transaction if a key has this value; return whether they were executed.

        An error reply, also one within the transaction, is passed to raise_error().
        """
        if self.request_or_raise(request(b"WATCH", key) + request(b"GET", key), 2)[1] != value:
            self.request_or_raise(request(b"UNWATCH"), 1)
            return False
        transaction = [request(b"MULTI"), *requests, request(b"EXEC")]
        executed = self.request_or_raise(b"".join(transaction), len(transaction))[-1]
        self.raise_first_error(executed or [])
        return executed is not None

    def raise_first_error(self, replies: Sequence[object]) -> None:
        """Pass the first error among replies to raise_error(); return if there is none."""
        for reply in replies:
            if isinstance(reply, CommandError):
                self.raise_error(str(reply))

    def raise_error(self, text: str) -> None:
        """Raise ServerUnavailable for an error reply if a retry can succeed, else CommandError."""
        text = exec_abort_reason(text)
        self._connection.raise_if_unavailable(text, follow_ask=False)
        if text.startswith(DISK_ERROR_CODE):
            raise CommandError(describe_disk_error(text))
        raise CommandError(f"{text} (adding entries to the stream {self._stream!r})")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class ChunkWriter:
    """Base class of both writers: a connection that is made when needed, and retries when it is lost.

    unconfirmed          chunks that were accepted and are not yet confirmed, in order
    confirmed_row_count  how many rows were confirmed since the task began
    """

    def __init__(self, servers: Servers, replicas: int = 0) -> None:
        """Create a writer, which connects when it is needed.

        Args:
            servers: the servers to write to.
            replicas: how many replicas must have the rows when flush() returns.
        """
        self._servers = servers
        self._replicas = replicas
        self._connection: SinkConnection | None = None
        self._reconnect_delay = ReconnectDelay(servers.reconnect_timeout)
        self.unconfirmed: deque[RowChunk] = deque()
        self.confirmed_row_count = 0

    def connection_for(self, stream: bytes) -> SinkConnection:
        """Return the connection; make one to the server of the stream if there is none."""
        if self._connection is None:
            self._connection = SinkConnection(self._servers, stream)
        return self._connection

    def with_retries(self, work: Callable[[], Any], again: Callable[[], Any]) -> None:
        """Run `work`; after each lost connection run `again`, over a new connection."""
        while True:
            try:
                work()
                return
            except ConcurrentAttempt:
                self.close()
            except (ProtocolError, *CONNECTION_ERRORS) as failure:
                self.close()
                self._reconnect_delay.wait_or_raise(failure)
            work = again

    def confirm_first(self) -> None:
        """Mark the first unconfirmed chunk as written."""
        self.confirmed_row_count += self.unconfirmed.popleft().row_count
        self.reset_reconnect_timeout()

    def reset_reconnect_timeout(self) -> None:
        """Restart the reconnect timeout after progress."""
        self._reconnect_delay.reset()

    def close(self) -> None:
        """Close the connection; unconfirmed chunks may or may not be written."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class AtLeastOnceWriter(ChunkWriter):
    """A pipeline of XADDs. Small chunks are buffered and sent as one."""

    def __init__(self, servers: Servers, replicas: int = 0) -> None:
        super().__init__(servers, replicas)
        self._buffered: RowChunk | None = None
        self._last_stream: bytes | None = None

    def look_up_written_rows(self, streams: Iterable[bytes]) -> None:
        """Do nothing: no state of the streams is needed."""

    def rows_done(self, stream: bytes) -> int:
        """Return how many of the task's rows for the stream are already written: always 0."""
        return 0

    def skip(self, stream: bytes, rows: int, digest: int) -> None:
        """Do nothing: no row is skipped."""

    def finish(self, rows: Mapping[bytes, int]) -> None:
        """Do nothing: nothing is known of earlier attempts."""

    def write(self, chunk: RowChunk) -> None:
        """Buffer a chunk; send the buffer if it is large enough, and wait for the chunk sent before."""
        together = self._buffered
        if together is None:
            self._buffered = together = replace(chunk, requests=bytearray(chunk.requests))
        else:
            together.requests += chunk.requests
            together.stop += chunk.row_count
        if together.row_count >= BUFFERED_ROWS_MAX or len(together.requests) >= BUFFERED_BYTES_MAX:
            self._send_buffered()

    def flush(self) -> None:
        """Send the buffer, and wait until all rows are confirmed."""
        self._send_buffered()
        self.with_retries(self._await_all, self._resend_all)
        if self._replicas and self._last_stream is not None:
            self._await_replicas(self._last_stream)

    def _await_replicas(self, stream: bytes) -> None:
        """Wait until the replicas have all rows: on the same connection, because rows cannot be looked up."""
        connection = self.connection_for(stream)
        while True:
            try:
                connection.wait_for_replicas(self._replicas)
                self.reset_reconnect_timeout()
                return
            except WritesUnconfirmed as failure:
                self._reconnect_delay.wait_or_raise(failure)
            except (ProtocolError, *CONNECTION_ERRORS) as failure:
                self.close()
                raise HeadraceError(REPLICAS_UNKNOWN_MESSAGE) from failure

    def _send_buffered(self) -> None:
        chunk, self._buffered = self._buffered, None
        if chunk is not None:
            self._last_stream = chunk.stream
            self.unconfirmed.append(chunk)
            self.with_retries(lambda: self._send(chunk), self._resend_all)

    def _send(self, chunk: RowChunk) -> None:
        self.connection_for(chunk.stream).send(chunk.requests)
        while len(self.unconfirmed) > 1:
            self._await_first()

    def _resend_all(self) -> None:
        if (
            self._replicas and self.confirmed_row_count
        ):  # by a server that may be replaced by one without them
            raise HeadraceError(REPLICAS_UNKNOWN_MESSAGE)
        while self.unconfirmed:
            chunk = self.unconfirmed[0]
            if chunk.list_requested_ids is not None:
                raise CommandError(
                    "The connection was lost, and rows that have IDs cannot be sent twice: set the option "
                    "delivery to exactly-once."
                )
            self.connection_for(chunk.stream).send(chunk.requests)
            self._await_first()

    def _await_all(self) -> None:
        while self.unconfirmed:
            self._await_first()

    def _await_first(self) -> None:
        """Wait for the replies to the first unconfirmed chunk."""
        chunk = self.unconfirmed[0]
        connection = self.connection_for(chunk.stream)
        for _, _, text in connection.await_replies(chunk.row_count).errors:
            connection.raise_error(text)
        self.confirm_first()
