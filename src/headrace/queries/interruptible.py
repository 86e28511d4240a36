"""Call functions that compute with DuckDB so that Ctrl-C ends them at once.

    main thread      call() ── waits, handles signals ── KeyboardInterrupt ── interrupt() ── raises it
    another thread        └─ function: DuckDB computes ──────────────────────────┘ ends

Python handles signals only in the main thread, and not while that computes with DuckDB.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

POLL_S = 0.1


def do_nothing() -> None:
    """Do not look for signals that were only recorded."""


class InterruptibleConnection:
    """A connection of DuckDB that one thread uses at a time.

    Args:
        connection: The connection.
        poll: Called several times a second while DuckDB computes; an exception that it raises ends the query.
    """

    def __init__(self, connection: DuckDBPyConnection, poll: Callable[[], None] = do_nothing) -> None:
        self._connection = connection
        self._poll = poll
        self._running: _Call[Any] | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Return the result of a function that uses the connection.

        Raises:
            KeyboardInterrupt: after a signal; then the function has ended, unless there was a second signal.
        """
        if threading.current_thread() is not threading.main_thread():
            return function()
        self._running = call = _Call(function)
        try:
            call.start()
            while not call.ended.wait(POLL_S):
                self._poll()
            self._poll()  # rather than the error that a signal has caused
        except BaseException:
            while call.is_alive() and not call.ended.wait(POLL_S):
                self._connection.interrupt()  # again: it has no effect before the query has begun
            raise
        self._running = None
        return call.result()

    def close(self) -> None:
        """Close the connection, or after two signals leave it to the thread that still uses it."""
        if self._running is None or not self._running.is_alive() or self._running.ended.is_set():
            self._connection.close()


class _Call(threading.Thread, Generic[T]):
    """A thread that calls a function."""

    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__(name="headrace duckdb", daemon=True)
        self.ended = threading.Event()
        self._function = function
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call the function."""
        try:
            self._result.append(self._function())
        except BaseException as error:
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> T:
        """Return the result, or raise the error of the function."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback has this frame: they would be a reference cycle
        return self._result.pop()


class QueryRows:
    """The rows of a query, which are computed while they are read."""

    def __init__(self, reader: pa.RecordBatchReader, connection: InterruptibleConnection) -> None:
        self._reader = reader
        self._connection = connection

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._reader.schema

    def read_all(self) -> pa.Table:
        """Return all rows."""
        return self._connection.call(self._reader.read_all)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows in batches."""
        while (batch := self._connection.call(self._next)) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None
