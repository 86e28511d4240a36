"""Snapshots and rewrites of the log: between requests (snapshot_job.py), or at once while all clients wait.

    requested, due ──→ queued ──(between two turns)──→ job ──(it has ended)──→ its file is used, or removed

A job starts only between two turns: then memory holds whole transactions, and all of them are in the log.
At most one job runs at a time. It also waits while a snapshot for replicas holds an image of the keyspace.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

from headrace.commands.server.saving import OtherChildRunning, RewriteRunning, SaveRunning
from headrace.engine.engine import Engine
from headrace.errors import CommandError, HeadraceError
from headrace.keyspace.keyspace_image import KeyspaceImage
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.aof.rewrite import command_steps, write_commands
from headrace.persistence.cold.cold_references import ColdReferences
from headrace.persistence.data_directory import DataDirectory, File, replace_file
from headrace.persistence.gradual_writer import gradual_writer
from headrace.persistence.rdb.encoder_thread import EncoderThread
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import RdbVersion, by_name
from headrace.persistence.rdb.writer import rdb_steps, write_rdb
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.disk.snapshot_job import SnapshotJob, StepsFunction
from headrace.server.loop.event_loop import EventLoop

SAVE_RETRY_MS = 5_000  # after a failed snapshot by a `save` rule
REWRITE_RETRY_MS = 1_000  # after a failed rewrite; doubled each time
NEEDED_RETRY_MAX_MS = 10_000  # for a rewrite without which there is no log
GROWTH_RETRY_MAX_MS = 600_000  # for a rewrite that only saves space
TEMPORARY_FILE_NAME = re.compile(r"temp-(\d+)(?:-[a-z0-9]+)?\.rdb")  # of snapshots, also those of replication

SNAPSHOT, REWRITE = "snapshot", "rewrite of the log"


class CannotSave(CommandError):
    text = "ERR"


class NoLogToRewrite(CommandError):
    text = "ERR the log is off: CONFIG SET appendonly yes starts one"


class SaveManager:
    """Schedules snapshots and log rewrites, and keeps their results."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        loop: EventLoop,
        files: DataDirectory,
        durability: Durability,
        wake: Callable[[], None],
        snapshot_fields: Callable[[], dict[bytes, bytes]],
        now: int,
    ) -> None:
        """Save nothing yet.

        Args:
            wake: makes the event loop run a turn; called from other threads.
            snapshot_fields: returns the auxiliary fields of a snapshot: its position in the stream of
                replication.
            now: in Unix milliseconds.
        """
        self.config = config
        self.engine = engine
        self.loop = loop
        self.wake = wake
        self.data_directory = files
        self.durability = durability
        self.snapshot_aux_fields = snapshot_fields
        self.running_job: SnapshotJob | None = None
        self.jobs_started = 0
        self.job_kind = ""  # what the running job does: SNAPSHOT, REWRITE or empty
        self.job_file_name = ""  # the file that it writes
        self.job_started_ms = 0
        self.changes_at_start = 0
        self.pending_rewrite: PendingRewrite | None = None
        self.queued: list[str] = []  # jobs to start, in this order
        # Snapshots.
        self.saved_ms = now
        self.changes_at_last_save = 0  # keyspace.changes at the last snapshot
        self.save_tried_ms = 0
        self.save_failed = False
        self.save_took_s = -1
        self.saves = 0
        # Rewrites.
        self.rewrite_failures = 0  # in a row
        self.rewrite_tried_ms = 0
        self.rewrite_took_s = -1
        self.rewrites = 0

    # Requests.

    def rdb_version(self) -> RdbVersion:
        """Return the RDB version of snapshots."""
        return by_name(self.config.text("rdb-stream-types"))

    def changes_since_save(self) -> int:
        """Return the number of changes since the last snapshot."""
        return self.engine.keyspace.changes - self.changes_at_last_save

    def is_running(self, job: str) -> bool:
        """Return whether that job is running, or is about to start."""
        return self.job_kind == job or (self.running_job is None and self.queued[:1] == [job])

    def background_save(self, schedule: bool) -> bytes:
        """Run BGSAVE; return its reply. Raises CommandError if a job is running or queued.

        Args:
            schedule: wait for a rewrite that is running or queued, instead of raising (BGSAVE SCHEDULE).
        """
        if self.is_running(SNAPSHOT):
            raise SaveRunning()
        if (self.running_job is not None or self.queued) and not schedule:
            raise OtherChildRunning()
        waits = self._must_wait()
        self._enqueue(SNAPSHOT)
        return b"Background saving scheduled" if waits else b"Background saving started"

    def rewrite_log(self) -> bytes:
        """Run BGREWRITEAOF; return its reply. Raises CommandError if the log is off or being rewritten."""
        if self.durability.log is None:
            raise NoLogToRewrite()
        if self.is_running(REWRITE):
            raise RewriteRunning()
        waits = self._must_wait()
        self._enqueue(REWRITE)
        return b"Background append only file rewriting " + (b"scheduled" if waits else b"started")

    def open_log(self, manifest: Manifest | None, now: int) -> None:
        """Open the log at start-up; see Durability.open()."""
        self.durability.open(manifest, lambda file, rewrite: self._write_base(file, now, rewrite))

    def cancel_rewrites(self) -> None:
        """Cancel queued and running rewrites (CONFIG SET appendonly no)."""
        self.queued = [job for job in self.queued if job == SNAPSHOT]
        self.kill_rewrite()

    def kill_rewrite(self) -> None:
        """Cancel the running job if it is a rewrite."""
        if self.job_kind == REWRITE:
            self.kill()

    def save(self, now: int) -> None:
        """Run SAVE: return when a snapshot is durable.

        Raises CommandError if that fails, or if a snapshot is being written in the background.
        """
        if self.is_running(SNAPSHOT):
            raise SaveRunning()
        name = temporary_name()
        self.save_tried_ms = now
        try:
            self._replace_snapshot(name, now)
            self._record_snapshot(now, self.engine.keyspace.changes)
        except OSError as wrong:
            self._record_save_failure(name, describe_error(wrong))
            raise CannotSave() from None

    def on_flushall(self, now: int) -> None:
        """Discard a running snapshot after FLUSHALL, and save the empty data if there are `save` rules."""
        if self.job_kind == SNAPSHOT:
            self.kill()
        if self.config.save_rules():
            with suppress(CommandError):  # logged, and shown in INFO
                self.save(now)

    def queue_rewrite(self) -> None:
        """Queue a rewrite: the log does not contain the data in memory."""
        self._enqueue(REWRITE)

    def _must_wait(self) -> bool:
        """Return whether a new job has to wait for others, or for the image of a snapshot for replicas."""
        return self.running_job is not None or bool(self.queued) or self.engine.keyspace.image is not None

    def _enqueue(self, job: str) -> None:
        if job not in self.queued:
            self.queued.append(job)
        self.loop.run_timer_now()  # tick() runs soon: the client's reply says that the job has started

    # Schedule.

    def tick(self, now: int) -> None:
        """Finish a job that has ended, and start one that is queued or due. Called between two turns."""
        if self.running_job is not None and self.running_job.finish_if_ended():
            self._end_job(now)
        if self.running_job is None and not self.queued:
            self._enqueue_due(now)
        if self.running_job is None and self.queued and self.engine.keyspace.image is None:
            self._start(self.queued.pop(0), now)

    def ms_until_due(self, now: int, interval: int) -> int:
        """Return in how many milliseconds tick() must run at the latest; -1 for never."""
        if self.running_job is not None or self.queued or self._log_needs_rewrite():
            return interval
        changes = self.changes_since_save()
        waits = [s * 1000 + 1 - (now - self.saved_ms) for s, n in self.config.save_rules() if changes >= n]
        return max(min(waits), interval) if waits else -1

    def _enqueue_due(self, now: int) -> None:
        """Queue a snapshot or rewrite that is due.

        It is due by a `save` rule, by the log's growth, or because the log has no valid base.
        """
        most = NEEDED_RETRY_MAX_MS if self._log_needs_rewrite() else GROWTH_RETRY_MAX_MS
        retry = min(REWRITE_RETRY_MS << min(self.rewrite_failures, 16), most)
        rewrite_may = not self.rewrite_failures or not 0 <= now - self.rewrite_tried_ms < retry
        if rewrite_may and (self._log_needs_rewrite() or self._log_has_grown()):
            self._enqueue(REWRITE)
        elif not (self.save_failed and 0 <= now - self.save_tried_ms < SAVE_RETRY_MS):
            changes, seconds = self.changes_since_save(), (now - self.saved_ms) / 1000
            if any(changes >= n and seconds > s for s, n in self.config.save_rules()):
                self._enqueue(SNAPSHOT)

    def _log_needs_rewrite(self) -> bool:
        log = self.durability.log
        return log is not None and log.needs_rewrite

    def _log_has_grown(self) -> bool:
        log = self.durability.log
        percentage = self.config.number("auto-aof-rewrite-percentage")
        if log is None or not percentage or log.size <= self.config.number("auto-aof-rewrite-min-size"):
            return False
        base = log.base_size or 1
        return log.size * 100 // base - 100 >= percentage

    # Jobs.

    def _start(self, job: str, now: int) -> None:
        self.job_started_ms = now
        self.changes_at_start = self.engine.keyspace.changes
        try:
            if job == SNAPSHOT:
                self.save_tried_ms = now
                self._start_snapshot(now)
            else:
                self.rewrite_tried_ms = now
                self._start_rewrite(now)
        except (OSError, HeadraceError) as wrong:
            self._discard_failed_job(job, describe_error(wrong))
            return
        self.job_kind = job
        self.durability.set_job_writing(True)
        logging.getLogger("headrace").info("%s started", job)

    def _start_snapshot(self, now: int) -> None:
        self.jobs_started += 1
        name = f"temp-{os.getpid()}-{self.jobs_started}.rdb"

        def replace_last() -> None:
            self.data_directory.rename(name, self.config.text("dbfilename"))
            self.data_directory.sync_directory("")

        fields = self.snapshot_aux_fields()
        now = self._time_of_snapshot(fields, now)
        self._launch(name, False, self._rdb_steps_factory(False, fields), replace_last, now)

    def _start_rewrite(self, now: int) -> None:
        log = self.durability.log
        if log is None:
            raise HeadraceError("the log is off")
        log.restore_directory()
        as_rdb = self.config.flag("aof-use-rdb-preamble")
        self.pending_rewrite = log.begin_rewrite(as_rdb)
        steps_for = (
            self._rdb_steps_factory(True, {}, self.pending_rewrite.cold_references)
            if as_rdb
            else self._command_steps_factory()
        )
        now = self._time_of_snapshot({}, now)
        self._launch(self.pending_rewrite.temporary_path, True, steps_for, lambda: None, now)

    def _launch(
        self,
        name: str,
        aof_base: bool,
        steps_for: Callable[[EncoderThread], StepsFunction],
        publish: Callable[[], None],
        now: int,
    ) -> None:
        """Start a job that writes the file of that name. Raises OSError or HeadraceError."""
        self.job_file_name = name
        file = self.data_directory.create(name)
        try:
            thread = EncoderThread(self._sink(file, aof_base), close=file.close, on_end=self.wake)
        except RuntimeError as error:
            file.close()
            raise HeadraceError(str(error)) from None
        effort = self.config.number("snapshot-effort")
        self.running_job = SnapshotJob(
            self.loop, self.engine, effort, thread, steps_for(thread), file.sync, publish, now
        )

    def _time_of_snapshot(self, fields: dict[bytes, bytes], now: int) -> int:
        """Return the time up to which a snapshot leaves out expired keys, in Unix milliseconds.

        A snapshot for replication must contain the keys that the primary has not deleted yet: its time is
        before the first expiry.

        Args:
            fields: of the snapshot; empty if it names no position in the stream of replication.
        """
        keyspace = self.engine.keyspace
        return keyspace.latest_ms_without_expired_keys(now) if fields or keyspace.hides_expired() else now

    def _rdb_steps_factory(
        self, aof_base: bool, fields: dict[bytes, bytes], references: ColdReferences | None = None
    ) -> Callable[[EncoderThread], StepsFunction]:
        version = self.rdb_version()

        def steps_for(thread: EncoderThread) -> StepsFunction:
            out = RdbOutput(thread.put, self.config.flag("rdbcompression"), deferred=True)

            def steps(image: KeyspaceImage) -> Iterator[int]:
                yield from rdb_steps(
                    image, out, version=version, aof_base=aof_base, aux=fields, references=references
                )
                out.write_trailer(self.config.flag("rdbchecksum"))

            return steps

        return steps_for

    def _command_steps_factory(self) -> Callable[[EncoderThread], StepsFunction]:
        timestamps, checksums = self.config.flag("aof-timestamp-enabled"), self.config.flag("aof-checksum")
        return lambda thread: (
            lambda image: command_steps(image, lambda piece: thread.put(bytes(piece)), timestamps, checksums)
        )

    def _end_job(self, now: int) -> None:
        """Use or discard the result of a job that has ended."""
        running, job = self.running_job, self.job_kind
        assert running is not None
        self.running_job, self.job_kind = None, ""
        self.durability.set_job_writing(False)
        reason = running.failure_reason
        if not reason:
            try:
                self._complete(job, now)
            except (OSError, HeadraceError) as wrong:
                reason = describe_error(wrong)
        if reason:
            self._discard_failed_job(job, reason)
        else:
            logging.getLogger("headrace").info("%s: done", job)

    def _complete(self, job: str, now: int) -> None:
        took = max(now - self.job_started_ms, 0) // 1000
        if job == SNAPSHOT:
            self._record_snapshot(now, self.changes_at_start)
            self.save_took_s = took
            return
        rewrite, self.pending_rewrite = self.pending_rewrite, None
        log = self.durability.log
        assert rewrite is not None and log is not None
        done = log.finish_rewrite(rewrite, True)
        if done:  # the log counts from now on, also if what follows its base cannot be written
            self.durability.first_base_pending = False
        self.durability.tick(now)
        if not done:
            raise HeadraceError(rewrite.failure)
        self.rewrites += 1
        self.rewrite_failures = 0
        self.rewrite_took_s = took

    def _discard_failed_job(self, job: str, reason: str) -> None:
        """Discard a failed job."""
        if job == SNAPSHOT:
            self._record_save_failure(self.job_file_name, reason)
            return
        self.rewrite_failures += 1
        self._discard_rewrite()
        logging.getLogger("headrace").error("%s failed: %s", job, reason)
        self.durability.on_rewrite_failed(reason)

    def cancel_all(self) -> None:
        """Cancel the running job and clear the queue, before the server ends."""
        self.queued.clear()
        self.kill()

    def kill(self) -> None:
        """Cancel the running job and remove its file."""
        if self.running_job is None:
            return
        self.running_job.kill()
        job = self.job_kind
        self.running_job, self.job_kind = None, ""
        self.durability.set_job_writing(False)
        if job == SNAPSHOT:
            self._remove(self.job_file_name)
        else:
            self._discard_rewrite()
            self.rewrite_failures = 0

    def _discard_rewrite(self) -> None:
        """Keep the log without the base that was being written."""
        rewrite, self.pending_rewrite = self.pending_rewrite, None
        if rewrite is not None and self.durability.log is not None:
            self.durability.log.finish_rewrite(rewrite, False)

    # Files.

    def _replace_snapshot(self, name: str, now: int) -> None:
        """Write a snapshot under that name and rename it over the last one. Raises OSError."""
        target = self.config.text("dbfilename")
        replace_file(
            self.data_directory, target, name, lambda file: self._write_rdb(file, now, aof_base=False)
        )

    def _write_base(self, file: File, now: int, rewrite: PendingRewrite) -> None:
        """Write the base of the log, as a snapshot or as commands."""
        if self.config.flag("aof-use-rdb-preamble"):
            self._write_rdb(file, now, aof_base=True, references=rewrite.cold_references)
        else:
            write_commands(
                self.engine.keyspace,
                self._sink(file, aof_base=True),
                now_ms=now,
                timestamps=self.config.flag("aof-timestamp-enabled"),
                checksums=self.config.flag("aof-checksum"),
            )

    def _write_rdb(
        self, file: File, now: int, aof_base: bool, references: ColdReferences | None = None
    ) -> None:
        fields = {} if aof_base else self.snapshot_aux_fields()
        write_rdb(
            self.engine.keyspace,
            self._sink(file, aof_base),
            version=self.rdb_version(),
            compress=self.config.flag("rdbcompression"),
            checksum=self.config.flag("rdbchecksum"),
            aof_base=aof_base,
            now_ms=self._time_of_snapshot(fields, now),
            aux=fields,
            references=references,
        )

    def _sink(self, file: File, aof_base: bool) -> Callable[[bytes | memoryview], None]:
        """Return a function that writes to the file, with early writeback if configured."""
        which = "aof-rewrite-incremental-fsync" if aof_base else "rdb-save-incremental-fsync"
        return gradual_writer(file) if self.config.flag(which) else lambda data: write_all(file, data)

    def _record_snapshot(self, now: int, changes: int) -> None:
        """Record a new snapshot, with the number of changes that it contains."""
        self.saved_ms = now
        self.changes_at_last_save = changes
        self.saves += 1
        self.save_failed = False
        self.update_write_gate()

    def _record_save_failure(self, name: str, reason: str) -> None:
        logging.getLogger("headrace").error("saving a snapshot failed: %s", reason)
        self.save_failed = True
        self._remove(name)
        self.update_write_gate()

    def update_write_gate(self) -> None:
        """Update whether a failed snapshot makes the server reject writes."""
        self.durability.snapshot_failed = (
            self.save_failed
            and bool(self.config.save_rules())
            and self.config.flag("stop-writes-on-bgsave-error")
        )
        self.durability.update_write_gate()

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            self.data_directory.remove(name)

    def remove_leftovers(self) -> None:
        """Remove temporary files of killed servers from the directory, which is locked by this server."""
        for name in self.data_directory.list(""):
            found = TEMPORARY_FILE_NAME.fullmatch(name)
            if found and (int(found[1]) == os.getpid() or not os.path.exists(f"/proc/{found[1]}")):
                self._remove(name)


def temporary_name() -> str:
    """Return the name under which a snapshot is written."""
    return f"temp-{os.getpid()}.rdb"


def describe_error(wrong: Exception) -> str:
    """Return a short text for an error."""
    return wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
