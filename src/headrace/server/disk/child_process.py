"""A child process that sees the data as they are at this moment, and writes them to a file.

    parent   fork ──────── continues serving ────── has_ended()? ── uses the file, or removes it
    child         └─ work ─ _exit

The child shares only memory: it closes every socket, so that clients of an ended server do not stay
connected. It dies with its parent.
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
    """A process that does one piece of work. The reason of a failure comes through a pipe."""

    def __init__(self, work: Callable[[], object], keep: int = -1) -> None:
        """Start the process, which keeps the descriptor `keep`. Raises OSError if there can be none."""
        self.read_end, write_end = os.pipe()
        parent = os.getpid()
        try:
            with batch_scheduling():
                self.pid = os.fork()
        except OSError:
            os.close(self.read_end)
            os.close(write_end)
            raise
        if self.pid == 0:
            run_and_exit(work, {write_end, keep} - {-1}, write_end, parent)
        os.close(write_end)
        self.reason = ""

    def has_ended(self) -> bool:
        """Return whether it has ended. Then `reason` is empty after success, else the error."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        self._reap(status)
        return True

    def kill(self) -> None:
        """Kill it now."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._reap(status)

    def _reap(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            told = os.read(self.read_end, REASON_BYTES_MAX).decode(errors="replace")
            self.reason = told or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
        os.close(self.read_end)


@contextmanager
def batch_scheduling() -> Iterator[None]:
    """Start children within this context as batch jobs of the scheduler; the parent stays a normal process.

    A batch job gets its fair share of time, but does not preempt: on a single processor the parent
    continues at once.
    """
    parent = os.getpid()
    usual = hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER
    if usual:
        with suppress(OSError):  # if that is forbidden, they compete as usual
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        if usual and os.getpid() == parent:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def run_and_exit(work: Callable[[], object], kept: set[int], write_end: int, parent: int) -> None:
    """Run the child's work and exit. Never returns: nothing of the parent may continue in the child.

    Args:
        kept: the descriptors that stay open, besides the standard ones.
        write_end: one of them, for the reason of a failure.
        parent: the parent's process ID.
    """
    code = 1
    try:
        if hasattr(LIBC, "prctl"):
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)  # that descriptor is the parent's; its number is soon reused
        gc.disable()  # a collection would copy pages, and could run the parent's finalizers
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        first = FIRST_DESCRIPTOR
        for descriptor in sorted(kept):
            os.closerange(first, descriptor)
            first = descriptor + 1
        os.closerange(first, DESCRIPTORS_END)
        work()
        code = 0
    except BaseException as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else repr(wrong)
        with suppress(OSError):
            os.write(write_end, reason.encode(errors="replace")[:REASON_BYTES_MAX])
    finally:
        os._exit(code)
