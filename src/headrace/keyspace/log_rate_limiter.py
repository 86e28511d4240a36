"""A limit on the lines that one cause may write to the log."""

from __future__ import annotations


class LogRateLimiter:
    """Permits a number of lines in each interval, by the clock of the keyspace."""

    def __init__(self, lines_max: int, interval_ms: int) -> None:
        self.lines_max = lines_max
        self.interval_ms = interval_ms
        self._began_ms: int | None = None
        self._lines = 0

    def try_acquire(self, now_ms: int) -> bool:
        """Return whether a line may be written now, and count it."""
        if self._began_ms is None or not 0 <= now_ms - self._began_ms < self.interval_ms:
            self._began_ms, self._lines = now_ms, 0
        self._lines += 1
        return self._lines <= self.lines_max
