"""The stream that a replay goes into, and where it stands.

Where a replay stands is kept in the server, by the transaction that adds the entries:

    {orders}:headrace:replay:<name>  =  2:184000:1357081200000-17:1388530740000-0:kept
        run 2, entries of this run, last entry replayed, last one to replay, IDs kept or new

So it can be stopped, or killed, at any point: begun again it goes on behind the last entry that is there. The
end is fixed when a replay begins, so a stream can be replayed into itself. When all is done `:done` is
added to the value, so that the same replay, begun again, adds nothing. The key expires 30 days after its
last use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.errors import CommandError, UsageError
from headrace.pipeline.replay_source import LAST
from headrace.spark.options import Options, parse_options
from headrace.spark.servers import Servers
from headrace.spark.sink.marker import Marker, tagged
from headrace.spark.sink.sender import Sender
from headrace.spark.source.offsets import START, parse_id
from headrace.spark.source.stream_state import last_ids
from headrace.spark.stream_names import stream_key

WORDS = ("new", "kept")  # of the IDs
DONE = "done"
REFUSED = "!"
BATCHES_KEPT = 8  # whose IDs a chunk that is not yet confirmed may still need


@dataclass(frozen=True)
class Place(Marker):
    """The marker of a replay: batch is the run, and with the rows goes the ID of the last of them."""

    upto: str = LAST
    keep: bool = False
    ids: deque[tuple[int, pa.Array]] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def key(self, stream: bytes) -> bytes:
        """The key of this replay into the stream."""
        return b"%b:headrace:replay:%b" % (tagged(stream), self.query.encode())

    def note(self, first: int, ids: pa.Array) -> None:
        """The rows from number `first` on have these IDs in the source."""
        self.ids.append((first, ids))

    def value(self, rows: int) -> bytes:
        """What the key holds when so many rows of the run are written."""
        place = bisect_right([first for first, _ in self.ids], rows - 1) - 1
        first, ids = self.ids[place]
        last: str = ids[rows - 1 - first].as_py()
        return f"{self.batch}:{rows}:{last}:{self.upto}:{WORDS[self.keep]}".encode()

    def flawed(self, rows: int, reason: str) -> bytes:
        """What the key holds when some of these rows were refused."""
        return f"{self.batch}:{rows}:{REFUSED}:{reason}".encode()

    def rows_done(self, value: bytes | None, stream: bytes) -> int:
        """How many rows of this run are written. CommandError if another run has begun."""
        stand = Stand.of(value, self.key(stream))
        if stand is None or stand.run < self.batch:
            return 0
        if stand.run > self.batch:
            raise CommandError(
                f"this replay into {stream.decode()!r} is also run elsewhere, and has gone on there"
            )
        return stand.rows


@dataclass(frozen=True)
class Stand:
    """Where a replay stands: rows of its run, the last entry replayed, the last to replay, the IDs' fate.

    done: whether it has come to its end.
    """

    run: int
    rows: int
    last: str
    upto: str
    keep: bool
    done: bool = False

    @classmethod
    def of(cls, value: bytes | None, key: bytes) -> Stand | None:
        """What a key's value says; None if there is no such key. CommandError if it makes no sense."""
        if value is None:
            return None
        run, rows, last, rest = (value.decode(errors="replace").split(":", 3) + [""] * 3)[:4]
        if last == REFUSED:
            raise CommandError(
                f"entries of this replay were refused: {rest}. Delete the key {key.decode()!r} to begin anew"
            )
        upto, _, word = rest.partition(":")
        word, _, end = word.partition(":")
        try:
            parse_id(last), parse_id(upto), ("", DONE).index(end)
            return cls(int(run), int(rows), last, upto, WORDS.index(word) == 1, end == DONE)
        except ValueError as error:
            raise CommandError(
                f"the key {key.decode()!r} holds {value!r}, not where a replay stands"
            ) from error


class Target:
    """The stream that is replayed into, and where the replay stands.

    rows, first_id, last_id    what has been sent, by the source's IDs
    """

    def __init__(self, url: str, stream: str, name: str) -> None:
        self._url = url
        self._stream = stream
        self.servers = Servers(url)
        self._place = Place(name)
        self._sender: Sender | None = None
        self._keep = False
        self.rows = 0
        self.first_id = ""
        self.last_id = ""

    @property
    def _key(self) -> bytes:
        return self._place.key(stream_key(self._stream))

    def stand(self) -> Stand | None:
        """Where an earlier run was left."""
        return Stand.of(self.servers.client().get(self._key), self._key)

    def exists(self) -> bool:
        """Return whether the stream is there."""
        return self._stream in last_ids(self.servers, [self._stream])

    def keeps_ids(self, wanted: bool | None, begin: str) -> bool:
        """Whether the entries get the IDs they had. UsageError if they should and cannot."""
        last = last_ids(self.servers, [self._stream]).get(self._stream, START)
        if wanted is None:
            return last == START
        if wanted and parse_id(last) > parse_id(begin):
            raise UsageError(
                f"stream {self._stream!r} has had entries up to {last}, and IDs only grow: those up to there "
                "cannot be kept. Give another stream with --into, a later --from, or --new-ids"
            )
        return wanted

    def open(self, keep: bool, run: int, upto: str, restart: bool) -> None:
        """Ready to add entries."""
        self._keep = keep
        self._place = Place(self._place.query, 0, run, upto=upto, keep=keep)
        if restart:
            self.forget()
        self._sender = Sender(self._options(), self._place)

    def _options(self) -> Options:
        keep = "true" if self._keep else "false"
        return parse_options({"url": self._url, "stream": self._stream, "keepIds": keep}, "sink")

    def add(self, batch: pa.RecordBatch) -> None:
        """Send entries; the last ones may not be confirmed yet."""
        assert self._sender is not None
        ids = batch.column("id")
        self._place.note(self.rows, ids)
        self._sender.send(self._shaped(batch))
        self.rows += len(ids)
        self.first_id = self.first_id or ids[0].as_py()
        self.last_id = ids[-1].as_py()

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns as the sink knows them."""
        if "fields" in batch.schema.names and pa.types.is_map(batch.schema.field("fields").type):
            return batch
        if not self._keep:
            return batch.drop_columns(["id"])
        return batch.rename_columns(["_id" if name == "id" else name for name in batch.schema.names])

    def settle(self) -> None:
        """Wait until all that was sent is there."""
        assert self._sender is not None
        self._sender.finish()

    def complete(self, earlier: Stand | None) -> None:
        """Note that the replay has come to its end; earlier: where the run before this one was left."""
        if not self.rows and earlier is None:
            return  # nothing was added: it may as well be run again
        last = self.last_id or (earlier.last if earlier else START)
        place = self._place
        value = f"{place.batch}:{self.rows}:{last}:{place.upto}:{WORDS[place.keep]}:{DONE}"
        self.servers.client().set(self._key, value, px=place.life_ms)

    def forget(self) -> None:
        """Remove the marker: the replay begins again."""
        self.servers.client().delete(self._key)

    def close(self) -> None:
        """Close the connections."""
        if self._sender is not None:
            self._sender.close()
        self.servers.close()
