"""Snapshots and rewrites of the log: in a child while all goes on, or at once while everybody waits.

    asked for, due ──→ wanted ──(between two turns)──→ child ──(it has ended)──→ taken over, or removed

A child is begun between two turns only: there memory holds whole transactions, and all of them are in the
log. There is one child at a time.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress

from headrace import system
from headrace.commands.server.saving import OtherChildRunning, RewriteRunning, SaveRunning
from headrace.engine.engine import Engine
from headrace.errors import CommandError, HeadraceError
from headrace.persistence.aof.log_files import restore_directory
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.aof.pending_rewrite import Rewrite
from headrace.persistence.aof.rewrite import write_commands
from headrace.persistence.data_directory import File, Files
from headrace.persistence.rdb.versions import Version, by_name
from headrace.persistence.rdb.writer import write_rdb
from headrace.server.config.config import Config
from headrace.server.disk.child_process import Child
from headrace.server.disk.group_commit import Durability

SAVE_RETRY_MS = 5_000  # after a failed snapshot, by rule
REWRITE_RETRY_MS = 1_000  # after a failed rewrite; twice as long each time
NEEDED_RETRY_MAX_MS = 10_000  # when there is no log without it
GROWTH_RETRY_MAX_MS = 600_000  # when it only saves room
HASTEN_BYTES = 4 << 20  # of a large file, between two hints that they shall go to the disk
TEMPORARY = re.compile(r"temp-(\d+)\.rdb")

SNAPSHOT, REWRITE = "snapshot", "rewrite of the log"


class CannotSave(CommandError):
    text = "ERR"


class NoLogToRewrite(CommandError):
    text = "ERR the log is off: CONFIG SET appendonly yes begins one"


class Saving:
    """What is written to disk besides the log, and how that went."""

    def __init__(
        self, config: Config, engine: Engine, files: Files, durability: Durability, now: int
    ) -> None:
        self.config = config
        self.engine = engine
        self.files = files
        self.durability = durability
        self.hurry: Callable[[], None] = lambda: (
            None
        )  # has tick() called soon: a client was told that it is begun
        self.fork_us = 0  # what starting the last child took
        self.child: Child | None = None
        self.begun_unsaid = False  # what everybody waits for is as short as can be: the log hears of it later
        self.work = ""  # what the child does
        self.name = ""  # the file it writes
        self.begun_ms = 0
        self.changes_then = 0
        self.rewrite: Rewrite | None = None
        self.wanted: list[str] = []  # what is to be begun, in this order
        # Snapshots.
        self.saved_ms = now
        self.saved_changes = 0  # keyspace.changes that the last snapshot has
        self.save_tried_ms = 0
        self.save_failed = False
        self.save_took_s = -1
        self.saves = 0
        # Rewrites.
        self.rewrite_failures = 0  # in a row
        self.rewrite_tried_ms = 0
        self.rewrite_took_s = -1
        self.rewrites = 0

    # What is asked for.

    def version(self) -> Version:
        """The form of snapshots."""
        return by_name(self.config.text("rdb-stream-types"))

    def changes(self) -> int:
        """Changes since the last snapshot."""
        return self.engine.keyspace.changes - self.saved_changes

    def runs(self, work: str) -> bool:
        """Whether a child does that, or is about to be begun."""
        return self.work == work or (self.child is None and self.wanted[:1] == [work])

    def background_save(self, schedule: bool) -> bytes:
        """BGSAVE; what to answer."""
        if self.runs(SNAPSHOT):
            raise SaveRunning()
        if self.child is not None or self.wanted:
            if not schedule:
                raise OtherChildRunning()
            self._want(SNAPSHOT)
            return b"Background saving scheduled"
        self._want(SNAPSHOT)
        return b"Background saving started"

    def rewrite_log(self) -> bytes:
        """BGREWRITEAOF; what to answer."""
        if self.durability.log is None:
            raise NoLogToRewrite()
        if self.runs(REWRITE):
            raise RewriteRunning()
        waits = self.child is not None or bool(self.wanted)
        self._want(REWRITE)
        return b"Background append only file rewriting " + (b"scheduled" if waits else b"started")

    def open_log(self, manifest: Manifest | None, now: int) -> None:
        """The start: see Durability.open()."""
        self.durability.open(manifest, lambda file: self._write_base(file, now))

    def forget_log(self) -> None:
        """CONFIG SET appendonly no."""
        self.wanted = [work for work in self.wanted if work == SNAPSHOT]
        self.drop_rewrite()

    def drop_rewrite(self) -> None:
        """A rewrite that is under way leads to nothing."""
        if self.work == REWRITE:
            self.kill()

    def save(self, now: int) -> None:
        """SAVE: return when a snapshot is durable; CommandError when that failed."""
        if self.runs(SNAPSHOT):
            raise SaveRunning()
        name = temporary_name()
        self.save_tried_ms = now
        try:
            self._put_snapshot(name, now)
            self._take_snapshot(now, self.engine.keyspace.changes)
        except OSError as wrong:
            self._save_failed(name, said(wrong))
            raise CannotSave() from None

    def flushed(self, now: int) -> None:
        """FLUSHALL: what was being saved is gone, and the snapshot shall know."""
        if self.work == SNAPSHOT:
            self.kill()
        if self.config.save_rules():
            with suppress(CommandError):  # it is in the log, and in INFO
                self.save(now)

    def rewrite_soon(self) -> None:
        """What is in memory came by another way than the log: write the log anew."""
        self._want(REWRITE)

    def _want(self, work: str) -> None:
        if work not in self.wanted:
            self.wanted.append(work)
        self.hurry()

    # What comes round.

    def tick(self, now: int) -> None:
        """Between two turns: take over what a child has done, begin what is wanted or due."""
        if self.child is not None and self.begun_unsaid:
            self.begun_unsaid = False
            logging.getLogger("headrace").info("%s begun by process %d", self.work, self.child.pid)
        if self.child is not None and self.child.ended():
            self._end_child(now)
        if self.child is None and not self.wanted:
            self._find_what_is_due(now)
        if self.child is None and self.wanted:
            self._begin(self.wanted.pop(0), now)

    def due_ms(self, now: int, interval: int) -> int:
        """In how many milliseconds tick() is wanted at the latest; -1 for never."""
        if self.child is not None or self.wanted or self._log_needs_rewrite():
            return interval
        changes = self.changes()
        waits = [s * 1000 + 1 - (now - self.saved_ms) for s, n in self.config.save_rules() if changes >= n]
        return max(min(waits), interval) if waits else -1

    def _find_what_is_due(self, now: int) -> None:
        """A rule of `save`, the log's growth, a log that cannot be trusted, a log that has no base yet."""
        most = NEEDED_RETRY_MAX_MS if self._log_needs_rewrite() else GROWTH_RETRY_MAX_MS
        retry = min(REWRITE_RETRY_MS << min(self.rewrite_failures, 16), most)
        rewrite_may = not self.rewrite_failures or not 0 <= now - self.rewrite_tried_ms < retry
        if rewrite_may and (self._log_needs_rewrite() or self._log_has_grown()):
            self._want(REWRITE)
        elif not (self.save_failed and 0 <= now - self.save_tried_ms < SAVE_RETRY_MS):
            changes, seconds = self.changes(), (now - self.saved_ms) / 1000
            if any(changes >= n and seconds > s for s, n in self.config.save_rules()):
                self._want(SNAPSHOT)

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

    # A child's life.

    def _begin(self, work: str, now: int) -> None:
        self.begun_ms = now
        self.changes_then = self.engine.keyspace.changes
        try:
            if work == SNAPSHOT:
                self.save_tried_ms = now
                name = temporary_name()
                self._fork(name, lambda: self._put_snapshot(name, now))
            else:
                self.rewrite_tried_ms = now
                self._begin_rewrite(now)
        except (OSError, HeadraceError) as wrong:
            self._failed(work, said(wrong))
            return
        self.work = work
        self.begun_unsaid = True
        self.durability.child_writes(True)

    def _begin_rewrite(self, now: int) -> None:
        log = self.durability.log
        if log is None:
            raise HeadraceError("the log is off")
        if log.needs_rewrite:
            restore_directory(self.files, log.names)
        self.rewrite = log.begin_rewrite(self.config.flag("aof-use-rdb-preamble"))
        name = self.rewrite.temporary
        self._fork(name, lambda: self._write(name, lambda file: self._write_base(file, now)))

    def _fork(self, name: str, work: Callable[[], None]) -> None:
        """Begin the child whose work it is to write the file of that name."""
        self.name = name
        before = system.monotonic_ns()
        self.child = Child(work)
        self.fork_us = (system.monotonic_ns() - before) // 1000
        self.engine.timing.record_event(b"fork", self.fork_us // 1000, self.engine.keyspace.now)

    def _end_child(self, now: int) -> None:
        """The child has ended: act on what it has done."""
        child, work = self.child, self.work
        assert child is not None
        self.child, self.work = None, ""
        self.durability.child_writes(False)
        reason = child.reason
        if not reason:
            try:
                self._take_over(work, now)
            except (OSError, HeadraceError) as wrong:
                reason = said(wrong)
        if reason:
            self._failed(work, reason)
        else:
            logging.getLogger("headrace").info("%s: done", work)

    def _take_over(self, work: str, now: int) -> None:
        took = max(now - self.begun_ms, 0) // 1000
        if work == SNAPSHOT:
            self._take_snapshot(now, self.changes_then)
            self.save_took_s = took
            return
        rewrite, self.rewrite = self.rewrite, None
        log = self.durability.log
        assert rewrite is not None and log is not None
        done = log.finish_rewrite(rewrite, True)
        self.durability.tick(now)
        if not done:
            raise HeadraceError(rewrite.trouble)
        self.rewrites += 1
        self.rewrite_failures = 0
        self.rewrite_took_s = took

    def _failed(self, work: str, reason: str) -> None:
        """Leave things as they were before the child."""
        if work == SNAPSHOT:
            self._save_failed(self.name, reason)
            return
        self.rewrite_failures += 1
        self._drop_rewrite()
        logging.getLogger("headrace").error("%s failed: %s", work, reason)

    def call_off(self) -> None:
        """The end is near: nothing is written in the background any more, nor begun."""
        self.wanted.clear()
        self.kill()

    def kill(self) -> None:
        """End the child, as if it had never been."""
        if self.child is None:
            return
        self.child.kill()
        work = self.work
        self.child, self.work = None, ""
        self.durability.child_writes(False)
        if work == SNAPSHOT:
            self._remove(self.name)
        else:
            self._drop_rewrite()
            self.rewrite_failures = 0

    def _drop_rewrite(self) -> None:
        """The log goes on without the base that was being written."""
        rewrite, self.rewrite = self.rewrite, None
        if rewrite is not None and self.durability.log is not None:
            self.durability.log.finish_rewrite(rewrite, False)

    # Files.

    def _write(self, name: str, write: Callable[[File], None]) -> None:
        """A whole file, durable; OSError."""
        file = self.files.create(name)
        try:
            write(file)
            file.sync()
        finally:
            file.close()

    def _put_snapshot(self, name: str, now: int) -> None:
        """Write a snapshot under that name, and put it in place of the last one; OSError.

        To let go of the old file's pages takes a while when it was large: so a child does that, too.
        """
        self._write(name, lambda file: self._write_rdb(file, now, aof_base=False))
        self.files.rename(name, self.config.text("dbfilename"))
        self.files.sync_directory("")

    def _write_base(self, file: File, now: int) -> None:
        """The base of the log, as a snapshot or as commands."""
        if self.config.flag("aof-use-rdb-preamble"):
            self._write_rdb(file, now, aof_base=True)
        else:
            write_commands(
                self.engine.keyspace,
                self._sink(file, aof_base=True),
                now_ms=now,
                timestamps=self.config.flag("aof-timestamp-enabled"),
            )

    def _write_rdb(self, file: File, now: int, aof_base: bool) -> None:
        write_rdb(
            self.engine.keyspace,
            self._sink(file, aof_base),
            version=self.version(),
            compress=self.config.flag("rdbcompression"),
            checksum=self.config.flag("rdbchecksum"),
            aof_base=aof_base,
            now_ms=now,
        )

    def _sink(self, file: File, aof_base: bool) -> Callable[[bytes | memoryview], None]:
        """What writes to that file, as it is configured."""
        which = "aof-rewrite-incremental-fsync" if aof_base else "rdb-save-incremental-fsync"
        return hastened(file) if self.config.flag(which) else lambda data: write_all(file, data)

    def _take_snapshot(self, now: int, changes: int) -> None:
        """There is a new snapshot, which has so many changes."""
        self.saved_ms = now
        self.saved_changes = changes
        self.saves += 1
        self.save_failed = False
        self.look()

    def _save_failed(self, name: str, reason: str) -> None:
        logging.getLogger("headrace").error("saving a snapshot failed: %s", reason)
        self.save_failed = True
        self._remove(name)
        self.look()

    def look(self) -> None:
        """Whether a failed snapshot keeps writes out."""
        self.durability.snapshot_failed = (
            self.save_failed
            and bool(self.config.save_rules())
            and self.config.flag("stop-writes-on-bgsave-error")
        )
        self.durability.look()

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            self.files.remove(name)

    def remove_leftovers(self) -> None:
        """What children of servers that were killed have left in the directory, which is ours now."""
        for name in self.files.list(""):
            found = TEMPORARY.fullmatch(name)
            if found and (int(found[1]) == os.getpid() or not os.path.exists(f"/proc/{found[1]}")):
                self._remove(name)


def temporary_name() -> str:
    """Under which name a snapshot is written."""
    return f"temp-{os.getpid()}.rdb"


def hastened(file: File) -> Callable[[bytes | memoryview], None]:
    """What writes to a file that becomes large: its bytes go to the disk while more are made."""
    waiting = 0

    def write(data: bytes | memoryview) -> None:
        nonlocal waiting
        write_all(file, data)
        waiting += len(data)
        if waiting >= HASTEN_BYTES:
            waiting = 0
            file.hasten()

    return write


def said(wrong: Exception) -> str:
    """An error in a few words."""
    return wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
