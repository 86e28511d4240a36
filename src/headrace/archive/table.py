"""Commit files to an archive, a Delta table, in whole batches; merge, delete and vacuum its files.

    write files → sync them → one commit: the files, the positions reached, the number of the batch

A commit is one file that is created only if it does not exist, on a disk as in an object store. So a batch
counts whole or not at all. Its number is a transaction of Delta: of two jobs that write the same batch, the
second one fails, and none of its files count.
"""

from __future__ import annotations

import datetime
import json
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.archive.delta_log import (
    ADDED_COUNTS_KEY,
    LAST_CHECKPOINT_FILE,
    LOG_DIRECTORY,
    explain_table_errors,
    record_newest_version,
)
from headrace.archive.files import (
    LAST_VACUUM_KEY,
    PARTITION_COLUMNS,
    POSITIONS_KEY,
    Archive,
    ArchivedFile,
    archive_of_table,
    newest_position_commit,
    open_table,
    read_archive,
    recorded_streams,
)
from headrace.archive.location import ArchiveLocation
from headrace.archive.verification import lost_files
from headrace.errors import HeadraceError
from headrace.plurals import plural
from headrace.positions.position import Positions

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

APPLICATION_ID = "headrace archive"  # the writer, in the transactions of Delta
COMMIT_ID_KEY = "headrace.commit"  # unique for each commit, so that a job recognises its own
HISTORY_COMMITS_READ = 10  # commits that other programs may have made at the same time

ORPHAN_RETENTION = datetime.timedelta(days=7)  # no job runs so long between writing a file and its commit
VACUUM_EVERY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class WrittenFile:
    """A file that a task has written and that is not committed yet.

    Attributes:
        path: Its path within the archive.
        stream: The stream of its entries.
        date: Their day in ISO 8601; None for a day after the year 9999.
        rows: The number of entries.
        size: Its size in bytes.
        first_ms: The time of its first entry in milliseconds; None if no timestamp can represent it.
        last_ms: The time of its last entry in milliseconds; None if no timestamp can represent it.
        exact_rows: The number of entries that are stored in `_exact`.
    """

    path: str
    stream: str
    date: str | None
    rows: int
    size: int
    first_ms: int | None
    last_ms: int | None
    exact_rows: int


@dataclass(frozen=True)
class UpkeepResult:
    """What the upkeep of an archive has done.

    Attributes:
        merged_files: The number of files that were merged.
        replacement_files: The number of files that replaced them.
        deleted_entries: The number of entries whose days were deleted.
    """

    merged_files: int = 0
    replacement_files: int = 0
    deleted_entries: int = 0


WrittenOrArchivedFile = WrittenFile | ArchivedFile


