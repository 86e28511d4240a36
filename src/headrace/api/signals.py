"""Stop all groups that run in the process on SIGTERM or SIGINT."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class SignalStops:
    """What the first SIGTERM or SIGINT stops: all groups of the process that run at that moment.

    A signal has one handler in a process. Running groups share it, in whatever order they begin and end.
    A child process that is forked while groups run, as by multiprocessing, gets the previous handlers back.
    So a SIGTERM ends it. Signals are blocked during the fork, until the handlers are restored.
    """

    def __init__(self) -> None:
        self._stops: list[Callable[[], None]] = []
        self._previous_handlers: dict[int, Any] = {}  # the handlers that were replaced, by signal
        self._installs = 0  # how many of the running need the handler
        self._forking = threading.local()

    @contextmanager
    def call_on_signal(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call stop() on the first signal. Only the main thread can install the handler."""
        installs = threading.current_thread() is threading.main_thread()
        self._stops.append(stop)
        if installs:
            self._installs += 1
            for number in STOP_SIGNALS:
                if number not in self._previous_handlers:
                    self._previous_handlers[number] = signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            self._stops.remove(stop)
            if installs:
                self._installs -= 1
                if not self._installs:
                    self.restore()

    def before_fork(self) -> None:
        """Block SIGTERM and SIGINT in this thread."""
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def after_fork(self) -> None:
        """Restore the signal mask of this thread."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def after_fork_in_child(self) -> None:
        """Restore the previous handlers, then the signal mask."""
        self.restore()
        self.after_fork()

    def restore(self) -> None:
        """Restore the previous handlers, except where the program has set another one meanwhile."""
        while self._previous_handlers:
            number, before = self._previous_handlers.popitem()
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, before)

    def _on_signal(self, number: int, frame: object) -> None:
        before = self._previous_handlers.get(number)
        self.restore()
        for stop in list(self._stops):
            stop()
        if callable(before) and not _interrupts_main(before):
            before(number, frame)  # the program's own handler, such as that of an HTTP server


def _interrupts_main(handler: Any) -> bool:
    """Return whether a handler is that of Python or asyncio for Ctrl-C, which would cut the stop short."""
    owner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler is signal.default_int_handler or type(owner).__module__ == "asyncio.runners"


SIGNAL_STOPS = SignalStops()
os.register_at_fork(
    before=SIGNAL_STOPS.before_fork,
    after_in_parent=SIGNAL_STOPS.after_fork,
    after_in_child=SIGNAL_STOPS.after_fork_in_child,
)


def stop_on_signals(stop: Callable[[], None]) -> AbstractContextManager[None]:
    """Call stop() on the first SIGTERM or SIGINT; then restore and call the previous handlers."""
    return SIGNAL_STOPS.call_on_signal(stop)
