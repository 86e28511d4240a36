"""The system's clocks, scheduler and files for the interpreter; system.pxd has the same functions in C.

This module is never compiled.
"""

from __future__ import annotations

import os
import time


def now_ms() -> int:
    """Return milliseconds since 1970, never negative.

    If the system's clock is set to a time before 1970, return the monotonic clock's time instead.
    """
    now = time.time_ns() // 1_000_000
    return now if now >= 0 else time.monotonic_ns() // 1_000_000


def monotonic_ns() -> int:
    """Return nanoseconds since an unspecified moment, to measure durations; the clock never goes back."""
    return time.monotonic_ns()


def run_signal_handlers() -> None:
    """Run the handlers of pending signals. The interpreter does that itself; compiled code must call this."""


def yield_core() -> None:
    """Let another thread that is ready run on this core first (sched_yield)."""
    os.sched_yield()


def read_at(descriptor: int, buf: bytearray, n: int, offset: int) -> int:
    """Read up to n bytes at `offset` of a file into buf; return how many, or the negated errno."""
    try:
        return os.preadv(descriptor, [memoryview(buf)[:n]], offset)
    except OSError as error:
        return -(error.errno or 1)
