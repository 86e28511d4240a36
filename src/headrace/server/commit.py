"""Group commit: a reply is sent only when its changes are in the log, as durable as appendfsync says.

    turn     requests run ─ commit: effects encoded once ─┬─ to the replicas' backlog     ─┬─ replies are sent
                                                          └─ one write; `always`: a sync  ─┘
    failure  the disk fails: the replies of that turn are held, writes are rejected, reads continue;
             the log keeps what it could not write and retries; then the held replies are sent

So changes that are in memory and not in the log are never acknowledged. A client that reads meanwhile may
see them. The log is persistence/aof/durable_log.py; this module connects it to loop, engine and clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import cython

from headrace.engine.engine import Engine
from headrace.errors import HeadraceError
from headrace.persistence.aof.durable_log import DurableLog
from headrace.persistence.aof.encoded_effects import EncodedEffects
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log import error_reply_for
from headrace.persistence.aof.log_buffer import DatabaseRequest
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.data_directory import DataDirectory, File
from headrace.server.config.config import Config
from headrace.server.loop.event_loop import EventLoop
from headrace.visibility import Public

SNAPSHOT_ERROR = (
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
    " Commands that may modify the data set are disabled, because this instance is configured to report"
    " errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the"
    " Redis logs for details about the RDB error."
)
TICK_MS = 100  # how often tick() is due while something is not synced, or after a failure


@cython.final
@cython.cclass
class Durability:
    """The log of a server: off, on, or starting (its first base is being written; nothing is durable yet)."""

    __dict__: dict[str, object]
    config: Public[Config]
    engine: Public[Engine]
    loop: Public[EventLoop]
    data_directory: Public[DataDirectory]
    wake: Public[Callable[[], None]]  # ends the event loop's wait; thread-safe
    log_file_names: Public[LogFileNames]
    log: Public[DurableLog | None]
    first_base_pending: Public[cython.bint]
    holds_replies: Public[cython.bint]  # to changes, until the first base is complete
    snapshot_failed: Public[cython.bint]  # writes are rejected because the last snapshot failed
    start_offset: Public[cython.longlong]  # effects.log_offset at which this log begins
    notified_synced_offset: Public[cython.longlong]  # synced offset of which waiting clients were notified
    failed_in_turn: Public[cython.bint]  # writing the log within this turn failed
    sync_completed: Public[cython.bint]  # a background sync has ended
    sync_executor: Public[ThreadPoolExecutor | None]
    cold_files: ColdFiles  # to which a base may refer
    encoded_effects: EncodedEffects  # of this turn; only used while there are replicas
    # Sends them to the replicas, before the log gets them.
    feed_replicas: Public[Callable[[list[DatabaseRequest]], None] | None]
    replicating: Public[cython.bint]  # effects are recorded also without a log

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        files: DataDirectory,
        cold_files: ColdFiles,
        wake: Callable[[], None],
    ) -> None:
        self.cold_files = cold_files
        self.config = config
        self.engine = engine
        self.loop = loop
        self.data_directory = files
        self.wake = wake
        self.log_file_names = LogFileNames(config.text("appenddirname"), config.text("appendfilename"))
        self.log = None
        self.first_base_pending = self.holds_replies = False
        self.snapshot_failed = False
        self.start_offset = 0
        self.notified_synced_offset = 0
        self.failed_in_turn = False
        self.sync_completed = False
        self.sync_executor = None
        self.encoded_effects = EncodedEffects()
        self.feed_replicas = None
        self.replicating = False

    @property
    def failure(self) -> str:
        """Why the log rejects writes: it is not as durable as promised. Empty if it does not reject them."""
        return "" if self.log is None else self.log.reported_failure

    # On and off.

    def open(self, manifest: Manifest | None, write_base: Callable[[File, PendingRewrite], None]) -> None:
        """Continue the recovered log; without a manifest start a new one with the data in memory.

        Raises HeadraceError or OSError.
        """
        log = self._new_log()

        def write(file: File) -> None:
            assert log.rewrite is not None
            write_base(file, log.rewrite)

        log.open(manifest, write, self.config.flag("aof-use-rdb-preamble"))
        self._attach(log)

    def enable(self, hold_replies: bool = False) -> None:
        """Start a log at run time (CONFIG SET appendonly yes); it is in effect after its first rewrite.

        Until then an older log on disk stays valid.

        Args:
            hold_replies: hold the replies to changes until then. Needed if an older log has other data: a
                restart would load those data, without these changes.

        Raises:
            HeadraceError, OSError: if the log cannot be started. With hold_replies, only if the directory
                cannot be locked; after any other error the first rewrite starts the log.
        """
        self.data_directory.lock()
        log = self._new_log()
        try:
            log.start(None)
            log.manifest = Manifest.load(self.data_directory, self.log_file_names) or log.manifest
        except (OSError, HeadraceError) as error:
            if not hold_replies:
                raise
            log.failure = f"there is no log of the present data yet: {error}"  # the first rewrite starts it
            logging.getLogger("headrace").error("%s", log.failure)
        self._take_effects()
        self.start_offset += 1  # what was written and replicated before is synced when the base is complete
        self.first_base_pending = True
        self.holds_replies = hold_replies
        self._attach(log)

    def _new_log(self) -> DurableLog:
        log = DurableLog(
            self.data_directory,
            self.log_file_names,
            policy=self.config.text("appendfsync"),
            sync_later=self._sync_later,
            has_sync_waiters=self.engine.has_sync_waiters,
            on_failure_changed=self._on_log_failure_changed,
        )
        log.cold_files = self.cold_files
        self._configure(log)
        return log

    def _configure(self, log: DurableLog) -> None:
        log.set_appendfsync(self.config.text("appendfsync"))
        log.checksums = self.config.flag("aof-checksum")
        log.timestamps = self.config.flag("aof-timestamp-enabled")
        log.keep_history_files = self.config.flag("aof-disable-auto-gc")

    def _attach(self, log: DurableLog) -> None:
        self.log = log
        self.engine.set_effect_recording(True)
        self.engine.effects.log_offset = self.start_offset + log.written
        self.notified_synced_offset = self.synced_offset()

    def close(self, comment: bytes = b"") -> None:
        """Write the recorded changes, sync and close the log.

        Changes that cannot be written are lost; an error message reports that.

        Args:
            comment: a last line for the log; written only if the log is complete.
        """
        log, self.log = self.log, None
        if log is not None:
            log.commit(self._take_effects(), self.engine.keyspace.now)
            self.engine.set_effect_recording(self.replicating)
            durable = log.close(True, b"" if self.first_base_pending else comment)
            if not durable and not self.first_base_pending:
                text = "the log was closed without its last changes: %s"
                logging.getLogger("headrace").error(text, log.failure)
            self.first_base_pending = False
            self.start_offset += log.written + 1
            self.engine.effects.log_offset = self.start_offset
        if self.sync_executor is not None:
            self.sync_executor.shutdown()
            self.sync_executor = None

    def set_replicating(self, on: bool) -> None:
        """Start or stop recording effects for replicas. With a log, effects are recorded in any case."""
        self.replicating = on
        if self.log is None and self.engine.effects.recording != on:
            self.engine.set_effect_recording(on)
            self.encoded_effects.drop(self.engine.effects.items)

    def _take_effects(self) -> list[DatabaseRequest]:
        """Return the recorded effects and forget them. Replicas get them first."""
        effects = self.engine.effects
        self._encode_for_replicas(effects.items)
        items = effects.items[:]
        self.encoded_effects.drop(effects.items)
        return items

    @cython.cfunc
    def _encode_for_replicas(self, items: list[DatabaseRequest]) -> cython.void:
        """Encode the effects once for the replicas and the log, and send them to the replicas."""
        if self.feed_replicas is not None:
            self.encoded_effects.encode(items)
            self.feed_replicas(items)
        elif self.encoded_effects.count:  # the last replica has left within this turn
            self.encoded_effects.encode(items)

    def disable(self, now: int) -> None:
        """Turn the log off (CONFIG SET appendonly no): accept writes, and end all waits for it."""
        log = self.log
        self.close()
        self.failed_in_turn = False
        if log is not None:
            log.accept_writes("the log was turned off: writes are accepted, and kept in memory only")
        self._stop_holding()
        self.engine.on_log_synced(now)

    def apply_config(self) -> None:
        """Apply the current configuration, except appendonly."""
        if self.log is not None:
            self._configure(self.log)

    def set_job_writing(self, on: bool) -> None:
        """Pause syncs while a snapshot or rewrite writes to the disk (no-appendfsync-on-rewrite)."""
        if self.log is not None:
            self.log.sync_paused = on and self.config.flag("no-appendfsync-on-rewrite")

    # The turn.

    @cython.ccall
    def commit(self) -> cython.bint:
        """Write the changes since the last call; return whether their replies may be sent."""
        if self.sync_completed:
            self._end_background_sync()
        self._encode_for_replicas(self.engine.effects.items)
        return self._commit_to_log()

    @cython.cfunc
    def _commit_to_log(self) -> cython.bint:
        """Write the recorded effects to the log; return whether their replies may be sent."""
        effects = self.engine.effects
        log = self.log
        safe: cython.bint
        if not effects.items:
            safe, self.failed_in_turn = not self.failed_in_turn, False
            return safe
        if log is None:
            self.encoded_effects.drop(effects.items)
            self.start_offset += 1  # later writes are told from these, also without a log
            effects.log_offset = self.start_offset
            return True
        encoded = self.encoded_effects if self.encoded_effects.count else None
        safe = log.commit(effects.items, self.engine.keyspace.now, encoded)
        effects.log_offset = self.start_offset + log.written
        if safe:
            self.failed_in_turn = False
            if self.first_base_pending or log.reported_failure:
                self._report(log)
            if self.start_offset + log.synced != self.notified_synced_offset:
                self._notify_synced()
            return True
        if self.first_base_pending:
            return not self.holds_replies
        if log.reported_failure and not self.failed_in_turn:
            # Writes have been rejected since before this turn. These changes are expired keys. Keys expire by
            # themselves after a restart, too: no reply depends on it.
            return True
        self.failed_in_turn = False
        log.report_failure()
        return False

    def _end_background_sync(self) -> None:
        """Read the result of a background sync. Its failure makes what this turn has executed unsafe."""
        rejected_before = bool(self.failure)
        self.tick(self.engine.keyspace.now)
        if self.failure and not rejected_before:
            self.failed_in_turn = True

    def tick(self, now: int) -> None:
        """Start syncs that are due, and retry failed writes."""
        self.sync_completed = False
        log = self.log
        if log is None:
            return
        log.tick(now)
        self._report(log)
        self._notify_synced()

    def _report(self, log: DurableLog) -> None:
        """Report a failure of the log, or its end. A new log without a complete base has not failed."""
        if not log.failure:
            self.first_base_pending = False
        if not self.first_base_pending:
            log.report_failure()
            if not log.failure:
                self._stop_holding()

    def _stop_holding(self) -> None:
        """Send the replies that wait for the first base of the log."""
        if self.holds_replies:
            self.holds_replies = False
            self.loop.release_replies()

    def on_rewrite_failed(self, reason: str) -> None:
        """Reject writes if clients wait for a first base that could not be written; it is tried again."""
        log = self.log
        if (
            log is not None
            and self.first_base_pending
            and self.holds_replies
            and self.loop.has_held_replies()
        ):
            self.first_base_pending = False
            log.failure = f"there is no log of the present data yet: {reason}"
            self._report(log)

    def detect_changed_log_files(self, now: int, force: bool = False) -> bool:
        """Reject writes if files of the log were removed, replaced or changed; return whether they were.

        The log is then rewritten from memory. Compares the files about once a second unless forced.
        """
        log = self.log
        if log is None or self.first_base_pending or not log.give_up_if_files_changed(now, force):
            return False
        self.tick(now)
        return True

    def ms_until_due(self) -> int:
        """Return in how many milliseconds tick() must run at the latest; -1 for never."""
        log = self.log
        if log is None or (not log.failure and log.synced >= log.written):
            return -1
        if not log.failure and log.appendfsync == "no" and not self.engine.has_sync_waiters():
            return -1
        return TICK_MS

    def flush(self, now: int) -> bool:
        """Write and sync everything before the server ends; return whether that worked."""
        log = self.log
        if log is None:
            return True
        items = self._take_effects()
        if not self.first_base_pending:
            log.give_up_if_files_changed(now, force=True)
        if items or log.failure:
            log.commit(items, now)
            self.engine.effects.log_offset = self.start_offset + log.written
        if not log.flush() and not self.first_base_pending:
            self.failed_in_turn = self.failed_in_turn or not self.failure
            self.loop.commit_required = True
            log.report_failure()
        return not log.failure

    def synced_offset(self) -> int:
        """Return up to which value of effects.log_offset the log is synced; -1 if there is no log.

        It is 0 until the first base of a new log is complete.
        """
        if self.log is None:
            return -1
        return 0 if self.first_base_pending else self.start_offset + self.log.synced

    def _sync_later(self, file: File) -> Future[None]:
        """Sync in the background thread, which wakes the event loop when it is done."""
        if self.sync_executor is None:
            self.sync_executor = ThreadPoolExecutor(1, "headrace-sync")
        done = self.sync_executor.submit(file.sync)
        done.add_done_callback(self._on_sync_done)
        return done

    def _on_sync_done(self, done: Future[None]) -> None:
        self.sync_completed = True
        self.loop.commit_required = True
        self.wake()

    def _notify_synced(self) -> None:
        """Serve clients that wait for a sync, if more is synced now."""
        synced = self.synced_offset()
        if synced != self.notified_synced_offset:
            self.notified_synced_offset = synced
            if self.engine.has_sync_waiters():
                self.engine.on_log_synced(self.engine.keyspace.now)

    # The write gate.

    def _on_log_failure_changed(self, failure: str) -> None:
        """Reject writes for this failure of the log. If it is empty, accept them and send held replies."""
        self._set_write_error(failure)
        if not failure:
            self.loop.release_replies()

    def update_write_gate(self) -> None:
        """Reject or accept writes, according to failures of log and snapshots."""
        self._set_write_error(self.failure)

    def _set_write_error(self, failure: str) -> None:
        error = SNAPSHOT_ERROR.encode() if self.snapshot_failed else None
        self.engine.write_gate.reject_writes(error_reply_for(failure) if failure else error)
