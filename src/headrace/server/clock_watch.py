"""Notices that somebody has set the clock, by the other clock, which nobody can set.

What is a moment stays one: IDs, expiry times, when an entry was delivered. What is a span (a BLOCK, a pause,
how long a client has been idle) was turned into a moment when it began, and has to move with the clock: else
a wait of a second lasts for an hour more when the clock is set back by an hour.
"""

from __future__ import annotations

from headrace.engine.clock import RealClock

JUMP_MS = 500  # less is drift, or this process did not get to run between two looks


class ClockWatch:
    """Both clocks, as they were when last looked at."""

    def __init__(self, clock: RealClock) -> None:
        self.clock = clock
        self.ahead_ms = self._look()

    def _look(self) -> int:
        """How far the clock is ahead of the other one."""
        return self.clock.now_ms() - self.clock.monotonic_ns() // 1_000_000

    def jump(self) -> int:
        """By how many milliseconds it was set since the last call, forward or (negative) back; 0 for not."""
        ahead = self._look()
        jump = ahead - self.ahead_ms
        if abs(jump) < JUMP_MS:
            return 0
        self.ahead_ms = ahead
        return jump
