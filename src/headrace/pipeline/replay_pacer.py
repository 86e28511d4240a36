"""Not faster than asked: entries at the speed of their times, or so many a second."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator

TICK_SECONDS = 0.1  # how long to sleep at most before looking for signals and telling the progress
SHORT_SECONDS = 0.02  # entries that are due so soon are sent along


class Pace:
    """When an entry is due: `speed` times as fast as the entries came; None for at once."""

    def __init__(
        self,
        speed: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._began: tuple[float, int] | None = None

    def due(self, ms: int) -> float:
        """In how many seconds an entry of this time is due; negative if it was. The first is due at once."""
        if self._speed is None:
            return 0.0
        if self._began is None:
            self._began = (self._clock(), ms)
        began, first = self._began
        return began + (ms - first) / 1000 / self._speed - self._clock()

    def rest(self, seconds: float) -> None:
        """Sleep, but not for long."""
        self._sleep(min(seconds, TICK_SECONDS))

    def pieces(self, times: list[int]) -> Iterator[tuple[int, int]]:
        """[start, stop) of rows that are due together; an empty piece for each rest that is needed first."""
        start = 0
        while start < len(times):
            wait = self.due(times[start])
            if wait > 0:
                yield start, start
                self.rest(wait)
                continue
            stop = len(times)
            if self._speed is not None:
                horizon = times[start] + int((SHORT_SECONDS - wait) * 1000 * self._speed)
                stop = max(start + 1, bisect_right(times, horizon))
            yield start, stop
            start = stop


class Rate:
    """At most so many rows a second; None for as many as go. What was missed is not caught up with."""

    def __init__(
        self,
        rows_per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rows_per_second = rows_per_second
        self._clock = clock
        self._sleep = sleep
        self._free = clock()  # when the next row may go

    def at_once(self, most: int) -> int:
        """How many rows to send together, so that they go evenly: a tick's, at least one."""
        if self.rows_per_second is None:
            return most
        return max(1, min(most, int(self.rows_per_second * TICK_SECONDS)))

    def wait(self, rows: int) -> None:
        """Sleep until so many rows may go."""
        if self.rows_per_second is None:
            return
        now = self._clock()
        if self._free > now:
            self._sleep(self._free - now)
        self._free = max(self._free, now) + rows / self.rows_per_second
