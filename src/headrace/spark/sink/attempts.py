"""Make the tasks of a batch agree on how it is repeated: with the same rows in the same partitions, or not.

A task recognises the rows that it has written itself by its marker. But if a batch is repeated in other
partitions, as after a change of minPartitions, or with rand() before the sink, then rows that one task has
written come to another one, which has no marker yet. So two more keys belong to a query's batch:

    {orders}:headrace:sink:<query>:attempt     =  {"batch": 7, "attempt": "5f0c", "repeated": true}
    {orders}:headrace:sink:<query>:partitions  =  "0=5f0c 0:rows=4000 3=91ab "

The first key names the execution of the batch that may write; each transaction watches it. Tasks append to
the second key. It lists the partitions that have rows of the batch. For each one it has the execution that
read the rows last, and the number of rows if all were read.

In a repeated batch a task adds rows only after the tasks of all these partitions have found the same rows
again. If one of them finds other rows, the batch fails and no task adds any.

A task does not wait for ever, because the others may need its place on the cluster. After a task has stopped
waiting, the rows of all partitions are compared when the batch is committed.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key, stream_name
from headrace.errors import HeadraceError, UsageError
from headrace.resp.request import request
from headrace.spark.sink.at_least_once import ConcurrentAttempt, SinkConnection
from headrace.spark.sink.batch_attempt import (
    AttemptSuperseded,
    BatchAttempt,
    RowsChanged,
    rows_changed_message,
)
from headrace.spark.sink.marker import Marker

SUPERSEDED_KEPT = 50
POLL_S = 0.05
POLL_MAX_S = 1.0
PROGRESS_TIMEOUT_S = 30.0  # how long to wait without progress of the other tasks
WAIT_ENDED_FIELD = b"waited"  # a field of the partitions: the execution whose tasks wait no longer
ROWS_SUFFIX = b":rows"

log = logging.getLogger(__name__)


def new_execution_id() -> str:
    """Return an identity for one execution of a batch."""
    return uuid.uuid4().hex[:16]


class AttemptGuard:
    """Reads and writes the keys of one execution of a batch, over connections without outstanding replies."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._current: dict[bytes, bytes] = {}  # the value of the key when this execution took it

    def attempt_key(self, stream: bytes) -> bytes:
        """Return the key that names the execution."""
        return self._marker.query_key(stream) + b":attempt"

    def partitions_key(self, stream: bytes) -> bytes:
        """Return the key with the partitions that have rows."""
        return self._marker.query_key(stream) + b":partitions"

    def is_current(self, stream: bytes, value: bytes | None) -> bool:
        """Return whether the attempt key still has the value under which this execution writes.

        Args:
            stream: the stream.
            value: the value of the key now.
        """
        return value is not None and value == self._current.get(stream)

    def repeated_streams(self) -> list[bytes]:
        """Return the streams to which an earlier execution may have written rows of the batch."""
        return [stream for stream in self._current if self.is_repeated(stream)]

    def is_repeated(self, stream: bytes) -> bool:
        """Return whether an earlier execution may have written rows of the batch to the stream."""
        return self._current_attempt(stream).repeated

    def _current_attempt(self, stream: bytes) -> BatchAttempt:
        attempt = BatchAttempt.parse(self._current[stream], self.attempt_key(stream))
        assert attempt is not None
        return attempt

    def rows_read_requests(self, stream: bytes) -> list[bytes]:
        """Return the requests that record that this execution has read the partition's rows."""
        return self._partition_requests(stream, b"", self._marker.execution.encode())

    def row_count_requests(self, stream: bytes, rows: int) -> list[bytes]:
        """Return the requests that record the partition's number of rows, once all of them were read."""
        return self._partition_requests(stream, ROWS_SUFFIX, b"%d" % rows)

    def _partition_requests(self, stream: bytes, suffix: bytes, value: bytes) -> list[bytes]:
        key, ttl = self.partitions_key(stream), b"%d" % self._marker.ttl_ms
        field = b"%d%b" % (self._marker.partition, suffix)
        return [request(b"APPEND", key, b"%b=%b " % (field, value)), request(b"PEXPIRE", key, ttl)]

    def parse_attempt(self, stream: bytes, value: bytes | None) -> BatchAttempt | None:
        """Parse the attempt key's value. Raises UsageError if the query ID belongs to another checkpoint."""
        marker, found = self._marker, BatchAttempt.parse(value, self.attempt_key(stream))
        if found and found.checkpoint and marker.checkpoint and found.checkpoint != marker.checkpoint:
            key = self.attempt_key(stream).decode(errors="backslashreplace")
            raise UsageError(
                f"The query ID {marker.query_id!r} was used by a query with another checkpoint to write to "
                f"{stream_name(stream)!r}, up to batch {found.batch}. A new checkpoint counts its batches "
                "from 0 again, so it needs a query ID of its own. Nothing was written. (To let this query "
                f"go on from batch {marker.batch_id} all the same: DEL {key})"
            )
        return found

    def join_or_begin(self, connection: SinkConnection, stream: bytes, value: bytes | None) -> bool:
        """Take part in writing the batch; begin its execution if this is the first task.

        Args:
            connection: to the server of the stream.
            stream: the stream.
            value: the value of the key now.

        Returns:
            Whether rows may be added: no later batch was begun.

        Raises:
            UsageError: if the query ID belongs to another checkpoint.
            RowsChanged: if another task has found other rows.
            AttemptSuperseded: if another execution of the batch was started.
        """
        while True:
            found = self.parse_attempt(stream, value)
            if found is not None and found.batch > self._marker.batch_id:
                return False
            if found is not None and value is not None and self._may_write(found):
                self._current[stream] = value
                return True
            if stream in self._current and found is not None and found.batch == self._marker.batch_id:
                raise AttemptSuperseded(self._superseded_message())
            value = self._begin(connection, stream, value, found)

    def _may_write(self, found: BatchAttempt) -> bool:
        """Return whether this execution is the one that may write."""
        marker = self._marker
        if found.batch < marker.batch_id:
            return False
        if marker.execution in found.superseded:
            raise AttemptSuperseded(self._superseded_message())
        if found.error and found.attempt == marker.execution:
            raise RowsChanged(found.error)
        return found.attempt == marker.execution

    def _superseded_message(self) -> str:
        return (
            f"Another execution of batch {self._marker.batch_id} of the query {self._marker.query_id!r} was "
            "started, so this one stops: run only one at a time."
        )

    def _begin(
        self, connection: SinkConnection, stream: bytes, value: bytes | None, found: BatchAttempt | None
    ) -> bytes | None:
        """Set the key, unless it has changed; return its value."""
        marker, key = self._marker, self.attempt_key(stream)
        new = BatchAttempt(marker.batch_id, marker.execution, marker.checkpoint)
        requests: list[bytes] = []
        if found is not None and found.batch == marker.batch_id:
            earlier = (*found.superseded, found.attempt)[-SUPERSEDED_KEPT:]
            new = replace(new, repeated=True, superseded=earlier)
        else:
            requests.append(request(b"DEL", self.partitions_key(stream)))
        connection.execute_if(key, value, [*requests, self._set_request(stream, new)])
        [now] = connection.request_or_raise(request(b"GET", key), 1)
        current: bytes | None = now
        return current

    def _set_request(self, stream: bytes, execution: BatchAttempt) -> bytes:
        ttl = b"%d" % self._marker.ttl_ms
        return request(b"SET", self.attempt_key(stream), execution.encode(), b"PX", ttl)

    def earlier_partition_record(self, connection: SinkConnection, stream: bytes) -> tuple[bool, int | None]:
        """Return what an earlier execution recorded of this partition.

        Returns:
            Whether an earlier execution recorded rows, and their number; None if it did not read all rows.
        """
        if not self.is_repeated(stream):
            return False, None
        [value] = connection.request_or_raise(request(b"GET", self.partitions_key(stream)), 1)
        fields, partition = _parse_fields(value), b"%d" % self._marker.partition
        rows = fields.get(partition + ROWS_SUFFIX)
        return partition in fields, None if rows is None else int(rows)

    def record_rows_read(self, connection: SinkConnection, stream: bytes) -> None:
        """Record that this execution has read the rows of this partition that are already written.

        Raises:
            ConcurrentAttempt: if another execution was started, or another task has found other rows.
        """
        requests = self.rows_read_requests(stream)
        if not connection.execute_if(self.attempt_key(stream), self._current[stream], requests):
            raise ConcurrentAttempt("the batch has another execution")

    def record_failure(self, connection: SinkConnection, stream: bytes, message: str) -> None:
        """Record an error, so that no task adds any more rows in this execution."""
        error = replace(self._current_attempt(stream), error=message)
        with suppress(HeadraceError, OSError):  # the task fails anyway
            connection.execute_if(
                self.attempt_key(stream), self._current[stream], [self._set_request(stream, error)]
            )

    def unverified_partitions(self, connection: SinkConnection, stream: bytes) -> set[bytes]:
        """Return the other partitions whose rows were not read again yet; none if no task waits any more.

        Raises:
            RowsChanged: if another task has found other rows.
            AttemptSuperseded: if another execution of the batch was started.
            UsageError: if the query ID belongs to another checkpoint.
        """
        requests = request(b"GET", self.attempt_key(stream)) + request(b"GET", self.partitions_key(stream))
        value, partitions = connection.request_or_raise(requests, 2)
        if not self.is_current(stream, value):
            self.join_or_begin(connection, stream, value)
        fields = _parse_fields(partitions)
        if fields.get(WAIT_ENDED_FIELD) == self._marker.execution.encode():
            return set()
        return set(_unread_partitions(fields, self._marker)) - {b"%d" % self._marker.partition}

    def stop_waiting(self, connection: SinkConnection, stream: bytes, left: set[bytes]) -> None:
        """Log a warning, and record that tasks of this execution no longer wait for unread partitions."""
        log.warning(
            "Batch %d of the query %s is repeated, and partitions %s, which had rows for %s, were not read "
            "again within %.0f seconds: the task continues. The commit checks them.",
            self._marker.batch_id,
            self._marker.query_id,
            _format_partitions(left),
            stream_name(stream),
            PROGRESS_TIMEOUT_S,
        )
        field = b"%b=%b " % (WAIT_ENDED_FIELD, self._marker.execution.encode())
        connection.request_or_raise(request(b"APPEND", self.partitions_key(stream), field), 1)


