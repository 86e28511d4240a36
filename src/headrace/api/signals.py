"""Stop what runs in the process on SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class SignalStops:
    """What the first SIGTERM or SIGINT stops: all groups of the process that run at that moment.

    A signal has one handler in a process. Running groups share it, in whatever order they begin and end.
    """

    def __init__(self) -> None:
        self._stops: list[Callable[[], None]] = []
        self._before: dict[int, Any] = {}  # the handlers that were replaced, by signal
        self._installs = 0  # how many of the running need the handler

    @contextmanager
    def calling(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call stop() on the first signal. Only the main thread can install the handler."""
        installs = threading.current_thread() is threading.main_thread()
        self._stops.append(stop)
        if installs:
            self._installs += 1
            for number in (signal.SIGTERM, signal.SIGINT):
                if number not in self._before:
                    self._before[number] = signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            self._stops.remove(stop)
            if installs:
                self._installs -= 1
                if not self._installs:
                    self._restore()

    def _restore(self) -> None:
        """Restore the previous handlers, except where the program has set another one meanwhile."""
        while self._before:
            number, before = self._before.popitem()
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)

    def _on_signal(self, number: int, frame: object) -> None:
        before = self._before.get(number)
        self._restore()
        for stop in list(self._stops):
            stop()
        if callable(before) and not _interrupts_main(before):
            before(number, frame)  # the program's own handler, such as that of an HTTP server


def _interrupts_main(handler: Any) -> bool:
    """Return whether a handler is that of Python or asyncio for Ctrl-C, which would cut the stop short."""
    owner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler is signal.default_int_handler or type(owner).__module__ == "asyncio.runners"


SIGNAL_STOPS = SignalStops()


def stop_on_signals(stop: Callable[[], None]) -> AbstractContextManager[None]:
    """Call stop() on the first SIGTERM or SIGINT; then restore and call the previous handlers."""
    return SIGNAL_STOPS.calling(stop)
