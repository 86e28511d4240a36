"""Call functions that compute with DuckDB so that Ctrl-C ends them at once.

    main thread      call() ── waits, handles signals ── KeyboardInterrupt ── interrupt() ── raises it
    another thread        └─ function: DuckDB computes ──────────────────────────┘ ends

Python handles signals only in the main thread, and not while this thread computes with DuckDB.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

T = TypeVar("T")

POLL_S = 0.1


def do_nothing() -> None:
    """Do nothing: the default of `poll`."""


class InterruptibleConnection:
    """A connection of DuckDB that one thread uses at a time.

    Args:
        connection: The connection.
        poll: Called several times a second while DuckDB computes; an exception that it raises ends the query.
    """

    def __init__(self, connection: DuckDBPyConnection, poll: Callable[[], None] = do_nothing) -> None:
        self._connection = connection
        self._poll = poll
        self._running: Future[Any] | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Return the result of a function that uses the connection.

        Raises:
            KeyboardInterrupt: after a signal; then the function has ended, unless there was a second signal.
        """
        if threading.current_thread() is not threading.main_thread():
            return function()
        result: Future[T] = Future()
        thread = threading.Thread(
            target=_compute, args=(function, result), name="headrace duckdb", daemon=True
        )
        try:
            thread.start()
            self._running = result
            while not wait([result], POLL_S).done:
                self._poll()
            self._poll()  # rather than the error that a signal has caused
        except BaseException:
            while thread.is_alive() and not wait([result], POLL_S).done:
                self._connection.interrupt()  # again: it has no effect before the query has begun
            raise
        self._running = None
        return result.result()

    def close(self) -> None:
        """Close the connection, or after two signals leave it to the thread that still uses it."""
        if self._running is None or self._running.done():
            self._connection.close()


def _compute(function: Callable[[], T], result: Future[T]) -> None:
    """Call a function in this thread, for another one."""
    try:
        result.set_result(function())
    except BaseException as error:
        result.set_exception(error)


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
