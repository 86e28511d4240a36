"""The clock of a database, for IDs, expiry, idle times and all waits. Tests use a manual one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from headrace import system
from headrace.api.backend import Wakeup
from headrace.engine.clock import RealClock
from headrace.engine.clock_watch import ClockWatch

NEVER_MS = -1


class Clock(Protocol):
    """A source of the time, and of sleeps until a time."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970."""

    def sleep(self, wakeup: Wakeup, until_ms: int) -> None:
        """Sleep until wakeup.wake(), or until_ms (NEVER_MS: no limit). It may return earlier."""


class SystemClock:
    """The clock of the system."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970."""
        now = time.time_ns() // 1_000_000
        return now if now >= 0 else system.now_ms()

    def sleep(self, wakeup: Wakeup, until_ms: int) -> None:
        """Sleep until wakeup.wake(), or until_ms."""
        if until_ms == NEVER_MS:
            wakeup.wait(None)
        else:
            wakeup.wait((until_ms - self.now_ms()) / 1000)

    def elapsed_ms(self) -> int:
        """Return monotonic milliseconds, which setting the clock does not change."""
        return system.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that changes only by advance(), which ends the sleeps that are over by then.

    Args:
        start_ms: the first time, in milliseconds since 1970.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now = start_ms
        self._lock = threading.Lock()
        self._sleepers: dict[Wakeup, int] = {}

    def __repr__(self) -> str:
        return f"ManualClock({self._now})"

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970."""
        return self._now

    def sleep(self, wakeup: Wakeup, until_ms: int) -> None:
        """Sleep until wakeup.wake(), or until the clock is advanced to until_ms."""
        with self._lock:
            if until_ms != NEVER_MS and until_ms <= self._now:
                return
            if until_ms != NEVER_MS:
                self._sleepers[wakeup] = until_ms
        try:
            wakeup.wait(None)
        finally:
            with self._lock:
                self._sleepers.pop(wakeup, None)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the time, and wake threads whose sleep is over.

        Raises:
            ValueError: if the sum is negative.
        """
        ms = round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
        if ms < 0:
            raise ValueError("advance() needs a duration that is not negative")
        with self._lock:
            self._now += ms
            due = [wakeup for wakeup, until in self._sleepers.items() if until <= self._now]
        for wakeup in due:
            wakeup.wake()

    def sleeping_threads(self) -> int:
        """Return how many threads sleep until a time. A test waits for them before it calls advance()."""
        with self._lock:
            return sum(not wakeup.background for wakeup in self._sleepers)


def elapsed_ms_function(clock: Clock) -> Callable[[], int]:
    """Return a function that returns elapsed milliseconds, which setting the clock does not change."""
    return clock.elapsed_ms if isinstance(clock, SystemClock) else clock.now_ms


def clock_change_checker(clock: Clock, listener: Callable[[int], None]) -> Callable[[], None]:
    """Return a function that calls the listener with the milliseconds by which the clock was set, if any."""
    return ClockWatch(RealClock(), listener).check_clock if isinstance(clock, SystemClock) else do_nothing


def do_nothing() -> None:
    """Do nothing: a manual clock is never set."""
