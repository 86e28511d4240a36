"""CLIENT PAUSE: until when which requests are held back, and those that are."""

from __future__ import annotations

from typing import Any

import cython


def held(call: Any) -> bool:
    """How a held request is served: by nothing but the end of the pause."""
    return False


def no_answer(call: Any) -> None:
    """What a held request answers when its time is up: it never is, it has no deadline of its own."""


@cython.final
@cython.cclass
class Pause:
    """No pause while `until` is 0."""

    __slots__ = ("held", "until", "writes_only")

    until: cython.longlong  # milliseconds since 1970
    writes_only: cython.bint
    held: dict[Any, list[bytes]]  # session -> argv, first come first

    def __init__(self) -> None:
        self.until = 0
        self.writes_only = False
        self.held = {}

    @cython.ccall
    def extend(self, until: cython.longlong, writes_only: cython.bint) -> cython.void:
        """Pause until then. A pause never gets shorter or milder but by ending it."""
        if self.until:
            until = max(until, self.until)
            writes_only = writes_only and self.writes_only
        self.until = until
        self.writes_only = writes_only

    @cython.ccall
    def end(self) -> cython.void:
        """The pause is over; the engine executes what was held back before anything else."""
        if self.until:
            self.until = 1
