"""How a task remembers, on the server, what it has written: the key that makes a sink exactly once.

    {orders}:headrace:sink:<query>:<partition>   =   7:4000
    the stream, so that Cluster                      batch 7, rows 0 to 3999 of this partition are written
    keeps both in one slot

It is set in the transaction that adds the rows, so it says what is there, whatever was lost on the way. Rows
of a partition that go to several streams are counted for each stream apart. A key is gone 30 days after its
last use.

A third part, `7:4000:<reason>`, stands where the server refused single rows in the midst of a transaction,
which Redis does not undo: then no attempt can be right, and every further one fails with the reason.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from headrace.errors import CommandError

TTL_MS = 30 * 24 * 3600 * 1000
ALL_ROWS = sys.maxsize


@dataclass(frozen=True)
class Marker:
    """Who writes: a query (any name that no other query has), a partition of its rows, a batch (they only
    grow).

    ttl_ms: how long after the last write the server remembers.
    """

    query_id: str
    partition: int = 0
    batch_id: int = 0
    ttl_ms: int = TTL_MS

    def key(self, stream: bytes) -> bytes:
        """The marker's key for the rows that go to the stream."""
        return b"%b:headrace:sink:%b:%d" % (hash_tagged(stream), self.query_id.encode(), self.partition)

    def value(self, rows: int) -> bytes:
        """What the key holds when so many rows of the batch are written."""
        return b"%d:%d" % (self.batch_id, rows)

    def error_value(self, rows: int, reason: str) -> bytes:
        """What the key holds when some of these rows were refused."""
        return b"%d:%d:%b" % (self.batch_id, rows, reason.encode())

    def rows_done(self, value: bytes | None, stream: bytes) -> int:
        """How many rows of the batch a value says are written; ALL when a later batch is.

        Raises CommandError when the value is no marker's, or tells of refused rows.
        """
        if value is None:
            return 0
        batch, _, rest = value.partition(b":")
        rows, _, reason = rest.partition(b":")
        if not batch.isdigit() or not rows.isdigit():
            raise CommandError(f"The key {self.key(stream).decode()!r} holds {value!r}, which is no marker.")
        if reason:
            raise CommandError(
                f"Batch {batch.decode()} was written to {stream.decode()!r} in part: {reason.decode()}. "
                f"To go on without the rows refused: SET {self.key(stream).decode()} "
                f"{batch.decode()}:{rows.decode()}"
            )
        if int(batch) == self.batch_id:
            return int(rows)
        return ALL_ROWS if int(batch) > self.batch_id else 0


def hash_tagged(stream: bytes) -> bytes:
    """Return the beginning of a key that Redis Cluster puts into the slot of the stream.

    The stream's name becomes the hash tag. A name that has a hash tag of its own is followed by a colon
    instead, so that no two streams share a key. A name with `}` but without a tag has no such key: it works
    with a single server only.
    """
    begin = stream.find(b"{")
    end = stream.find(b"}", begin + 1)
    if begin >= 0 and end > begin + 1:
        return stream + b":"
    return b"{%b}" % stream
