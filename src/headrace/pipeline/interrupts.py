"""Ctrl-C between two calls to the JVM, never within one: a call cut short leaves Spark's gateway unusable."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_seen = threading.Event()


def note(number: int, frame: FrameType | None) -> None:
    """Remembers the signal. Who asks a second time does not want to wait."""
    if _seen.is_set():
        raise KeyboardInterrupt
    _seen.set()


def hold() -> None:
    """From now on signals are noted; to be called again after Spark has put its own handler there."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, note)


def raise_if_noted() -> None:
    """KeyboardInterrupt if there was a signal."""
    if _seen.is_set():
        raise KeyboardInterrupt


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Signals within are noted, and raised at the end at the latest; then all is as it was."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    hold()
    try:
        yield
        raise_if_noted()
    finally:
        _seen.clear()
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
