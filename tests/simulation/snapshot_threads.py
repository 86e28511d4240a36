"""The threads that encode and write snapshots: their work is done when the test lets it, in one go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from types import SimpleNamespace

from headrace.persistence.rdb.encoder_thread import EncoderThread

TICK_NS = 40_000  # between two looks at the clock: a slice of a snapshot is some steps long


class SnapshotThread:
    """Replaces threading.Thread in an EncoderThread. It works once all pieces are in the queue."""

    def __init__(self, target: Callable[[], None], **options: object) -> None:
        self.work = target
        encoder = target.__self__  # type: ignore[attr-defined]
        assert isinstance(encoder, EncoderThread)
        self.encoder = encoder
        self.ended = False

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return not self.ended

    def join(self, timeout: float | None = None) -> None:
        """Do the work, if its end is known."""
        if not self.ended and (self.encoder._at_end is not None or self.encoder._cancelled):
            self.ended = True
            self.work()


class SnapshotThreads:
    """All such threads."""

    def __init__(self) -> None:
        self.threads: list[SnapshotThread] = []
        self._time = count(0, TICK_NS)

    def create(self, target: Callable[[], None], **options: object) -> SnapshotThread:
        self.threads.append(SnapshotThread(target))
        return self.threads[-1]

    def clock(self) -> SimpleNamespace:
        """Return what replaces the module `system` for slices."""
        return SimpleNamespace(monotonic_ns=lambda: next(self._time))

    def end_some(self, chance: Random) -> None:
        """Let some of them work."""
        for thread in self.threads:
            if chance.random() < 0.6:
                thread.join()
        self.threads = [thread for thread in self.threads if thread.is_alive()]
