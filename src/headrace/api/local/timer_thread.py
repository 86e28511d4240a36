"""The timer thread of a database: expired keys, freed memory, ends of waits, the sync every second.

It is started when something is due for the first time, and sleeps until then. It does not keep the database
alive: it ends when the database is garbage-collected.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import Any, Protocol

from headrace.api.backend import Wakeup
from headrace.api.local.clock import NEVER_MS, Clock
from headrace.errors import HeadraceError


class TimerTarget(Protocol):
    """What the timer thread needs of a LocalEngine."""

    clock: Clock
    storage: Any
    closed_reason: str | None

    def now_ms(self) -> int:
        """The current time."""

    def tick(self, now_ms: int) -> int:
        """Do what is due; return the next time when something is due, or NEVER_MS."""


class TimerThread:
    """Calls tick() of a LocalEngine when it is due."""

    def __init__(self, local_engine: TimerTarget) -> None:
        self.wakeup = Wakeup(background=True)
        self._local_engine = weakref.ref(local_engine, lambda _: self.wakeup.wake())
        self._running = threading.Lock()  # taken once, by the thread that is it, and never waited for

    def wake(self) -> None:
        """Check now, because something may be due earlier; start the thread if it is not running."""
        self.wakeup.wake()
        if not self._running.locked():
            threading.Thread(target=self._run, name="headrace-timer", daemon=True).start()

    def _run(self) -> None:
        if not self._running.acquire(False):
            return  # two have roused it at once
        while True:
            local_engine = self._local_engine()
            if local_engine is None or local_engine.closed_reason is not None:
                return
            until = self._run_due(local_engine)
            clock = local_engine.clock
            del local_engine
            clock.sleep(self.wakeup, until)

    def _run_due(self, local_engine: TimerTarget) -> int:
        """Do what is due; return the next time when something is due, or NEVER_MS."""
        due = NEVER_MS
        try:
            now = local_engine.now_ms()
            if local_engine.storage is not None:
                due = local_engine.storage.tick(now)
            with contextlib.suppress(HeadraceError):  # it is reported to the writer
                later = local_engine.tick(now)
                due = later if due == NEVER_MS else due if later == NEVER_MS else min(due, later)
        except Exception:
            logging.getLogger("headrace").exception("a bug in the timer thread of a database")
        return due
