"""Rows that stand in a stream once, whatever is lost, repeated or killed on the way.

Each chunk is a transaction that also sets the marker:

    WATCH marker   GET marker   MULTI   XADD ... XADD   SET marker 7:4000  |  EXEC
    armed: sent as soon as it is encoded; the server keeps it queued       |  sent when GET's answer is right

So the server has the rows before we know whether they are due, yet adds none until we do: EXEC is sent only
when the marker stands where the chunk begins, and does nothing if the marker has changed since. EXEC and the
next chunk leave together, so the server is never idle for long. After anything unforeseen (a lost
connection, a twin of this task, a server that is restarting) the connection is given up, and with it all
that was armed; what is unsettled is looked up and written chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.client.servers import Servers
from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.resp.replies import ReplyError
from headrace.resp.request import request
from headrace.spark.sink.delivery import ChunkWriter, ConcurrentAttempt, RowChunk, SinkConnection
from headrace.spark.sink.marker import Marker
from headrace.spark.source.offsets import parse_id

MULTI = request(b"MULTI")
EXEC = request(b"EXEC")
EXECABORT_REASON = "because of: "  # how EXECABORT names what it is about
NO_ID = (0, 0)


class IdTooSmall(UsageError):
    """An ID that a row asks for is not above the stream's last one: other entries were added meanwhile."""


class ConfirmedRowsLost(HeadraceError):
    """The server no longer has rows that it had confirmed."""


