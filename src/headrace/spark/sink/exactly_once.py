"""Add each row exactly once, also after lost connections, repeated tasks and killed processes.

Each chunk is a transaction that also sets the marker:

    WATCH marker   GET marker   MULTI   XADD ... XADD   SET marker 7:4000  |  EXEC
    queued: sent as soon as it is encoded; the server does not run it yet  |  sent if GET's reply is right

EXEC is sent only if the marker has the value at which the chunk begins, and has no effect if the marker
changed since. So the server receives the rows early, but adds them only if they are missing. EXEC and the
next chunk are sent together, so the server is never idle for long. After an unexpected event (a lost
connection, another attempt of this task, a restarting server) the connection is closed, which discards
queued chunks. Then each unconfirmed chunk is looked up by its marker, and its missing rows are written.

With the option waitReplicas, WAIT follows each EXEC. A chunk is confirmed when the replicas have it, so a
failover to one of them loses no confirmed rows, and rows that it does lose are written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_name
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.resp.request import request
from headrace.spark.sink.delivery import ChunkWriter, ConcurrentAttempt, RowChunk, SinkConnection
from headrace.spark.sink.marker import Marker
from headrace.spark.sink.replica_wait import wait_request
from headrace.spark.source.offsets import parse_id

MULTI = request(b"MULTI")
EXEC = request(b"EXEC")
EXECABORT_REASON = "because of: "  # in the text of EXECABORT, before the reason
NO_ID = (0, 0)


class RowIdTooSmall(UsageError):
    """The ID of a row is not above the stream's last ID: other entries were added meanwhile."""


class ConfirmedRowsLost(HeadraceError):
    """The server no longer has rows that it confirmed."""


