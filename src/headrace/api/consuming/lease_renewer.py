"""A thread that renews what a consumer has in hand, so that long work is not taken from it."""

from __future__ import annotations

import threading

from headrace.api.backend import Link, Stop
from headrace.api.consuming.in_flight import log
from headrace.api.consuming.runner import perform
from headrace.api.consuming.worker import Worker
from headrace.errors import DatabaseClosed, HeadraceError


class Keeper:
    """Renews leases by thirds, from start() to stop(). It knows the worker, not who iterates.

    When it cannot (the group is gone, the database closed) it ends: the consumer soon meets the same.
    """

    def __init__(self, link: Link, worker: Worker) -> None:
        self._link = link
        self._worker = worker
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, name=f"headrace-lease {worker}", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Renew nothing more."""
        self._stop.set()

    def _run(self) -> None:
        try:
            while not self._link.pause(self._worker.keep_seconds, self._stop):
                while (ask := self._worker.keep()) is not None:
                    perform(self._link, self._worker, ask)
        except DatabaseClosed:
            pass
        except HeadraceError as error:
            log.error("%s: leases are not renewed any more: %s", self._worker, error)
