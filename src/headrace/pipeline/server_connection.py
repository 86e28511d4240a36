"""The server of a stream, asked once: a lost server is reported at once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headrace.server_url import explain_connection_errors
from headrace.spark.servers import Servers
from headrace.spark.source.offsets import parse_id
from headrace.spark.source.stream_state import last_ids
from headrace.spark.stream_names import stream_key


class Link(AbstractContextManager["Link"]):
    """A server, connected to on first use. A server that is not there is reported at once.

    Raises:
        UsageError: if the URL is not a server's.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.servers = Servers(url, reconnect_timeout=0)

    def __exit__(self, *failure: object) -> None:
        self.servers.close()

    @property
    def client(self) -> Any:
        """redis-py's client of the same servers."""
        return self.servers.client()

    def last_id(self, stream: str) -> tuple[int, int] | None:
        """The last ID the stream ever gave out, or None if there is no such stream."""
        with explain_connection_errors(self.url):
            last = last_ids(self.servers, [stream]).get(stream)
        return parse_id(last) if last else None

    def length(self, stream: str) -> int:
        """How many entries the stream has."""
        with explain_connection_errors(self.url):
            return int(self.client.xlen(stream_key(stream)))