class PartitionWait:
    """Waits for the other partitions of a repeated batch, for as long as they make progress."""

    def __init__(self, guard: AttemptGuard, stream: bytes) -> None:
        self._guard = guard
        self._stream = stream
        self._left: set[bytes] | None = None
        self._since = time.monotonic()
        self._pause = POLL_S

    def poll(self, connection: SinkConnection) -> bool:
        """Return whether the task may add rows; pause if not."""
        left = self._guard.unverified_partitions(connection, self._stream)
        if not left:
            return True
        if left != self._left:
            self._left, self._since, self._pause = left, time.monotonic(), POLL_S
        elif time.monotonic() - self._since > PROGRESS_TIMEOUT_S:
            self._guard.stop_waiting(connection, self._stream, left)
            return True
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, POLL_MAX_S)
        return False


def check_repeated_batch(servers: Servers, marker: Marker, streams: Iterable[str]) -> None:
    """Check, when a repeated batch is committed, that all rows of its earlier executions were read again.

    Raises:
        RowsChanged: if the batch has other partitions than before.
    """
    guard = AttemptGuard(marker)

    def read(key: bytes) -> bytes | None:
        value: bytes | None = servers.client().get(key)
        return value

    for stream in sorted(set(streams)):
        key = stream_key(stream)
        left = _unread_partitions(
            _parse_fields(servers.with_retries(partial(read, guard.partitions_key(key)))), marker
        )
        if left:
            found = f"partitions {_format_partitions(left)} had rows, and do not exist any more or have none"
            raise RowsChanged(rows_changed_message(marker, key, found))


def _parse_fields(value: bytes | None) -> dict[bytes, bytes]:
    """Parse the key with the partitions; of fields that were appended twice, the last one counts."""
    fields = [field.partition(b"=") for field in (value or b"").split()]
    return {name: content for name, _, content in fields}


def _unread_partitions(fields: Mapping[bytes, bytes], marker: Marker) -> list[bytes]:
    """Return the partitions whose rows another execution has read last."""
    execution = marker.execution.encode()
    return [field for field, seen in fields.items() if field.isdigit() and seen != execution]


def _format_partitions(partitions: Iterable[bytes]) -> str:
    return ", ".join(str(number) for number in sorted(map(int, partitions)))
