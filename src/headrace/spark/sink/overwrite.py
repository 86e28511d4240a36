"""Overwriting a stream: written under another key, and put in its place at once when all is there.

    {orders}:headrace:new:<uuid>   --  RENAME, in commit()  -->   orders

Readers see the old stream or the new one, never a part. The old one's consumer groups go with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key, stream_name
from headrace.errors import CommandError
from headrace.resp.replies import ReplyError
from headrace.resp.request import request
from headrace.spark.sink.delivery import SinkConnection
from headrace.spark.sink.marker import hash_tagged

TEMPORARY_TTL_MS = 7 * 24 * 3600 * 1000  # of what a driver left behind that died before commit() or abort()


@dataclass(frozen=True)
class StreamReplacement:
    """The new stream on its way to the place of the old one."""

    url: str
    stream: str
    suffix: str

    @property
    def temporary_stream(self) -> str:
        """The key to write to. In the same slot as the stream's."""
        return stream_name(
            b"%b:headrace:new:%b" % (hash_tagged(stream_key(self.stream)), self.suffix.encode())
        )

    def set_expiry(self) -> None:
        """Let the server delete the rows if they are never committed."""
        Servers(self.url).with_retries(
            lambda: self._request(b"PEXPIRE", stream_key(self.temporary_stream), b"%d" % TEMPORARY_TTL_MS)
        )

    def commit(self, entries: int) -> None:
        """Put the new stream in the old one's place. Without rows there is none: then the old one goes.

        CommandError if it is no stream whose place that is.
        """
        tried = False

        def work() -> None:
            nonlocal tried
            kind = self._request(b"TYPE", stream_key(self.stream))
            if kind not in ("none", "stream"):
                raise CommandError(f"WRONGTYPE The key {self.stream!r} holds a {kind}, not a stream.")
            if self._request(b"EXISTS", stream_key(self.temporary_stream)):
                tried = True  # if its answer is lost, the next look tells
                self._request(b"PERSIST", stream_key(self.temporary_stream))
                self._request(b"RENAME", stream_key(self.temporary_stream), stream_key(self.stream))
            elif not entries:
                self._request(b"DEL", stream_key(self.stream))
            elif not tried:
                raise CommandError(f"The rows written to {self.temporary_stream!r} are gone.")

        Servers(self.url).with_retries(work)

    def abort(self) -> None:
        """Drop what was written."""
        Servers(self.url).with_retries(lambda: self._request(b"DEL", stream_key(self.temporary_stream)))

    def _request(self, name: bytes, *words: bytes) -> Any:
        """One command, to the server that owns the stream."""
        link = SinkConnection(Servers(self.url), stream_key(self.stream))
        try:
            [answer] = link.request(request(name, *words), 1)
            if isinstance(answer, ReplyError):
                link.raise_error(str(answer))
            return answer
        finally:
            link.close()
