"""The marker: a key on the server that records how many rows a task has written, for exactly-once delivery.

    {orders}:headrace:sink:<query>:<partition>   =   7:4000
    the stream, so that Cluster                      batch 7, rows 0 to 3999 of this partition are written
    keeps both in one slot

The transaction that adds the rows also sets it, so it is always consistent with the stream. Each stream that
rows of a partition go to has a marker of its own. A marker expires 30 days after its last use.

A third part, `7:4000:<reason>`, means that the server rejected some rows of a transaction, which Redis does
not undo. Then no attempt can succeed, and every further one fails with the reason.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from headrace.client.stream_names import stream_name
from headrace.companion_keys import hash_tagged
from headrace.errors import CommandError

TTL_MS = 30 * 24 * 3600 * 1000
ALL_ROWS = sys.maxsize


@dataclass(frozen=True)
class Marker:
    """The identity of a write, and the key and values of its marker.

    Attributes:
        query_id: the name of the query, unique among all queries that write to the server.
        partition: the partition of its rows.
        batch_id: the number of the batch; later batches have larger numbers.
        ttl_ms: how many milliseconds after the last write the marker expires.
    """

    query_id: str
    partition: int = 0
    batch_id: int = 0
    ttl_ms: int = TTL_MS

    def key(self, stream: bytes) -> bytes:
        """Return the marker's key for the rows that go to the stream."""
        return b"%b:headrace:sink:%b:%d" % (hash_tagged(stream), self.query_id.encode(), self.partition)

    def value(self, rows: int) -> bytes:
        """Return the key's value after so many rows of the batch."""
        return b"%d:%d" % (self.batch_id, rows)

    def error_value(self, rows: int, reason: str) -> bytes:
        """Return the key's value after so many rows, some of which were rejected."""
        return b"%d:%d:%b" % (self.batch_id, rows, reason.encode())

    def rows_done(self, value: bytes | None, stream: bytes) -> int:
        """Return how many rows of the batch are written according to a value of the key.

        Returns:
            The number; ALL_ROWS if a later batch was written.

        Raises:
            CommandError: if the value is not a marker, or records rejected rows.
        """
        if value is None:
            return 0
        batch, _, rest = value.partition(b":")
        rows, _, reason = rest.partition(b":")
        key = self.key(stream).decode(errors="backslashreplace")
        if not batch.isdigit() or not rows.isdigit():
            raise CommandError(f"The key {key!r} holds {value!r}, not a marker: rename the key.")
        if reason:
            raise CommandError(
                f"Batch {batch.decode()} was written to {stream_name(stream)!r} in part: {reason.decode()}. "
                f"To continue without the rejected rows: SET {key} "
                f"{batch.decode()}:{rows.decode()}"
            )
        if int(batch) == self.batch_id:
            return int(rows)
        return ALL_ROWS if int(batch) > self.batch_id else 0
