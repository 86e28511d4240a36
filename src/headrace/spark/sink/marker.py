"""The marker: a key on the server that records which rows a task has written, for exactly-once delivery.

    {orders}:headrace:sink:<query>:<partition>   =   7:4000:5f0c9a1e77d0b3c2:6:9000:08d1…
    the stream, so that Cluster                      batch 7, rows 0 to 3999 of this partition are written,
    keeps both in one slot                           their digest; the same of the batch before

The transaction that adds the rows also sets it, so it is always consistent with the stream. Each stream that
rows of a partition go to has a marker of its own. A marker expires 30 days after its last use.

A repeated attempt reads its rows again. It skips the rows that the marker counts only if they have the same
digest. The batch before is recorded because Spark repeats it if the checkpoint lost its last commit.

A further part, `7:4000:<digest>:<reason>`, means that the server rejected some rows of a transaction, which
Redis does not undo. Then no attempt can succeed, and every further one fails with the reason.

Versions before the digest wrote `7:4000`. Such a marker is trusted only if it counts all rows of its batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from headrace.client.stream_names import stream_name
from headrace.companion_keys import companion_key_prefix
from headrace.errors import CommandError

TTL_MS = 30 * 24 * 3600 * 1000
MARKER_PATTERN = re.compile(
    rb"(?P<batch>\d+):(?P<rows>\d+)(:(?P<digest>[0-9a-f]{16}))?"
    rb"(:(?P<before>\d+:\d+:[0-9a-f]{16}))?(:(?P<reason>.+))?",
    re.DOTALL,
)


@dataclass(frozen=True)
class MarkerState:
    """Which rows of a batch are written, according to a marker.

    Attributes:
        rows: how many of the task's rows are written, from the first one on.
        digest: the digest of these rows; None if it is unknown.
        is_final: whether a later batch was begun, so that no row of this one may be added any more.
        batch_before: the finished batch before this one, as a part of the marker's value.
    """

    rows: int = 0
    digest: int | None = None
    is_final: bool = False
    batch_before: bytes = b""


@dataclass(frozen=True)
class Marker:
    """The identity of a write, and the key and values of its marker.

    Attributes:
        query_id: the name of the query, unique among all queries that write to the server.
        partition: the partition of its rows.
        batch_id: the number of the batch; later batches have larger numbers.
        ttl_ms: how many milliseconds after the last write the marker expires.
        execution: the execution of the batch, common to all its tasks; empty if there is only one task.
        checkpoint: Spark's own ID of the streaming query, which a new checkpoint changes; empty if unknown.
    """

    has_digest: ClassVar[bool] = True  # whether its values contain the digest of the rows

    query_id: str
    partition: int = 0
    batch_id: int = 0
    ttl_ms: int = TTL_MS
    execution: str = ""
    checkpoint: str = ""

    def key(self, stream: bytes) -> bytes:
        """Return the marker's key for the rows that go to the stream."""
        return b"%b:%d" % (self.query_key(stream), self.partition)

    def query_key(self, stream: bytes) -> bytes:
        """Return the beginning of all keys of the query for the stream."""
        return b"%b:headrace:sink:%b" % (companion_key_prefix(stream), self.query_id.encode())

    def value(self, rows: int, digest: int = 0, batch_before: bytes = b"") -> bytes:
        """Return the key's value after the first `rows` rows of the batch."""
        return b":".join([b"%d:%d:%016x" % (self.batch_id, rows, digest), *filter(None, [batch_before])])

    def error_value(self, rows: int, digest: int, reason: str) -> bytes:
        """Return the key's value after the first `rows` rows, some of which were rejected."""
        return b"%b:%b" % (self.value(rows, digest), reason.encode())

    def parse_state(self, value: bytes | None, stream: bytes) -> MarkerState:
        """Return which rows of the batch are written according to a value of the key.

        Raises:
            CommandError: if the value is not a marker, records rejected rows, or is of a later batch
                and does not say which rows of this one are written.
        """
        if value is None:
            return MarkerState()
        found = MARKER_PATTERN.fullmatch(value)
        key = self.key(stream).decode(errors="backslashreplace")
        if found is None:
            raise CommandError(f"The key {key!r} holds {value!r}, not a marker: rename the key.")
        batch, rows = int(found["batch"]), int(found["rows"])
        digest = int(found["digest"], 16) if found["digest"] else None
        if found["reason"]:
            accepted = value[: found.start("reason") - 1].decode()
            raise CommandError(
                f"Batch {batch} was written to {stream_name(stream)!r} in part: "
                f"{found['reason'].decode(errors='replace')}. To continue without the rejected rows: "
                f"SET {key} {accepted}"
            )
        if batch == self.batch_id:
            return MarkerState(rows, digest, batch_before=found["before"] or b"")
        if batch < self.batch_id:
            current = b"%d:%d:%016x" % (batch, rows, digest) if digest is not None else b""
            return MarkerState(batch_before=current)
        earlier, count, mark = (found["before"] or b"-1:0:0").split(b":")
        if int(earlier) != self.batch_id:
            raise CommandError(later_batch_message(self, stream, batch))
        return MarkerState(int(count), int(mark, 16), is_final=True)


def later_batch_message(marker: Marker, stream: bytes, batch: int) -> str:
    """Return the error for a batch that is written again after a later batch."""
    return (
        f"The stream {stream_name(stream)!r} has batch {batch} of the query {marker.query_id!r} already, so "
        f"batch {marker.batch_id} is not written. If this is a new query, or its checkpoint is new or was "
        "restored, give it another query ID"
    )
