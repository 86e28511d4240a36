"""What a database does in another thread: syncs that nobody waits for, and rewrites of the log."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.persistence.data_directory import File


class Sync:
    """A sync while others go on writing: the keeper does it, or the log, if it must wait for it sooner."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.lock = threading.Lock()
        self.over = False
        self.error: Exception | None = None

    def run(self) -> None:
        """Do it, or wait for who does. What goes wrong is told by result()."""
        with self.lock:
            if self.over:
                return
            try:
                self.file.sync()
            except Exception as error:
                self.error = error
            self.over = True

    def done(self) -> bool:
        """Whether result() would not wait."""
        return self.over

    def result(self) -> None:
        """Wait for it; OSError if it failed."""
        self.run()
        if self.error is not None:
            raise self.error


def in_peace(work: Callable[[], None]) -> None:
    """Run it where no signal handler can break it off. If one raises here meanwhile, it still goes on."""
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
