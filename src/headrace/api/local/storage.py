"""The disk of a database in this process: a lock on the directory, the log, and the threads that wait for it.

    thread 1  execute ─┐ commit: takes the effects of all three ─ one write ─ one sync ─┐ done
    thread 2  execute ─┤ waits for thread 1's commit                                    ├ done, nothing left
    thread 3  execute ─┘ waits                                                          └ done

`batch_count` counts batches: the engine's offset is the number of the batch that will contain its next
effects. So the changes of a session in batch 7 are durable once `durable_before_batch` is more than 7.

The log's files are checked before a commit about once a second, and before close() and compact(): an idle
program learns at its next write that they were removed or replaced.

When the disk rejects a write, memory keeps the change and the timer thread (or the next commit) retries it.
The thread that wrote gets NotOnDisk. Further writes are rejected before they are executed, until the log is
complete again.

A signal handler may raise in the main thread, at any call it makes (KeyboardInterrupt). An interrupted commit
is repeated by the next commit or by the timer thread; the log prevents duplicates. A rewrite cannot be
repeated, so it runs where no signal handler does: in another thread (log_rewriter.py).

The files are those of `headrace serve`: either can open a directory of the other, but not at the same time.
Locks: a commit holds `lock`; the engine's lock is taken inside of it and never around it. A snapshot holds
the engine's `snapshot_lock` around both.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from functools import partial

from headrace.api.local.background import BackgroundSync, run_uninterrupted
from headrace.api.local.clock import NEVER_MS
from headrace.api.local.cold_writer import ColdWriter
from headrace.api.local.directory import explain_disk_errors
from headrace.api.local.engine_access import EngineAccess
from headrace.api.local.log_rewriter import LogRewriter
from headrace.commands.server_interface import ServerInterface
from headrace.engine.engine import Engine
from headrace.engine.foreign_commands import log_replayer_and_skipped
from headrace.errors import CommandError, DatabaseClosed, HeadraceError, NotOnDisk
from headrace.keyspace.cold_storage import ColdStorage
from headrace.persistence.aof.durable_log import DurableLog
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log import SYNC_EVERY_MS, error_reply_for
from headrace.persistence.aof.log_files import prepare_cold_directory
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.cold.cold_file_monitor import ColdFileMonitor
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.cold.object_store import LOCAL_BYTES_DEFAULT_MAX, ObjectStore
from headrace.persistence.cold.object_uploader import ObjectUploader
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DataDirectory, File
from headrace.persistence.rdb.versions import by_name
from headrace.persistence.rdb.writer import write_rdb
from headrace.persistence.recovery import RecoveryResult, recover, skipped_command_notes
from headrace.streams.cold_run import CACHE_BYTES

SKIP_FOREIGN_ADVICE = "open it with skip_foreign_types=True to leave out what has other types"
SNAPSHOT_FILE_NAME = "dump.rdb"  # the default name of a server's snapshot
RETRY_MS = 100  # between attempts to write after a failure
REWRITE_RETRY_MS = 1000
REWRITE_MIN_BYTES = 64 << 20  # a smaller log is rewritten only on request


class Storage:
    """The log of one database. Any thread may commit."""

    local_engine: EngineAccess  # set by attach()

    def __init__(
        self,
        files: DataDirectory,
        policy: str,
        rewrite_min_bytes: int = REWRITE_MIN_BYTES,
        skip_foreign_types: bool = False,
        hot_memory: int = 0,
        cold_cache_memory: int = CACHE_BYTES,
        cold_store: str = "",
        cold_local_bytes: int = LOCAL_BYTES_DEFAULT_MAX,
    ) -> None:
        self.files = files
        self.hot_memory = hot_memory  # bytes of data in memory; 0: no limit
        self.cold_cache_memory = cold_cache_memory
        self.skip_foreign_types = skip_foreign_types
        self.log_file_names = LogFileNames()
        self.fsync_policy = policy
        self.rewrite_min_bytes = rewrite_min_bytes
        self.lock = threading.Lock()
        self.log = DurableLog(
            files,
            self.log_file_names,
            policy=policy,
            sync_later=self._sync_later,
            has_sync_waiters=lambda: self.local_engine.engine.has_sync_waiters(),
            on_failure_changed=self._on_log_failure_changed,
        )
        self.cold_files = self.log.cold_files = ColdFiles(files, self.log_file_names.cold_directory)
        self.object_uploader = (
            ObjectUploader(self.cold_files, ObjectStore(cold_store), cold_local_bytes) if cold_store else None
        )
        self.batch_count = 0  # batches taken from the engine
        self.uncommitted_effects: list[tuple[int, list[bytes]]] = []  # effects taken, not in the log yet
        self.synced_before_batch = 0  # batches before this one are synced
        self.rewrite_requested = False  # BGREWRITEAOF
        self.timer_scheduled = False  # the timer thread knows that there is work
        self.is_attached = False
        self.closed = False
        self.closing = False
        self.loaded_last_comment = b""  # the last line of the log that was loaded, if it is a comment
        self.closing_comment = b""  # the last line of the log when it is closed
        self.rewriter = LogRewriter(self)
        self.cold_writer: ColdWriter | None = None  # None: all nodes are in memory
        self._sync: BackgroundSync | None = None
        self._sync_offset = 0
        self._sync_batch_count = 0
        self._rewrite_threshold = 0  # bytes: a larger log is rewritten
        self._next_rewrite_ms = 0  # when the next rewrite of an unusable log may start

    # Opening and closing.

    def load(self, engine: Engine, now_ms: int) -> RecoveryResult:
        """Load the files into the empty engine; the log continues after them.

        Raises HeadraceError if another process has the directory, or a file cannot be read.
        """
        try:
            with explain_disk_errors(self.files):
                self.files.lock()
                prepare_cold_directory(self.files, self.log_file_names, self.cold_files)
                if self.object_uploader is not None:
                    self.object_uploader.attach_store()
                found = self._recover(engine, now_ms)
        except BaseException:
            self.close_without_writing()
            raise
        self.loaded_last_comment = found.last_comment
        for note in found.notes:
            logging.getLogger("headrace").warning("%s", note)
        if found.ignored_snapshot:
            logging.getLogger("headrace").info(
                "%s is not read, because there is a log: %s",
                found.ignored_snapshot,
                self.log_file_names.directory,
            )
        self.reset_rewrite_threshold()
        engine.stats.reset()
        engine.set_effect_recording(True)
        if self.object_uploader is not None:
            self.object_uploader.start_thread()
        return found

    def attach(self, local_engine: EngineAccess) -> None:
        """Serve this engine from now on. Call it after load()."""
        self.local_engine = local_engine
        self.is_attached = True
        cold = local_engine.engine.cold_storage
        if cold is not None:
            self._start_cold_writer(cold)
            local_engine.wake_timer()  # rules of the loaded streams may have work

    def _start_cold_writer(self, cold: ColdStorage) -> None:
        self.cold_writer = ColdWriter(self.local_engine, cold)
        cold.start_writing = self.cold_writer.start
        if isinstance(cold.store, ColdStore):
            local_engine = self.local_engine
            cold.store.monitor = ColdFileMonitor(
                self.cold_files, lambda: local_engine.engine.keyspace, self.cold_writer.run_locked
            )
            cold.store.run_in_background = self.cold_writer.run_in_background

    def _open_cold_storage(self, engine: Engine) -> None:
        """Open the cold storage unless it is open. A rule may need it after load(), too."""
        if engine.cold_storage is None:
            cold = engine.open_cold_storage(ColdStore(self.cold_files), self.hot_memory)
            cold.cache.set_limit(self.cold_cache_memory)
            if self.is_attached:
                self._start_cold_writer(cold)

    def _recover(self, engine: Engine, now_ms: int) -> RecoveryResult:
        manifest = None
        with contextlib.suppress(Damaged, OSError):  # which recover() reports
            manifest = Manifest.load(self.files, self.log_file_names)
        if self.hot_memory or (manifest is not None and manifest.cold):
            self._open_cold_storage(engine)
        engine.rule_registry.open_cold_storage = partial(self._open_cold_storage, engine)
        replay, skipped = log_replayer_and_skipped(engine, now_ms, self.skip_foreign_types)
        found = recover(
            self.files,
            self.log_file_names,
            engine.keyspace,
            replay,
            appendonly=True,
            dbfilename=SNAPSHOT_FILE_NAME,
            truncated_ok=True,
            now_ms=now_ms,
            skip_foreign_types=self.skip_foreign_types,
            foreign_advice=SKIP_FOREIGN_ADVICE,
        )
        found.notes.extend(skipped_command_notes(skipped))
        engine.rule_runner.reapply_all_next_time()
        self.log.open(found.manifest, lambda file: self._write_base(engine, file, now_ms))
        return found

    def close(self) -> None:
        """Sync everything and release the directory.

        A second call does nothing. A snapshot that is being written is cancelled. Raises NotOnDisk if the
        last changes could not be written.
        """
        self.closing = True
        if self.cold_writer is not None:
            self.cold_writer.wait()
        if self.object_uploader is not None:
            self.object_uploader.close()
        with self.local_engine.snapshot_lock, self.lock:
            if self.closed:
                return
            try:
                self.log.give_up_if_files_changed(0, force=True)
                if self.log.needs_rewrite:
                    self._rewrite_at_once()
                self._write()
                failure = "" if self.log.close(True, self.closing_comment) else self.log.failure
                if not failure:
                    self.local_engine.durable_before_batch = self.synced_before_batch = self.batch_count
            finally:
                self.cold_files.close()
                self.closed = True
                self.files.unlock()
        if failure:
            raise NotOnDisk(f"the database was closed, but its last changes are not on the disk: {failure}")

    def close_without_writing(self) -> None:
        """Close the files without writing or locking: in a forked child, or after load() has failed."""
        self.closed = True
        self.log.abandon()
        self.cold_files.unlock_directory()
        self.files.unlock()

    # Commits.

    def commit(self, written: int) -> None:
        """Wait until batch `written` is as durable as fsync= promises. Raises NotOnDisk, DatabaseClosed."""
        with self.lock:
            if self.local_engine.durable_before_batch > written:
                return
            if self.closed:
                raise DatabaseClosed("the database was closed before this change was on the disk")
            self._commit()
            grown = self.log.size > self._rewrite_threshold
        if grown:
            self.rewriter.start()

    def _commit(self) -> None:
        """Take the effects, write them, and sync them if the policy promises it. The lock is held."""
        try:
            whole = self._write()
            self.record_durability()
        except BaseException:
            self._schedule_timer()
            raise
        if not whole:
            raise NotOnDisk(
                "the change is in memory, but not on the disk yet "
                f"({self.log.failure}): it is retried automatically, and writes are rejected until then"
            )

    def _write(self) -> bool:
        """Write the effects to the log; return whether it has all of them."""
        with self.local_engine.lock:
            self.take_effects()
        now_ms = self.local_engine.engine.keyspace.now
        self.log.give_up_if_files_changed(now_ms)
        return self.log.commit(self.uncommitted_effects, now_ms)

    def take_effects(self) -> None:
        """Move the engine's effects to `uncommitted_effects` in one statement (invariant 7 of aof/log.py)."""
        effects = self.local_engine.engine.effects
        effects.log_offset = self.batch_count + 1
        self.batch_count, self.uncommitted_effects, effects.items[:] = (
            effects.log_offset,
            self.uncommitted_effects + effects.items,
            (),
        )

    def record_durability(self) -> None:
        """Record which batches are durable, schedule what is due, and report a failure or its end."""
        log = self.log
        failure = log.failure
        if not failure and not self.uncommitted_effects:
            self.local_engine.durable_before_batch = self.batch_count
            if log.synced == log.written:
                self.synced_before_batch = self.batch_count
        if not self.timer_scheduled and (
            failure or (self.fsync_policy == "everysec" and log.synced < log.written)
        ):
            self._schedule_timer()  # first: once writes are rejected, no commit would wake the timer thread
        if failure or log.reported_failure:
            log.report_failure()

    def _on_log_failure_changed(self, failure: str) -> None:
        """Reject writes for this failure of the log, or accept them if it is empty."""
        with self.local_engine.lock:
            self.local_engine.engine.write_gate.reject_writes(error_reply_for(failure) if failure else None)

    def _schedule_timer(self) -> None:
        self.local_engine.wake_timer()
        self.timer_scheduled = True

    # Work of the timer thread.

    def tick(self, now_ms: int) -> int:
        """Run due syncs and retries; return when the next is due, in Unix milliseconds, or NEVER_MS."""
        with self.lock:
            if self.closed:
                return NEVER_MS
            self._maintain(now_ms)
            sync, self._sync = self._sync, None
        if sync is not None:
            sync.run()
            with self.lock:
                if not self.closed:
                    self._maintain(now_ms)
        self._wake_sync_waiters(now_ms)
        with self.lock:
            if self.closed:
                return NEVER_MS
            due = self._due_ms(now_ms)
            self.timer_scheduled = due != NEVER_MS
            return due

    def _maintain(self, now_ms: int) -> None:
        log = self.log
        interrupted = self.local_engine.durable_before_batch < self.batch_count
        if (self.local_engine.engine.effects.items or interrupted) and not log.reported_failure:
            self._commit_if_possible()  # effects without a commit: keys have expired
        if log.size > self._rewrite_threshold and not self.rewriter.is_running():
            self.rewrite_requested = True
        log.tick(now_ms)
        if self._sync is None and log.synced >= self._sync_offset:
            self.synced_before_batch = max(self.synced_before_batch, self._sync_batch_count)
        if (log.needs_rewrite and now_ms >= self._next_rewrite_ms) or self.rewrite_requested:
            self.rewrite_requested = False
            self._next_rewrite_ms = now_ms + REWRITE_RETRY_MS
            self.rewriter.start()
        if log.failure:
            self.record_durability()
        elif log.reported_failure:  # the log has what it was given; a commit may have been interrupted before
            self._commit_if_possible()

    def _commit_if_possible(self) -> None:
        with contextlib.suppress(NotOnDisk):
            self._commit()

    def _due_ms(self, now_ms: int) -> int:
        if self.log.reported_failure:
            return now_ms + RETRY_MS
        if self.rewrite_requested:
            return now_ms
        unsynced = self.log.synced < self.log.written
        return now_ms + SYNC_EVERY_MS if unsynced and self.log.policy == "everysec" else NEVER_MS

    def _sync_later(self, file: File) -> BackgroundSync:
        """Have the timer thread sync, after it has released the lock. The log calls this."""
        self._sync = BackgroundSync(file)
        self._sync_offset = self.log.written
        self._sync_batch_count = self.local_engine.durable_before_batch
        return self._sync

    def _wake_sync_waiters(self, now_ms: int) -> None:
        """Run waiting WAITAOF commands again."""
        local_engine = self.local_engine
        if local_engine.engine.has_sync_waiters():
            with contextlib.suppress(DatabaseClosed):
                local_engine.acquire()
                try:
                    local_engine.engine.on_log_synced(now_ms)
                finally:
                    local_engine.release()
                local_engine.commit_and_wake(-1)

    # Rewrites.

    def compact(self) -> None:
        """Rewrite the log from the data in memory. Raises HeadraceError if that fails."""
        run_uninterrupted(self.rewriter.rewrite)

    def rewrite_outdated_log(self) -> None:
        """Rewrite the log, because all data in memory were replaced.

        Raises HeadraceError if that fails. It is retried then; nothing is added to the log of the old data.
        """
        try:
            self.compact()
        except BaseException as error:
            with self.lock:
                if not self.closed:
                    self.log.require_rewrite(f"it is of older data ({error})")
                    self.record_durability()
            raise

    def request_rewrite(self) -> None:
        """Have the timer thread start a rewrite. Called with the engine's lock."""
        self.rewrite_requested = True
        self.local_engine.wake_timer()

    def delay_rewrite(self) -> None:
        """Let the log grow by a quarter before the next automatic attempt."""
        self._rewrite_threshold = self.log.size + self.log.size // 4

    def reset_rewrite_threshold(self) -> None:
        """Let the log double before the next automatic rewrite."""
        self._rewrite_threshold = max(self.rewrite_min_bytes, 2 * self.log.base_size)

    def _write_base(self, engine: Engine, file: File, now_ms: int) -> None:
        """Write memory as a snapshot that the log can start with."""
        assert self.log.rewrite is not None
        write_rdb(
            engine.keyspace,
            partial(write_all, file),
            version=by_name("compatible"),
            aof_base=True,
            now_ms=now_ms,
            references=self.log.rewrite.cold_references,
        )

    def _rewrite_at_once(self) -> None:
        """Rewrite an unusable log before it is closed; an error is logged, and stays its failure."""
        try:
            self.log.restore_directory()
            with self.local_engine.lock:
                self.take_effects()
                now_ms = self.local_engine.engine.keyspace.now
                self.log.commit(self.uncommitted_effects, now_ms)
                engine = self.local_engine.engine
                self.log.create(lambda file: self._write_base(engine, file, now_ms))
        except (OSError, HeadraceError) as error:
            logging.getLogger("headrace").error("the log was not rewritten: %s", error)


