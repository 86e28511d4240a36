"""Functions that handle a group's entries, and running them until the process is told to end."""

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
    def asynchronous(self) -> bool:
        """Whether the function is an `async def`."""
        return inspect.iscoroutinefunction(self.function)


def run(handlers: Sequence[Handler], signals: bool) -> None:
    """Run all, each in threads of its own, until they end; raises what ended one of them."""
    if not handlers:
        raise UsageError("there is nothing to run: decorate a function with @group.handler")
    for one in handlers:
        if one.asynchronous:
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
    with stopping_by_signal(stop) if signals else nothing():
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(SIGNAL_S)
    if errors:
        raise errors[0]


@contextmanager
def nothing() -> Iterator[None]:
    """Leave signals alone."""
    yield


@contextmanager
def stopping_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call stop(), once; the next one does what it did before. Only in the main thread."""
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
