"""Detect that the system clock was set, by comparing it with the monotonic clock.

Points in time stay as they are: an ID, an expiry, the time of a delivery. Durations (a BLOCK, a pause, a
client's idle time) were turned into points in time when they began, and must move with the clock. Otherwise a
wait of a second ends at once when the clock is set forward, and takes an hour longer when it is set back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.engine.clock import RealClock

JUMP_MS = 20  # smaller differences are the time between two readings, or drift not worth correcting yet
READING_NS_MAX = 1_000_000  # a reading that took longer, because the process did not get to run, is repeated
READINGS_MAX = 5
WARN_MS = 500


class ClockWatch:
    """Detects that the system clock was set since the previous check.

    Args:
        clock: read for both times.
        listeners: called with the milliseconds by which the clock was set; negative means back.
    """

    def __init__(self, clock: RealClock, *listeners: Callable[[int], None]) -> None:
        self.clock = clock
        self.listeners = listeners
        self.ahead_of_monotonic_ms = self._measure_lead_ms()

    def _measure_lead_ms(self) -> int:
        """Return how many milliseconds the system clock leads the monotonic one, by the quickest reading."""
        readings: list[tuple[int, int]] = []
        while len(readings) < READINGS_MAX:
            before = self.clock.monotonic_ns()
            now_ms = self.clock.now_ms()
            taken = self.clock.monotonic_ns() - before
            readings.append((taken, now_ms - (before + taken // 2) // 1_000_000))
            if taken < READING_NS_MAX:
                break
        return min(readings)[1]

    def measure_jump(self) -> int:
        """Return by how many milliseconds (signed) the clock was set; 0 if by less than JUMP_MS."""
        ahead = self._measure_lead_ms()
        jump = ahead - self.ahead_of_monotonic_ms
        if abs(jump) < JUMP_MS:
            return 0
        self.ahead_of_monotonic_ms = ahead
        return jump

    def check_clock(self) -> None:
        """Check the clock; if it was set, log that and call the listeners."""
        if jump := self.measure_jump():
            level = logging.WARNING if abs(jump) >= WARN_MS else logging.DEBUG
            logging.getLogger("headrace").log(level, "the clock was set by %+.1f seconds", jump / 1000)
            for listener in self.listeners:
                listener(jump)
