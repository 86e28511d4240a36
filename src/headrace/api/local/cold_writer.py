"""Move the oldest nodes of streams to cold files while other threads use the database.

    timer thread  lock ─ copy some nodes ─ unlock
    a new thread                             write, sync, read back ─ lock ─ the nodes leave memory ─ unlock

The nodes are read, and change, in memory until they are stored. A read of a cold entry loads the run of nodes
that contains the entry. The reading thread does this with the engine's lock, in half a millisecond, mostly
without the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from headrace.api.local.engine_access import EngineAccess
from headrace.errors import DatabaseClosed
from headrace.keyspace.cold_storage import Batch, ColdStorage


class ColdWriter:
    """Stores the batches of a database's cold storage, each in a new thread."""

    def __init__(self, local_engine: EngineAccess, cold: ColdStorage) -> None:
        self._local_engine = local_engine
        self._cold = cold
        self._thread: threading.Thread | None = None
        self._file_thread: threading.Thread | None = None
        self._ended = False

    def start(self, batch: Batch) -> None:
        """Start to store a batch. Called with the engine's lock, when no other batch is being stored."""
        thread = threading.Thread(target=self._store, args=(batch,), name="headrace-cold", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter is shutting down, or there are too many threads
            self._cold.record_failure(error)
        else:
            self._thread = thread

    def run_in_background(self, work: Callable[[], object]) -> None:
        """Run work(), an upkeep of cold files, in a new thread; in this one if no thread can be started.

        Called with the engine's lock. After wait() it does nothing: another process may use the directory.
        """
        if self._ended:
            return
        thread = threading.Thread(target=work, name="headrace-cold-files", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            work()
        else:
            self._file_thread = thread

    def run_locked(self, work: Callable[[], None]) -> None:
        """Run work() with the engine's lock, unless the database was closed."""
        with contextlib.suppress(DatabaseClosed):
            self._local_engine.run_locked(work)
            self._local_engine.commit_and_wake(-1)

    def wait(self) -> None:
        """Wait until the files are complete: no batch is started any more. Called without the lock."""
        with self._local_engine.lock:
            self._ended = True
        for thread in (self._thread, self._file_thread):
            if thread is not None:
                thread.join()

    def _store(self, batch: Batch) -> None:
        self.run_locked(
            self._cold.store_returning_completion(batch)
        )  # if it was closed, the entries are in the log only
