"""The sources of `now`: the system's time, or a time that a test sets."""

from __future__ import annotations

import cython

from headrace import system
from headrace.visibility import Public


@cython.ccall
@cython.exceptval(check=False)
def earlier_time(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """Return the earlier of two times; a negative one means never."""
    return b if a < 0 or 0 <= b < a else a


@cython.cclass
class RealClock:
    """The system's time, in milliseconds since 1970."""

    @cython.ccall
    def now_ms(self) -> cython.longlong:
        """Return the current time."""
        return system.now_ms()

    @cython.ccall
    def monotonic_ns(self) -> cython.longlong:
        """Return nanoseconds since an arbitrary start; setting the system clock does not change them."""
        return system.monotonic_ns()


@cython.final
@cython.cclass
class SettableClock(RealClock):
    """A clock that stands still until a test moves it."""

    ms: Public[cython.longlong]

    def __init__(self, ms: cython.longlong) -> None:
        self.ms = ms

    @cython.ccall
    def now_ms(self) -> cython.longlong:
        """Return the time that was set."""
        return self.ms

    @cython.ccall
    def monotonic_ns(self) -> cython.longlong:
        """Return the same time in nanoseconds."""
        return self.ms * 1_000_000

    @cython.ccall
    def advance(self, ms: cython.longlong) -> cython.void:
        """Move the time forward by `ms` milliseconds."""
        self.ms += ms
