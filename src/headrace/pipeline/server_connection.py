"""A connection to a server that reports a lost server at once instead of reconnecting."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.client.url import explain_connection_errors
from headrace.spark.source.offsets import parse_id
from headrace.spark.source.stream_state import last_ids


class ServerConnection(AbstractContextManager["ServerConnection"]):
    """A connection to a server, opened on first use; it does not wait for a lost server.

    Args:
        url: The server.

    Raises:
        UsageError: if the URL is not valid.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.servers = Servers(url, reconnect_timeout=0)

    def __exit__(self, *failure: object) -> None:
        self.servers.close()

    @property
    def client(self) -> Any:
        """A client of redis-py for the same server or cluster."""
        return self.servers.client()

    def last_id(self, stream: str) -> tuple[int, int] | None:
        """Return the last ID that the stream ever generated; None if there is no such stream."""
        with explain_connection_errors(self.url):
            last = last_ids(self.servers, [stream]).get(stream)
        return parse_id(last) if last else None

    def length(self, stream: str) -> int:
        """Return the number of entries in the stream."""
        with explain_connection_errors(self.url):
            return int(self.client.xlen(stream_key(stream)))
