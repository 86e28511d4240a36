"""What the system is asked for, as the interpreter asks; system.pxd says the same in C.

Never compiled itself.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return milliseconds since 1970, never negative.

    A clock that is set before 1970 is replaced by the monotonic clock: time goes on from a moment in 1970.
    """
    now = time.time_ns() // 1_000_000
    return now if now >= 0 else time.monotonic_ns() // 1_000_000


def monotonic_ns() -> int:
    """Nanoseconds since some moment, never set back: for differences."""
    return time.monotonic_ns()
