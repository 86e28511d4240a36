"""Requests on their way to a server, until it has confirmed them: here at least once.

XADDs go in a pipeline: while the server works on a chunk the next one is encoded. What is unconfirmed when
the connection breaks is sent again. See exactly_once for the other way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import CommandError, HeadraceError, ProtocolError
from headrace.resp.replies import INCOMPLETE, ReplyParser
from headrace.retry import CONNECTION_ERRORS, ReconnectDelay
from headrace.spark.servers import Servers, ServerUnavailable
from headrace.spark.sink.reply_counter import Tally
from headrace.spark.sink.write_timeouts import DISK_ERROR, explained, wait_for_reply

RECEIVE_BYTES = 1 << 16
GATHERED_ROWS = 1000  # chunks of a few rows, for many streams, are sent when they are so many together
GATHERED_BYTES = 1 << 20

# Refusals that pass: the server is starting, failing over, or no longer the one for this key.
PASSING = ("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK")


class Outrun(HeadraceError):
    """Another attempt of this task has written meanwhile; a look at the marker will tell what."""


@dataclass
class Chunk:
    """Rows [at, stop) of a batch, in requests.

    first: the number of the first of them among all that the task has for this stream.
    """

    stream: bytes
    body: bytes | bytearray
    first: int
    at: int
    stop: int
    encode: Callable[[int, int], bytes | bytearray]  # rows [at, stop) again
    ids: Callable[[int, int], list[str | None]] | None = None  # the IDs they ask for, if they ask for any
    before: bytes | None = None  # what the marker says before them

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.stop - self.at

    @property
    def last(self) -> int:
        """The number of the row after them."""
        return self.first + self.rows


class Link:
    """One connection to the server of a stream, and what comes in over it."""

    def __init__(self, servers: Servers, stream: bytes) -> None:
        self._servers = servers
        self._stream = stream.decode(errors="surrogateescape")
        self._wire = servers.open_raw(self._stream)
        self._buffer = bytearray(RECEIVE_BYTES)
        self._tally = Tally()
        self._answers = ReplyParser()

    def send(self, requests: bytes | bytearray) -> None:
        """Send what is encoded."""
        self._wire.send_encoded(requests)

    def passed(self, replies: int) -> Tally:
        """Wait for so many replies, and say how they were."""
        self._tally.expect(replies)
        while not self._tally.done():
            self._tally.feed(self._receive())
        return self._tally

    def ask(self, requests: bytes, replies: int) -> list[Any]:
        """Send, and return the replies; errors among them as ReplyError. Nothing else may be on its way."""
        self.send(requests)
        answers: list[Any] = []
        while len(answers) < replies:
            answer = self._answers.next()
            if answer is INCOMPLETE:
                self._answers.feed(self._receive())
            else:
                answers.append(answer)
        return answers

    def _receive(self) -> bytes:
        wait_for_reply(self._wire, self._servers, self._stream)
        n = self._wire.receive(self._buffer)
        return bytes(memoryview(self._buffer)[:n])

    def refuse(self, text: str) -> None:
        """Raise what a server's refusal amounts to: Moved, when it will pass here or at another server."""
        if text.partition(" ")[0] in PASSING:
            if text.startswith("MOVED"):
                self._wire.raise_if_unavailable(text)
            raise ServerUnavailable(text)
        if text.startswith(DISK_ERROR):
            raise CommandError(explained(text))
        raise CommandError(f"{text} (adding entries to the stream {self._stream!r})")

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()


class Delivery:
    """What both ways share: a link that is made when needed, and patience with a server that is away.

    unsettled   chunks taken and not yet confirmed, in order
    rows        how many are confirmed that were not when the task began
    """

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._link: Link | None = None
        self._patience = ReconnectDelay(servers.reconnect_timeout)
        self.unsettled: deque[Chunk] = deque()
        self.rows = 0

    def linked(self, stream: bytes) -> Link:
        """The connection; if there is none, one to the server of the stream."""
        if self._link is None:
            self._link = Link(self._servers, stream)
        return self._link

    def with_retries(self, work: Callable[[], Any], again: Callable[[], Any]) -> None:
        """Do the work; whenever the connection is lost over it, do `again` over a new one."""
        while True:
            try:
                work()
                return
            except Outrun:
                self.close()
            except (ProtocolError, *CONNECTION_ERRORS) as away:
                self.close()
                self._patience.wait(away)
            work = again

    def settle(self) -> None:
        """The first of the unsettled chunks is written."""
        self.rows += self.unsettled.popleft().rows
        self.renew()

    def renew(self) -> None:
        """Something was achieved: the next loss is waited out as long as the first."""
        self._patience.reset()

    def close(self) -> None:
        """Close the connection; what is unsettled may or may not be written."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


class AtLeastOnce(Delivery):
    """A pipeline of XADDs.

    gathered    small chunks, as one, which is not yet sent
    """

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers)
        self._gathered: Chunk | None = None

    def meet(self, streams: Iterable[bytes]) -> None:
        """Nothing has to be known of a stream."""

    def done(self, stream: bytes) -> int:
        """How many of the task's rows for the stream need not be written."""
        return 0

    def add(self, chunk: Chunk) -> None:
        """Send a chunk, or keep it until there is more; wait for the one before."""
        together = self._gathered
        if together is None:
            self._gathered = together = replace(chunk, body=bytearray(chunk.body))
        else:
            together.body += chunk.body
            together.stop += chunk.rows
        if together.rows >= GATHERED_ROWS or len(together.body) >= GATHERED_BYTES:
            self._send_gathered()

    def finish(self) -> None:
        """Wait until all is confirmed."""
        self._send_gathered()
        self.with_retries(self._confirm_all, self._send_again)

    def _send_gathered(self) -> None:
        chunk, self._gathered = self._gathered, None
        if chunk is not None:
            self.unsettled.append(chunk)
            self.with_retries(lambda: self._send(chunk), self._send_again)

    def _send(self, chunk: Chunk) -> None:
        self.linked(chunk.stream).send(chunk.body)
        while len(self.unsettled) > 1:
            self._confirm()

    def _send_again(self) -> None:
        while self.unsettled:
            chunk = self.unsettled[0]
            if chunk.ids is not None:
                raise CommandError(
                    "The connection was lost, and rows with IDs of their own cannot be sent twice: write "
                    'them with the option delivery "exactly-once".'
                )
            self.linked(chunk.stream).send(chunk.body)
            self._confirm()

    def _confirm_all(self) -> None:
        while self.unsettled:
            self._confirm()

    def _confirm(self) -> None:
        """Wait for the answers to the first of the unsettled chunks."""
        chunk = self.unsettled[0]
        link = self.linked(chunk.stream)
        for _, _, text in link.passed(chunk.rows).errors:
            link.refuse(text)
        self.settle()
