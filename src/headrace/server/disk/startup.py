"""Start-up: load the data before the first client is served; until then clients get LOADING.

    listening ─ lock the directory ─ load, with a turn of the event loop now and then ─ open the log ─ ready

If anything is wrong with the directory or a file, the program ends with one line, and nothing is overwritten.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.commands.server_interface import InfoFields
from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import log_replayer_and_skipped
from headrace.errors import HeadraceError, UsageError
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.recovery import RecoveryResult, recover, skipped_command_notes
from headrace.server.config.config import Config
from headrace.server.config.log_levels import NOTICE
from headrace.server.loop.event_loop import EventLoop

TURN_INTERVAL_S = 0.02  # between two turns: clients wait so long for LOADING, at most
SHOWN_AFTER_S = 0.5  # no progress bar for a shorter load
# New objects that start a garbage collection during a load, when nearly all objects stay.
GC_YOUNG_THRESHOLD = 1_000_000


class LoadInterrupted(Exception):
    """The server was stopped while it was loading."""


class Startup:
    """Loads the data, and reports the progress."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        files: DiskDirectory,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.config = config
        self.engine = engine
        self.loop = loop
        self.data_directory = files
        self.is_stopped = is_stopped
        self.log_file_names = LogFileNames(config.text("appenddirname"), config.text("appendfilename"))
        self.keys_loaded = 0
        self.current_file_name = ""  # being read
        self.bytes_done = 0  # bytes of it that are read
        self.bytes_total = 0
        self.started_s = 0.0
        self.last_turn_s = 0.0  # when the event loop ran last
        self.draw_progress_bar: Callable[[], None] | None = None  # draws the progress bar

    def lock(self) -> None:
        """Lock the directory if the configuration makes this server write to it. Raises UsageError."""
        with as_usage_errors():
            cools = self.config.number("stream-hot-memory")
            if self.config.flag("appendonly") or self.config.save_rules() or cools:
                self.data_directory.lock()

    def load(self, now: int) -> RecoveryResult:
        """Load the directory into memory. Raises UsageError or LoadInterrupted."""
        self.started_s = self.last_turn_s = time.time()
        self.engine.write_gate.set_loading(True)
        try:
            with as_usage_errors(), self._progress_bar(), reduced_gc():
                found = self._recover(now)
        finally:
            self.engine.write_gate.set_loading(False)
            self.engine.rule_runner.reapply_all_next_time()
        self.engine.stats.reset()
        self.keys_loaded = found.key_count
        for note in found.notes:
            logging.getLogger("headrace").warning("%s", note)
        if found.ignored_snapshot:
            text = "%s is not read, because there is a log: %s"
            logging.getLogger("headrace").log(
                NOTICE, text, found.ignored_snapshot, self.log_file_names.directory
            )
        logging.getLogger("headrace").log(
            NOTICE if found.files else logging.INFO,
            "loaded %d keys from %s in %.3f s",
            found.key_count,
            ", ".join(found.files) or "nothing",
            time.time() - self.started_s,
        )
        return found

    def _recover(self, now: int) -> RecoveryResult:
        skips = self.config.flag("load-skip-foreign-types")
        replay, skipped = log_replayer_and_skipped(self.engine, now, skips)
        found = recover(
            self.data_directory,
            self.log_file_names,
            self.engine.keyspace,
            replay,
            appendonly=self.config.flag("appendonly"),
            dbfilename=self.config.text("dbfilename"),
            truncated_ok=self.config.flag("aof-load-truncated"),
            now_ms=now,
            progress=self._progress,
            skip_foreign_types=skips,
            verify_checksums=self.config.flag("aof-checksum"),
        )
        found.notes.extend(skipped_command_notes(skipped))
        return found

    def replay_log(self, now: int) -> None:
        """Load the log alone into an empty keyspace, for DEBUG LOADAOF; no client is served meanwhile.

        Raises HeadraceError, OSError; also for a log that ends within a record.
        """
        skips = self.config.flag("load-skip-foreign-types")
        recover(
            self.data_directory,
            self.log_file_names,
            self.engine.keyspace,
            log_replayer_and_skipped(self.engine, now, skips)[0],
            appendonly=True,
            dbfilename=self.config.text("dbfilename"),
            truncated_ok=False,
            now_ms=now,
            fix_tail=False,
            skip_foreign_types=skips,
            verify_checksums=self.config.flag("aof-checksum"),
        )

    def _progress(self, file: str, done: int, total: int) -> None:
        """Run a turn of the event loop if the last one was TURN_INTERVAL_S ago, so that clients get LOADING.

        Called between two records. Raises LoadInterrupted if the server was stopped.
        """
        self.current_file_name, self.bytes_done, self.bytes_total = file, done, total
        now = time.time()
        if 0 <= now - self.last_turn_s < TURN_INTERVAL_S:
            return
        self.last_turn_s = now
        self.loop.run_once(0)
        if self.is_stopped():
            raise LoadInterrupted()
        if self.draw_progress_bar is not None and now - self.started_s > SHOWN_AFTER_S:
            self.draw_progress_bar()

    @contextmanager
    def _progress_bar(self) -> Iterator[None]:
        """Draw a progress bar meanwhile, if standard error is a terminal."""
        if sys.stderr is None or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        bars = Progress(*columns, console=Console(stderr=True), transient=True)
        task = bars.add_task("loading", total=None)

        def show() -> None:
            bars.start()
            bars.update(
                task,
                description=f"loading {self.current_file_name}",
                completed=self.bytes_done,
                total=self.bytes_total,
            )

        self.draw_progress_bar = show
        try:
            yield
        finally:
            self.draw_progress_bar = None
            bars.stop()

    def info(self) -> InfoFields:
        """Return INFO's fields of a running load."""
        seconds = max(time.time() - self.started_s, 0.001)
        left = (self.bytes_total - self.bytes_done) * seconds / self.bytes_done if self.bytes_done else 0
        return [
            ("loading_start_time", int(self.started_s)),
            ("loading_total_bytes", self.bytes_total),
            ("loading_rdb_used_mem", 0),
            ("loading_loaded_bytes", self.bytes_done),
            (
                "loading_loaded_perc",
                f"{100 * self.bytes_done / self.bytes_total if self.bytes_total else 0:.2f}",
            ),
            ("loading_eta_seconds", int(left)),
        ]


@contextmanager
def reduced_gc() -> Iterator[None]:
    """Run the garbage collector less often: loading makes little garbage, and hardly any in cycles.

    Objects that exist before or after the load are frozen, so that the collector skips them.
    """
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(GC_YOUNG_THRESHOLD, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.freeze()


@contextmanager
def as_usage_errors() -> Iterator[None]:
    """Turn errors raised inside into a UsageError of one line for the operator."""
    try:
        yield
    except UsageError:
        raise
    except HeadraceError as wrong:
        raise UsageError(str(wrong)) from None
    except OSError as wrong:
        where = os.fspath(wrong.filename) if isinstance(wrong.filename, str) else "the data directory"
        text = f"{where}: {wrong.strerror or wrong}; the server must be able to write there"
        raise UsageError(text) from None
