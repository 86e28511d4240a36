"""The system's clocks for the interpreter; system.pxd has the same functions in C.

This module is never compiled.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return milliseconds since 1970, never negative.

    If the clock is set before 1970, the monotonic clock is used: then time continues from a moment in 1970.
    """
    now = time.time_ns() // 1_000_000
    return now if now >= 0 else time.monotonic_ns() // 1_000_000


def monotonic_ns() -> int:
    """Return nanoseconds since an unspecified moment, for differences; never set back."""
    return time.monotonic_ns()
