"""The marker of a load: its progress, stored on the server by the transactions that add the rows.

    {orders}:headrace:load:<name>  =  {"run": 2, "run_rows": 4000, "rows": 9000, "digest": "5f0c…", …}
        run 2 has added 4000 rows; with the runs before it the first 9000 rows of the file are in the stream

The digest covers the fields of these rows; another one covers their times, if these give the IDs. A resumed
load reads the rows again and compares, so a changed file is detected. Only the process that started a run
relies on `run_rows`. A key expires 30 days after its last use.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from headrace.companion_keys import companion_key_prefix
from headrace.errors import CommandError, HeadraceError
from headrace.pipeline.loading.row_checks import ValidRows
from headrace.spark.sink.arrow_cells import field_cells
from headrace.spark.sink.encoder import XaddEncoder
from headrace.spark.sink.marker import Marker, MarkerState

DIGEST_BYTES = 16
BATCHES_KEPT = 8  # an unconfirmed transaction contains rows of at most this many batches
ENCODED_BYTES_MAX = 1 << 62
NO_TIME = -(1 << 63)


class RowDigest:
    """A digest of a sequence of rows, independent of how they are split into batches.

    Args:
        has_times: Whether the times of the rows give their IDs.
        encoder: Encodes the fields; None for a new one.
    """

    def __init__(self, has_times: bool = False, encoder: XaddEncoder | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._times = hashlib.blake2b(digest_size=DIGEST_BYTES) if has_times else None
        self._encoder = encoder or XaddEncoder()  # keeps no state between two calls

    def copy(self) -> RowDigest:
        """Return an independent digest of the same rows."""
        copied = RowDigest(encoder=self._encoder)
        copied._hash = self._hash.copy()
        copied._times = None if self._times is None else self._times.copy()
        return copied

    def update(self, part: ValidRows) -> None:
        """Add rows: the names and the texts of their fields, and their times."""
        rows = part.rows
        columns = [field_cells(name, rows.column(at), "iso8601") for at, name in enumerate(rows.schema.names)]
        self._encoder.set_batch(rows.num_rows, columns, None)
        self._encoder.set_prefix([])
        self._encoder.encode(None, 0, rows.num_rows, ENCODED_BYTES_MAX)
        self._hash.update(self._encoder.take())
        if self._times is not None:
            self._times.update(packed_times(part.times))

    def drop_times(self) -> None:
        """Leave out the times of all rows, also of rows that are added later."""
        self._times = None

    def fields_hex(self) -> str:
        """Return the digest of the fields in hexadecimal."""
        return self._hash.hexdigest()

    def times_hex(self) -> str:
        """Return the digest of the times in hexadecimal; empty if they do not give the IDs."""
        return "" if self._times is None else self._times.hexdigest()


def packed_times(times: Sequence[int | None]) -> array[int]:
    """Return times in milliseconds as integers of 8 bytes; None becomes NO_TIME."""
    try:
        return array("q", times)  # type: ignore[arg-type]
    except TypeError:  # a row has no time; trying first is faster than searching for it
        return array("q", [NO_TIME if ms is None else ms for ms in times])


@dataclass(frozen=True)
class LoadState:
    """The content of a marker.

    Attributes:
        run: The last run of the job, from 1.
        run_rows: Rows that this run has added.
        rows: Rows of the file that are in the stream, added by all runs.
        digest: The digest of these rows, in hexadecimal.
        file: The file's name.
        size: The file's size in bytes; 0 if unknown.
        append: Whether rows get IDs after the stream's last entry.
        done: Whether the load is complete.
        times: The digest of the rows' times, in hexadecimal; empty if these did not give the IDs of all rows,
            or if an earlier version wrote the marker.
        process: Identifies the process that started the run.
    """

    run: int
    run_rows: int
    rows: int
    digest: str
    file: str = ""
    size: int = 0
    append: bool = False
    done: bool = False
    times: str = ""
    process: str = ""

    def encode(self) -> bytes:
        """Return the marker's value."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def parse(cls, value: bytes | None, key: bytes) -> LoadState | None:
        """Parse a marker's value; return None if there is no marker.

        Raises:
            CommandError: if the value is not a marker, or records that the server rejected some rows.
        """
        if value is None:
            return None
        shown = key.decode(errors="replace")
        try:
            members: dict[str, Any] = json.loads(value)
            rejection = members.pop("refused", None)
            state = cls(**members)
        except (ValueError, TypeError, AttributeError) as error:
            raise CommandError(
                f"the key {shown!r} holds {value[:80]!r}, which is not the marker of a load; delete the "
                "key to load from the beginning"
            ) from error
        if rejection:
            raise CommandError(
                f"the server rejected some rows of this load: {rejection}. Delete the key {shown!r} to load "
                "from the beginning"
            )
        return state


