"""One connection on which packed requests go out and their answers are compared, byte by byte."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headrace.errors import HeadraceError
from headrace.pipeline.requests import EXEC, MULTI, Request
from headrace.server_url import failures_explained
from headrace.spark.offsets import parse_id
from headrace.spark.shards import Servers, Wire
from headrace.spark.tails import tail

RECEIVE_BYTES = 1 << 18


class Link(AbstractContextManager["Link"]):
    """A connection to the server that owns a stream, opened on first use. UsageError for no server's URL.

    A lost server is not waited for: who loads a file sees at once that none is there, and may resume.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.servers = Servers(url, patience=0)
        self._wire: Wire | None = None
        self._buffer = bytearray(RECEIVE_BYTES)

    def __exit__(self, *failure: object) -> None:
        if self._wire is not None:
            self._wire.close()
        self.servers.close()

    @property
    def client(self) -> Any:
        """redis-py's client of the same servers."""
        return self.servers.client()

    def last_id(self, stream: str) -> tuple[int, int] | None:
        """The last ID the stream ever gave out, or None if there is no such stream."""
        with failures_explained(self.url):
            last = tail(self.servers, [stream]).get(stream)
        return parse_id(last) if last else None

    def length(self, stream: str) -> int:
        """How many entries the stream has."""
        with failures_explained(self.url):
            return int(self.client.xlen(stream))

    def send(self, stream: str, request: Request) -> None:
        """Sends a batch for the stream, always the same one; its answer is still to be confirmed."""
        with failures_explained(self.url):
            if self._wire is None:
                self._wire = self.servers.wire(stream)
            self._wire.send_raw(MULTI, request.body, EXEC)

    def confirm(self, request: Request) -> None:
        """Waits for a batch's answer. HeadraceError with the server's words if it is not the right one."""
        with failures_explained(self.url):
            expected, seen = memoryview(request.answer), 0
            while seen < len(expected):
                piece = self._receive(len(expected) - seen)
                if piece != expected[seen : seen + len(piece)]:
                    raise HeadraceError(self._refusal(bytes(expected[:seen]) + piece, request))
                seen += len(piece)

    def _receive(self, most: int) -> bytes:
        assert self._wire is not None
        n = self._wire.receive(memoryview(self._buffer)[:most])
        return bytes(memoryview(self._buffer)[:n])

    def _refusal(self, seen: bytes, request: Request) -> str:
        """The first error in an answer that began as seen; the rest of its line may still be on the way."""
        while True:
            *lines, unfinished = seen.split(b"\r\n")
            for line in lines:
                if line.startswith(b"-"):
                    return f"the server refused the rows: {line[1:].decode(errors='replace')}"
            if len(seen) > 2 * len(request.answer) + 4096:
                return f"the server gave an answer that XADD does not give: {unfinished[:80]!r}"
            seen += self._receive(1 << 16)
