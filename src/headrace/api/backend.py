"""The interface between streams or groups and their data: the engine in this process, or a server.

    local     api/local/local_engine.py, an engine behind a lock
    remote    api/remote_backend.py, redis-py

Both are thread-safe. A waiting thread sleeps on a Wakeup of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from headrace.api.signals import stop_on_signals
from headrace.client.server_errors import command_error
from headrace.errors import CommandError, NotConfirmed

Fields = Mapping[Any, Any]  # names and values: bytes, str, int or float


class Wakeup:
    """One thread sleeps on it until wake(); a wake() before the sleep ends that sleep at once.

    Any thread and a signal handler may call wake(), any number of times: it takes no lock.
    background: ManualClock.sleeping_threads() does not count the sleeper.
    """

    __slots__ = ("_lock", "background")

    def __init__(self, background: bool = False) -> None:
        self.background = background
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """End the current sleep, or the next one."""
        try:  # noqa: SIM105 - at exit the interpreter may have cleared this module, and with it suppress()
            self._lock.release()
        except RuntimeError:  # wake() was called already, and no thread has slept since
            pass

    def wait(self, seconds: float | None) -> bool:
        """Sleep for `seconds` (None: no limit). Returns whether wake() was called."""
        if seconds is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def execute_buffered_requests(self, now_ms: int) -> None:
        """Do nothing: the session of a blocking call has no further requests."""


class Wakeable(Protocol):
    """Something that a Stop or an engine wakes."""

    def wake(self) -> None:
        """End a wait. It must neither block nor raise; any thread may call it."""


class Stop:
    """Ends waits: set() makes all calls that were given this Stop return.

    >>> stop = headrace.Stop()
    >>> for entry in orders.follow(stop=stop):  # until another thread calls stop.set()
    ...     print(entry.id)
    """

    __slots__ = ("_set", "_wakeups")

    def __init__(self) -> None:
        self._set = False
        self._wakeups: list[Wakeable] = []

    def set(self) -> None:
        """End all current and future waits. It may be called from any thread or a signal handler."""
        self._set = True
        for wakeup in self._wakeups[:]:
            wakeup.wake()

    def is_set(self) -> bool:
        """Return whether set() was called."""
        return self._set

    def on_signals(self) -> AbstractContextManager[None]:
        """Set this Stop on the first SIGTERM or SIGINT while a `with` block runs.

        >>> with stop.on_signals():
        ...     serve()

        Groups that run in the process are stopped as well. Then the program's own handler of the signal is
        called. Use it in the main thread, where Python handles signals.
        """
        return stop_on_signals(self.set)

    def __reduce__(self) -> NoReturn:
        # A copy would never be set, so its waits would never end.
        raise TypeError("a Stop cannot be pickled or copied: it works in one process; create one in each")

    def __repr__(self) -> str:
        return f"Stop({'set' if self._set else 'not set'})"

    def add_wakeup(self, wakeup: Wakeable) -> None:
        """Call wakeup.wake() when this Stop is set, or now if it is already set."""
        self._wakeups.append(wakeup)
        if self._set:
            wakeup.wake()

    def remove_wakeup(self, wakeup: Wakeable) -> None:
        """Undo add_wakeup()."""
        if wakeup in self._wakeups:
            self._wakeups.remove(wakeup)


class Backend(Protocol):
    """Executes commands, on an engine in this process or on a server.

    Arguments are bytes; replies have the shapes of RESP2, and a status is bytes, too.
    """

    @property
    def is_remote(self) -> bool:
        """Whether the backend is a server: round trips take time, and a reply may be lost."""

    def request(self, *words: bytes) -> Any:
        """Execute one command that does not block. Raises CommandError if it is rejected."""

    def request_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        """Execute many commands with one round trip or one sync. Errors are elements of the returned list.

        atomic: execute all as one transaction (MULTI and EXEC). If one is malformed, none is executed and
        CommandError is raised.
        """

    def execute_blocking_read(
        self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None
    ) -> Any:
        """Execute a read that waits for entries. Returns None after a timeout, or when `stop` is set.

        words: the command, with STREAMS and without BLOCK. seconds: None for no limit.
        """

    def add(self, key: bytes, id: bytes, fields: Fields, options: Sequence[bytes] = ()) -> bytes | None:
        """Execute XADD with these options. Returns the ID, or None if NOMKSTREAM or IFLAST prevented it."""

    def add_many(self, key: bytes, entries: Iterable[Fields], options: Sequence[bytes] = ()) -> list[bytes]:
        """Execute one XADD for each entry as a transaction. Returns the IDs.

        If entries are rejected, the others are stored, and the first error is raised with `stored_ids`.
        """

    def without_retries(self) -> Backend:
        """Return a backend that raises ConnectionLost at once if the server is away."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970. A remote backend returns this machine's time."""

    def sleep(self, seconds: float, stop: Stop | None = None) -> bool:
        """Sleep, by the clock of now_ms(). Returns True if stop ended the sleep."""

    def close(self) -> None:
        """Release everything. Calls that wait in other threads raise DatabaseClosed."""


def ids_or_raise(replies: list[Any]) -> list[bytes]:
    """Return the IDs of entries that were added. Raises the first error, with `stored_ids`.

    NotConfirmed has no `stored_ids`: the entry is stored, but its ID is not known.
    """
    rejected = next((reply for reply in replies if isinstance(reply, CommandError)), None)
    if rejected is None:
        return replies
    error = command_error(str(rejected))
    if isinstance(error, NotConfirmed):
        raise error
    error.stored_ids = [None if isinstance(reply, CommandError) else reply for reply in replies]
    raise error
