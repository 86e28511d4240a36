"""Overwrite a stream: write the new one under another key, and rename it when it is complete.

    {orders}:headrace:new:<uuid>   --  RENAME, in commit()  -->   orders

Readers see the old stream or the new one, never a part. The old one's consumer groups are deleted with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key, stream_name
from headrace.companion_keys import companion_key_prefix
from headrace.errors import CommandError
from headrace.resp.request import request
from headrace.spark.sink.at_least_once import SinkConnection

TEMPORARY_TTL_MS = 7 * 24 * 3600 * 1000  # if the driver dies before commit() and abort()


@dataclass(frozen=True)
class StreamReplacement:
    """The new stream, until it replaces the old one."""

    servers: Servers
    stream: str
    suffix: str
    replicas: int = 0  # how many of them must have the new stream when commit() returns

    @property
    def temporary_stream(self) -> str:
        """The name of the key to write to, in the same slot as the stream."""
        return stream_name(
            b"%b:headrace:new:%b" % (companion_key_prefix(stream_key(self.stream)), self.suffix.encode())
        )

    def set_expiry(self) -> None:
        """Let the server delete the new stream if it is never committed."""
        ttl = b"%d" % TEMPORARY_TTL_MS
        with self.servers as servers:
            servers.with_retries(
                lambda: self._request(servers, b"PEXPIRE", stream_key(self.temporary_stream), ttl)
            )

    def commit(self, rows: int, is_trimmed: bool = False) -> None:
        """Replace the old stream with the new one. If no row was written, delete the old one.

        Args:
            rows: how many rows were written.
            is_trimmed: whether the new stream was trimmed, so that it may have fewer entries.

        Raises:
            CommandError: if the old key is not a stream, or the new one lacks rows or no longer exists.
        """
        renaming = False
        old, new = stream_key(self.stream), stream_key(self.temporary_stream)

        def work() -> None:
            nonlocal renaming
            kind = self._request(servers, b"TYPE", old)
            if kind not in ("none", "stream"):
                raise CommandError(f"WRONGTYPE The key {self.stream!r} holds a {kind}, not a stream.")
            entries = self._request(servers, b"XLEN", new)
            if entries or (rows and is_trimmed and self._request(servers, b"EXISTS", new)):
                if entries != rows and not is_trimmed:
                    raise CommandError(
                        f"The temporary stream {self.temporary_stream!r} has {entries:,} of {rows:,} rows: "
                        f"the server lost writes in a restart or a failover. {self.stream!r} is unchanged: "
                        "write again."
                    )
                renaming = True
                self._request(servers, b"PERSIST", new)
                self._request(servers, b"RENAME", new, old)
            elif renaming:
                pass  # it was renamed, and the reply was lost
            elif not rows:
                self._request(servers, b"DEL", old)
            else:
                raise CommandError(
                    f"The temporary stream {self.temporary_stream!r} no longer exists: write again."
                )
            self._wait_for_replicas(servers)

        with self.servers as servers:
            servers.with_retries(work)

    def _wait_for_replicas(self, servers: Servers) -> None:
        if not self.replicas:
            return
        connection = SinkConnection(servers, stream_key(self.stream))
        try:
            connection.wait_for_replicas(self.replicas)
        finally:
            connection.close()

    def abort(self) -> None:
        """Delete the new stream."""
        with self.servers as servers:
            servers.with_retries(lambda: self._request(servers, b"DEL", stream_key(self.temporary_stream)))

    def _request(self, servers: Servers, *arguments: bytes) -> Any:
        """Send one command to the server that owns the stream; return the reply."""
        connection = SinkConnection(servers, stream_key(self.stream))
        try:
            [reply] = connection.request(request(*arguments), 1)
            if isinstance(reply, CommandError):
                connection.raise_error(str(reply))
            return reply
        finally:
            connection.close()