class ArchiveTable:
    """The table of an archive, as one job writes it."""

    def __init__(self, location: ArchiveLocation, table: DeltaTable) -> None:
        self.location = location
        self._table = table
        self._opened_archive = archive_of_table(location, table)
        self.positions: Positions = dict(self._opened_archive.positions)
        self._vacuumed_ms = self._opened_archive.vacuumed_ms or int(time.time() * 1000)
        self._next_batch = (table.transaction_version(APPLICATION_ID) or 0) + 1
        self._unfinished: tuple[str, Positions] | None = None  # mark and positions of a failed commit
        self._synced_version = -1

    @property
    def opened_archive(self) -> Archive:
        """The state of the archive when it was opened."""
        return self._opened_archive

    def recorded_streams(self) -> set[str]:
        """Return the streams that were ever archived to the table, as far as its log says so."""
        with explain_table_errors(self.location):
            return recorded_streams(self.location, self._table)

    def commit(self, files: Iterable[WrittenFile], positions: Positions) -> None:
        """Add the files of one batch, and the positions that they reach; afterwards both are on disk.

        Raises:
            HeadraceError: if another job has committed meanwhile, or a file is missing or was changed;
                nothing is added then. Also if the store fails: the commit may exist then, and the next call
                detects that.
        """
        written = list(files)
        if lost := lost_files(self.location, written):
            raise self._lost_files_error(lost)
        self._finish_last_commit()
        before = self.positions
        mark = self._append(written, before | positions)
        # A vacuum that began before the commit may have deleted files after they were checked.
        if lost := lost_files(self.location, written):
            self._undo(mark, before)
            raise self._lost_files_error(lost)

    def _append(self, files: list[WrittenFile], reached: Positions) -> str:
        """Commit files and positions; return the mark of the commit."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        actions = [add_action(file) for file in files]
        mark = uuid.uuid4().hex
        properties = CommitProperties(
            custom_metadata={
                POSITIONS_KEY: positions_text(reached),
                LAST_VACUUM_KEY: str(self._vacuumed_ms),
                COMMIT_ID_KEY: mark,
                ADDED_COUNTS_KEY: added_counts_json(files),
            },
            app_transactions=[Transaction(APPLICATION_ID, self._next_batch)],
        )
        self._unfinished = mark, reached
        try:
            with explain_table_errors(self.location):
                self._commit(actions, properties)
        except HeadraceError as error:
            if not isinstance(error.__cause__, CommitFailedError):
                raise
            if not self._finish_last_commit():
                raise self._conflict_error() from error
        else:
            self._finish(reached)
        return mark

    def _finish_last_commit(self) -> bool:
        """Finish the last commit, if an error came between and it is in the table; return whether it was so.

        It can be there although the library reports an error: if its checkpoint could not be written, or if
        the reply to it was lost. Then the library repeats the commit, which conflicts with itself.
        """
        if self._unfinished is None:
            return False
        mark, reached = self._unfinished
        if not self._has_commit(mark):
            self._unfinished = None
            return False
        if newest_position_commit(self._table).get(COMMIT_ID_KEY) != mark:  # set back since, or continued
            raise self._conflict_error()
        self._finish(reached)
        return True

    def _finish(self, reached: Positions) -> None:
        """Record the positions of a commit that is in the table, sync it, and read it."""
        self.positions = reached
        self.sync_log()
        self._load_new_commits()
        record_newest_version(self.location, self._table.version())
        self._next_batch += 1
        self._unfinished = None

    def _undo(self, mark: str, positions: Positions) -> None:
        """Restore the version before a commit of this job, with the positions of that version."""
        self.positions = positions
        try:
            with explain_table_errors(self.location):
                history = self._table.history(HISTORY_COMMITS_READ)
                version = next(commit["version"] for commit in history if commit.get(COMMIT_ID_KEY) == mark)
                self._table.restore(version - 1, ignore_missing_files=True)
        finally:  # a trim goes by the positions
            self._append([], positions)

    def _lost_files_error(self, paths: list[str]) -> HeadraceError:
        """Return the error for files that another program has deleted or changed."""
        return HeadraceError(
            f"{self.location}: {plural(len(paths), 'file')} of this job, such as {paths[0]}, were deleted or "
            "changed by another program before they counted; does one vacuum the table without retention? No "
            "entry is lost: run the job again"
        )

    def _has_commit(self, mark: str) -> bool:
        """Return whether a commit with this mark is in the table."""
        with explain_table_errors(self.location):
            self._table.update_incremental()
            return any(
                commit.get(COMMIT_ID_KEY) == mark for commit in self._table.history(HISTORY_COMMITS_READ)
            )

    def _load_new_commits(self) -> None:
        """Read the commits since the last one of this job. Raises HeadraceError if another job made one."""
        with explain_table_errors(self.location):
            self._table.update_incremental()
            batch = self._table.transaction_version(APPLICATION_ID)
        if batch != self._next_batch:
            raise self._conflict_error()

    def _conflict_error(self) -> HeadraceError:
        return HeadraceError(
            f"another job archives to {self.location} at the same time, or another program has replaced its "
            "entries. What this job wrote and did not commit does not count; run it again to archive it"
        )

    def sync_log(self) -> None:
        """Sync the commits of a local table to disk, so that a crash of the machine does not undo them.

        Checkpoints are synced, too: readers use them in place of commits.
        """
        if not self.location.is_local:
            return
        log = self.location.path / LOG_DIRECTORY
        for path in [*log.glob("*.json"), *log.glob("*.checkpoint*.parquet")]:
            number = path.name.partition(".")[0]
            if number.isdigit() and int(number) > self._synced_version:
                sync_path(path)
        if (log / LAST_CHECKPOINT_FILE).is_file():
            sync_path(log / LAST_CHECKPOINT_FILE)
        self._synced_version = max(self._synced_version, self._table.version())
        sync_path(log)
        sync_path(log.parent)

    def replace_files(
        self, old: Sequence[WrittenOrArchivedFile], new: Sequence[WrittenOrArchivedFile]
    ) -> None:
        """Replace files by others with the same entries, in one commit that is on disk afterwards.

        The commit has no positions, and no number of a batch: other jobs may commit at the same time. The
        replaced files stay for the readers of older versions.

        Raises:
            HeadraceError: if one of the files was replaced or deleted meanwhile, or the store fails. The old
                files count then.
        """
        if lost := lost_files(self.location, new):
            raise self._lost_files_error(lost)
        self._swap(old, new)
        # A vacuum that began before the commit may have deleted files after they were checked.
        if lost := lost_files(self.location, new):
            self._swap(new, old)
            raise self._lost_files_error(lost)

    def _swap(self, old: Sequence[WrittenOrArchivedFile], new: Sequence[WrittenOrArchivedFile]) -> None:
        """Commit that files replace others."""
        from deltalake import CommitProperties

        actions = [*(add_action(file, data_change=False) for file in new), *map(remove_action, old)]
        with explain_table_errors(self.location):
            self._commit(
                actions, CommitProperties(custom_metadata={ADDED_COUNTS_KEY: added_counts_json(new)})
            )
        self.sync_log()

    def _commit(self, actions: Sequence[Any], properties: CommitProperties) -> None:
        """Commit files that are added or removed."""
        self._table.create_write_transaction(
            list(actions),
            mode="append",
            schema=self._table.schema(),
            partition_by=list(PARTITION_COLUMNS),
            commit_properties=properties,
        )

    def delete_days_before(self, date: datetime.date) -> UpkeepResult:
        """Delete all entries of days before a date. Their files stay for the readers of older versions."""
        old = [file for file in read_archive(self.location).files if file.date and file.date < date]
        if not old:
            return UpkeepResult()
        with explain_table_errors(self.location):
            # The newest version: the files that this job has just merged are no conflict.
            open_table(self.location).delete(f"date < DATE '{date.isoformat()}'")
        self.sync_log()
        return UpkeepResult(deleted_entries=sum(file.rows for file in old))

    def vacuum(self, now: datetime.datetime) -> int:
        """Delete files of killed jobs, and replaced files, older than a week; at most once a day.

        A commit repeats the positions then, because Delta deletes commits that are older than a month.

        Returns:
            The number of deleted files; 0 if no vacuum is due.
        """
        now_ms = int(now.timestamp() * 1000)
        # The clock may have been set back.
        if self._opened_archive.vacuumed_ms is None or 0 <= now_ms - self._vacuumed_ms < VACUUM_EVERY_MS:
            return 0
        with explain_table_errors(self.location):
            deleted = self._table.vacuum(
                retention_hours=int(ORPHAN_RETENTION.total_seconds() // 3600), dry_run=False, full=True
            )
        self._vacuumed_ms = now_ms
        self.commit([], {})
        return len(deleted)


def add_action(file: WrittenOrArchivedFile, *, data_change: bool = True) -> Any:
    """Return the action of Delta that adds a file."""
    from deltalake.transaction import AddAction

    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.first_ms is not None and file.last_ms is not None:
        stats["nullCount"] = {"timestamp": 0}
        stats["minValues"] = {"timestamp": iso_time(file.first_ms)}
        stats["maxValues"] = {"timestamp": iso_time(file.last_ms)}
    return AddAction(file.path, file.size, partition_values(file), now_ms(), data_change, json.dumps(stats))


def remove_action(file: WrittenOrArchivedFile) -> Any:
    """Return the action of Delta that removes a file that is replaced."""
    from deltalake.transaction import RemoveAction

    return RemoveAction(file.path, False, now_ms(), file.size, partition_values(file))


def partition_values(file: WrittenOrArchivedFile) -> dict[str, str | None]:
    """Return the values of the partition columns of a file."""
    return {"stream": file.stream or None, "date": None if file.date is None else str(file.date)}


def now_ms() -> int:
    """Return the current time in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def iso_time(ms: int) -> str:
    """Return a time in milliseconds as Delta's statistics have it."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds") + "Z"


def positions_text(positions: Positions) -> str:
    """Return positions as JSON, which a commit of the table stores."""
    return json.dumps({stream: str(positions[stream]) for stream in sorted(positions)})


def added_counts_json(files: Sequence[WrittenOrArchivedFile]) -> str:
    """Return how many files and entries a commit adds, as the text of the commit."""
    return json.dumps({"files": len(files), "entries": sum(file.rows for file in files)})


def sync_path(path: Path) -> None:
    """Sync a file, or a directory's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
