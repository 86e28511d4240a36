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

from headrace.errors import CommandError, HeadraceError, UsageError
from headrace.resp.replies import ReplyError
from headrace.resp.request import request
from headrace.spark.servers import Servers
from headrace.spark.sink.delivery import Chunk, Delivery, Link, Outrun
from headrace.spark.sink.marker import Marker
from headrace.spark.source.offsets import parse_id

MULTI = request(b"MULTI")
EXEC = request(b"EXEC")
BECAUSE = "because of: "  # how EXECABORT names what it is about
NO_ID = (0, 0)


class IdNotAbove(UsageError):
    """An ID that a row asks for is not above the stream's last one: other entries were added meanwhile."""


class Forgotten(HeadraceError):
    """The server no longer has rows that it had confirmed."""


class ExactlyOnce(Delivery):
    """Transactions that hold a chunk and its marker.

    running     the chunk whose EXEC is sent and not yet answered
    armed       the chunk that is queued behind it
    """

    def __init__(self, servers: Servers, marker: Marker, trim: Sequence[bytes] = ()) -> None:
        super().__init__(servers)
        self._marker = marker
        self._trim = tuple(trim)
        self._running: Chunk | None = None
        self._armed: Chunk | None = None
        self._done: dict[bytes, int] = {}  # for each stream, how many rows the marker has told of
        self._value: dict[bytes, bytes | None] = {}  # and what it holds after the chunks taken so far

    def meet(self, streams: Iterable[bytes]) -> None:
        """Look up what is written of these streams already. Raises CommandError for a key of another type."""
        new = [stream for stream in dict.fromkeys(streams) if stream not in self._done]
        if new:
            self.finish()
            self.with_retries(lambda: self._look_up(new), lambda: self._look_up_each(new))

    def _look_up_each(self, streams: list[bytes]) -> None:
        """The same with a connection for each: they may have parted to several servers."""
        for stream in streams:
            if stream not in self._done:
                self.close()
                self._look_up([stream])

    def _look_up(self, streams: list[bytes]) -> None:
        requests = b"".join(request(b"TYPE", s) + request(b"GET", self._marker.key(s)) for s in streams)
        link = self.linked(streams[0])
        answers = link.ask(requests, 2 * len(streams))
        for answer in answers:
            if isinstance(answer, ReplyError):
                link.refuse(str(answer))
        for stream, kind, value in zip(streams, answers[::2], answers[1::2], strict=True):
            if kind not in ("none", "stream"):
                raise CommandError(f"WRONGTYPE The key {stream.decode()!r} holds a {kind}, not a stream.")
            self._done[stream] = self._marker.rows_done(value, stream)
            self._value[stream] = value
        if self._trim:
            self._try_trimming(link, streams[0])
        self.renew()

    def _try_trimming(self, link: Link, stream: bytes) -> None:
        """An XADD that adds nothing, for there is no such key: a server that cannot trim so says it here."""
        key = self._marker.key(stream) + b":none"
        probe = request(b"XADD", key, b"NOMKSTREAM", *self._trim, b"*", b"a", b"a")
        [answer] = link.ask(probe, 1)
        if isinstance(answer, ReplyError):
            try:
                link.refuse(str(answer))
            except CommandError:
                words = b" ".join(self._trim).decode()
                raise CommandError(f"The server does not trim by {words}: {answer}") from None

    def done(self, stream: bytes) -> int:
        """How many of the task's rows for the stream are known to be written."""
        return self._done[stream]

    def add(self, chunk: Chunk) -> None:
        """Arm a chunk, and let the one before run."""
        chunk.before = self._value[chunk.stream]
        if self._marker.rows_done(chunk.before, chunk.stream) < chunk.first:
            raise forgotten(chunk, self._marker.rows_done(chunk.before, chunk.stream))
        self._value[chunk.stream] = self._marker.value(chunk.last)
        self.unsettled.append(chunk)
        if chunk.ids is not None:
            self.with_retries(
                self._settle_all, self._settle_all
            )  # where each ID depends on the stream, each is looked at
        else:
            self.with_retries(lambda: self._advance(chunk), self._settle_all)

    def finish(self) -> None:
        """Let all that is armed run, and wait for it."""
        while self.unsettled:
            self.with_retries(lambda: self._advance(None), self._settle_all)

    def close(self) -> None:
        """Close the connection: what is armed is gone, what is running may or may not be written."""
        self._running = self._armed = None
        super().close()

    def _advance(self, chunk: Chunk | None) -> None:
        """See that the running chunk was written and the armed one may run; arm the next."""
        link = self.linked(self.unsettled[0].stream)
        if self._running is not None:
            self._see_written(link, self._running)
        requests = bytearray()
        if self._armed is not None:
            tally = link.passed(2)  # of WATCH and GET
            for _, _, text in tally.errors:
                link.refuse(text)
            if tally.value != self._armed.before:
                raise Outrun("the marker is not where it was left")
            requests += EXEC
        if chunk is not None:
            key = self._marker.key(chunk.stream)
            requests += request(b"WATCH", key) + request(b"GET", key) + self._transaction(chunk)
        self._running, self._armed = self._armed, chunk
        link.send(requests)

    def _transaction(self, chunk: Chunk) -> bytearray:
        """All of it but its EXEC."""
        life = b"%d" % self._marker.life_ms
        value = self._marker.value(chunk.last)
        requests = bytearray(MULTI)
        requests += chunk.body
        requests += request(b"SET", self._marker.key(chunk.stream), value, b"PX", life)
        return requests

    def _see_written(self, link: Link, chunk: Chunk) -> None:
        """Read the answers from MULTI to EXEC."""
        executed = chunk.rows + 2  # after MULTI, the rows and SET
        tally = link.passed(executed + 1)
        whole = [text for reply, element, text in tally.errors if reply < executed or element < 0]
        if whole:
            link.refuse(whole[0].rpartition(BECAUSE)[2])
        if tally.errors:
            self._tell_of_refused_rows(chunk, [text for _, _, text in tally.errors])
        if tally.null:
            raise Outrun("the marker has moved")
        self._running = None
        self.settle()

    def _settle_all(self) -> None:
        while self.unsettled:
            self._carefully(self.unsettled[0])
            self.settle()

    def _carefully(self, chunk: Chunk) -> None:
        """Look what is written of a chunk, and write the rest."""
        link = self.linked(chunk.stream)
        key = self._marker.key(chunk.stream)
        looks = request(b"WATCH", key) + request(b"GET", key)
        if chunk.ids is not None:
            looks = request(b"WATCH", key, chunk.stream) + request(b"GET", key)
            looks += request(b"XINFO", b"STREAM", chunk.stream)
        watched, value, *stream = link.ask(looks, 2 if chunk.ids is None else 3)
        for answer in (watched, value):
            if isinstance(answer, ReplyError):
                link.refuse(str(answer))
        done = self._marker.rows_done(value, chunk.stream)
        if done < chunk.first:
            raise forgotten(chunk, done)
        self._done[chunk.stream] = max(self._done[chunk.stream], done)
        if done >= chunk.last:
            self._value[chunk.stream] = value
            link.ask(request(b"UNWATCH"), 1)
            return
        at = chunk.at + done - chunk.first
        if chunk.ids is not None:
            self._check_ids(link, chunk.stream, stream[0], chunk.ids(at, chunk.stop))
        if at > chunk.at:
            chunk = Chunk(chunk.stream, chunk.encode(at, chunk.stop), done, at, chunk.stop, chunk.encode)
        chunk.before = value
        self._value[chunk.stream] = self._marker.value(chunk.last)
        answers = link.ask(bytes(self._transaction(chunk) + EXEC), chunk.rows + 3)
        for answer in answers:
            if isinstance(answer, ReplyError):
                link.refuse(str(answer).rpartition(BECAUSE)[2])
        if answers[-1] is None:
            raise Outrun("the marker has moved")
        refused = [str(answer) for answer in answers[-1] if isinstance(answer, ReplyError)]
        if refused:
            self._tell_of_refused_rows(chunk, refused)

    def _tell_of_refused_rows(self, chunk: Chunk, texts: list[str]) -> None:
        """The transaction ran, but not all its XADDs: no later attempt may take the marker at its word."""
        self._servers.with_retries(lambda: self._amend(chunk, texts))
        name = chunk.stream.decode(errors="surrogateescape")
        counts = f"{len(texts)} of {chunk.rows} were refused"
        raise CommandError(f"{texts[0]} (adding entries to the stream {name!r}; {counts})")

    def _amend(self, chunk: Chunk, texts: list[str]) -> None:
        """Set the marker back if nothing was added, as if not tried; else write down what happened."""
        self.close()
        link = self.linked(chunk.stream)
        key = self._marker.key(chunk.stream)
        _, value = link.ask(request(b"WATCH", key) + request(b"GET", key), 2)
        if value != self._marker.value(chunk.last):
            return
        if len(texts) < chunk.rows:
            reason = f"{len(texts)} of rows {chunk.first} to {chunk.last - 1} were refused, {texts[0]}"
            amends = request(b"SET", key, self._marker.flawed(chunk.last, reason))
        elif chunk.before is None:
            amends = request(b"DEL", key)
        else:
            amends = request(b"SET", key, chunk.before)
        link.ask(MULTI + amends + EXEC, 3)

    def _check_ids(self, link: Link, stream: bytes, info: object, ids: list[str | None]) -> None:
        """See that the server will take the IDs; info is what XINFO STREAM said."""
        last = NO_ID
        if isinstance(info, list):
            words = dict(zip(info[::2], info[1::2], strict=True))
            last = parse_id(words[b"last-generated-id"].decode())
        elif not (isinstance(info, ReplyError) and "no such key" in str(info)):
            link.refuse(str(info))
        check_ids(stream, last, ids)


def forgotten(chunk: Chunk, done: int) -> Forgotten:
    """The server's marker stands before rows that it had confirmed."""
    return Forgotten(
        f"The server had confirmed {chunk.first} rows for {chunk.stream.decode()!r} and now knows of {done}: "
        "it lost its latest writes in a restart or a failover. A new attempt of this task writes them again."
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
            raise IdNotAbove(
                f"The ID {text} is not above {last[0]}-{last[1]}, where the stream {stream.decode()!r} "
                "has got to. Rows with IDs must come sorted, and in one partition for each stream."
            )
        last = entry_id