class SnapshotsNotSupported(CommandError):
    """A snapshot was requested of a database that has a log."""

    text = (
        "ERR a database in a program has a log and no snapshots: use compact() or BGREWRITEAOF to rewrite the"
        " log, and backup() to copy the database"
    )


class LibraryServerInterface(ServerInterface):
    """The server interface of a database in a program."""

    storage: Storage | None = None

    def directives(self) -> dict[bytes, bytes]:
        """Return the directives for CONFIG GET."""
        known = super().directives()
        if self.storage is not None:
            uploader = self.storage.object_uploader
            known |= {
                b"appendonly": b"yes",
                b"appendfsync": self.storage.fsync_policy.encode(),
                b"cold-cache-memory": b"%d" % self.storage.cold_cache_memory,
                b"cold-local-bytes": b"%d"
                % (uploader.local_bytes_max if uploader is not None else LOCAL_BYTES_DEFAULT_MAX),
                b"cold-store": uploader.store.url.encode() if uploader is not None else b"",
                b"stream-hot-memory": b"%d" % self.storage.hot_memory,
            }
        return known

    def save(self, now_ms: int) -> None:
        """Run SAVE; raises SnapshotsNotSupported if there is a log."""
        if self.storage is not None:
            raise SnapshotsNotSupported()
        super().save(now_ms)

    def background_save(self, schedule: bool) -> bytes:
        """Run BGSAVE; raises SnapshotsNotSupported if there is a log."""
        if self.storage is not None:
            raise SnapshotsNotSupported()
        return super().background_save(schedule)

    def rewrite_log(self) -> bytes:
        """Run BGREWRITEAOF: the timer thread starts it."""
        if self.storage is None:
            return super().rewrite_log()
        self.storage.request_rewrite()
        return b"Background append only file rewriting started"

    def synced_log_offset(self) -> int:
        """Return the number of synced batches, which effects.log_offset counts here; -1 without a log."""
        return -1 if self.storage is None else self.storage.synced_before_batch
