"""What streams and groups ask of whoever has the data: the engine in this process, or a server elsewhere.

    near   api/local/local_engine.py, an engine behind a lock
    far    api/remote/remote_backend.py, redis-py

Both are used from many threads. A thread that waits sleeps on a Bell of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

Fields = Mapping[Any, Any]  # names and values: bytes, str, int or float


class Bell:
    """One thread sleeps on it until it is rung; rung before the sleep, it ends that sleep at once.

    It may be rung by any thread, often, and inside of a signal handler: no lock is held meanwhile.
    background: nobody waits for the one who sleeps (a clock's sleeping() does not count it).
    """

    __slots__ = ("_lock", "background")

    def __init__(self, background: bool = False) -> None:
        self.background = background
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """End the sleep, or the next one."""
        with suppress(RuntimeError):  # it has been rung, and nobody has slept since
            self._lock.release()

    def wait(self, seconds: float | None) -> bool:
        """Sleep, for ever if seconds is None; whether it was rung."""
        if seconds is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def go_on(self, now_ms: int) -> None:
        """The session that is answered has no further requests: whoever sleeps here sees to it."""


class Stop:
    """Ends waits: set() once, from any thread or signal handler, and all that wait with it return at once."""

    __slots__ = ("_bells", "_set")

    def __init__(self) -> None:
        self._set = False
        self._bells: list[Any] = []

    def set(self) -> None:
        """From now on nothing that knows this Stop waits."""
        self._set = True
        for bell in self._bells[:]:
            bell.ring()

    def is_set(self) -> bool:
        """Whether set() was called."""
        return self._set

    def __repr__(self) -> str:
        return f"Stop({'set' if self._set else 'not set'})"

    def listen(self, bell: Any) -> None:
        """Call bell.ring(), which must neither block nor raise, when set, or now if it is set already."""
        self._bells.append(bell)
        if self._set:
            bell.ring()

    def forget(self, bell: Any) -> None:
        """The opposite of listen()."""
        if bell in self._bells:
            self._bells.remove(bell)


class Link(Protocol):
    """The way to the data. Words are bytes; replies have the shapes of RESP2, a status being bytes, too."""

    @property
    def far(self) -> bool:
        """Whether it is a server elsewhere: round trips cost time, and a reply may be lost."""

    def execute(self, *words: bytes) -> Any:
        """One command that does not block; CommandError, as on the wire, if it is refused."""

    def execute_all(self, requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
        """Many commands in one go: one round trip, or one sync. A refusal stands in its place in the list.

        atomic: all happen as one (MULTI and EXEC), and if one is malformed none does: CommandError.
        """

    def wait(self, words: Sequence[bytes], seconds: float | None, stop: Stop | None = None) -> Any:
        """A read with STREAMS in it, which waits for something to read; None when there was nothing.

        words come without BLOCK. seconds None is for ever; stop ends the wait.
        """

    def add(self, key: bytes, id: bytes, fields: Fields, options: Sequence[bytes] = ()) -> bytes | None:
        """XADD with those options; the new ID, or None if the stream was not to be made."""

    def add_many(self, key: bytes, entries: Iterable[Fields], options: Sequence[bytes] = ()) -> list[bytes]:
        """An XADD each, all or none, in one go; the IDs."""

    def now_ms(self) -> int:
        """The clock that IDs and idle times go by, in milliseconds since 1970."""

    def pause(self, seconds: float, stop: Stop | None = None) -> bool:
        """Sleep by that clock; True if stop ended it."""

    def close(self) -> None:
        """Let go of everything; who still waits gets a HeadraceError."""
