"""The clock of a database: what IDs, expiry, idle times and every wait go by. Tests set their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from headrace import system
from headrace.api.backend import Bell
from headrace.engine.clock import RealClock
from headrace.engine.clock_watch import ClockWatch

NEVER_MS = -1


class Clock(Protocol):
    """Milliseconds since 1970, and how to sleep by them."""

    def now_ms(self) -> int:
        """The time now."""

    def sleep(self, bell: Bell, until_ms: int) -> None:
        """Return when the bell is rung, or it is until_ms (NEVER_MS: for ever); sooner does no harm."""


class SystemClock:
    """The real time."""

    def now_ms(self) -> int:
        """The time now."""
        now = time.time_ns() // 1_000_000
        return now if now >= 0 else system.now_ms()

    def sleep(self, bell: Bell, until_ms: int) -> None:
        """Sleep until the bell is rung, or the time has come."""
        if until_ms == NEVER_MS:
            bell.wait(None)
        else:
            bell.wait((until_ms - self.now_ms()) / 1000)

    def elapsed_ms(self) -> int:
        """Return milliseconds since some moment, whatever the clock is set to."""
        return system.monotonic_ns() // 1_000_000


class ManualClock:
    """Stands still until it is advanced; whoever sleeps to a moment that it passes wakes up."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now = start_ms
        self._lock = threading.Lock()
        self._sleepers: dict[Bell, int] = {}

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"

    def now_ms(self) -> int:
        """The time it was set to."""
        return self._now

    def sleep(self, bell: Bell, until_ms: int) -> None:
        """Sleep until the bell is rung, or the clock is advanced so far."""
        with self._lock:
            if until_ms != NEVER_MS and until_ms <= self._now:
                return
            if until_ms != NEVER_MS:
                self._sleepers[bell] = until_ms
        try:
            bell.wait(None)
        finally:
            with self._lock:
                self._sleepers.pop(bell, None)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move on, and wake whoever slept until then."""
        ms = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
        if ms < 0:
            raise ValueError("a clock does not go backwards")
        with self._lock:
            self._now += ms
            due = [bell for bell, until in self._sleepers.items() if until <= self._now]
        for bell in due:
            bell.ring()

    def sleeping(self) -> int:
        """How many threads sleep until a moment: a test waits for them before it advances."""
        with self._lock:
            return sum(not bell.background for bell in self._sleepers)


def elapsed_by(clock: Clock) -> Callable[[], int]:
    """Return a function that counts milliseconds, however the clock is set."""
    return clock.elapsed_ms if isinstance(clock, SystemClock) else clock.now_ms


def follower_of(clock: Clock, listener: Callable[[int], None]) -> Callable[[], None]:
    """Return a function that tells the listener by how many milliseconds the clock was set since then."""
    return ClockWatch(RealClock(), listener).follow if isinstance(clock, SystemClock) else nothing


def nothing() -> None:
    """Do nothing: the clock is never set."""
