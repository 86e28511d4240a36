"""Where `now` comes from: the real time, or one that a test sets."""

from __future__ import annotations

import cython

from headrace import system


@cython.cclass
class RealClock:
    """Milliseconds since 1970, as the system has them."""

    __slots__ = ()

    @cython.ccall
    def now_ms(self) -> cython.longlong:
        """The time now."""
        return system.now_ms()


@cython.final
@cython.cclass
class SetClock(RealClock):
    """Stands still until it is moved."""

    __slots__ = ("ms",)

    ms: cython.longlong

    def __init__(self, ms: cython.longlong) -> None:
        self.ms = ms

    @cython.ccall
    def now_ms(self) -> cython.longlong:
        """The time it was set to."""
        return self.ms

    @cython.ccall
    def advance(self, ms: cython.longlong) -> cython.void:
        """Move on by so many milliseconds."""
        self.ms += ms
