"""Rewrite the log of a database in this process while other threads use the database.

    no lock   sync the log so far, create its next file                                       a while
    lock      take the effects, freeze the data, commit and sync, go to the next file         a millisecond
    no lock   write the image as the base of the log, sync it                                 seconds
    lock      rename the manifest that names the base                                         no time
    no lock   remove the older files                                                          a while

An automatic rewrite runs in a thread of its own. If it fails, the error is logged and the rewrite is retried.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Protocol

from headrace.api.local.directory import explain_disk_errors
from headrace.api.local.engine_access import EngineAccess
from headrace.api.local.image_writer import write_image
from headrace.errors import DatabaseClosed, HeadraceError
from headrace.keyspace.keyspace_image import KeyspaceImage
from headrace.persistence.aof.durable_log import DurableLog
from headrace.persistence.aof.log_files import describe_error
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.data_directory import DataDirectory


class RewritableStorage(Protocol):
    """The storage of a database, as a rewrite of its log uses it: api/local/storage.py implements it."""

    files: DataDirectory
    local_engine: EngineAccess
    log: DurableLog
    lock: threading.Lock  # held for a commit
    uncommitted_effects: list[tuple[int, list[bytes]]]  # effects taken, not in the log yet
    closing: bool
    closed: bool

    def take_effects(self) -> None:
        """Move the engine's effects to `uncommitted_effects`. Call it with `lock` and the engine's lock."""

    def record_durability(self) -> None:
        """Record which batches are durable, schedule what is due, and report a failure or its end."""

    def delay_rewrite(self) -> None:
        """Let the log grow by a quarter before the next automatic attempt."""

    def reset_rewrite_threshold(self) -> None:
        """Let the log double before the next automatic rewrite."""


class LogRewriter:
    """Rewrites the log of one database."""

    def __init__(self, storage: RewritableStorage) -> None:
        self.storage = storage
        self._running_lock = threading.Lock()  # held by the thread of an automatic rewrite
        self._logged_error = ""  # the last one

    def is_running(self) -> bool:
        """Return whether an automatic rewrite is running."""
        return self._running_lock.locked()

    def start(self) -> None:
        """Start an automatic rewrite unless one is running."""
        if not self._running_lock.acquire(False):
            return
        try:
            threading.Thread(target=self._run, name="headrace-rewrite", daemon=True).start()
        except RuntimeError:  # no more threads, for example because the interpreter is shutting down
            self._running_lock.release()

    def _run(self) -> None:
        try:
            self.rewrite()
            self._logged_error = ""
        except DatabaseClosed:
            pass
        except (OSError, HeadraceError) as error:
            if str(error) != self._logged_error:  # log it once: it is retried every second
                self._logged_error = str(error)
                logging.getLogger("headrace").error("the log was not rewritten: %s", error)
            self.storage.delay_rewrite()
        finally:
            self._running_lock.release()

    def rewrite(self) -> None:
        """Replace the log with a snapshot of the present data; waits for a snapshot that is being written.

        Raises:
            DatabaseClosed: if the database is closed before the end.
            HeadraceError: if the rewrite failed. The log continues without it.
        """
        storage = self.storage
        with explain_disk_errors(storage.files), storage.local_engine.snapshot_lock:
            self._sync_ahead()
            with storage.lock:
                rewrite, image = self._begin()
            whole = False
            try:
                try:
                    file = storage.files.create(rewrite.temporary_path)
                except BaseException:
                    self._release_image(image)
                    raise
                with contextlib.closing(file):
                    write_image(storage.local_engine, image, file, lambda: storage.closing, rewrite)
                whole = True
            finally:
                with storage.lock:
                    self._end(rewrite, whole)

    @contextlib.contextmanager
    def _unlocked(self) -> Iterator[None]:
        """Let other threads commit during a slow step of the log."""
        self.storage.lock.release()
        try:
            yield
        finally:
            self.storage.lock.acquire()

    def _sync_ahead(self) -> None:
        """Sync the log while others can write: _begin() has less to sync then, with the lock."""
        file = self.storage.log.file
        try:
            if file is not None and not self.storage.closing:
                file.sync()
        except OSError as error:
            with self.storage.lock:
                self.storage.log.require_rewrite(f"it could not be synced ({describe_error(error)})")

    def _begin(self) -> tuple[PendingRewrite, KeyspaceImage]:
        storage, log = self.storage, self.storage.log
        if storage.closing:
            raise DatabaseClosed("the database is closed")
        images: list[KeyspaceImage] = []

        def freeze() -> None:
            with storage.local_engine.lock:
                storage.take_effects()
                images.append(storage.local_engine.freeze())
            log.commit(storage.uncommitted_effects, images[0].now_ms)

        try:
            log.give_up_if_files_changed(0, force=True)
            log.restore_directory()
            return log.begin_rewrite(unlocked=self._unlocked, freeze=freeze), images[0]
        except BaseException as error:
            for image in images:
                self._release_image(image)
            self._require_another_rewrite(error)
            raise
        finally:
            storage.record_durability()

    def _end(self, rewrite: PendingRewrite, whole: bool) -> None:
        """Adopt the new base. After close() the log has already discarded it."""
        storage, log = self.storage, self.storage.log
        if storage.closed:
            return
        try:
            if not log.finish_rewrite(rewrite, whole, self._unlocked) and whole:
                raise HeadraceError(rewrite.failure)
            storage.reset_rewrite_threshold()
        except BaseException as error:
            self._require_another_rewrite(error)
            raise
        finally:
            storage.record_durability()

    def _require_another_rewrite(self, error: BaseException) -> None:
        """Require another rewrite if this one was interrupted at an unknown point."""
        if not isinstance(error, OSError | HeadraceError):
            self.storage.log.require_rewrite(f"it was interrupted by {type(error).__name__}")

    def _release_image(self, image: KeyspaceImage) -> None:
        with self.storage.local_engine.lock:
            self.storage.local_engine.engine.keyspace.release_image(image)
