"""The target of a replay, and the position of the replay, stored on the server.

The transactions that add the entries also set the position:

    {orders}:headrace:replay:<name>  =  2:184000:1357081200000-17:1388530740000-0:kept
        run 2, entries of this run, last entry replayed, last one to replay, IDs kept or new

So a replay can be stopped or killed at any point; run again, it continues after the last entry that was
added. The end is fixed when a replay begins, so a stream can be replayed into itself. A complete replay has
`:done` at the end of the value; run again, it adds nothing. The key expires 30 days after its last use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.companion_keys import hash_tagged
from headrace.errors import CommandError, UsageError
from headrace.pipeline.replay_source import LAST_ID
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.stream_state import last_ids
from headrace.spark.options import Options, parse_options
from headrace.spark.sink.marker import Marker, MarkerState
from headrace.spark.sink.sender import RowSender

ID_MODES = ("new", "kept")  # indexed by whether entries keep their IDs
DONE = "done"
REJECTED = "!"
BATCHES_KEPT = 8  # an unconfirmed transaction contains rows of at most this many batches


@dataclass(frozen=True)
class ReplayMarker(Marker):
    """The marker of a replay: `query` is its name, `batch` its run.

    Attributes:
        upto: The ID at which the replay ends, inclusive.
        keep: Whether entries keep their IDs.
        ids: The source IDs of the last batches, each with the number of rows of the run before it.
    """

    has_digest: ClassVar[bool] = False  # a run that continues reads the entries after the last one

    upto: str = LAST_ID
    keep: bool = False
    ids: deque[tuple[int, pa.Array]] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def key(self, stream: bytes) -> bytes:
        """Return the key of this replay into the stream."""
        return b"%b:headrace:replay:%b" % (hash_tagged(stream), self.query_id.encode())

    def record_ids(self, first: int, ids: pa.Array) -> None:
        """Record the source IDs of the rows from number `first` on."""
        self.ids.append((first, ids))

    def value(self, rows: int, digest: int = 0, batch_before: bytes = b"") -> bytes:
        """Return the value of the key after `rows` rows of the run."""
        index = bisect_right([first for first, _ in self.ids], rows - 1) - 1
        first, ids = self.ids[index]
        last: str = ids[rows - 1 - first].as_py()
        return f"{self.batch_id}:{rows}:{last}:{self.upto}:{ID_MODES[self.keep]}".encode()

    def error_value(self, rows: int, digest: int, reason: str) -> bytes:
        """Return the value of the key if the server rejected some of these rows."""
        return f"{self.batch_id}:{rows}:{REJECTED}:{reason}".encode()

    def written(self, value: bytes | None, stream: bytes) -> MarkerState:
        """Return which rows of this run are in the stream. CommandError if another run has started."""
        position = ReplayPosition.parse(value, self.key(stream))
        if position is None or position.run < self.batch_id:
            return MarkerState()
        if position.run > self.batch_id:
            raise CommandError(
                f"another process has started the same replay into {stream.decode()!r}; stop one of them"
            )
        return MarkerState(position.rows)


@dataclass(frozen=True)
class ReplayPosition:
    """The position of a replay.

    Attributes:
        run: The number of its last run, from 1.
        rows: Entries that this run has added.
        last: The source ID of the last entry added.
        upto: The ID at which the replay ends, inclusive.
        keep: Whether entries keep their IDs.
        done: Whether the replay is complete.
    """

    run: int
    rows: int
    last: str
    upto: str
    keep: bool
    done: bool = False

    @classmethod
    def parse(cls, value: bytes | None, key: bytes) -> ReplayPosition | None:
        """Parse the value of a key; return None if there is no key.

        Raises:
            CommandError: if the value is not a position, or records that entries were rejected.
        """
        if value is None:
            return None
        run, rows, last, rest = (value.decode(errors="replace").split(":", 3) + [""] * 3)[:4]
        if last == REJECTED:
            raise CommandError(
                f"the server rejected entries of this replay: {rest}. Delete the key {key.decode()!r} to "
                "begin again"
            )
        upto, _, rest = rest.partition(":")
        id_mode, _, end = rest.partition(":")
        try:
            parse_id(last), parse_id(upto), ("", DONE).index(end)
            return cls(int(run), int(rows), last, upto, ID_MODES.index(id_mode) == 1, end == DONE)
        except ValueError as error:
            raise CommandError(
                f"the key {key.decode()!r} holds {value!r}, which is not the position of a replay; "
                "delete the key to begin again"
            ) from error


class ReplayTarget:
    """The stream that is replayed into, and the position of the replay.

    Args:
        url: The server to replay to.
        stream: The stream to replay into.
        name: Identifies the replay.
        is_source: Whether it is the stream whose entries are replayed.

    Attributes:
        rows: Entries sent by this run.
        first_id: The source ID of the first one.
        last_id: The source ID of the last one.
    """

    def __init__(self, url: str, stream: str, name: str, is_source: bool = False) -> None:
        self._url = url
        self._stream = stream
        self._is_source = is_source
        self.servers = Servers(url)
        self._marker = ReplayMarker(name)
        self._sender: RowSender | None = None
        self._keep = False
        self.rows = 0
        self.first_id = ""
        self.last_id = ""

    @property
    def _key(self) -> bytes:
        return self._marker.key(stream_key(self._stream))

    def position(self) -> ReplayPosition | None:
        """Return the position of an earlier run; None if there was none."""
        return ReplayPosition.parse(self.servers.client().get(self._key), self._key)

    def exists(self) -> bool:
        """Return whether the stream exists."""
        return self._stream in last_ids(self.servers, [self._stream])

    def keeps_ids(self, wanted: bool | None, begin: str) -> bool:
        """Return whether entries keep their IDs.

        Args:
            wanted: Whether to keep them; None: only if the stream does not exist or never had an entry.
            begin: The source ID after which the replay begins.

        Raises:
            UsageError: if the IDs are to be kept but cannot be, or if a stream is replayed into itself under
                new IDs without that being wanted: it would have its entries twice.
        """
        last = last_ids(self.servers, [self._stream]).get(self._stream, START)
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

    def start_run(self, keep: bool, run: int, upto: str, restart: bool) -> None:
        """Start a run, so that entries can be added."""
        self._keep = keep
        self._marker = ReplayMarker(self._marker.query_id, 0, run, upto=upto, keep=keep)
        if restart:
            self.delete_marker()
        self._sender = RowSender(self._options(), self._marker)

    def _options(self) -> Options:
        keep = "true" if self._keep else "false"
        return parse_options({"url": self._url, "stream": self._stream, "keepIds": keep}, "sink")

    def add(self, batch: pa.RecordBatch) -> None:
        """Send entries; the last ones may not be confirmed yet."""
        assert self._sender is not None
        ids = batch.column("id")
        self._marker.record_ids(self.rows, ids)
        self._sender.send(self._sink_columns(batch))
        self.rows += len(ids)
        self.first_id = self.first_id or ids[0].as_py()
        self.last_id = ids[-1].as_py()

    def _sink_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the column names that the sink expects."""
        if "fields" in batch.schema.names and pa.types.is_map(batch.schema.field("fields").type):
            return batch
        if not self._keep:
            return batch.drop_columns(["id"])
        return batch.rename_columns(["_id" if name == "id" else name for name in batch.schema.names])

    def flush(self) -> None:
        """Wait until all entries sent are confirmed."""
        assert self._sender is not None
        self._sender.flush()

    def complete(self, earlier: ReplayPosition | None) -> None:
        """Record that the replay is complete.

        Args:
            earlier: The position of the run before this one, if any.
        """
        if not self.rows and earlier is None:
            return  # nothing was added, so the replay may be run again
        last = self.last_id or (earlier.last if earlier else START)
        marker = self._marker
        value = f"{marker.batch_id}:{self.rows}:{last}:{marker.upto}:{ID_MODES[marker.keep]}:{DONE}"
        self.servers.client().set(self._key, value, px=marker.ttl_ms)

    def delete_marker(self) -> None:
        """Delete the marker, so that the replay begins again."""
        self.servers.client().delete(self._key)

    def close(self) -> None:
        """Close the connections."""
        if self._sender is not None:
            self._sender.close()
        self.servers.close()