class ExactlyOnceWriter(ChunkWriter):
    """Transactions that hold a chunk and its marker.

    running     the chunk whose EXEC is sent and not yet answered
    armed       the chunk that is queued behind it
    """

    def __init__(self, servers: Servers, marker: Marker, trim: Sequence[bytes] = ()) -> None:
        super().__init__(servers)
        self._marker = marker
        self._trim = tuple(trim)
        self._executing: RowChunk | None = None
        self._queued: RowChunk | None = None
        self._rows_done: dict[bytes, int] = {}  # for each stream, how many rows the marker has told of
        self._marker_values: dict[bytes, bytes | None] = {}  # and what it holds after the chunks taken so far

    def prepare(self, streams: Iterable[bytes]) -> None:
        """Look up what is written of these streams already. Raises CommandError for a key of another type."""
        new = [stream for stream in dict.fromkeys(streams) if stream not in self._rows_done]
        if new:
            self.flush()
            self.with_retries(lambda: self._read_markers(new), lambda: self._read_markers_each(new))

    def _read_markers_each(self, streams: list[bytes]) -> None:
        """The same with a connection for each: they may have parted to several servers."""
        for stream in streams:
            if stream not in self._rows_done:
                self.close()
                self._read_markers([stream])

    def _read_markers(self, streams: list[bytes]) -> None:
        requests = b"".join(request(b"TYPE", s) + request(b"GET", self._marker.key(s)) for s in streams)
        link = self.connection_for(streams[0])
        answers = link.request(requests, 2 * len(streams))
        for answer in answers:
            if isinstance(answer, ReplyError):
                link.raise_error(str(answer))
        for stream, kind, value in zip(streams, answers[::2], answers[1::2], strict=True):
            if kind not in ("none", "stream"):
                raise CommandError(f"WRONGTYPE The key {stream.decode()!r} holds a {kind}, not a stream.")
            self._rows_done[stream] = self._marker.rows_done(value, stream)
            self._marker_values[stream] = value
        if self._trim:
            self._check_trimming(link, streams[0])
        self.reset_delay()

    def _check_trimming(self, link: SinkConnection, stream: bytes) -> None:
        """An XADD that adds nothing, for there is no such key: a server that cannot trim so says it here."""
        key = self._marker.key(stream) + b":none"
        probe = request(b"XADD", key, b"NOMKSTREAM", *self._trim, b"*", b"a", b"a")
        [answer] = link.request(probe, 1)
        if isinstance(answer, ReplyError):
            try:
                link.raise_error(str(answer))
            except CommandError:
                words = b" ".join(self._trim).decode()
                raise CommandError(f"The server does not trim by {words}: {answer}") from None

    def rows_done(self, stream: bytes) -> int:
        """How many of the task's rows for the stream are known to be written."""
        return self._rows_done[stream]

    def write(self, chunk: RowChunk) -> None:
        """Arm a chunk, and let the one before run."""
        chunk.marker_before = self._marker_values[chunk.stream]
        if self._marker.rows_done(chunk.marker_before, chunk.stream) < chunk.first_row:
            raise confirmed_rows_lost(chunk, self._marker.rows_done(chunk.marker_before, chunk.stream))
        self._marker_values[chunk.stream] = self._marker.value(chunk.end_row)
        self.unconfirmed.append(chunk)
        if chunk.requested_ids is not None:
            self.with_retries(
                self._write_missing, self._write_missing
            )  # where each ID depends on the stream, each is looked at
        else:
            self.with_retries(lambda: self._advance(chunk), self._write_missing)

    def flush(self) -> None:
        """Let all that is armed run, and wait for it."""
        while self.unconfirmed:
            self.with_retries(lambda: self._advance(None), self._write_missing)

    def close(self) -> None:
        """Close the connection: what is armed is gone, what is running may or may not be written."""
        self._executing = self._queued = None
        super().close()

    def _advance(self, chunk: RowChunk | None) -> None:
        """See that the running chunk was written and the armed one may run; arm the next."""
        link = self.connection_for(self.unconfirmed[0].stream)
        if self._executing is not None:
            self._check_executed(link, self._executing)
        requests = bytearray()
        if self._queued is not None:
            replies = link.count_replies(2)  # of WATCH and GET
            for _, _, text in replies.errors:
                link.raise_error(text)
            if replies.value != self._queued.marker_before:
                raise ConcurrentAttempt("the marker is not where it was left")
            requests += EXEC
        if chunk is not None:
            key = self._marker.key(chunk.stream)
            requests += request(b"WATCH", key) + request(b"GET", key) + self._transaction(chunk)
        self._executing, self._queued = self._queued, chunk
        link.send(requests)

    def _transaction(self, chunk: RowChunk) -> bytearray:
        """All of it but its EXEC."""
        life = b"%d" % self._marker.ttl_ms
        value = self._marker.value(chunk.end_row)
        requests = bytearray(MULTI)
        requests += chunk.requests
        requests += request(b"SET", self._marker.key(chunk.stream), value, b"PX", life)
        return requests

    def _check_executed(self, link: SinkConnection, chunk: RowChunk) -> None:
        """Read the answers from MULTI to EXEC."""
        executed = chunk.rows + 2  # after MULTI, the rows and SET
        replies = link.count_replies(executed + 1)
        whole = [text for reply, element, text in replies.errors if reply < executed or element < 0]
        if whole:
            link.raise_error(whole[0].rpartition(EXECABORT_REASON)[2])
        if replies.errors:
            self._handle_rejected_rows(chunk, [text for _, _, text in replies.errors])
        if replies.null:
            raise ConcurrentAttempt("the marker has moved")
        self._executing = None
        self.confirm_first()

    def _write_missing(self) -> None:
        while self.unconfirmed:
            self._write_missing_rows(self.unconfirmed[0])
            self.confirm_first()

    def _write_missing_rows(self, chunk: RowChunk) -> None:
        """Look what is written of a chunk, and write the rest."""
        link = self.connection_for(chunk.stream)
        key = self._marker.key(chunk.stream)
        looks = request(b"WATCH", key) + request(b"GET", key)
        if chunk.requested_ids is not None:
            looks = request(b"WATCH", key, chunk.stream) + request(b"GET", key)
            looks += request(b"XINFO", b"STREAM", chunk.stream)
        watched, value, *stream = link.request(looks, 2 if chunk.requested_ids is None else 3)
        for answer in (watched, value):
            if isinstance(answer, ReplyError):
                link.raise_error(str(answer))
        done = self._marker.rows_done(value, chunk.stream)
        if done < chunk.first_row:
            raise confirmed_rows_lost(chunk, done)
        self._rows_done[chunk.stream] = max(self._rows_done[chunk.stream], done)
        if done >= chunk.end_row:
            self._marker_values[chunk.stream] = value
            link.request(request(b"UNWATCH"), 1)
            return
        at = chunk.start + done - chunk.first_row
        if chunk.requested_ids is not None:
            self._check_ids(link, chunk.stream, stream[0], chunk.requested_ids(at, chunk.stop))
        if at > chunk.start:
            chunk = RowChunk(chunk.stream, chunk.encode(at, chunk.stop), done, at, chunk.stop, chunk.encode)
        chunk.marker_before = value
        self._marker_values[chunk.stream] = self._marker.value(chunk.end_row)
        answers = link.request(bytes(self._transaction(chunk) + EXEC), chunk.rows + 3)
        for answer in answers:
            if isinstance(answer, ReplyError):
                link.raise_error(str(answer).rpartition(EXECABORT_REASON)[2])
        if answers[-1] is None:
            raise ConcurrentAttempt("the marker has moved")
        refused = [str(answer) for answer in answers[-1] if isinstance(answer, ReplyError)]
        if refused:
            self._handle_rejected_rows(chunk, refused)

    def _handle_rejected_rows(self, chunk: RowChunk, texts: list[str]) -> None:
        """The transaction ran, but not all its XADDs: no later attempt may take the marker at its word."""
        self._servers.with_retries(lambda: self._amend(chunk, texts))
        name = chunk.stream.decode(errors="surrogateescape")
        counts = f"{len(texts)} of {chunk.rows} were refused"
        raise CommandError(f"{texts[0]} (adding entries to the stream {name!r}; {counts})")

    def _amend(self, chunk: RowChunk, texts: list[str]) -> None:
        """Set the marker back if nothing was added, as if not tried; else write down what happened."""
        self.close()
        link = self.connection_for(chunk.stream)
        key = self._marker.key(chunk.stream)
        _, value = link.request(request(b"WATCH", key) + request(b"GET", key), 2)
        if value != self._marker.value(chunk.end_row):
            return
        if len(texts) < chunk.rows:
            reason = f"{len(texts)} of rows {chunk.first_row} to {chunk.end_row - 1} were refused, {texts[0]}"
            amends = request(b"SET", key, self._marker.error_value(chunk.end_row, reason))
        elif chunk.marker_before is None:
            amends = request(b"DEL", key)
        else:
            amends = request(b"SET", key, chunk.marker_before)
        link.request(MULTI + amends + EXEC, 3)

    def _check_ids(self, link: SinkConnection, stream: bytes, info: object, ids: list[str | None]) -> None:
        """See that the server will take the IDs; info is what XINFO STREAM said."""
        last = NO_ID
        if isinstance(info, list):
            words = dict(zip(info[::2], info[1::2], strict=True))
            last = parse_id(words[b"last-generated-id"].decode())
        elif not (isinstance(info, ReplyError) and "no such key" in str(info)):
            link.raise_error(str(info))
        check_ids(stream, last, ids)


def confirmed_rows_lost(chunk: RowChunk, done: int) -> ConfirmedRowsLost:
    """The server's marker stands before rows that it had confirmed."""
    return ConfirmedRowsLost(
        f"The server had confirmed {chunk.first_row} rows for {chunk.stream.decode()!r} and now knows "
        f"of {done}: it lost its latest writes in a restart or a failover. A new attempt of this task "
        "writes them again."
    )


def check_ids(stream: bytes, last: tuple[int, int], ids: list[str | None]) -> None:
    """See that the IDs rise from last on: no transaction is undone over one that is refused. UsageError."""
    if all(i is None for i in ids):
        return
    for text in ids:
        if text is None:
            raise UsageError("Some rows have an ID and some have none: exactly once, it must be all or none.")
        try:
            entry_id = parse_id(text)
        except ValueError as wrong:
            raise UsageError(f"{wrong}, like 1763676000000-0.") from None
        if entry_id <= last:
            raise IdTooSmall(
                f"The ID {text} is not above {last[0]}-{last[1]}, where the stream {stream.decode()!r} "
                "has got to. Rows with IDs must come sorted, and in one partition for each stream."
            )
        last = entry_id
