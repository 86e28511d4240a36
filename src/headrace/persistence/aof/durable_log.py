"""A log that reports failures: writes are rejected from the first one until the log is complete again.

    commit() or tick() fails ─▶ report_failure(): log the failure, reject writes ─▶ tick() retries, or a
    rewrite
    the log is complete      ─▶ report_failure(): accept writes

The server (server/commit.py) and a database in a program (api/local/storage.py) use one each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import cython

from headrace.persistence.aof import log_files
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log import Log
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.data_directory import DataDirectory, File, PendingSync
from headrace.visibility import Public


@cython.cclass
class DurableLog(Log):
    """A log whose user rejects writes while it is incomplete.

    `on_failure_changed` gets the failure for which writes must be rejected; "" if they are accepted again.
    """

    appendfsync: Public[str]  # the configured policy; `policy` is the one in effect
    reported_failure: Public[str]  # writes are rejected for it; empty if they are accepted
    has_sync_waiters: Callable[[], bool]  # whether a client waits for a sync (WAITAOF)
    on_failure_changed: Callable[[str], None]

    def __init__(
        self,
        files: DataDirectory,
        names: LogFileNames,
        *,
        policy: str,
        sync_later: Callable[[File], PendingSync],
        has_sync_waiters: Callable[[], bool],
        on_failure_changed: Callable[[str], None],
    ) -> None:
        super().__init__(files, names, policy=policy, sync_later=sync_later)
        self.appendfsync = policy
        self.reported_failure = ""
        self.has_sync_waiters = has_sync_waiters
        self.on_failure_changed = on_failure_changed

    def open(self, manifest: Manifest | None, write_base: Callable[[File], None], rdb: bool = True) -> None:
        """Continue the recovered log; without a manifest create a log. Raises HeadraceError or OSError.

        Args:
            write_base: writes the first base of a new log to a file.
            rdb: whether write_base writes a snapshot or commands.
        """
        self.start(manifest)
        if manifest is None:
            self.create(write_base, rdb)

    def set_appendfsync(self, policy: str) -> None:
        """Set the configured policy. `no` counts as `everysec` as long as a client waits for a sync."""
        self.appendfsync = policy
        self.set_policy("everysec" if policy == "no" and self.has_sync_waiters() else policy)

    def tick(self, now_ms: int) -> None:
        """Start and complete syncs, and retry after a failure."""
        self.set_appendfsync(self.appendfsync)
        super().tick(now_ms)

    def restore_directory(self) -> None:
        """Restore the directory for the next rewrite, if the log was given up; else do nothing.

        Raises HeadraceError or OSError.
        """
        if self.needs_rewrite:
            log_files.restore_directory(self.files, self.names)

    # A signal handler may raise at any call. So `reported_failure` is set before writes are rejected, and
    # cleared after they are accepted: while they are rejected, a later report_failure() accepts them.

    def report_failure(self) -> None:
        """Log a new failure and reject writes; accept them again if the log is complete."""
        if not self.failure:
            self.accept_writes("the log is complete again: writes are accepted")
            return
        if not self.reported_failure:
            text = "%s; writes are rejected until the log is repaired"
            logging.getLogger("headrace").error(text, self.failure)
        if self.reported_failure != self.failure:
            self.reported_failure = self.failure
            self.on_failure_changed(self.failure)

    def accept_writes(self, reason: str) -> None:
        """Accept writes again if they are rejected, and log the reason."""
        if self.reported_failure:
            logging.getLogger("headrace").warning("%s", reason)
            self.on_failure_changed("")
            self.reported_failure = ""
