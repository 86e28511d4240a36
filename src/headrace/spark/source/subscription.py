"""Which streams a query reads: those it names, or those that match a pattern, looked for now and then."""

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
        """Whether the streams are known by name, and no others can appear."""
        return self._pattern is None

    def streams(self) -> tuple[str, ...]:
        """The streams to read now. Scans the servers' keys only for a pattern, and once an interval.

        UsageError if the options do not say which to read.
        """
        if self._pattern is None and not self._streams:
            raise UsageError('Say which streams to read: .option("subscribe", "orders,bids").')
        if self._pattern is not None:
            now = time.monotonic()
            if self._scanned_at is None or now - self._scanned_at >= self._interval:
                self._streams = tuple(self._servers.scan(self._pattern))
                self._scanned_at = now
        return self._streams

    def matches(self, stream: str) -> bool:
        """Whether a stream of this name is read, if there is one."""
        if self._pattern is None:
            return stream in self._streams
        return re.fullmatch(self._pattern, stream, re.DOTALL) is not None

    def check_assigned(self, existing: Iterable[str]) -> None:
        """UsageError if streams that were assigned are not among those that exist."""
        missing = set(self._streams) - set(existing) if self._assigned else ()
        if missing:
            raise UsageError(
                f"There is no stream {', '.join(sorted(missing))}, which the option assign names. "
                "With subscribe a stream may come later."
            )