class ExactlyOnceWriter(ChunkWriter):
    """A pipeline of transactions, each with a chunk and its marker."""

    def __init__(
        self, servers: Servers, marker: Marker, trim: Sequence[bytes] = (), replicas: int = 0
    ) -> None:
        super().__init__(servers, replicas)
        self._marker = marker
        self._trim = tuple(trim)
        self._executing: RowChunk | None = None  # its EXEC was sent, and the reply is outstanding
        self._queued: RowChunk | None = None  # sent without EXEC
        self._rows_done: dict[bytes, int] = {}  # for each stream, the rows written according to its marker
        self._marker_values: dict[bytes, bytes | None] = {}  # the marker's value after all accepted chunks

    def prepare(self, streams: Iterable[bytes]) -> None:
        """Look up how many rows these streams have already. Raises CommandError for a key of another type."""
        new = [stream for stream in dict.fromkeys(streams) if stream not in self._rows_done]
        if new:
            self.flush()
            self.with_retries(lambda: self._read_markers(new), lambda: self._read_markers_each(new))

    def _read_markers_each(self, streams: list[bytes]) -> None:
        """Read each marker over a new connection: the streams may have moved to different servers."""
        for stream in streams:
            if stream not in self._rows_done:
                self.close()
                self._read_markers([stream])

    def _read_markers(self, streams: list[bytes]) -> None:
        requests = b"".join(request(b"TYPE", s) + request(b"GET", self._marker.key(s)) for s in streams)
        connection = self.connection_for(streams[0])
        replies = connection.request(requests, 2 * len(streams))
        _raise_first_error(connection, replies)
        values: dict[bytes, bytes | None] = {}
        for stream, kind, value in zip(streams, replies[::2], replies[1::2], strict=True):
            if kind not in ("none", "stream"):
                raise CommandError(f"WRONGTYPE The key {stream.decode()!r} holds a {kind}, not a stream.")
            values[stream] = value
        done = {stream: self._marker.rows_done(value, stream) for stream, value in values.items()}
        if any(done.values()):  # an earlier attempt may have been killed before its replicas had the rows
            connection.wait_for_replicas(self._replicas)
        self._rows_done |= done
        self._marker_values |= values
        if self._trim:
            self._check_trimming(connection, streams[0])
        self.reset_delay()

    def _check_trimming(self, connection: SinkConnection, stream: bytes) -> None:
        """Check by an XADD to a key that does not exist, which adds nothing, that the server can trim so."""
        key = self._marker.key(stream) + b":none"
        probe = request(b"XADD", key, b"NOMKSTREAM", *self._trim, b"*", b"a", b"a")
        [reply] = connection.request(probe, 1)
        if isinstance(reply, CommandError):
            try:
                connection.raise_error(str(reply))
            except CommandError:
                arguments = b" ".join(self._trim).decode()
                raise CommandError(f"The server does not support trimming by {arguments}: {reply}") from None

    def rows_done(self, stream: bytes) -> int:
        """Return how many of the task's rows for the stream are known to be written."""
        return self._rows_done[stream]

    def write(self, chunk: RowChunk) -> None:
        """Queue a chunk, and execute the one before."""
        chunk.marker_before = self._marker_values[chunk.stream]
        if self._marker.rows_done(chunk.marker_before, chunk.stream) < chunk.first_row:
            raise confirmed_rows_lost(chunk, self._marker.rows_done(chunk.marker_before, chunk.stream))
        self._marker_values[chunk.stream] = self._marker.value(chunk.end_row)
        self.unconfirmed.append(chunk)
        if chunk.requested_ids is not None:  # the stream's last ID must be checked before each chunk
            self.with_retries(self._write_missing, self._write_missing)
        else:
            self.with_retries(lambda: self._advance(chunk), self._write_missing)

    def flush(self) -> None:
        """Execute the queued chunk, and wait until all rows are confirmed."""
        while self.unconfirmed:
            self.with_retries(lambda: self._advance(None), self._write_missing)

    def close(self) -> None:
        """Close the connection. This discards the queued chunk; the executing one may be written or not."""
        self._executing = self._queued = None
        super().close()

    def _advance(self, chunk: RowChunk | None) -> None:
        """Confirm the executing chunk, execute the queued one, and queue the next one."""
        connection = self.connection_for(self.unconfirmed[0].stream)
        if self._executing is not None:
            self._check_executed(connection, self._executing)
        requests = bytearray()
        if self._queued is not None:
            replies = connection.count_replies(2)  # of WATCH and GET
            for _, _, text in replies.errors:
                connection.raise_error(text)
            if replies.value != self._queued.marker_before:
                raise ConcurrentAttempt("the marker was changed by another attempt")
            requests += EXEC + wait_request(self._replicas)
        if chunk is not None:
            key = self._marker.key(chunk.stream)
            requests += request(b"WATCH", key) + request(b"GET", key) + self._transaction(chunk)
        self._executing, self._queued = self._queued, chunk
        connection.send(requests)

    def _transaction(self, chunk: RowChunk) -> bytearray:
        """Return the requests of a chunk's transaction, without EXEC."""
        ttl = b"%d" % self._marker.ttl_ms
        value = self._marker.value(chunk.end_row)
        requests = bytearray(MULTI)
        requests += chunk.requests
        requests += request(b"SET", self._marker.key(chunk.stream), value, b"PX", ttl)
        return requests

    def _check_executed(self, connection: SinkConnection, chunk: RowChunk) -> None:
        """Check the replies from MULTI to EXEC, and confirm the chunk."""
        executed = chunk.rows + 2  # after MULTI, the rows and SET
        replies = connection.count_replies(executed + 1)
        whole = [text for reply, element, text in replies.errors if reply < executed or element < 0]
        if whole:
            connection.raise_error(whole[0].rpartition(EXECABORT_REASON)[2])
        if replies.errors:
            self._handle_rejected_rows(chunk, [text for _, _, text in replies.errors])
        if replies.null:
            raise ConcurrentAttempt("the marker was changed by another attempt")
        connection.check_replicas(self._replicas)
        self._executing = None
        self.confirm_first()

    def _write_missing(self) -> None:
        while self.unconfirmed:
            self._write_missing_rows(self.unconfirmed[0])
            self.confirm_first()

    def _write_missing_rows(self, chunk: RowChunk) -> None:
        """Look up how many rows of a chunk are written, and write the rest."""
        connection = self.connection_for(chunk.stream)
        key = self._marker.key(chunk.stream)
        requests = request(b"WATCH", key) + request(b"GET", key)
        if chunk.requested_ids is not None:
            requests = request(b"WATCH", key, chunk.stream) + request(b"GET", key)
            requests += request(b"XINFO", b"STREAM", chunk.stream)
        watched, value, *stream = connection.request(requests, 2 if chunk.requested_ids is None else 3)
        _raise_first_error(connection, [watched, value])
        done = self._marker.rows_done(value, chunk.stream)
        if done < chunk.first_row:
            raise confirmed_rows_lost(chunk, done)
        self._rows_done[chunk.stream] = max(self._rows_done[chunk.stream], done)
        if done >= chunk.end_row:
            self._marker_values[chunk.stream] = value
            connection.request(request(b"UNWATCH"), 1)
            connection.wait_for_replicas(self._replicas)
            return
        at = chunk.start + done - chunk.first_row
        if chunk.requested_ids is not None:
            self._check_ids(connection, chunk.stream, stream[0], chunk.requested_ids(at, chunk.stop))
        if at > chunk.start:
            chunk = RowChunk(chunk.stream, chunk.encode(at, chunk.stop), done, at, chunk.stop, chunk.encode)
        chunk.marker_before = value
        self._marker_values[chunk.stream] = self._marker.value(chunk.end_row)
        replies = connection.request(bytes(self._transaction(chunk) + EXEC), chunk.rows + 3)
        for reply in replies:
            if isinstance(reply, CommandError):
                connection.raise_error(str(reply).rpartition(EXECABORT_REASON)[2])
        if replies[-1] is None:
            raise ConcurrentAttempt("the marker was changed by another attempt")
        errors = [str(reply) for reply in replies[-1] if isinstance(reply, CommandError)]
        if errors:
            self._handle_rejected_rows(chunk, errors)
        connection.wait_for_replicas(self._replicas)

    def _handle_rejected_rows(self, chunk: RowChunk, errors: list[str]) -> None:
        """Correct the marker of a transaction some of whose XADDs failed, and raise the first error."""
        name = chunk.stream.decode(errors="surrogateescape")
        counts = f"{len(errors)} of {chunk.rows} were rejected"
        rejected = f"{errors[0]} (adding entries to the stream {name!r}; {counts})"
        correction = self._marker_correction(chunk, errors)
        try:
            self._servers.with_retries(lambda: self._correct_marker(chunk, correction))
        except CommandError as failure:
            shown = b" ".join(correction).decode(errors="backslashreplace")
            raise CommandError(
                f"{rejected}. The marker counts them as written, and could not be corrected: {failure}. "
                f"Before the batch is written again, send {shown}"
            ) from failure
        raise CommandError(rejected)

    def _marker_correction(self, chunk: RowChunk, errors: list[str]) -> list[bytes]:
        """Return the command that restores the marker if no row was added; else that records the error."""
        key, ttl = self._marker.key(chunk.stream), b"%d" % self._marker.ttl_ms
        if len(errors) < chunk.rows:
            rows = f"rows {chunk.first_row} to {chunk.end_row - 1}"
            reason = f"{len(errors)} of {rows} were rejected, {errors[0]}"
            return [b"SET", key, self._marker.error_value(chunk.end_row, reason), b"PX", ttl]
        if chunk.marker_before is None:
            return [b"DEL", key]
        return [b"SET", key, chunk.marker_before, b"PX", ttl]

    def _correct_marker(self, chunk: RowChunk, correction: list[bytes]) -> None:
        """Correct the marker unless another attempt has changed it."""
        self.close()
        connection = self.connection_for(chunk.stream)
        key = self._marker.key(chunk.stream)
        replies = connection.request(request(b"WATCH", key) + request(b"GET", key), 2)
        _raise_first_error(connection, replies)
        if replies[1] != self._marker.value(chunk.end_row):
            return
        replies = connection.request(MULTI + request(*correction) + EXEC, 3)
        _raise_first_error(connection, replies)
        _raise_first_error(connection, replies[-1] or [])

    def _check_ids(
        self, connection: SinkConnection, stream: bytes, info: object, ids: list[str | None]
    ) -> None:
        """Check that the server will accept the IDs; info is the reply to XINFO STREAM."""
        last = NO_ID
        if isinstance(info, list):
            properties = dict(zip(info[::2], info[1::2], strict=True))
            last = parse_id(properties[b"last-generated-id"].decode())
        elif not (isinstance(info, CommandError) and "no such key" in str(info)):
            connection.raise_error(str(info))
        check_ids(stream, last, ids)


