"""Publish up to which entry an archive contains its streams, with retries, during a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import redis

from headrace.archive.watermark import Watermark, lower_watermark, raise_watermark
from headrace.archive.watermark_release import iter_watermarks
from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers
from headrace.client.write_timeouts import explain_timeouts
from headrace.errors import CommandError, HeadraceError
from headrace.positions.entry_ids import START
from headrace.positions.position import Position, Positions


class WatermarkPublisher:
    """Publishes the last archived ID of each stream on the server, after each batch of an archive."""

    def __init__(self, url: str, table: str, location: str) -> None:
        """Make a publisher.

        Args:
            url: The server.
            table: The ID of the archive's table.
            location: Where the archive is.
        """
        self._servers = Servers(url)
        self._table = table
        self._location = location
        self._published: Positions = {}

    def watermarks(self, streams: Iterable[str]) -> list[tuple[str, Watermark]]:
        """Return what all archives have published of these streams.

        Raises:
            HeadraceError: if the server is not reachable, or a key holds something else.
        """
        return list(iter_watermarks(self._servers, streams))

    def publish(self, positions: Positions) -> None:
        """Raise the watermark of each stream to the position up to which it is archived on disk.

        Raises:
            HeadraceError: if the server rejects a watermark.
        """
        for stream, position in positions.items():
            if position != self._published.get(stream) and position.id != START:
                self._send(stream, position, raise_watermark)
                self._published[stream] = position

    def lower(self, positions: Positions, *, is_job: bool = False) -> None:
        """Lower the watermarks of streams that are archived only up to these positions.

        Args:
            positions: What the table has.
            is_job: Whether a job archives these streams now: then missing watermarks are added, with 0-0.

        Raises:
            HeadraceError: if the server rejects one.
        """
        for stream, position in positions.items():
            self._send(stream, position, partial(lower_watermark, is_job=is_job))

    def _send(self, stream: str, position: Position, change: Callable[[Any, str, Watermark], object]) -> None:
        """Change the watermark of a stream on the server."""
        watermark = Watermark(position, self._table, self._location)

        def attempt() -> None:
            try:
                with explain_timeouts(self._servers, stream):
                    change(self._servers.client(), stream, watermark)
            except (CommandError, redis.ResponseError) as error:
                # Retried with another server.
                if isinstance(error, (redis.exceptions.AskError, *CONNECTION_ERRORS)):
                    raise
                raise HeadraceError(
                    f"stream {stream!r} is archived up to {position}, but the server rejected that "
                    f"watermark: {error}. The files are complete; run the archive job again to publish it"
                ) from error

        self._servers.with_retries(attempt)

    def close(self) -> None:
        """Close the connection."""
        self._servers.close()
