"""The execution of a batch that may write to a stream, as its key records it.

{orders}:headrace:sink:<query>:attempt  =  {"batch": 7, "attempt": "5f0c", "repeated": true}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from headrace.client.stream_names import stream_name
from headrace.errors import CommandError, HeadraceError
from headrace.spark.sink.marker import Marker


class RowsChanged(HeadraceError):
    """A repeated write has other rows than the ones that an earlier attempt has written."""


class AttemptSuperseded(HeadraceError):
    """Another execution of the same batch was started, so this one may not write any more."""


@dataclass(frozen=True)
class BatchAttempt:
    """The execution of a batch that may write to a stream.

    Attributes:
        batch: the number of the batch.
        attempt: identifies the execution.
        checkpoint: Spark's own ID of the streaming query; empty if unknown.
        repeated: whether an earlier execution may have written rows of the batch.
        error: why no task may write any more; empty if all is well.
        superseded: earlier executions of the batch.
    """

    batch: int
    attempt: str
    checkpoint: str = ""
    repeated: bool = False
    error: str = ""
    superseded: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the value of the key."""
        return json.dumps({k: v for k, v in asdict(self).items() if v or k == "batch"}).encode()

    @classmethod
    def parse(cls, value: bytes | None, key: bytes) -> BatchAttempt | None:
        """Parse the attempt key's value; None if there is no key. Raises CommandError if it is invalid."""
        if value is None:
            return None
        try:
            members: dict[str, Any] = json.loads(value)
            return cls(**members | {"superseded": tuple(members.get("superseded", ()))})
        except (ValueError, TypeError, AttributeError) as error:
            name = key.decode(errors="backslashreplace")
            raise CommandError(f"The key {name!r} holds {value[:80]!r}: rename or delete the key.") from error


def rows_changed_message(marker: Marker, stream: bytes, found: str) -> str:
    """Return the error for a repeated write with other rows."""
    keys = marker.query_key(stream).decode(errors="backslashreplace")
    return (
        f"Batch {marker.batch_id} of the query {marker.query_id!r} is repeated with other rows than those "
        f"that are in the stream {stream_name(stream)!r} already: {found}. An exactly-once write needs the "
        "same rows in the same order and partitions. Undo what changed: minPartitions, the number of cores, "
        "AQE; rand() or current_timestamp() before the sink; entries that were deleted from the source. If "
        "the query, its checkpoint or its data is new, give it another query ID. To write the batch from "
        f"its beginning, with the rows it has in the stream again, delete the keys {keys}:*"
    )
