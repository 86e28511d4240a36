"""Store and load the cold runs of an engine's streams in cold files."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from headrace.errors import READING_FROM_STORE_MESSAGE, DamagedColdRun
from headrace.keyspace.cold_storage import RunStore
from headrace.persistence.cold.cold_file_monitor import ColdFileMonitor
from headrace.persistence.cold.cold_files import ColdFile, ColdFiles

EVENT_LOOP_WAIT_S = 1.0  # that the event loop waits for a run
FAILURE_REMEMBERED_S = 5.0  # how long a failure is remembered
FAILURES_MAX = 1000
REQUESTED_RUNS_MAX = 32  # runs that rules have requested


class ColdStore(RunStore):
    """A RunStore whose places are those of ColdFiles. Any thread may write and load.

    The event loop of a server loads a run itself only inside MULTI, in scripts, trims and rules, and when
    another thread has failed to load it. It waits EVENT_LOOP_WAIT_S at most for an object store. It does not
    wait in rules, nor for a run that could not be read a moment ago.
    """

    def __init__(self, files: ColdFiles) -> None:
        self.files = files
        self.event_loop_thread_id = 0  # the identifier of the thread; 0: all threads may wait
        self.start_in_thread: Callable[[Callable[[], None]], object] | None = (
            None  # runs a function in another thread
        )
        self._requested: dict[tuple[str, int], Sequence[tuple[bytes, bytearray]] | None] = {}  # None: not yet
        self._failed: dict[tuple[str, int], tuple[float, DamagedColdRun]] = {}  # with time.monotonic()
        self.run_in_background: Callable[[Callable[[], object]], object] | None = None  # in another thread
        self.monitor: ColdFileMonitor | None = None
        self._is_removing = False

    def write(self, runs: Sequence[Sequence[tuple[bytes, bytes]]]) -> list[Any]:
        """Store runs durably, as ColdFiles.write() does."""
        return list(self.files.write(runs))

    def load(self, place: Any) -> Sequence[tuple[bytes, bytearray]]:
        """Return the keys and listpacks of a run.

        Raises:
            DamagedColdRun: if the run cannot be read. Also if the event loop must not wait for the run: then
                another thread reads it, and the text of the error is READING_FROM_STORE_MESSAGE.
        """
        if not self.is_remote(place):
            return self.files.read(place)
        run = (place.file.name, place.offset)
        in_place = threading.get_ident() == self.event_loop_thread_id
        stored = self._requested.get(run)
        if stored is not None:
            self._requested.pop(run, None)
            return stored
        if in_place and run in self._failed:
            failed_at, error = self._failed[run]
            if time.monotonic() - failed_at < FAILURE_REMEMBERED_S:
                raise DamagedColdRun(error.file, error.offset, error.what)
        if in_place and not self.may_wait_for_object_store and self.start_in_thread is not None:
            self._request(place, self.start_in_thread)
            raise DamagedColdRun(place.file.path, place.offset, READING_FROM_STORE_MESSAGE)
        try:
            found = self.files.read(place, seconds=EVENT_LOOP_WAIT_S if in_place else 0)
        except DamagedColdRun as error:
            if len(self._failed) >= FAILURES_MAX:
                self._failed.clear()
            self._failed[run] = (time.monotonic(), DamagedColdRun(error.file, error.offset, error.what))
            raise
        self._failed.pop(run, None)
        return found

    def _request(self, place: Any, start: Callable[[Callable[[], None]], object]) -> None:
        """Have another thread read a run, for a later call of load()."""
        run = (place.file.name, place.offset)
        if run in self._requested:
            return
        if len(self._requested) >= REQUESTED_RUNS_MAX:
            self._requested.clear()
        self._requested[run] = None

        def read() -> None:
            stored = None
            with contextlib.suppress(
                DamagedColdRun
            ):  # the next request after FAILURE_REMEMBERED_S tries again
                stored = self.load(place)
            if stored is None:
                self._requested.pop(run, None)
            elif run in self._requested:
                self._requested[run] = stored

        start(read)

    def is_remote(self, place: Any) -> bool:
        """Return whether a run is read from an object store."""
        file: ColdFile = place.file
        return file.in_store and not file.is_local

    def file_of(self, place: Any) -> Any:
        """Return the ColdFile of this place."""
        return place.file

    def remove_unreferenced(self) -> int:
        """Remove the files that nothing refers to; return how many were removed.

        In a server another thread does this later, and checks the other files for changes. This call then
        returns 0.
        """
        if self.run_in_background is None:
            return self.files.remove_unreferenced()
        if not self._is_removing:
            self._is_removing = True
            self.run_in_background(self._maintain)
        return 0

    def damaged_file_count(self) -> int:
        """Return the number of files that were removed, replaced or truncated by others."""
        return len(self.monitor.damaged_files) if self.monitor is not None else 0

    def _maintain(self) -> None:
        try:
            self.files.remove_unreferenced()
            if self.monitor is not None:
                self.monitor.check_next_files()
        except Exception:
            logging.getLogger("headrace").exception("the upkeep of cold files failed")
        finally:
            self._is_removing = False

    def is_stale(self, place: Any) -> bool:
        """Return whether the file of this place is stale: most of it is dead. See ColdFiles.is_stale()."""
        return self.files.is_stale(place.file)

    def has_stale_files(self) -> bool:
        """Return whether a run in memory refers to a stale file."""
        return self.files.has_stale_files()

    def file_count(self) -> int:
        """Return the number of files."""
        return self.files.totals().file_count

    def stored_bytes(self) -> int:
        """Return the bytes of all files."""
        return self.files.totals().bytes
