"""Where `now` comes from: the real time, or one that a test sets."""

from __future__ import annotations

import time


class RealClock:
    """Milliseconds since 1970, as the system has them."""

    def now_ms(self) -> int:
        """The time now."""
        return time.time_ns() // 1_000_000


class SetClock:
    """Stands still until it is moved."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        """The time it was set to."""
        return self.ms

    def advance(self, ms: int) -> None:
        """Move on by so many milliseconds."""
        self.ms += ms
