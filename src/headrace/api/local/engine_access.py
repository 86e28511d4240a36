"""What the parts of a local database may do with its engine. api/local/local_engine.py implements it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Protocol, TypeVar

from headrace.api.local.clock import Clock
from headrace.engine.engine import Engine
from headrace.keyspace.keyspace_image import KeyspaceImage

T = TypeVar("T")


class EngineAccess(Protocol):
    """One engine that several threads use. See local_engine.py for the order of its locks."""

    durable_before_batch: int  # batches before this one are durable: see storage.py

    @property
    def engine(self) -> Engine:
        """The engine. Use it with `lock`."""

    @property
    def clock(self) -> Clock:
        """The clock of the engine."""

    @property
    def lock(self) -> Lock:
        """The engine's lock, held for one request. It may be taken even after close()."""

    @property
    def snapshot_lock(self) -> Lock:
        """The lock that is held while a snapshot is written; taken before all other locks."""

    @property
    def closed_reason(self) -> str | None:
        """Why the database is closed; None if it is open."""

    def acquire(self) -> None:
        """Take the engine's lock. Call release() after it. Raises DatabaseClosed, without taking the lock."""

    def release(self) -> None:
        """Release the engine's lock. The caller must call commit_and_wake() after it, even after an error."""

    def run_locked(self, work: Callable[[], T]) -> T:
        """Run work() with the engine's lock and return its result. Call commit_and_wake() after it."""

    def commit_and_wake(self, written: int) -> None:
        """Wait until batch `written` is as durable as fsync= promises (-1: no batch); wake unblocked threads.

        Raises NotOnDisk if the disk rejects the batch.
        """

    def freeze(self) -> KeyspaceImage:
        """Return an image of the data as they are now. Call it with snapshot_lock and lock held."""

    def wake_timer(self) -> None:
        """Wake the timer thread, because something is due earlier than it knows."""
