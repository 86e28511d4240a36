"""Cold storage of the server: threads write and read cold files, so that the event loop waits for no disk.

event loop   step() ─ batch ─▶             ─▶ place_batch()     park ─ run ─▶           ─▶ run_loaded()
thread                         write, sync                                    read, check
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.commands.server_interface import Section
from headrace.engine.engine import Engine
from headrace.errors import HeadraceError
from headrace.keyspace.cold_storage import Batch
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log_files import remove_unlogged_orphans
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DiskDirectory
from headrace.server.config.config import Config, set_failed
from headrace.server.loop.event_loop import EventLoop
from headrace.streams.cold_run import ColdRun

READERS = 2


class ColdTasks:
    """The cold storage of the engine, and its threads: they exist once something is cold or may become so."""

    def __init__(self, config: Config, engine: Engine, loop: EventLoop, disk: DiskDirectory) -> None:
        self.config = config
        self.engine = engine
        self.loop = loop
        self.disk = disk
        self._is_loaded = False
        self.names = LogFileNames(config.text("appenddirname"), config.text("appendfilename"))
        self.files = ColdFiles(disk, self.names.cold_directory)
        self._writers: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._results: deque[Callable[[], None]] = deque()
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._receiver.setblocking(False)
        loop.add_reader(self._receiver.fileno(), self._take_results)

    def apply_config(self) -> None:
        """Apply the limits of the configuration, which may open the cold storage. Raises CommandError."""
        limit = self.config.number("stream-hot-memory")
        if limit and self.engine.cold is None:
            self.engine.open_cold_storage(ColdStore(self.files), limit)
        cold = self.engine.cold
        if cold is not None:
            cold.limit = limit
            cold.cache.limit = self.config.number("cold-cache-memory")
        if self._is_loaded:
            self._start()

    def prepare(self) -> None:
        """Open the cold storage if the log refers to cold runs; called before it is loaded."""
        if self.config.flag("appendonly") and self.engine.cold is None:
            manifest = None
            with suppress(Damaged, OSError):  # which the recovery reports
                manifest = Manifest.load(self.disk, self.names)
            if manifest is not None and manifest.cold:
                self.engine.open_cold_storage(ColdStore(self.files), 0)
                self.apply_config()

    def begin(self, logged: bool) -> None:
        """Use threads from now on: the data are loaded. Raises OSError, HeadraceError.

        Args:
            logged: there is a log, which has removed cold files that nothing refers to.
        """
        self._is_loaded = True
        if self.disk.lock_descriptor >= 0 and not logged:
            remove_unlogged_orphans(self.disk, self.names, self.files)
        self._start()

    def _start(self) -> None:
        if self.engine.cold is None or self._readers is not None:
            return
        try:
            self.disk.lock()
        except HeadraceError as error:
            raise set_failed("stream-hot-memory", str(error)) from None
        self._writers = ThreadPoolExecutor(1, "cold-writer")
        self._readers = ThreadPoolExecutor(READERS, "cold-reader")
        self.engine.cold.writer = self._write
        self.engine.park_requests(self._read)

    def close(self) -> None:
        """End the threads after what they are doing, and seal the current file."""
        if self.engine.cold is not None:
            self.engine.cold.writer = None
        for threads in (self._writers, self._readers):
            if threads is not None:
                threads.shutdown(cancel_futures=True)
        self.files.close()
        self._sender.close()
        self._receiver.close()

    # In the event loop.

    def _write(self, batch: Batch) -> None:
        assert self._writers is not None
        self._writers.submit(self._store, batch)

    def _read(self, run: ColdRun) -> None:
        assert self._readers is not None
        self._readers.submit(self._load, run, run.place)

    def _take_results(self) -> None:
        with suppress(BlockingIOError):
            self._receiver.recv(4096)
        while self._results:
            self._results.popleft()()

    def _place(self, batch: Batch, places: list[Any]) -> None:
        assert self.engine.cold is not None
        self.engine.cold.place_batch(batch, places)

    def _fail(self, error: Exception) -> None:
        assert self.engine.cold is not None
        self.engine.cold.fail(error)

    def _loaded(self, run: ColdRun, stored: Any) -> None:
        self.engine.run_loaded(run, stored, self.loop.clock.now_ms())

    # In threads.

    def _store(self, batch: Batch) -> None:
        try:
            places = list(self.files.write([stored.contents for stored in batch]))
        except (OSError, HeadraceError) as error:
            self._report(partial(self._fail, error))
        else:
            self._report(partial(self._place, batch, places))

    def _load(self, run: ColdRun, place: Any) -> None:
        stored = None
        try:
            stored = self.files.read(place)
        except HeadraceError as error:  # the request that waits reports it when it tries again
            logging.getLogger("headrace").error("%s", error)
        self._report(partial(self._loaded, run, stored))

    def _report(self, result: Callable[[], None]) -> None:
        self._results.append(result)
        with suppress(OSError):  # the buffer is full: the loop is awake
            self._sender.send(b".")


def fields(engine: Engine) -> Section:
    """Return the fields of INFO about cold storage; none if there is none."""
    cold = engine.cold
    if cold is None:
        return []
    totals = cold.cache.totals
    return [
        ("stream_hot_memory", cold.limit),
        ("cold_entries", totals.entries),
        ("cold_runs", totals.runs),
        ("cold_bytes", totals.weight),
        ("cold_files", cold.store.file_count()),
        ("cold_stored_bytes", cold.store.stored_bytes()),
        ("cold_cache_bytes", cold.cache.memory.total),
        ("cold_cache_hits", cold.cache.hits),
        ("cold_cache_misses", cold.cache.misses),
        ("cold_parked_requests", engine.parking.parked if engine.parking is not None else 0),
        ("cold_runs_stored", cold.runs_stored),
        ("cold_runs_given_up", cold.runs_given_up),
        ("cold_write_failures", cold.failures),
        ("cold_last_error", cold.last_error),
    ]
