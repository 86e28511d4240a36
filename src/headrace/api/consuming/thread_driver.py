"""Perform the actions of a consumer's Worker in threads.

for entry in consumer:        the thread of the loop does everything; another one renews the leases
consumer.run(function)        `concurrency` threads each perform the next action (see worker.py)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from headrace.api.backend import Stop
from headrace.api.batch import Batch, DeliveryOrBatch
from headrace.api.consuming.action_runner import (
    DrivenConsumer,
    perform_waiting_action,
    require_handler_ran,
    send_requests,
)
from headrace.api.consuming.actions import FINISHED, Action, BlockingRead, Idle, SendRequests
from headrace.api.consuming.batching import BatchSettings
from headrace.api.consuming.in_flight import log
from headrace.api.consuming.lease_renewer import LeaseRenewer
from headrace.api.delivery import Delivery
from headrace.errors import HeadraceError


def iter_work(consumer: DrivenConsumer, batches: BatchSettings | None) -> Iterator[Any]:
    """Iterate over entries or batches; each is acknowledged when the next one is requested."""
    with ThreadDriver(consumer, batches) as driver:
        while (work := driver.next_work()) is not None:
            try:
                yield work
            except BaseException:  # GeneratorExit: the loop was left
                driver.worker.abandon(work)
                raise
            driver.worker.ack(work)


class ThreadDriver:
    """Performs the actions of a Worker, in as many threads as call next_work()."""

    def __init__(self, consumer: DrivenConsumer, batches: BatchSettings | None = None) -> None:
        self.worker = consumer.create_worker(batches)
        self._consumer = consumer
        self._backend = consumer.backend
        self._waits: list[Stop] = []  # of waiting threads
        self._error: BaseException | None = None
        self._settling = threading.local()  # .now: this thread settles, and looks for the next action itself
        self._lease_renewer = LeaseRenewer(self._backend, self.worker)
        self.worker.on_change = self._wake

    def __enter__(self) -> ThreadDriver:
        self._lease_renewer.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Acknowledge and release entries. Errors here are only logged."""
        try:
            self.worker.stop()
            self._finish()
            self._consumer.remove_if_name_generated()
        except HeadraceError as late:
            log.warning("%s: stopped, but could not release its entries: %s", self.worker, late)
        finally:
            self._lease_renewer.stop()
            self._consumer.detach_worker()

    def _finish(self) -> None:
        while (action := self.worker.next_action()) is not FINISHED:
            self._perform_action(action)

    def _wake(self) -> None:
        if getattr(self._settling, "now", False):
            return
        for stop in self._waits[:]:
            stop.set()

    def settle_without_waking(self, how: Callable[..., None], *arguments: Any) -> None:
        """Report a result to the Worker by how(*arguments).

        Other threads are not woken, because this one asks for the next action.
        """
        self._settling.now = True
        try:
            how(*arguments)
        finally:
            self._settling.now = False

    def next_work(self) -> DeliveryOrBatch | None:
        """Wait for the next entry or batch and return it; None when the loop should end."""
        while True:
            action = self.worker.next_action()
            if isinstance(action, Delivery | Batch):
                return action
            if action is FINISHED:
                return None
            self._perform_action(action)

    def _perform_action(self, action: Action) -> None:
        """Perform an action other than a delivery."""
        if isinstance(action, SendRequests):
            send_requests(self._backend, self.worker, action)
            return
        assert isinstance(action, BlockingRead | Idle)
        stop = Stop()
        self._waits.append(stop)
        try:
            if self.worker.revision != action.worker_revision:  # between the decision and now
                stop.set()
            perform_waiting_action(self._backend, self.worker, action, stop)
        finally:
            self._waits.remove(stop)

    # Threads.

    def run(self, function: Callable[[Any], Any], concurrency: int) -> None:
        """Handle entries or batches in `concurrency` threads, this one among them, until the consumer stops.

        Raises the first error that ended a thread.
        """
        threads = [
            threading.Thread(target=self._handle, args=(function,), name=f"headrace {self.worker} {n}")
            for n in range(1, concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            self._handle(function)
        finally:
            self.worker.stop()
            for thread in threads:
                thread.join()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame: they would be a reference cycle

    def _handle(self, function: Callable[[Any], Any]) -> None:
        worker = self.worker
        try:
            while (work := self.next_work()) is not None:
                try:
                    result = function(work)
                except BaseException as error:
                    if is_failure(error):
                        self.settle_without_waking(worker.record_failure, work, error)
                    else:
                        worker.abandon(work)
                        raise
                else:
                    if result is not None:
                        require_handler_ran(worker, work, function, result)
                    self.settle_without_waking(worker.ack, work)
        except BaseException as error:
            self._error = self._error or error
            worker.stop()


def is_failure(error: BaseException) -> bool:
    """Return whether an error of a handler in a thread is a failure of its entry.

    A thread cannot be cancelled, so CancelledError is a failure, too. asyncio is only imported to check that.
    """
    if isinstance(error, Exception):
        return True
    from asyncio import CancelledError

    return isinstance(error, CancelledError)
