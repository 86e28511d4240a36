"""Limit speed: replay entries at a multiple of their original speed, or limit rows per second."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator

SLEEP_MAX_SECONDS = 0.1  # the longest sleep between checks for signals and progress reports
SEND_AHEAD_SECONDS = 0.02  # entries due within this time are sent together


class ReplayPacer:
    """Delays entries so that they are replayed at `speed` times their original speed.

    Args:
        speed: The multiple of the original speed; None for no delay.
        clock: Returns seconds.
        sleep: Sleeps for seconds.
    """

    def __init__(
        self,
        speed: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._start: tuple[float, int] | None = None

    def seconds_until_due(self, ms: int) -> float:
        """Return the seconds until an entry of this time is due; negative if late, 0 for the first entry."""
        if self._speed is None:
            return 0.0
        if self._start is None:
            self._start = (self._clock(), ms)
        began, first = self._start
        return began + (ms - first) / 1000 / self._speed - self._clock()

    def sleep_up_to(self, seconds: float) -> None:
        """Sleep for the given seconds, at most SLEEP_MAX_SECONDS."""
        self._sleep(min(seconds, SLEEP_MAX_SECONDS))

    def due_slices(self, times: list[int]) -> Iterator[tuple[int, int]]:
        """Yield the range [start, stop) of entries that are due together; an empty one before each sleep.

        Args:
            times: The times of the entries in milliseconds, in ascending order.
        """
        start = 0
        while start < len(times):
            wait = self.seconds_until_due(times[start])
            if wait > 0:
                yield start, start
                self.sleep_up_to(wait)
                continue
            stop = len(times)
            if self._speed is not None:
                horizon = times[start] + int((SEND_AHEAD_SECONDS - wait) * 1000 * self._speed)
                stop = max(start + 1, bisect_right(times, horizon))
            yield start, stop
            start = stop


class RateLimiter:
    """Limits rows per second. Unused capacity is not accumulated.

    Args:
        rows_per_second: The limit; None for no limit.
        clock: Returns seconds.
        sleep: Sleeps for seconds.
    """

    def __init__(
        self,
        rows_per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rows_per_second = rows_per_second
        self._clock = clock
        self._sleep = sleep
        self._next_row_at = clock()  # the clock time at which the next row may be sent

    def batch_rows(self, max_rows: int) -> int:
        """Return the batch size for an even flow: the limit for SLEEP_MAX_SECONDS, within 1 to `max_rows`."""
        if self.rows_per_second is None:
            return max_rows
        return max(1, min(max_rows, int(self.rows_per_second * SLEEP_MAX_SECONDS)))

    def wait(self, rows: int) -> None:
        """Sleep until the next rows may be sent, then count `rows` rows as sent."""
        if self.rows_per_second is None:
            return
        now = self._clock()
        if self._next_row_at > now:
            self._sleep(self._next_row_at - now)
        self._next_row_at = max(self._next_row_at, now) + rows / self.rows_per_second
