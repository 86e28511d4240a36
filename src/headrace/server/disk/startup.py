"""From the disk into memory, before the first client is served; until then they hear LOADING.

    listening ─ lock the directory ─ load, with a turn now and then ─ the log goes on ─ ready

Whatever is wrong with the directory or a file ends the program with one line, and nothing is overwritten.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.commands.server_interface import Section
from headrace.engine.engine import Engine
from headrace.engine.replaying import Replayer
from headrace.errors import HeadraceError, UsageError
from headrace.persistence.aof.names import Names
from headrace.persistence.data_directory import DiskFiles
from headrace.persistence.recovery import Recovered, recover
from headrace.server.config.config import Config
from headrace.server.loop.event_loop import Turn

TURN_S = 0.02  # how long clients wait for their LOADING, at most
SHOWN_AFTER_S = 0.5  # who loads faster than that need not be told
# New objects that make the collector look at them, while nearly all of them are there to stay.
YOUNG_OBJECTS = 1_000_000


class Stopped(Exception):
    """The server was told to end while it was loading."""


class Startup:
    """One load, and what is to be told of it."""

    def __init__(
        self, config: Config, engine: Engine, turn: Turn, files: DiskFiles, is_stopped: Callable[[], bool]
    ) -> None:
        self.config = config
        self.engine = engine
        self.turn = turn
        self.files = files
        self.is_stopped = is_stopped
        self.names = Names(config.text("appenddirname"), config.text("appendfilename"))
        self.keys_loaded = 0
        self.file = ""  # being read
        self.done = 0  # bytes of it
        self.total = 0
        self.begun_s = 0.0
        self.turn_s = 0.0  # when the last turn was
        self.show: Callable[[], None] | None = None  # draws the progress for a person

    def lock(self) -> None:
        """Take the directory, if this server will write to it by itself. UsageError."""
        with plain_words():
            if self.config.flag("appendonly") or self.config.save_rules():
                self.files.lock()

    def load(self, now: int) -> Recovered:
        """What the directory holds, in memory. UsageError when it cannot be had; Stopped."""
        self.begun_s = self.turn_s = time.time()
        self.engine.write_gate.set_loading(True)
        try:
            with plain_words(), self._shown(), seldom_collected():
                found = self._recover(now)
        finally:
            self.engine.write_gate.set_loading(False)
        self.engine.stats.reset()
        self.keys_loaded = found.keys
        for note in found.notes:
            logging.getLogger("headrace").warning("%s", note)
        logging.getLogger("headrace").info(
            "loaded %d keys from %s in %.3f s",
            found.keys,
            ", ".join(found.files) or "nothing",
            time.time() - self.begun_s,
        )
        return found

    def _recover(self, now: int) -> Recovered:
        return recover(
            self.files,
            self.names,
            self.engine.keyspace,
            Replayer(self.engine, now).execute,
            appendonly=self.config.flag("appendonly"),
            dbfilename=self.config.text("dbfilename"),
            truncated_ok=self.config.flag("aof-load-truncated"),
            now_ms=now,
            progress=self._progress,
        )

    def replay(self, now: int) -> None:
        """The log alone, into an empty keyspace, in one go. HeadraceError, OSError."""
        recover(
            self.files,
            self.names,
            self.engine.keyspace,
            Replayer(self.engine, now).execute,
            appendonly=True,
            dbfilename=self.config.text("dbfilename"),
            truncated_ok=False,
            now_ms=now,
            fix_tail=False,
        )

    def _progress(self, file: str, done: int, total: int) -> None:
        """Between two records: let those who have come hear that they must wait."""
        self.file, self.done, self.total = file, done, total
        now = time.time()
        if 0 <= now - self.turn_s < TURN_S:
            return
        self.turn_s = now
        self.turn.once(0)
        if self.is_stopped():
            raise Stopped()
        if self.show is not None and now - self.begun_s > SHOWN_AFTER_S:
            self.show()

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """A bar while it lasts, if a person looks on."""
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
            bars.update(task, description=f"loading {self.file}", completed=self.done, total=self.total)

        self.show = show
        try:
            yield
        finally:
            self.show = None
            bars.stop()

    def info(self) -> Section:
        """INFO's fields of a load that is going on."""
        seconds = max(time.time() - self.begun_s, 0.001)
        left = (self.total - self.done) * seconds / self.done if self.done else 0
        return [
            ("loading_start_time", int(self.begun_s)),
            ("loading_total_bytes", self.total),
            ("loading_rdb_used_mem", 0),
            ("loading_loaded_bytes", self.done),
            ("loading_loaded_perc", f"{100 * self.done / self.total if self.total else 0:.2f}"),
            ("loading_eta_seconds", int(left)),
        ]


@contextmanager
def seldom_collected() -> Iterator[None]:
    """What is loaded makes little garbage, none of it in cycles as a rule: look for it more seldom.

    What is there before and after stays: the collector need not look at that again.
    """
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.freeze()


@contextmanager
def plain_words() -> Iterator[None]:
    """What goes wrong inside is the operator's to mend: a UsageError of one line."""
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