def _raise_first_error(connection: SinkConnection, replies: Sequence[object]) -> None:
    for reply in replies:
        if isinstance(reply, CommandError):
            connection.raise_error(str(reply))


def confirmed_rows_lost(chunk: RowChunk, done: int) -> ConfirmedRowsLost:
    """Return the error for a marker with fewer rows than the server confirmed."""
    return ConfirmedRowsLost(
        f"The server confirmed {chunk.first_row} rows for {stream_name(chunk.stream)!r}, and now has {done}: "
        "it lost its latest writes in a restart or a failover. A new attempt of this task writes them again."
    )


def check_ids(stream: bytes, last: tuple[int, int], ids: list[str | None]) -> None:
    """Check that the IDs increase, starting after `last`: a transaction is not undone if one is rejected.

    Raises:
        UsageError: for an ID that is too small or wrong, or if only some rows have one.
    """
    if all(i is None for i in ids):
        return
    for text in ids:
        if text is None:
            raise UsageError(
                "Some rows have an ID and some have none: with exactly-once, give all rows IDs or none."
            )
        try:
            entry_id = parse_id(text)
        except ValueError as wrong:
            raise UsageError(f"{wrong}, like 1763676000000-0.") from None
        if entry_id <= last:
            raise RowIdTooSmall(
                f"The ID {text} is not above {last[0]}-{last[1]}, the last ID of the stream "
                f"{stream.decode()!r}. Sort the rows by ID, in one partition for each stream."
            )
        last = entry_id
