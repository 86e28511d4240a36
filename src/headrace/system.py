"""What the system is asked for, as the interpreter asks; system.pxd says the same in C.

Never compiled itself.
"""

from __future__ import annotations

import time


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ns() -> int:
    """Nanoseconds since some moment, never set back: for differences."""
    return time.monotonic_ns()
