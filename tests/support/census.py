"""A census: run work many times with the garbage collector off, and count what only the collector could free.

The server hardly ever has old objects collected, so nothing that it drops may be part of a reference cycle.
"""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.waiting import wait_until

# The repetitions of one kind of work: few in each run of the tests, more in `make test-all`.
TIMES = [5, pytest.param(200, marks=pytest.mark.slow)]
TIMES_OF_JOBS = [3, pytest.param(100, marks=pytest.mark.slow)]  # each takes some hundredths of a second


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect what there is; then keep all garbage in gc.garbage."""
    gc.collect()
    gc.garbage.clear()
    was_enabled = gc.isenabled()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def new_threads(known: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads of this process that are running and not among the known ones."""
    return [thread for thread in threading.enumerate() if thread not in known]


def left_by(work: Callable[[], object], times: int, of: str) -> Counter[str]:
    """Run work so often, and count the types of the objects that only the collector could free."""
    with collector_off():
        for _ in range(times):
            work()
        gc.collect()
        names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        return Counter(name for name in names if name.startswith(of))


def assert_nothing_left(
    work: Callable[[], object], times: int, of: str = "", close_idle: Callable[[], object] = lambda: None
) -> None:
    """Run work so often: no objects in reference cycles, descriptors or threads may be left.

    It runs twice before, for what is made once and kept. of: count only objects of modules that begin so.
    close_idle: closes the connections of a pool that nothing uses: each run may have needed a new one.
    """
    work()
    work()
    # The collector also finds what another thread leaves just then, as one of Spark's does when it ends.
    # That happens once; what the work leaves is left again.
    if left_by(work, times, of):
        left = left_by(work, times, of)
        assert not left, f"left by {times} runs: {left.most_common(20)}"
    with collector_off():
        close_idle()
        open_before, threads_before = descriptors(), set(threading.enumerate())
        for _ in range(times):
            work()
        # Threads that no run began, such as those of a pool, come and go: a leak takes one for each run.
        wait_until(lambda: len(new_threads(threads_before)) < min(times, 3), "the end of threads")

        def are_closed() -> bool:
            close_idle()
            return descriptors() < open_before + times

        # A thread that ends closes its files a moment later; a leak takes one for each run.
        wait_until(are_closed, "the end of open descriptors")
