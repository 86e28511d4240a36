"""Defer Ctrl-C and SIGTERM while calls to the JVM run: an interrupted call breaks Spark's gateway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_interrupted = threading.Event()


def record_signal(number: int, frame: FrameType | None) -> None:
    """Handle a signal: record the first one; raise KeyboardInterrupt at the second one."""
    if _interrupted.is_set():
        raise KeyboardInterrupt
    _interrupted.set()


def install_signal_handlers() -> None:
    """Record signals from now on. Call this again after Spark has installed its own handler."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, record_signal)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if a signal was recorded."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Record signals within the block, and raise KeyboardInterrupt at its end; then restore the handlers."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    install_signal_handlers()
    try:
        yield
        raise_if_interrupted()
    finally:
        _interrupted.clear()
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