@dataclass(frozen=True)
class LoadMarker(Marker):
    """The marker of a load: `query_id` is the load's name, `batch_id` the number of its run.

    Attributes:
        state_before_run: The state before this run.
        start_digest: The digest of the rows loaded before this run.
    """

    has_digest: ClassVar[bool] = False  # a resumed load compares the digest itself

    state_before_run: LoadState = field(default_factory=lambda: LoadState(0, 0, 0, ""))
    start_digest: RowDigest = field(default_factory=RowDigest)
    _sent: deque[tuple[int, RowDigest, ValidRows, RowDigest]] = field(
        default_factory=lambda: deque(maxlen=BATCHES_KEPT)
    )
    _digests: dict[int, tuple[str, str]] = field(default_factory=dict)

    def key(self, stream: bytes) -> bytes:
        """Return the key of this load into the stream."""
        return b"%b:headrace:load:%b" % (companion_key_prefix(stream), self.query_id.encode())

    def record_rows(self, first: int, before: RowDigest, part: ValidRows, after: RowDigest) -> None:
        """Record rows that are about to be sent.

        Args:
            first: the index of the first one in this run.
            before: the digest without them.
            part: the rows.
            after: the digest with them.
        """
        self._sent.append((first, before, part, after))
        self._digests.clear()

    def digest_at(self, rows: int) -> RowDigest:
        """Return the digest of all loaded rows up to the first `rows` rows of this run.

        Raises:
            HeadraceError: if these rows are older than the last BATCHES_KEPT batches.
        """
        if rows == 0:
            return self.start_digest
        for first, before, part, after in reversed(self._sent):
            if rows == first + part.rows.num_rows:
                whole: RowDigest = after.copy()
                return whole
            if first < rows:
                digest: RowDigest = before.copy()
                digest.update(part.slice(0, rows - first))
                return digest
        raise HeadraceError(f"the server has only {rows:,} rows of this run, fewer than it had confirmed")

    def state(self, rows: int) -> LoadState:
        """Return the state after `rows` rows of this run."""
        if rows not in self._digests:
            found = self.digest_at(rows)
            self._digests[rows] = (found.fields_hex(), found.times_hex())
        digest, times = self._digests[rows]
        total = self.state_before_run.rows + rows
        return replace(
            self.state_before_run, run=self.batch_id, run_rows=rows, rows=total, digest=digest, times=times
        )

    def value(self, rows: int, digest: int = 0, batch_before: bytes = b"") -> bytes:
        """Return the value of the key after `rows` rows of this run."""
        return self.state(rows).encode()

    def error_value(self, rows: int, digest: int, reason: str) -> bytes:
        """Return the value of the key if the server rejected some of these rows."""
        return json.dumps(asdict(self.state(rows)) | {"refused": reason}).encode()

    def parse_state(self, value: bytes | None, stream: bytes) -> MarkerState:
        """Return which rows of this run are in the stream.

        Raises:
            CommandError: if another run of the same load has started meanwhile.
        """
        state = LoadState.parse(value, self.key(stream))
        if state is None or state.run < self.batch_id:
            return MarkerState()
        if not self.is_own(state):
            raise CommandError(
                f"another process has started the same load into {stream.decode(errors='replace')!r}; "
                "wait for it, or give this load another --job"
            )
        return MarkerState(state.run_rows)

    def is_own(self, state: LoadState) -> bool:
        """Return whether this run wrote a marker: two processes may start runs with the same number."""
        return (state.run, state.process) == (self.batch_id, self.state_before_run.process)
