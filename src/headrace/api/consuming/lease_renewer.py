"""A thread that renews the leases of a consumer's entries during long work."""

from __future__ import annotations

import threading

from headrace.api.backend import Backend, Stop
from headrace.api.consuming.action_runner import send_requests
from headrace.api.consuming.in_flight import log
from headrace.api.consuming.worker import Worker
from headrace.errors import DatabaseClosed, HeadraceError


class LeaseRenewer:
    """Renews leases from start() to stop(). It has no reference to the consumer.

    The thread ends when a renewal fails, because the group was deleted or the database closed, for example.
    The consumer soon gets the same error.
    """

    def __init__(self, backend: Backend, worker: Worker) -> None:
        self._backend = backend
        self._worker = worker
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, name=f"headrace-lease {worker}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end, without waiting for it."""
        self._stop.set()

    def _run(self) -> None:
        try:
            while not self._backend.sleep(self._worker.renewal_interval, self._stop):
                while (ask := self._worker.next_lease_renewal()) is not None:
                    send_requests(self._backend, self._worker, ask)
        except DatabaseClosed:
            pass
        except HeadraceError as error:
            log.error("%s: leases are no longer renewed: %s", self._worker, error)
