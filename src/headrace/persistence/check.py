"""Offline check of snapshots and logs: a report of what they contain and where they are damaged.

A file is read as a starting server reads it, into a keyspace that is discarded. An incomplete last record
counts as damage here, although a server would cut it off: the report is about the file.
What belongs to types that Headrace does not hold is skipped and counted. It is not damage.
fix() truncates a damaged log at the damage, after it has made a copy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.errors import HeadraceError, UsageError
from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Database, Keyspace
from headrace.persistence.aof.file_names import MANIFEST_SUFFIX, TEMPORARY_PREFIX, LogFileNames
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.aof.reader import SNAPSHOT_HEADS, Execute
from headrace.persistence.cold.cold_check import check_cold_files
from headrace.persistence.cold.cold_file import SUFFIX
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.cold.object_store import ObjectStore
from headrace.persistence.cold.uploaded_files import UploadedFiles
from headrace.persistence.damage import Damaged, ForeignDataError
from headrace.persistence.data_directory import LOCK_NAME, DiskDirectory
from headrace.persistence.recovery import (
    Recovery,
    describe_failures,
    describe_left_out_removals,
    expiry_suspended,
    labelled_command_counts,
)
from headrace.plurals import plural
from headrace.streams.stream import Stream

SNAPSHOT_NAME = "dump.rdb"
COPY_SUFFIX = ".before-fix"

SNAPSHOT_OBSTACLE = (
    "a snapshot cannot be truncated. Restore an older snapshot or the log, or copy the data from another"
    " server"
)
NOT_LAST_OBSTACLE = (
    "it is not the last file of the log, and the files after it depend on it. Restore a copy of it"
)
NO_LOG_OBSTACLE = "it is not a log and not a snapshot, or nothing of it is left"
COLD_FILE_OBSTACLE = (
    "a cold file cannot be repaired: restore a copy of it. Nothing else is lost, and a server starts with it;"
    " reads of the entries in it fail"
)
COLD_MISSING_OBSTACLE = "a server does not start without it: restore a copy of it"
MANIFEST_OBSTACLE = "correct it with an editor: it is a text of a few lines"
MISSING_FILE_OBSTACLE = "a server does not start without the missing file: restore a copy of it"

# Returns an empty keyspace, a function that executes commands on it, and the commands that it has skipped,
# because they are for other types: how many, by name.
EngineFactory = Callable[[], tuple[Keyspace, Execute, dict[str, int]]]


@dataclass
class DatabaseCounts:
    """How many keys, streams and entries one database has."""

    keys: int = 0
    expiring: int = 0
    strings: int = 0
    streams: int = 0
    entries: int = 0
    groups: int = 0
    consumers: int = 0
    pending: int = 0


@dataclass
class FileReport:
    """One file. size is in bytes; version and aux are those of the snapshot in it, if there is one."""

    path: str
    size: int
    version: str = ""
    aux: dict[bytes, bytes] = field(default_factory=dict)
    record_count: int = 0
    state: str = "not read"  # then "good", "cut", "damaged", or "foreign" if the rest cannot be skipped


@dataclass
class CheckReport:
    """The result of a check.

    valid_bytes is the number of good bytes of the damaged file; obstacle says why it cannot be fixed, ""
    if it can.
    foreign_counts counts what Headrace does not hold; unreadable_data is where such data ended the check.
    unread_count is the number of cold files in an object store whose URL was not given.
    """

    path: str
    kind: str  # "snapshot" or "log"
    files: list[FileReport] = field(default_factory=list)
    databases: dict[int, DatabaseCounts] = field(default_factory=dict)
    command_counts: Counter[str] = field(default_factory=Counter)  # records by command name
    notes: list[str] = field(default_factory=list)
    foreign_counts: Counter[str] = field(default_factory=Counter)
    unreadable_data: ForeignDataError | None = None
    damage: Damaged | None = None
    unread_count: int = 0
    valid_bytes: int = 0
    obstacle: str = ""

    @property
    def fixable(self) -> bool:
        """Whether fix() can repair the damage."""
        return self.damage is not None and not self.obstacle

    @property
    def damaged_file(self) -> FileReport:
        """The file with the damage."""
        assert self.damage is not None
        return next(file for file in self.files if file.path == self.damage.file)


def check_file(path: str, new_engine: EngineFactory, now_ms: int, cold_store: str = "") -> CheckReport:
    """Check a snapshot, a log file, a manifest, or a directory with a log. Raises OSError, UsageError.

    cold_store: the URL of the object store with cold files of the log; "": those are not read.
    """
    if os.path.isdir(path):
        path = log_or_snapshot_in(path)
    if path.endswith(MANIFEST_SUFFIX):
        return _check_log_directory(path, new_engine, now_ms, cold_store)
    directory, name = os.path.split(path)
    files = DiskDirectory(directory)
    report = CheckReport(path, "log", [FileReport(path, os.path.getsize(path))])
    with contextlib.closing(files.open_source(name)) as source:
        head = source.read(max(map(len, SNAPSHOT_HEADS)))
    if name.endswith(".rdb") or (head.startswith(SNAPSHOT_HEADS) and not name.endswith(".aof")):
        report.kind = "snapshot"
        check = Checker(report, files, new_engine, now_ms)
        if check.read_snapshot(name):
            return check.finish()
        report.kind = "log"  # records follow the snapshot
    check = Checker(report, files, new_engine, now_ms)
    check.read_log_files([name])
    return check.finish()


def has_log_or_snapshot(directory: str) -> bool:
    """Return whether there is a log or a snapshot in a directory. Raises OSError."""
    return bool(_manifests_in(directory)) or os.path.exists(os.path.join(directory, SNAPSHOT_NAME))


def _manifests_in(directory: str) -> list[str]:
    """Return the manifests of the logs in a directory: the directory of a log, or a data directory."""
    found: list[str] = []
    for place in [directory, *(entry.path for entry in os.scandir(directory) if entry.is_dir())]:
        names = sorted(name for name in os.listdir(place) if name.endswith(MANIFEST_SUFFIX))
        found += [os.path.join(place, name) for name in names if not name.startswith(TEMPORARY_PREFIX)]
        if found and place == directory:
            break
    return found


def log_or_snapshot_in(directory: str) -> str:
    """Return the path of the log's manifest in a directory; without a log, the path of the snapshot.

    Raises:
        UsageError: if there is neither, or more than one log.
    """
    found = _manifests_in(directory)
    if len(found) == 1:
        return found[0]
    snapshot = os.path.join(directory, SNAPSHOT_NAME)
    if not found and os.path.exists(snapshot):
        return snapshot
    if not found:
        raise UsageError(f"{directory}: there is no manifest of a log; name a file instead")
    raise UsageError(f"{directory}: more than one log; name one of {', '.join(found)}")


def _check_log_directory(path: str, new_engine: EngineFactory, now_ms: int, cold_store: str) -> CheckReport:
    """Check all files that a manifest names."""
    directory, name = os.path.split(os.path.abspath(path))
    above, below = os.path.split(directory)
    names = LogFileNames(below, name.removesuffix(MANIFEST_SUFFIX))
    report = CheckReport(path, "log")
    try:
        manifest = Manifest.load(DiskDirectory(above), names)
    except Damaged as damage:
        damage.file = path
        report.files.append(FileReport(path, os.path.getsize(path), state="damaged"))
        report.damage = damage
        report.obstacle = MISSING_FILE_OBSTACLE if damage.advice else MANIFEST_OBSTACLE
        return report
    if manifest is None:
        raise UsageError(f"{path}: no such file")
    beside = os.path.dirname(path)
    wanted = [line.file for line in manifest.lines_to_load()]
    for file in wanted:
        there = os.path.join(beside, file)
        report.files.append(FileReport(there, os.path.getsize(there)))
    if manifest.history:
        report.notes.append(f"{plural(len(manifest.history), 'file')} of history, which servers do not read")
    if os.path.exists(os.path.join(above, SNAPSHOT_NAME)):
        why = "a server with `appendonly yes` reads the log only"
        report.notes.append(f"{SNAPSHOT_NAME} beside it is not read: {why}")
    check = Checker(report, DiskDirectory(beside), new_engine, now_ms)
    check.open_cold_files(DiskDirectory(above), names, cold_store)
    check.read_log_files(wanted)
    check.check_cold_files(DiskDirectory(above), names, manifest)
    return check.finish()


class Checker:
    """Reads the files of one check, up to the first damage."""

    def __init__(
        self, report: CheckReport, files: DiskDirectory, new_engine: EngineFactory, now_ms: int
    ) -> None:
        self.report = report
        self.now_ms = now_ms
        self.uploaded_files: UploadedFiles | None = None
        self.keyspace, self.play, self.skipped = new_engine()
        self.recovery = Recovery(files, self.keyspace, self._count_and_execute, now_ms)
        self.recovery.skip_foreign_types, self.recovery.foreign_advice = True, ""

    def _count_and_execute(self, words: list[bytes]) -> bytes | None:
        self.report.command_counts[words[0].decode(errors="backslashreplace").upper()] += 1
        return self.play(words)

    def read_snapshot(self, name: str) -> bool:
        """Read the only file of the check as a snapshot; return False if records follow: then it is a log."""
        file = self.report.files[0]
        try:
            with expiry_suspended(self.keyspace):
                loaded = self.recovery.read_snapshot(name, keep_expired=True)
        except ForeignDataError as foreign:
            self._record_foreign(file, foreign)
            return True
        except Damaged as damage:
            self._record_damage(file, damage, SNAPSHOT_OBSTACLE)
            return True
        file.version, file.aux, file.state = loaded.version, loaded.aux, "good"
        rest = file.size - loaded.end_offset
        if rest:
            with open(file.path, "rb") as source:
                source.seek(loaded.end_offset)
                if source.read(1) in (b"*", b"#"):
                    return False
            self.report.notes.append(f"{plural(rest, 'byte')} after its end are ignored")
        return True

    def read_log_files(self, names: list[str]) -> None:
        """Read the files of a log in order, up to the first damage."""
        files = self.report.files
        for at, name in enumerate(names):
            alone = not any(later.size for later in files[at + 1 :])
            if not self._log_file(name, files[at], "" if alone else NOT_LAST_OBSTACLE):
                return

    def open_cold_files(self, files: DiskDirectory, names: LogFileNames, cold_store: str) -> None:
        """Let the base of the log refer to the cold files in its directory and in an object store."""
        cold = ColdFiles(files, names.cold_directory)
        store = ObjectStore(cold_store) if cold_store else None
        self.uploaded_files = cold.uploaded_files = UploadedFiles(
            files, names.cold_directory, store, is_read_only=True
        )
        self.uploaded_files.load_records()
        self.keyspace.cold_storage = ColdStorage(self.keyspace, ColdStore(cold))

    def check_cold_files(self, files: DiskDirectory, names: LogFileNames, manifest: Manifest) -> None:
        """Read all cold files of the log, and find files beside them that the manifest does not name."""
        loaded = self.keyspace if self.report.damage is None else None
        cold_names = sorted(manifest.cold_names())
        found = check_cold_files(files, names.cold_directory, cold_names, loaded, self.uploaded_files)
        self.report.notes += found.notes()
        self.report.unread_count = len(found.unread_file_names)
        for damage in found.damage:
            if "://" not in damage.file:  # it is not in the object store
                damage.file = files.path(damage.file)
            if self.report.damage is None:
                self.report.damage, self.report.obstacle = damage, COLD_FILE_OBSTACLE
                self.report.files.append(
                    FileReport(damage.file, _size_if_there(damage.file), state="damaged")
                )
            elif damage is not self.report.damage:
                self.report.notes.append(str(damage))

    def _log_file(self, name: str, file: FileReport, obstacle: str) -> bool:
        """Read one file of a log; return whether it is good."""
        recovery = self.recovery
        recovery.reader = None
        self.report.command_counts["SELECT"] -= 1  # the recovery's own SELECT 0 is not in the file
        damage: Damaged | None = None
        try:
            with expiry_suspended(self.keyspace):
                recovery.read_log_file(name)
        except ForeignDataError as foreign:
            self._record_foreign(file, foreign)
            return False
        except Damaged as caught:
            damage = caught
        assert recovery.reader is not None
        done = recovery.reader.result()
        file.record_count, file.state = done.record_count, "good"
        if recovery.loaded_snapshot is not None:
            file.version, file.aux = recovery.loaded_snapshot.version, recovery.loaded_snapshot.aux
        self.report.valid_bytes = done.valid_end
        if damage is not None:
            if done.record_count == 0 and recovery.loaded_snapshot is None:
                obstacle = obstacle or (
                    SNAPSHOT_OBSTACLE if file.size and _is_snapshot(file.path) else NO_LOG_OBSTACLE
                )
            if done.failed_command_count:
                self.report.notes.append(describe_failures(done))
            self._record_damage(file, damage, obstacle)
        elif done.cut_within:
            rest = plural(done.size - done.valid_end, "byte")
            what = f"it ends in the middle of a {done.cut_within}; {rest} are incomplete"
            self._record_damage(file, Damaged(done.valid_end, what), obstacle)
            file.state = "cut"
        return file.state == "good"

    def _record_damage(self, file: FileReport, damage: Damaged, obstacle: str) -> None:
        file.state = "damaged"
        self.report.damage = Damaged(damage.offset, damage.what, file.path)
        self.report.obstacle = obstacle
        if damage.file.endswith(SUFFIX):  # a cold file that the base needs is missing or too short
            self.report.damage = Damaged(damage.offset, damage.what, damage.file)
            self.report.obstacle = COLD_MISSING_OBSTACLE

    def _record_foreign(self, file: FileReport, foreign: ForeignDataError) -> None:
        file.state = "foreign"
        self.report.unreadable_data = ForeignDataError(foreign.offset, foreign.what, file.path)

    def finish(self) -> CheckReport:
        """Add the counts of the keyspace to the report, and return it."""
        self.report.foreign_counts = self.recovery.foreign_counts + Counter(
            labelled_command_counts(self.skipped)
        )
        self.report.notes += self.recovery.notes
        cold = self.recovery.keyspace.cold_storage
        if cold is not None and cold.left_out_removal_count:
            self.report.notes.append(describe_left_out_removals(cold))
        self.report.command_counts = +self.report.command_counts  # drops counts of 0
        for database in self.keyspace.databases:
            if database.values:
                self.report.databases[database.index] = count_database(database)
        return self.report


def _size_if_there(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _is_snapshot(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(max(map(len, SNAPSHOT_HEADS))).startswith(SNAPSHOT_HEADS)


def count_database(database: Database) -> DatabaseCounts:
    """Count the keys, streams and entries of one database, including expired keys."""
    found = DatabaseCounts(keys=len(database.values))
    for key, value in database.values.items():
        found.expiring += database.expiry(key) >= 0
        if not isinstance(value, Stream):
            found.strings += 1
            continue
        found.streams += 1
        found.entries += value.length
        for group in value.groups():
            found.groups += 1
            found.consumers += group.consumer_count()
            found.pending += group.pending.count
    return found


def fix(report: CheckReport) -> str:
    """Truncate the damaged file where the damage begins; return the path of the copy that was made before.

    Raises:
        HeadraceError: if a server has locked the directory, the file has changed since the check, or a copy
            exists already.
        OSError: if the file cannot be copied or truncated.
    """
    assert report.fixable
    file = report.damaged_file
    copy = file.path + COPY_SUFFIX
    with contextlib.ExitStack() as stack:
        for directory in {
            os.path.dirname(file.path),
            os.path.dirname(os.path.dirname(os.path.abspath(file.path))),
        }:
            if os.path.exists(os.path.join(directory, LOCK_NAME)):
                files = DiskDirectory(directory or ".", "headrace check")
                files.lock()
                stack.callback(files.unlock)
        if os.path.getsize(file.path) != file.size:
            raise HeadraceError(f"{file.path} changed while it was read: stop the server that writes it")
        if os.path.exists(copy):
            raise UsageError(f"{copy} exists from an earlier fix; move it away first")
        _copy(file.path, copy)
        with open(file.path, "r+b") as damaged:
            damaged.truncate(report.valid_bytes)
            os.fsync(damaged.fileno())
    return copy


def _copy(path: str, copy: str) -> None:
    """Make a durable copy. After an OSError no part of it is left."""
    try:
        shutil.copy2(path, copy)
        with open(copy, "rb") as kept:
            os.fsync(kept.fileno())
        DiskDirectory(os.path.dirname(os.path.abspath(copy))).sync_directory("")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(copy)
        raise
