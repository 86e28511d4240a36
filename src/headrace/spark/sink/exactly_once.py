"""Add each row exactly once, also after lost connections, repeated tasks and killed processes.

Each chunk is a transaction that also sets the marker:

    WATCH marker   GET marker   MULTI   XADD ... XADD   SET marker 7:4000  |  EXEC
    queued: sent as soon as it is encoded; the server does not run it yet  |  sent if GET's reply is right

EXEC is sent only if the marker has the value at which the chunk begins, and has no effect if the marker
changed since. So the server receives the rows early, but adds them only if they are missing. EXEC and the
next chunk are sent together, so the server is never idle for long. After an unexpected event (a lost
connection, another attempt of this task, a restarting server) the connection is closed, which discards
queued chunks. Then each unconfirmed chunk is looked up by its marker, and its missing rows are written.

With the option waitReplicas, WAIT follows each EXEC. A chunk is confirmed when the replicas have it. So a
failover to one of these replicas loses no confirmed rows. It may lose unconfirmed rows, which are written
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_name
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.plurals import plural
from headrace.resp.request import request
from headrace.spark.sink.at_least_once import ChunkWriter, ConcurrentAttempt, RowChunk, SinkConnection
from headrace.spark.sink.attempts import AttemptGuard, PartitionWait
from headrace.spark.sink.batch_attempt import RowsChanged, rows_changed_message
from headrace.spark.sink.marker import Marker, MarkerState
from headrace.spark.sink.rejected_rows import marker_correction, not_corrected_message, rejection_message
from headrace.spark.sink.replica_wait import wait_request
from headrace.spark.sink.reply_counter import ReplyCounter
from headrace.spark.sink.requested_ids import check_increasing_ids, check_requested_ids, last_id_from_xinfo

MULTI_REQUEST = request(b"MULTI")
EXEC_REQUEST = request(b"EXEC")


class ConfirmedRowsLost(HeadraceError):
    """The server no longer has rows that it confirmed."""


@dataclass
class StreamWriteState:
    """What is known of the task's rows for one stream.

    Attributes:
        marker_state: what the marker says, as it was last read.
        is_verified: whether the task has read the rows that the marker counts, and they were the same.
        may_add: whether all checks before adding rows have passed.
        earlier_row_count: the number of rows that an earlier execution read; None if it did not read all.
        marker_value: the marker's value after all accepted chunks.
    """

    marker_state: MarkerState
    is_verified: bool
    may_add: bool = False
    earlier_row_count: int | None = None
    marker_value: bytes | None = None


class ExactlyOnceWriter(ChunkWriter):
    """A pipeline of transactions, each with a chunk and its marker."""

    def __init__(
        self, servers: Servers, marker: Marker, trim: Sequence[bytes] = (), replicas: int = 0
    ) -> None:
        super().__init__(servers, replicas)
        self._marker = marker
        self._guard = AttemptGuard(marker) if marker.execution else None
        self._trim = tuple(trim)
        self._executing: RowChunk | None = None  # its EXEC was sent, and the reply is outstanding
        self._queued: RowChunk | None = None  # sent without EXEC
        self._streams: dict[bytes, StreamWriteState] = {}

    def look_up_written_rows(self, streams: Iterable[bytes]) -> None:
        """Look up how many rows these streams have already. Raises CommandError for a key of another type."""
        new = [stream for stream in dict.fromkeys(streams) if stream not in self._streams]
        if new:
            self.flush()
            self.with_retries(lambda: self._read_markers(new), lambda: self._read_markers_each(new))

    def _read_markers_each(self, streams: list[bytes]) -> None:
        """Read each marker over a new connection: the streams may have moved to different servers."""
        for stream in streams:
            if stream not in self._streams:
                self.close()
                self._read_markers([stream])

    def _read_markers(self, streams: list[bytes]) -> None:
        guard = self._guard
        requests = b"".join(
            request(b"TYPE", stream)
            + request(b"GET", self._marker.key(stream))
            + (request(b"GET", guard.attempt_key(stream)) if guard else b"")
            for stream in streams
        )
        connection = self.connection_for(streams[0])
        size = 3 if guard else 2
        replies = connection.request_or_raise(requests, size * len(streams))
        states: dict[bytes, StreamWriteState] = {}
        for at, stream in enumerate(streams):
            kind, value, *execution = replies[size * at : size * at + size]
            if kind not in ("none", "stream"):
                raise CommandError(f"WRONGTYPE The key {stream_name(stream)!r} holds a {kind}, not a stream.")
            if guard:
                guard.parse_attempt(stream, execution[0])
            written = self._marker.parse_state(value, stream)
            if guard and not written.is_final and not guard.join_or_begin(connection, stream, execution[0]):
                written = replace(written, is_final=True)
            is_verified = written.rows == 0 or not self._marker.has_digest
            states[stream] = StreamWriteState(written, is_verified, marker_value=value)
            if guard and not written.is_final:
                recorded, states[stream].earlier_row_count = guard.earlier_partition_record(
                    connection, stream
                )
                if recorded and not written.rows:  # its rows were rejected, or the marker was deleted
                    guard.record_rows_read(connection, stream)
        if any(state.marker_state.rows for state in states.values()):
            # An earlier attempt may have been killed before its replicas had the rows.
            connection.wait_for_replicas(self._replicas)
        self._streams |= states
        if self._trim:
            self._check_trimming(connection, streams[0])
        self.reset_reconnect_timeout()

    def _check_trimming(self, connection: SinkConnection, stream: bytes) -> None:
        """Check that the server supports the trimming arguments. Raises CommandError.

        The XADD that is sent for this adds nothing, because its key does not exist (NOMKSTREAM).
        """
        key = self._marker.key(stream) + b":none"
        probe = request(b"XADD", key, b"NOMKSTREAM", *self._trim, b"*", b"a", b"a")
        [reply] = connection.request(probe, 1)
        if isinstance(reply, CommandError):
            try:
                connection.raise_error(str(reply))
            except CommandError:
                arguments = b" ".join(self._trim).decode()
                raise CommandError(f"The server does not support trimming by {arguments}: {reply}") from None

    @property
    def repeated_streams(self) -> list[bytes]:
        """The streams to which an earlier execution may have written rows of the batch."""
        return self._guard.repeated_streams() if self._guard else []

    def rows_done(self, stream: bytes) -> int:
        """Return how many of the task's rows for the stream are known to be written."""
        return self._streams[stream].marker_state.rows

    def skip(self, stream: bytes, rows: int, digest: int) -> None:
        """Pass over rows that are written already, and check that they are the same rows.

        Args:
            stream: the stream of the rows.
            rows: how many of the task's rows for the stream were passed over, including these.
            digest: the digest of all rows that were passed over.

        Raises:
            RowsChanged: if the stream has other rows than these.
        """
        state = self._streams[stream]
        if rows == state.marker_state.rows and not state.is_verified:
            self._verify(stream, state.marker_state, digest)

    def _verify(self, stream: bytes, written: MarkerState, digest: int) -> None:
        """Compare the digest of rows that were read with that of the rows which are written."""
        if written.digest is not None:
            if self._marker.has_digest and digest != written.digest:
                counted = plural(written.rows, "row")
                partition = self._marker.partition
                self._fail(stream, f"partition {partition} had {counted}, and now these have other contents")
            if not self._streams[stream].is_verified:
                self._record_rows_read(stream)
        self._streams[stream].is_verified = True

    def _record_rows_read(self, stream: bytes) -> None:
        """Record that this partition's rows are those of the earlier execution."""
        guard = self._guard
        if guard is None or self._streams[stream].marker_state.is_final:
            return
        self.flush()

        def record() -> None:
            guard.record_rows_read(self._connection_after_join(stream), stream)

        self.with_retries(record, record)

    def _connection_after_join(self, stream: bytes) -> SinkConnection:
        """Return a connection on which no reply is outstanding, after checking that the task may write."""
        connection = self.connection_for(stream)
        if self._guard is not None:
            [value] = connection.request_or_raise(request(b"GET", self._guard.attempt_key(stream)), 1)
            if not self._guard.is_current(stream, value):
                self._guard.join_or_begin(connection, stream, value)
        return connection

    def _fail(self, stream: bytes, found: str) -> NoReturn:
        """Raise RowsChanged, and let the other tasks of the batch raise it, too."""
        message = rows_changed_message(self._marker, stream, found)
        self.close()
        if self._guard is not None and not self._streams[stream].marker_state.is_final:
            with suppress(HeadraceError, OSError):
                self._guard.record_failure(self.connection_for(stream), stream, message)
        raise RowsChanged(message)

    def _check_may_add(self, chunk: RowChunk) -> None:
        """Check that a row may be added after those that are written. Raises RowsChanged."""
        stream, state = chunk.stream, self._streams[chunk.stream]
        written, partition = state.marker_state, self._marker.partition
        if written.is_final:
            self._fail(stream, "a later batch was begun, and there are rows that are not written yet")
        if state.earlier_row_count is not None and chunk.end_row > state.earlier_row_count:
            self._fail(
                stream,
                f"partition {partition} had {plural(state.earlier_row_count, 'row')}, and now has more",
            )
        if state.may_add:
            return
        if written.rows and written.digest is None and self._marker.has_digest:
            counted = plural(written.rows, "row")
            self._fail(stream, f"an earlier version of Headrace wrote {counted} without their digest")
        if self._guard is not None and self._guard.is_repeated(stream):
            self.flush()
            wait, ready = PartitionWait(self._guard, stream), False

            def poll() -> None:
                nonlocal ready
                ready = wait.poll(self.connection_for(stream))

            while not ready:
                self.with_retries(poll, poll)
        state.may_add = True

    def finish(self, rows: Mapping[bytes, int]) -> None:
        """Check and record that the task has no more rows than these for each stream.

        Raises:
            RowsChanged: if more rows are written.
        """
        requests: dict[bytes, list[bytes]] = {}
        for stream, count in rows.items():
            written = self._streams[stream].marker_state
            if self._marker.has_digest and count < written.rows:
                counted = plural(written.rows, "row")
                self._fail(stream, f"partition {self._marker.partition} had {counted}, and now has {count:,}")
            if self._guard is not None and not written.is_final:
                requests[stream] = self._guard.row_count_requests(stream, count)

        def record_all() -> None:
            connection = self.connection_for(next(iter(requests)))
            each = [one for many in requests.values() for one in many]
            connection.request_or_raise(b"".join(each), len(each))

        def record_each() -> None:  # the streams may have moved to different servers
            while requests:
                stream, each = next(iter(requests.items()))
                self.close()
                connection = self.connection_for(stream)
                connection.request_or_raise(b"".join(each), len(each))
                del requests[stream]

        if requests:
            self.with_retries(record_all, record_each)

    def write(self, chunk: RowChunk) -> None:
        """Queue a chunk, and execute the previous one.

        Raises:
            RowsChanged: if rows may not be added.
            ConfirmedRowsLost: if the server lost rows that it had confirmed.
        """
        self._check_may_add(chunk)
        state = self._streams[chunk.stream]
        chunk.marker_before = state.marker_value
        done = self._marker.parse_state(chunk.marker_before, chunk.stream).rows
        if done < chunk.first_row:
            raise confirmed_rows_lost_error(chunk, done)
        state.marker_value = self._value_after(chunk)
        self.unconfirmed.append(chunk)
        self.with_retries(lambda: self._advance(chunk), self._write_missing)

    def flush(self) -> None:
        """Execute the queued chunk, and wait until all rows are confirmed."""
        while self.unconfirmed:
            if self._executing is None and self._queued is None:  # the connection was closed after an error
                self.with_retries(self._write_missing, self._write_missing)
            else:
                self.with_retries(lambda: self._advance(None), self._write_missing)

    def _value_after(self, chunk: RowChunk) -> bytes:
        """Return the marker's value after a chunk."""
        before = self._streams[chunk.stream].marker_state.batch_before
        return self._marker.value(chunk.end_row, chunk.digest_after, before)

    def close(self) -> None:
        """Close the connection. This discards the queued chunk; the executing one may be written or not."""
        self._executing = self._queued = None
        super().close()

    def connection_for(self, stream: bytes) -> SinkConnection:
        """Return the connection; execute an empty transaction on a new one.

        The reason: a server that rejects MULTI would execute each XADD at once. If the task then failed
        before the marker was set, its rows would be added twice. The empty transaction detects a missing
        permission before the first row is sent.
        """
        is_new = self._connection is None
        connection = super().connection_for(stream)
        if is_new:
            try:
                connection.request_or_raise(MULTI_REQUEST + EXEC_REQUEST, 2)
            except BaseException:
                self.close()
                raise
        return connection

    def _advance(self, chunk: RowChunk | None) -> None:
        """Confirm the executing chunk, execute the queued one, and queue the next one."""
        connection = self.connection_for(self.unconfirmed[0].stream)
        if self._executing is not None:
            self._confirm_executing_chunk(connection, self._executing)
        requests = bytearray()
        if self._queued is not None:
            self._check_watched(connection, self._queued)
            requests += EXEC_REQUEST + wait_request(self._replicas)
        if chunk is not None:
            requests += self._chunk_watch_requests(chunk) + self._transaction(chunk)
        self._executing, self._queued = self._queued, chunk
        connection.send(requests)

    def _watch_requests(self, stream: bytes, *more: bytes) -> bytes:
        """Return the requests that watch and read the keys on which a chunk depends."""
        key = self._marker.key(stream)
        if self._guard is None:
            return request(b"WATCH", key, *more) + request(b"GET", key)
        execution_key = self._guard.attempt_key(stream)
        watch = request(b"WATCH", key, execution_key, *more)
        return watch + request(b"GET", execution_key) + request(b"GET", key)

    def _chunk_watch_requests(self, chunk: RowChunk) -> bytes:
        """Return _watch_requests() for a chunk; the last ID must be checked if its rows have IDs."""
        if chunk.list_requested_ids is None:
            return self._watch_requests(chunk.stream)
        return self._watch_requests(chunk.stream, chunk.stream) + request(b"XINFO", b"STREAM", chunk.stream)

    def _check_watched(self, connection: SinkConnection, chunk: RowChunk) -> None:
        """Check that the keys of _chunk_watch_requests() have the values at which the chunk begins."""
        if self._guard is not None:
            replies = connection.await_replies(2)  # of WATCH and the first GET
            _raise_counted(connection, replies)
            if not self._guard.is_current(chunk.stream, replies.last_reply_string):
                raise ConcurrentAttempt("the batch has another execution")
        replies = connection.await_replies(1 if self._guard else 2)
        _raise_counted(connection, replies)
        if replies.last_reply_string != chunk.marker_before:
            raise ConcurrentAttempt("the marker was changed by another attempt")
        if chunk.list_requested_ids is not None:
            self._check_last_id(connection, chunk, chunk.list_requested_ids)

    def _check_last_id(
        self, connection: SinkConnection, chunk: RowChunk, ids: Callable[[int, int], list[str | None]]
    ) -> None:
        """Check the reply to XINFO STREAM: the stream's last ID is below those of the chunk."""
        replies = connection.await_replies(1, keep_strings=True)
        for _, _, text in replies.errors:
            if "no such key" not in text:
                connection.raise_error(text)
        try:
            check_increasing_ids(
                chunk.stream, last_id_from_xinfo(replies.strings), ids(chunk.start, chunk.stop)
            )
        except UsageError:
            self.close()  # drops the transaction
            raise

    def _transaction(self, chunk: RowChunk) -> bytearray:
        """Return the requests of a chunk's transaction, without EXEC."""
        requests = bytearray(MULTI_REQUEST)
        requests += chunk.requests
        for each in self._requests_after_rows(chunk):
            requests += each
        return requests

    def _requests_after_rows(self, chunk: RowChunk) -> list[bytes]:
        """Return the requests that come after the rows in a chunk's transaction."""
        key, ttl = self._marker.key(chunk.stream), b"%d" % self._marker.ttl_ms
        requests = [request(b"SET", key, self._value_after(chunk), b"PX", ttl)]
        if self._guard is not None and chunk.first_row == 0:
            requests += self._guard.rows_read_requests(chunk.stream)
        return requests

    def _confirm_executing_chunk(self, connection: SinkConnection, chunk: RowChunk) -> None:
        """Check the replies from MULTI to EXEC, and confirm the chunk."""
        executed = (
            chunk.row_count + 1 + len(self._requests_after_rows(chunk))
        )  # after MULTI, the rows and these
        replies = connection.await_replies(executed + 1)
        whole = [text for reply, element, text in replies.errors if reply < executed or element < 0]
        if whole:
            connection.raise_error(whole[0])
        if replies.errors:
            self._handle_rejected_rows(chunk, [text for _, _, text in replies.errors])
        if replies.last_reply_is_null:
            raise ConcurrentAttempt("the marker was changed by another attempt")
        connection.check_wait_reply(self._replicas)
        self._executing = None
        self.confirm_first()

    def _write_missing(self) -> None:
        while self.unconfirmed:
            self._write_missing_rows(self.unconfirmed[0])
            self.confirm_first()

    def _write_missing_rows(self, chunk: RowChunk) -> None:
        """Look up how many rows of a chunk are written, and write the rest."""
        connection = self.connection_for(chunk.stream)
        state = self._streams[chunk.stream]
        value, info = self._watch_and_read(connection, chunk)
        written = self._marker.parse_state(value, chunk.stream)
        done = written.rows
        if done < chunk.first_row:
            raise confirmed_rows_lost_error(chunk, done)
        if done > state.marker_state.rows:
            state.marker_state, state.is_verified = written, False
        if done >= chunk.end_row:
            state.marker_value = value
            connection.request(request(b"UNWATCH"), 1)
            connection.wait_for_replicas(self._replicas)
            if done == chunk.end_row:
                self._check_concurrent_rows(chunk.stream, written, chunk.digest_after)
            return
        at = chunk.start + done - chunk.first_row
        before = chunk.digest_before
        if at > chunk.start:
            _, before = chunk.encode(chunk.start, at, before)
        if done:
            self._check_concurrent_rows(chunk.stream, written, before)
        if chunk.list_requested_ids is not None:
            check_requested_ids(connection, chunk.stream, info, chunk.list_requested_ids(at, chunk.stop))
        if at > chunk.start:
            rest, digest = chunk.encode(at, chunk.stop, before)
            chunk = RowChunk(
                chunk.stream,
                rest,
                done,
                at,
                chunk.stop,
                chunk.encode,
                digest_before=before,
                digest_after=digest,
            )
        chunk.marker_before = value
        state.marker_value = self._value_after(chunk)
        count = chunk.row_count + len(self._requests_after_rows(chunk)) + 2  # with MULTI and EXEC
        replies = connection.request(bytes(self._transaction(chunk) + EXEC_REQUEST), count)
        connection.raise_first_error(replies)
        if replies[-1] is None:
            raise ConcurrentAttempt("the marker was changed by another attempt")
        errors = [str(reply) for reply in replies[-1] if isinstance(reply, CommandError)]
        if errors:
            self._handle_rejected_rows(chunk, errors)
        connection.wait_for_replicas(self._replicas)

    def _watch_and_read(self, connection: SinkConnection, chunk: RowChunk) -> tuple[bytes | None, object]:
        """Watch and read the keys of a chunk; return the marker's value, and XINFO's reply if it has IDs."""
        stream, guard = chunk.stream, self._guard
        requests = self._chunk_watch_requests(chunk)
        count = 2 + (guard is not None) + (chunk.list_requested_ids is not None)
        replies = connection.request(requests, count)
        info = replies.pop() if chunk.list_requested_ids is not None else None
        connection.raise_first_error(replies)
        if guard is not None and not guard.is_current(stream, replies[1]):
            connection.request(request(b"UNWATCH"), 1)
            guard.join_or_begin(connection, stream, replies[1])
            raise ConcurrentAttempt("the batch has another execution")
        return replies[-1], info

    def _check_concurrent_rows(self, stream: bytes, written: MarkerState, digest: int | None) -> None:
        """Check that rows which another attempt of this task has written meanwhile are the same."""
        state = self._streams[stream]
        if self._marker.has_digest and written.digest is not None and digest != written.digest:
            counted = plural(written.rows, "row")
            self._fail(
                stream,
                f"another attempt of partition {self._marker.partition} has written {counted} with other "
                "contents",
            )
        state.is_verified = True

    def _handle_rejected_rows(self, chunk: RowChunk, errors: list[str]) -> NoReturn:
        """Correct the marker of a transaction some of whose XADDs failed, and raise the first error."""
        rejected = rejection_message(chunk, errors)
        correction = marker_correction(self._marker, chunk, errors)
        key, value = self._marker.key(chunk.stream), self._value_after(chunk)

        def correct() -> None:
            self.close()
            self.connection_for(chunk.stream).execute_if(key, value, [request(*correction)])

        try:
            self._servers.with_retries(correct)
        except CommandError as failure:
            raise CommandError(not_corrected_message(rejected, correction, failure)) from failure
        raise CommandError(rejected)


def _raise_counted(connection: SinkConnection, replies: ReplyCounter) -> None:
    for _, _, text in replies.errors:
        connection.raise_error(text)


def confirmed_rows_lost_error(chunk: RowChunk, done: int) -> ConfirmedRowsLost:
    """Return the error for a marker with fewer rows than the server confirmed."""
    return ConfirmedRowsLost(
        f"The server confirmed {chunk.first_row} rows for {stream_name(chunk.stream)!r}, and now has {done}: "
        "it lost its latest writes in a restart or a failover. A new attempt of this task writes them again."
    )
