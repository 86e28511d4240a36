"""The streams that a query reads: named ones, or those that match a pattern, found by regular scans."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from headrace.client.servers import Servers
from headrace.errors import UsageError
from headrace.spark.options import Options


class Subscription:
    """The streams of one query."""

    def __init__(self, servers: Servers, options: Options) -> None:
        self._servers = servers
        self._pattern = options.subscribe_pattern
        self._interval = options.discovery_interval
        self._assigned = options.assign is not None
        self._streams = options.streams
        self._scanned_at: float | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether the streams are given by name, so that no others can appear."""
        return self._pattern is None

    def streams(self) -> tuple[str, ...]:
        """Return the streams to read now. With a pattern, scan the servers' keys, at most once per interval.

        Raises:
            UsageError: if no option names streams.
        """
        if self._pattern is None and not self._streams:
            raise UsageError('No stream is named: set the option subscribe, like "orders,bids".')
        if self._pattern is not None:
            now = time.monotonic()
            if self._scanned_at is None or now - self._scanned_at >= self._interval:
                self._streams = tuple(self._servers.matching_streams(self._pattern))
                self._scanned_at = now
        return self._streams

    def matches(self, stream: str) -> bool:
        """Return whether a stream of this name is read, if it exists."""
        if self._pattern is None:
            return stream in self._streams
        return re.fullmatch(self._pattern, stream, re.DOTALL) is not None

    def check_assigned(self, existing: Iterable[str]) -> None:
        """Raise UsageError if a stream of the option assign does not exist."""
        missing = set(self._streams) - set(existing) if self._assigned else ()
        if missing:
            raise UsageError(
                f"There is no stream {', '.join(sorted(missing))}, which the option assign names. "
                "Use subscribe for a stream that is created later."
            )
