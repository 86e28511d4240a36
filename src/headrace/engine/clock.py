"""Where `now` comes from: the real time, or one that a test sets."""

from __future__ import annotations

import cython

from headrace import system
from headrace.visibility import Public


@cython.ccall
@cython.exceptval(check=False)
def earlier_time(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """The earlier of two moments, of which a negative one is never."""
    return b if a < 0 or 0 <= b < a else a


@cython.cclass
class RealClock:
    """Milliseconds since 1970, as the system has them."""

    @cython.ccall
    def now_ms(self) -> cython.longlong:
        """The time now."""
        return system.now_ms()

    @cython.ccall
    def monotonic_ns(self) -> cython.longlong:
        """Nanoseconds since some moment, which nobody sets back."""
        return system.monotonic_ns()


@cython.final
@cython.cclass
class SettableClock(RealClock):
    """Stands still until it is moved."""

    ms: Public[cython.longlong]

    def __init__(self, ms: cython.longlong) -> None:
        self.ms = ms

    @cython.ccall
    def now_ms(self) -> cython.longlong:
        """The time it was set to."""
        return self.ms

    @cython.ccall
    def monotonic_ns(self) -> cython.longlong:
        """The same time in nanoseconds."""
        return self.ms * 1_000_000

    @cython.ccall
    def advance(self, ms: cython.longlong) -> cython.void:
        """Move on by so many milliseconds."""
        self.ms += ms
