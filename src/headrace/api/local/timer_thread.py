"""The one thread of a database: expired keys, freed memory, ends of waits, syncs once a second.

It is started when something is due for the first time, sleeps until it is, and does not keep the database
alive: when nobody has it any more, the thread ends.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import Any, Protocol

from headrace.api.backend import Bell
from headrace.api.local.clock import NEVER_MS, Clock
from headrace.errors import HeadraceError


class Kept(Protocol):
    """What the keeper asks of a door."""

    clock: Clock
    storage: Any
    refusal: str | None

    def now_ms(self) -> int:
        """The time now."""

    def tick(self, now_ms: int) -> int:
        """Do what is due by the clock; when there is something again, or NEVER_MS."""


class Keeper:
    """Sees to a door when it is due."""

    def __init__(self, door: Kept) -> None:
        self.bell = Bell(background=True)
        self._door = weakref.ref(door, lambda _: self.bell.ring())
        self._begun = threading.Lock()  # taken once, by the thread that is it, and never waited for

    def rouse(self) -> None:
        """Look now: there may be something due sooner than it seemed."""
        self.bell.ring()
        if not self._begun.locked():
            threading.Thread(target=self._run, name="headrace-keeper", daemon=True).start()

    def _run(self) -> None:
        if not self._begun.acquire(False):
            return  # two have roused it at once
        while True:
            door = self._door()
            if door is None or door.refusal is not None:
                return
            until = self._work(door)
            clock = door.clock
            del door
            clock.sleep(self.bell, until)

    def _work(self, door: Kept) -> int:
        """Do what is due; when to come again."""
        due = NEVER_MS
        try:
            now = door.now_ms()
            if door.storage is not None:
                due = door.storage.tick(now)
            with contextlib.suppress(HeadraceError):  # it is told to who writes
                later = door.tick(now)
                due = later if due == NEVER_MS else due if later == NEVER_MS else min(due, later)
        except Exception:
            logging.getLogger("headrace").exception("a bug in the keeper of a database")
        return due
