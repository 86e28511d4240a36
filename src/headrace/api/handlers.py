"""Handler: a function and its consumer. Run handlers in threads until a signal or stop()."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.api.consuming.action_runner import DrivenConsumer
from headrace.api.consuming.batching import BatchSettings
from headrace.api.consuming.thread_driver import ThreadDriver
from headrace.api.signals import stop_on_signals
from headrace.errors import UsageError

log = logging.getLogger("headrace.consumer")

SIGNAL_POLL_S = 0.5  # a signal that comes just as the main thread begins to wait does not end the wait


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, and the consumer whose entries it gets: one by one, or in batches."""

    function: Callable[[Any], Any]
    consumer: DrivenConsumer
    batch_settings: BatchSettings | None = None

    @property
    def is_async(self) -> bool:
        """Whether the function is an `async def`."""
        return is_async_function(self.function)

    def run(self) -> None:
        """Call the function in threads until the consumer ends. Raises the error that ended it."""
        with ThreadDriver(self.consumer, self.batch_settings) as driver:
            driver.run(self.function, self.consumer.concurrency)


def is_async_function(function: object) -> bool:
    """Return whether a function, or the method __call__ of an object, is an `async def`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object
    )


def run_handlers(handlers: Sequence[Handler], signals: bool) -> None:
    """Run all handlers, each in threads of its own, until they end.

    Raises UsageError if there is none, or one is an `async def`; otherwise the error that ended one of them.
    """
    if not handlers:
        raise UsageError("there is nothing to run: decorate a function with @group.handler or @app.handler")
    for one in handlers:
        if one.is_async:
            raise UsageError(f"{one.function.__name__} is an `async def`: `await group.run_async()` runs it")
    errors: list[BaseException] = []

    def stop() -> None:
        for one in handlers:
            one.consumer.stop()

    ended = [threading.Event() for _ in handlers]

    def work(one: Handler, end: threading.Event) -> None:
        try:
            one.run()
        except BaseException as error:
            errors.append(error)
            stop()
        finally:
            end.set()

    threads = [
        threading.Thread(target=work, args=each, daemon=True) for each in zip(handlers, ended, strict=True)
    ]
    with stop_on_signals(stop) if signals else without_signal_handling():
        try:
            for thread in threads:
                thread.start()
            _wait_for(ended)
        except BaseException:  # of the program's own signal handler: running handlers finish first
            stop()
            _wait_for([end for thread, end in zip(threads, ended, strict=True) if thread.ident is not None])
            raise
    raise_first(errors)


def raise_first(errors: Sequence[BaseException]) -> None:
    """Raise the first error, if there is any, and log the others."""
    for error in errors[1:]:
        log.error("another handler ended, too: %s: %s", type(error).__name__, error)
    if errors:
        raise errors[0]


def _wait_for(ended: Sequence[threading.Event]) -> None:
    """Wait until all are set; signals are handled meanwhile.

    Not Thread.join(): Python 3.11 considers a thread ended when a signal handler raises during join().
    """
    for end in ended:
        while not end.wait(SIGNAL_POLL_S):
            pass


@contextmanager
def without_signal_handling() -> Iterator[None]:
    """Leave signal handlers unchanged."""
    yield
