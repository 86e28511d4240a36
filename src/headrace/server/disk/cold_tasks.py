"""Cold storage of the server: threads write and read cold files, so that the event loop waits for no disk.

    event loop   step() ─ batch ─▶            ─▶ replace_with_stored_runs()
                                   │          │
    thread                         write, sync

    event loop   park ─ run ─▶           ─▶ on_run_loaded()
                               │         │
    thread                     read, check

A thread wakes the event loop when it has a result. Runs in an object store have readers of their own: an
outage of the store delays no read of the disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from headrace.commands.server_interface import InfoFields
from headrace.engine.clock import RealClock
from headrace.engine.engine import Engine
from headrace.errors import CommandError, HeadraceError
from headrace.keyspace.cold_storage import Batch, ColdStorage
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log_files import prepare_cold_directory, remove_unlogged_orphans
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.cold.cold_file_monitor import ColdFileMonitor
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.config.config import Config, config_set_error
from headrace.server.disk import cold_object_store
from headrace.server.disk.cold_object_store import ColdObjectStore
from headrace.streams.cold_run import ColdRun

READER_THREADS = 2
LOG_EVERY_S = 10.0  # the same failed read
LOGGED_FAILURES_MAX = 100  # different failed reads in this time
STORE_READER_THREADS = 8  # an object store answers later than a disk, and many requests at once


class ColdTasks:
    """The cold storage of the engine, and its threads: they exist once something is cold or may become so."""

    def __init__(
        self, config: Config, engine: Engine, clock: RealClock, disk: DiskDirectory, wake: Callable[[], None]
    ) -> None:
        """Start no thread yet. wake: has the event loop call apply_thread_results(); thread-safe."""
        self.config = config
        self.engine = engine
        self.clock = clock
        self.disk = disk
        self.wake = wake
        self._is_loaded = False
        self.log_file_names = LogFileNames(config.text("appenddirname"), config.text("appendfilename"))
        self.cold_files = ColdFiles(disk, self.log_file_names.cold_directory)
        self.object_store = ColdObjectStore(config, self.cold_files)
        self.store = ColdStore(self.cold_files)
        self._threads: list[ThreadPoolExecutor] = []
        self._logged_at: dict[str, float] = {}  # by the error of a read; all of an object store are one
        self._unlogged = 0  # failed reads since the last line
        self._failures_lock = threading.Lock()  # for these two
        engine.rule_registry.open_cold_storage = self.open_for_rules
        self._results: deque[Callable[[], None]] = deque()

    def apply_config(self) -> None:
        """Apply the limits of the configuration, which may open the cold storage. Raises CommandError."""
        limit = self.config.number("stream-hot-memory")
        if limit and self.engine.cold_storage is None:
            self.engine.open_cold_storage(self.store, limit)
        self.object_store.apply_config()
        cold = self.engine.cold_storage
        if cold is not None:
            cold.hot_bytes_limit = limit
            cold.cache.set_limit(self.config.number("cold-cache-memory"))
        if self._is_loaded:
            self._start()

    def open_for_rules(self) -> None:
        """Open the cold storage because a stream has a HOT-BYTES or HOT-AGE rule. Raises CommandError.

        Does nothing if it is open.
        """
        if self.engine.cold_storage is not None:
            return
        if self._is_loaded:
            try:
                self.disk.lock()
                prepare_cold_directory(self.disk, self.log_file_names, self.cold_files)
            except (OSError, HeadraceError) as error:
                raise CommandError(f"ERR nodes cannot be moved to files: {error}") from None
        self.engine.open_cold_storage(self.store, 0)
        self.apply_config()

    def prepare_for_loading(self) -> None:
        """Prepare cold files and the object store; open the cold storage if the log refers to cold runs.

        Call it before the log is loaded. Raises OSError, HeadraceError; also if the cold files belong to
        another log.
        """
        prepare_cold_directory(self.disk, self.log_file_names, self.cold_files)
        self.object_store.attach()
        if self.config.flag("appendonly") and self.engine.cold_storage is None:
            manifest = None
            with suppress(Damaged, OSError):  # which the recovery reports
                manifest = Manifest.load(self.disk, self.log_file_names)
            if manifest is not None and manifest.cold:
                self.engine.open_cold_storage(self.store, 0)
                self.apply_config()

    def begin_after_loading(self, logged: bool) -> None:
        """Use threads from now on: the data are loaded. Raises OSError, HeadraceError.

        Args:
            logged: there is a log. Opening it has removed the cold files that nothing refers to; without a
                log they are removed here.
        """
        self._is_loaded = True
        if self.disk.lock_descriptor >= 0 and not logged:
            remove_unlogged_orphans(self.disk, self.log_file_names, self.cold_files)
        if self.disk.lock_descriptor >= 0:
            self.object_store.start_uploads()
        self._start()

    def _start(self) -> None:
        cold = self.engine.cold_storage
        if cold is None or self._threads:
            return
        try:
            self.disk.lock()
            prepare_cold_directory(self.disk, self.log_file_names, self.cold_files)
        except (OSError, HeadraceError) as error:
            raise config_set_error("stream-hot-memory", str(error)) from None
        self.object_store.start_uploads()
        writer, readers = (
            ThreadPoolExecutor(1, "cold-writer"),
            ThreadPoolExecutor(READER_THREADS, "cold-reader"),
        )
        store_readers = ThreadPoolExecutor(STORE_READER_THREADS, "cold-store-reader")
        self._threads = [writer, readers, store_readers]
        cold.start_writing = lambda batch: writer.submit(self._store, cold, batch)

        def load(run: ColdRun) -> None:
            chosen = store_readers if self.store.is_remote(run.storage_location) else readers
            chosen.submit(self._load, cold, run, run.storage_location)

        self.store.start_in_thread = store_readers.submit
        self.store.monitor = ColdFileMonitor(self.cold_files, lambda: self.engine.keyspace, self._report)
        self.store.run_in_background = writer.submit
        self.engine.enable_parking(load)

    def close(self) -> None:
        """End the threads when their running tasks are done, and seal the current file."""
        self.object_store.close()
        if self.engine.cold_storage is not None:
            self.engine.cold_storage.start_writing = None
            self.store.run_in_background = None
        for threads in self._threads:
            threads.shutdown(cancel_futures=True)
        self.cold_files.close()

    def set_event_loop_thread(self) -> None:
        """Register the calling thread as that of the event loop, which must not wait for an object store."""
        self.store.event_loop_thread_id = threading.get_ident()

    def apply_thread_results(self) -> None:
        """Apply the results of the threads: free stored nodes, run parked requests."""
        while self._results:
            self._results.popleft()()

    # In threads. Whatever goes wrong is a result, too: otherwise the event loop would wait for it.

    def _store(self, cold: ColdStorage, batch: Batch) -> None:
        self._report(cold.store_returning_completion(batch))

    def _load(self, cold: ColdStorage, run: ColdRun, place: Any) -> None:
        stored = None
        try:
            stored = cold.store.load(place)
        except Exception as error:  # the request that waits tries again, and reports it
            self._log_failure(error, self.store.is_remote(place))
        self._report(lambda: self.engine.on_run_loaded(run, stored, self.clock.now_ms()))

    def _log_failure(self, error: Exception, is_remote: bool) -> None:
        """Log that a run could not be read, once in LOG_EVERY_S for each cause: clients may retry often.

        During an outage of an object store thousands of reads fail: they share one line.
        """
        now = time.monotonic()
        cause = "" if is_remote else str(error)
        with self._failures_lock:
            self._logged_at = {logged: at for logged, at in self._logged_at.items() if now - at < LOG_EVERY_S}
            if cause in self._logged_at or len(self._logged_at) >= LOGGED_FAILURES_MAX:
                self._unlogged += 1
                return
            self._logged_at[cause] = now
            more = f" (and {self._unlogged} more in the last seconds)" if self._unlogged else ""
            self._unlogged = 0
        logging.getLogger("headrace").error("%s%s", error, more)

    def _report(self, result: Callable[[], None]) -> None:
        self._results.append(result)
        self.wake()


def info_fields(tasks: ColdTasks) -> InfoFields:
    """Return the fields of INFO about cold storage and the object store, each only if it is in use."""
    engine, uploader = tasks.engine, tasks.object_store.uploader
    of_store = cold_object_store.info_fields(uploader) if uploader is not None else []
    cold = engine.cold_storage
    if cold is None:
        return of_store
    totals = cold.cache.cold_run_totals
    damaged = cold.store.damaged_file_count() if isinstance(cold.store, ColdStore) else 0
    return [
        ("stream_hot_memory", cold.hot_bytes_limit),
        ("cold_entries", totals.entry_count),
        ("cold_runs", totals.run_count),
        ("cold_bytes", totals.bytes_if_loaded),
        ("cold_files", cold.store.file_count()),
        ("cold_files_damaged", damaged),
        ("cold_stored_bytes", cold.store.stored_bytes()),
        ("cold_cache_bytes", cold.cache.memory.total),
        ("cold_cache_hits", cold.cache.hits),
        ("cold_cache_misses", cold.cache.misses),
        ("cold_parked_requests", engine.parking.parked_count if engine.parking is not None else 0),
        ("cold_runs_stored", cold.runs_stored),
        ("cold_runs_given_up", cold.runs_given_up),
        ("cold_removals_left_out", cold.left_out_removal_count),
        ("cold_runs_rewritten", cold.runs_rewritten),
        ("cold_write_failures", cold.failures),
        ("cold_last_error", cold.last_error),
        *of_store,
    ]
