"""Read items in a thread, a few ahead of their use: while the server works, the next rows are prepared.

thread   read, parse ──▶ queue of at most `ahead` items ──▶ caller
         an error is raised in order, after the items before it
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class _Reader(threading.Thread, Generic[T]):
    """Reads items until they end, or until it is stopped."""

    def __init__(self, items: Iterator[T], ahead: int) -> None:
        super().__init__(name="headrace-read-ahead", daemon=True)
        self._items = items
        self._stopped = threading.Event()
        # Each item in a list; an exception, or None, is the end.
        self._queue: queue.Queue[list[T] | BaseException | None] = queue.Queue(ahead)

    def run(self) -> None:
        """Put items into the queue."""
        end: BaseException | None = None
        try:
            for item in self._items:
                self._queue.put([item])
                if self._stopped.is_set():
                    break
        except BaseException as error:
            end = error
        self._queue.put(end)

    def stop(self) -> None:
        """Read no more; wait for the item that is being read."""
        self._stopped.set()
        while self.is_alive():
            try:
                self._queue.get(timeout=0.05)  # it may wait for a place
            except queue.Empty:
                continue
        self.join()

    def __iter__(self) -> Iterator[T]:
        while (found := self._queue.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found[0]


@contextmanager
def read_ahead(items: Iterator[T], ahead: int = 4) -> Iterator[Iterator[T]]:
    """Yield an iterator over the same items, which a thread reads.

    The end of the context waits for the item that is being read. So reading must not block for long: read
    from a file, not from a pipe.

    Args:
        items: used by the thread only.
        ahead: how many items may be waiting.
    """
    reader = _Reader(items, ahead)
    reader.start()
    try:
        yield iter(reader)
    finally:
        reader.stop()
