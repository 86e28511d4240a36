"""Work of a database in another thread: background syncs, and rewrites of the log."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.persistence.data_directory import File


class BackgroundSync:
    """A sync while other threads write: run by the timer thread, or by the log if it needs the result
    earlier.
    """

    def __init__(self, file: File) -> None:
        self.file = file
        self.lock = threading.Lock()
        self.finished = False
        self.error: Exception | None = None

    def run(self) -> None:
        """Run once; concurrent callers wait for that run. Errors are raised by result()."""
        with self.lock:
            if self.finished:
                return
            try:
                self.file.sync()
            except Exception as error:
                self.error = error
            self.finished = True

    def done(self) -> bool:
        """Whether result() would return at once."""
        return self.finished

    def result(self) -> None:
        """Wait for the sync. Raises OSError if it failed."""
        self.run()
        if self.error is not None:
            raise self.error


def run_uninterrupted(work: Callable[[], None]) -> None:
    """Run `work` where no signal handler can interrupt it.

    If one raises here meanwhile, `work` still continues.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    over = threading.Event()
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            wrong.append(error)
        over.set()

    try:
        threading.Thread(target=run, name="headrace-rewrite").start()
    except RuntimeError:  # the interpreter ends, and starts no threads any more
        run()
    over.wait()
    if wrong:
        raise wrong[0]
