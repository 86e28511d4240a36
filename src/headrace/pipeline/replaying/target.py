"""The target of a replay, and the position of the replay, stored on the server.

The transactions that add the entries also set the position, in the key `{orders}:headrace:replay:<name>`
(see position.py). So a replay can be stopped or killed at any point; run again, it continues after the last
entry that was added. The end is fixed when a replay begins, so a stream can be replayed into itself. A
complete replay that is run again adds nothing. The key expires 30 days after its last use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from typing import ClassVar
from uuid import uuid4

import pyarrow as pa

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.companion_keys import companion_key_prefix
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.pipeline.replaying.position import REJECTED_SIGN, ReplayPosition
from headrace.plurals import plural
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.stream_state import StreamState, stream_states
from headrace.spark.options import Options, parse_options
from headrace.spark.sink.marker import Marker, MarkerState
from headrace.spark.sink.sender import RowSender

POSITION_NOT_BEGUN = ReplayPosition(0, 0, START, START, keep_ids=False)
BATCHES_KEPT = 8  # an unconfirmed transaction contains rows of at most this many batches


@dataclass(frozen=True)
class ReplayMarker(Marker):
    """The marker of a replay: `query_id` is the replay's name, `batch_id` the number of its run.

    Attributes:
        begin_position: The position before the first entry of this run.
        ids_by_first_row: For each of the last batches, the index of its first row in the run, and the
            source IDs of its rows.
    """

    has_digest: ClassVar[bool] = False  # a run that continues reads the entries after the last one

    begin_position: ReplayPosition = POSITION_NOT_BEGUN
    ids_by_first_row: deque[tuple[int, pa.Array]] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def key(self, stream: bytes) -> bytes:
        """Return the key of this replay into the stream."""
        return b"%b:headrace:replay:%b" % (companion_key_prefix(stream), self.query_id.encode())

    def record_ids(self, first: int, ids: pa.Array) -> None:
        """Record the source IDs of the rows from number `first` on."""
        self.ids_by_first_row.append((first, ids))

    def value(self, rows: int, digest: int = 0, batch_before: bytes = b"") -> bytes:
        """Return the value of the key after `rows` rows of the run."""
        index = bisect_right([first for first, _ in self.ids_by_first_row], rows - 1) - 1
        first, ids = self.ids_by_first_row[index]
        return self.position(rows, ids[rows - 1 - first].as_py()).encode()

    def position(self, rows: int, last: str) -> ReplayPosition:
        """Return the position after `rows` rows of the run, the last of which has this source ID."""
        return replace(
            self.begin_position,
            rows=rows,
            last_source_id=last,
            total_rows=self.begin_position.total_rows + rows,
        )

    def error_value(self, rows: int, digest: int, reason: str) -> bytes:
        """Return the value of the key if the server rejected some of these rows."""
        return f"{self.batch_id}:{rows}:{REJECTED_SIGN}:{reason}".encode()

    def parse_state(self, value: bytes | None, stream: bytes) -> MarkerState:
        """Return which rows of this run are in the stream. CommandError if another run has started."""
        position = ReplayPosition.parse(value, self.key(stream))
        if position is None or position.run_number < self.batch_id:
            return MarkerState()
        if (position.run_number, position.process) != (self.batch_id, self.begin_position.process):
            raise CommandError(
                f"another process has started the same replay into {stream.decode()!r}; stop one of them"
            )
        return MarkerState(position.rows)


class ReplayTarget:
    """The stream that is replayed into, and the position of the replay.

    Args:
        url: The server to replay to.
        stream: The stream to replay into.
        name: Identifies the replay.
        is_source: Whether it is the stream whose entries are replayed.

    Attributes:
        rows_sent: Entries sent by this run.
        first_id: The source ID of the first entry sent.
        last_id: The source ID of the last entry sent.
    """

    def __init__(self, url: str, stream: str, name: str, is_source: bool = False) -> None:
        self._url = url
        self._stream = stream
        self._is_source = is_source
        self.servers = Servers(url)
        self._marker = ReplayMarker(name)
        self._sender: RowSender | None = None
        self.rows_sent = 0
        self.first_id = ""
        self.last_id = ""

    @property
    def _key(self) -> bytes:
        return self._marker.key(stream_key(self._stream))

    def position(self) -> ReplayPosition | None:
        """Return the position of an earlier run; None if there was none."""
        return ReplayPosition.parse(self.servers.client().get(self._key), self._key)

    def _state(self) -> StreamState | None:
        """Return the state of the stream; None if it does not exist."""
        return stream_states(self.servers, [self._stream]).get(self._stream)

    def was_deleted(self, since: ReplayPosition) -> bool:
        """Return whether the stream was deleted since an earlier run.

        Raises:
            HeadraceError: if the stream was deleted and created again. Then its last ID, or its count of
                added entries, is below what the earlier run has written.
        """
        state = self._state()
        if state is None:
            return True
        if since.keep_ids and parse_id(state.last_id) < parse_id(since.last_source_id):
            found = f"it ends at {state.last_id}"
        elif state.entries_added is not None and state.entries_added < since.total_rows:
            found = f"it has had only {plural(state.entries_added, 'entry')}"
        else:
            return False
        raise HeadraceError(
            f"{plural(since.total_rows, 'entry')} up to {since.last_source_id} were replayed into stream "
            f"{self._stream!r}, "
            f"but {found}: it was deleted and created again. --restart replays all entries into it"
        )

    def keeps_ids(self, wanted: bool | None, begin: str) -> bool:
        """Return whether entries keep their IDs.

        Args:
            wanted: Whether to keep them; None to keep them only if the stream never had an entry.
            begin: The source ID after which the replay begins.

        Raises:
            UsageError: if `wanted` is True and the stream has later entries. Also if `wanted` is None and a
                stream is replayed into itself: new IDs would duplicate its entries.
        """
        state = self._state()
        last = START if state is None else state.last_id
        if wanted is None and last != START and self._is_source:
            raise UsageError(
                f"--into {self._stream} is the stream itself, which had entries up to {last}, so earlier IDs "
                "cannot be kept: --new-ids adds its entries once more. Or give another stream with --into"
            )
        if wanted is None:
            return last == START
        if wanted and parse_id(last) > parse_id(begin):
            raise UsageError(
                f"stream {self._stream!r} already has entries up to {last}, so earlier IDs cannot be kept. "
                "Give another stream with --into, a later --from, or --new-ids"
            )
        return wanted

    def start_run(self, begin: ReplayPosition, restart: bool) -> None:
        """Start a run at a position, so that entries can be added; `restart` deletes the stored position."""
        begin = replace(begin, process=uuid4().hex[:16])
        self._marker = ReplayMarker(self._marker.query_id, 0, begin.run_number, begin_position=begin)
        if restart:
            self.delete_marker()
        self._sender = RowSender(self._options(), self._marker)

    def _options(self) -> Options:
        keep = "true" if self._marker.begin_position.keep_ids else "false"
        return parse_options({"url": self._url, "stream": self._stream, "keepIds": keep}, "sink")

    def add(self, batch: pa.RecordBatch) -> None:
        """Send entries; the last ones may not be confirmed yet."""
        assert self._sender is not None
        ids = batch.column("id")
        self._marker.record_ids(self.rows_sent, ids)
        self._sender.send(self._sink_columns(batch))
        self.rows_sent += len(ids)
        self.first_id = self.first_id or ids[0].as_py()
        self.last_id = ids[-1].as_py()

    def _sink_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the column names that the sink expects."""
        if "fields" in batch.schema.names and pa.types.is_map(batch.schema.field("fields").type):
            return batch
        if not self._marker.begin_position.keep_ids:
            return batch.drop_columns(["id"])
        return batch.rename_columns(["_id" if name == "id" else name for name in batch.schema.names])

    def flush(self) -> None:
        """Wait until all entries sent are confirmed."""
        assert self._sender is not None
        self._sender.flush()

    def complete(self, is_first: bool) -> None:
        """Record that the replay is complete, unless this is the first run and it has added nothing."""
        if not self.rows_sent and is_first:
            return  # nothing was added, so the replay may be run again
        begin = self._marker.begin_position
        done = replace(self._marker.position(self.rows_sent, self.last_id or begin.last_source_id), done=True)
        self.servers.client().set(self._key, done.encode(), px=self._marker.ttl_ms)

    def delete_marker(self) -> None:
        """Delete the marker, so that the replay begins again."""
        self.servers.client().delete(self._key)

    def close(self) -> None:
        """Close the connections."""
        if self._sender is not None:
            self._sender.close()
        self.servers.close()
