"""Perform the actions of a Worker (see actions.py) on a backend, and report the results to the Worker.

send_requests()             send requests, and those that follow from the replies
perform_waiting_action()    wait for entries or idle, until `stop` is set at the latest
"""

from __future__ import annotations

import inspect
from typing import Protocol

from headrace.api.backend import Backend, Stop
from headrace.api.batch import DeliveryOrBatch
from headrace.api.consuming.actions import BlockingRead, Idle, SendRequests
from headrace.api.consuming.batching import BatchSettings
from headrace.api.consuming.in_flight import Counters
from headrace.api.consuming.worker import Worker
from headrace.errors import HeadraceError, UsageError

UNLIMITED_PAUSE_S = 3600.0  # for want of a pause without an end


class DrivenConsumer(Protocol):
    """What the drivers and handlers use of a Consumer."""

    name: str
    concurrency: int
    counters: Counters

    @property
    def backend(self) -> Backend:
        """The backend that executes the requests."""

    @property
    def stream_and_group_names(self) -> tuple[bytes, bytes]:
        """The keys of the stream and of the group."""

    def create_worker(self, batches: BatchSettings | None = None) -> Worker:
        """Return the Worker of a new loop; call detach_worker() after it."""

    def detach_worker(self) -> None:
        """Forget the Worker of the loop that ended."""

    def remove_if_name_generated(self) -> None:
        """Remove the consumer from the group if its name was generated, unless it has pending entries."""

    def stop(self) -> None:
        """End the loop, from any thread or a signal handler."""


def send_requests(backend: Backend, worker: Worker, ask: SendRequests) -> None:
    """Send requests, and those that follow from the replies. Raises errors that the Worker does not retry."""
    action: SendRequests | None = ask
    while action is not None:
        try:
            replies = backend.request_all(action.requests, action.atomic)
        except HeadraceError as error:
            worker.handle_request_error(action, error)
            return
        except BaseException:  # a KeyboardInterrupt: the replies are lost
            action.undo()
            raise
        action = worker.handle_replies(action, replies)


def perform_waiting_action(backend: Backend, worker: Worker, action: BlockingRead | Idle, stop: Stop) -> None:
    """Wait for entries or idle; return at once if `stop` is set.

    Raises errors that the Worker does not retry.
    """
    if isinstance(action, Idle):
        if not stop.is_set():
            backend.sleep(UNLIMITED_PAUSE_S if action.seconds is None else action.seconds, stop)
        return
    try:
        reply = None if stop.is_set() else backend.execute_blocking_read(action.argv, action.seconds, stop)
    except HeadraceError as error:
        worker.handle_request_error(action, error)
        return
    except BaseException:
        action.undo()
        raise
    worker.handle_replies(action, [reply])


def require_handler_ran(worker: Worker, work: DeliveryOrBatch, function: object, result: object) -> None:
    """Check that the body of a handler has run: that its result is not an awaitable or a generator.

    If the result is one, abandon the entry or batch, and raise UsageError.
    """
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    worker.abandon(work)
    name = getattr(function, "__name__", repr(function))
    raise UsageError(
        f"{name} only returned a {type(result).__name__}, so the entry is not handled:"
        " run an async handler with run_async(), and use no `yield` in a handler"
    )
