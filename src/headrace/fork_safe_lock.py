"""A lock that is free in the child of a fork, unless the thread that forked holds it.

A fork copies the memory of a process and the thread that forks, but no other thread. A lock that another
thread held at that moment would never be released in the child: the child would deadlock when it first
acquires the lock.
"""

from __future__ import annotations

import os
import threading
import weakref


class ForkSafeLock:
    """A lock for `with`, between the threads of one process.

    In a forked child it is free, unless the thread that forked holds it: its `with` block continues in the
    child. In the child, the data that the lock protects may be half changed. So use it for values that are
    replaced as a whole, or that the child creates again.
    """

    __slots__ = ("__weakref__", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None  # the identity of the thread that holds it
        LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *error: object) -> None:
        self._owner = None
        self._lock.release()

    def free(self) -> None:
        """Make the lock free in the child of a fork, unless the thread that forked holds it."""
        if self._owner != threading.get_ident():
            self._lock = threading.Lock()
            self._owner = None


LOCKS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def free_all() -> None:
    """Make the locks free in the child of a fork, which only has the thread that forked."""
    for lock in list(LOCKS):
        lock.free()


os.register_at_fork(after_in_child=free_all)
