"""A lock that is free in the child of a fork.

A fork copies the memory of a process and the thread that forks, but no other thread. A lock that another
thread held at that moment would never be released in the child: the child would deadlock when it first
acquires the lock.
"""

from __future__ import annotations

import os
import threading
import weakref


class ForkSafeLock:
    """A lock for `with`, between the threads of one process; in a forked child it is free.

    In the child, the data that the lock protects may be half changed. So use it for values that are replaced
    as a whole, or that the child creates again.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def free(self) -> None:
        """Make the lock free, even if a thread of the parent process held it."""
        self._lock = threading.Lock()


LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def free_all() -> None:
    """Make the locks free in the child of a fork, which has one thread."""
    for lock in list(LOCKS):
        lock.free()


os.register_at_fork(after_in_child=free_all)
