"""A child that sees the data as they are at this moment, and writes them to a file.

    parent   fork ──────────────── serves on ───────── ended()? ── takes the file over, or removes it
    child         └─ work ─ _exit

The child shares nothing but memory: it closes every socket, so that no client of a server that has ended
seems to be connected still, and it dies with its parent.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
REASON_BYTES_MAX = 1000
FIRST_DESCRIPTOR = 3
DESCRIPTORS_END = 1 << 20  # no process has more


class Child:
    """A process that does one piece of work. A failure's reason comes through a pipe."""

    def __init__(self, work: Callable[[], None]) -> None:
        """Start; OSError when the system has no process to give."""
        self.reading, writing = os.pipe()
        parent = os.getpid()
        try:
            with as_batch():
                self.pid = os.fork()
        except OSError:
            os.close(self.reading)
            os.close(writing)
            raise
        if self.pid == 0:
            run_and_exit(work, writing, parent)
        os.close(writing)
        self.reason = ""

    def ended(self) -> bool:
        """Whether it has ended; then `reason` says why it failed, or is empty when it did its work."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        self._bury(status)
        return True

    def kill(self) -> None:
        """End it now."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._bury(status)

    def _bury(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            told = os.read(self.reading, REASON_BYTES_MAX).decode(errors="replace")
            self.reason = told or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
        os.close(self.reading)


@contextmanager
def as_batch() -> Iterator[None]:
    """A child that begins in here is a batch job for the scheduler, and stays one; its parent is one no more.

    A job like that gets its fair share, but does not take the processor from whoever has it: its parent goes
    on at once, where both have only one.
    """
    parent = os.getpid()
    usual = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER
    if usual:
        with suppress(OSError):  # where it is forbidden they compete as ever
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        if usual and os.getpid() == parent:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def run_and_exit(work: Callable[[], None], writing: int, parent: int) -> None:
    """What the child does. It never returns: nothing of the parent's may run on in it."""
    code = 1
    try:
        if hasattr(LIBC, "prctl"):
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)  # that descriptor is the parent's, and its number soon another file's
        gc.disable()  # a collection would copy pages, and could run what belongs to the parent
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which decides
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.closerange(FIRST_DESCRIPTOR, writing)
        os.closerange(writing + 1, DESCRIPTORS_END)
        work()
        code = 0
    except BaseException as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else repr(wrong)
        with suppress(OSError):
            os.write(writing, reason.encode(errors="replace")[:REASON_BYTES_MAX])
    finally:
        os._exit(code)
