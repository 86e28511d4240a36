"""Notices that the system clock was set, by the monotonic clock.

A moment stays what it is: an ID, an expiry time, the time of a delivery. A span of time (a BLOCK, a pause,
how long a client has been idle) became a moment when it began, and has to move with the clock. Otherwise a
wait of a second ends at once when the clock is set forward, and lasts an hour more when it is set back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.engine.clock import RealClock

JUMP_MS = 20  # less is the time between two readings, or drift that is not worth a correction yet
READING_NS = 1_000_000  # a reading that took longer, because the process did not get to run, is repeated
READINGS_MAX = 5
WARN_MS = 500


class ClockWatch:
    """Both clocks, as they were when last looked at.

    Args:
        clock: where both are read.
        listeners: called with the milliseconds by which the clock was set.
    """

    def __init__(self, clock: RealClock, *listeners: Callable[[int], None]) -> None:
        self.clock = clock
        self.listeners = listeners
        self.ahead_ms = self._look()

    def _look(self) -> int:
        """Return by how many milliseconds the clock is ahead of the monotonic one: the quickest reading."""
        readings: list[tuple[int, int]] = []
        while len(readings) < READINGS_MAX:
            before = self.clock.monotonic_ns()
            now_ms = self.clock.now_ms()
            taken = self.clock.monotonic_ns() - before
            readings.append((taken, now_ms - (before + taken // 2) // 1_000_000))
            if taken < READING_NS:
                break
        return min(readings)[1]

    def jump(self) -> int:
        """Return by how many milliseconds it was set since the last call: negative for back, 0 for not."""
        ahead = self._look()
        jump = ahead - self.ahead_ms
        if abs(jump) < JUMP_MS:
            return 0
        self.ahead_ms = ahead
        return jump

    def follow(self) -> None:
        """If the clock was set, tell the listeners."""
        if jump := self.jump():
            level = logging.WARNING if abs(jump) >= WARN_MS else logging.DEBUG
            logging.getLogger("headrace").log(level, "the clock was set by %+.1f seconds", jump / 1000)
            for listener in self.listeners:
                listener(jump)
