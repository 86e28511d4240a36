"""Functions that handle a group's entries, and running them until a signal or stop()."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.api.consuming.consumer import Consumer
from headrace.errors import UsageError

SIGNAL_S = 0.5  # a signal that comes just as the main thread begins to wait does not end the wait


@dataclass(frozen=True, slots=True)
class Handler:
    """A function, and the consumer whose entries it gets."""

    function: Callable[[Any], Any]
    consumer: Consumer[Any]

    @property
    def is_async(self) -> bool:
        """Whether the function is an `async def`."""
        return inspect.iscoroutinefunction(self.function)


def run_handlers(handlers: Sequence[Handler], signals: bool) -> None:
    """Run all handlers, each in threads of its own, until they end.

    Raises the error that ended one of them.
    """
    if not handlers:
        raise UsageError("there is nothing to run: decorate a function with @group.handler")
    for one in handlers:
        if one.is_async:
            raise UsageError(f"{one.function.__name__} is an `async def`: `await group.run_async()` runs it")
    errors: list[BaseException] = []

    def stop() -> None:
        for one in handlers:
            one.consumer.stop()

    def work(one: Handler) -> None:
        try:
            one.consumer.run(one.function)
        except BaseException as error:
            errors.append(error)
            stop()

    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in handlers]
    with stop_on_signals(stop) if signals else no_signals():
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(SIGNAL_S)
    if errors:
        raise errors[0]


@contextmanager
def no_signals() -> Iterator[None]:
    """Leave signal handlers unchanged."""
    yield


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call stop() on the first SIGTERM or SIGINT, then restore the previous handlers. Main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def told(number: int, frame: object) -> None:
        restore()
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, told)
    try:
        yield
    finally:
        restore()
