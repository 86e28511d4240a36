"""Threads of a local database: its timer, fsyncs while others write, and rewrites of the log."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from headrace.api.backend import Wakeup
from headrace.api.local.clock import Clock
from headrace.errors import copy_error
from headrace.persistence.data_directory import File


class TimedDatabase(Protocol):
    """The database of a TimerThread."""

    @property
    def clock(self) -> Clock:
        """The clock by which the timer thread sleeps."""

    @property
    def closed_reason(self) -> str | None:
        """Why the database is closed; None if it is open."""

    def run_due(self) -> int:
        """Run due tasks; return when the next is due, in Unix milliseconds, or NEVER_MS. Raises nothing."""


class TimerThread:
    """Runs what is due: removal of expired keys, freeing of memory, ends of waits, the sync every second.

    The thread is started when something becomes due for the first time, and sleeps until then. It does not
    keep the database alive, and ends when the database is garbage-collected.
    """

    def __init__(self, database: TimedDatabase) -> None:
        self.wakeup = Wakeup(background=True)
        self._database = weakref.ref(database, lambda _: self.wakeup.wake())
        self._running_lock = threading.Lock()  # acquired once, by the timer thread; no thread waits for it

    def wake(self) -> None:
        """Check now, because something may be due earlier; start the thread if it is not running."""
        self.wakeup.wake()
        if not self._running_lock.locked():
            threading.Thread(target=self._run, name="headrace-timer", daemon=True).start()

    def _run(self) -> None:
        if not self._running_lock.acquire(False):
            return  # two threads have started it at once
        while True:
            database = self._database()
            if database is None or database.closed_reason is not None:
                return
            until = database.run_due()
            clock = database.clock
            del database
            clock.sleep(self.wakeup, until)


class BackgroundSync:
    """An fsync that runs while other threads write.

    The timer thread runs the fsync. If the log needs the result earlier, the log runs the fsync.
    """

    def __init__(self, file: File) -> None:
        self.file = file
        self.lock = threading.Lock()
        self.finished = False
        self.error: BaseException | None = None

    def run(self) -> None:
        """Sync the file once; concurrent callers wait for that sync. result() raises its error."""
        with self.lock:
            if self.finished:
                return
            try:
                self.file.sync()
            except Exception as error:
                self.error = copy_error(error)
            self.finished = True

    def done(self) -> bool:
        """Return whether the sync has ended."""
        return self.finished

    def result(self) -> None:
        """Wait for the sync. Raises OSError if it failed."""
        self.run()
        if self.error is not None:
            raise copy_error(self.error)


def run_uninterrupted(work: Callable[[], None]) -> None:
    """Run `work` in a thread other than the main one, where no signal handler can interrupt it.

    If a handler raises in the calling thread meanwhile, `work` still continues. Raises the error of `work`.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    ended = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        ended.set()

    try:
        threading.Thread(target=run, name="headrace-rewrite").start()
    except RuntimeError:  # the interpreter is shutting down
        run()
    ended.wait()
    if errors:
        raise errors[0]
