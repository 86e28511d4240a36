"""Recovery: load the keyspace from the disk.

    appendonly yes   the log: its base and incremental files, as the manifest lists them;
                     without a log, the single file of Redis before 7.0, which is moved into the log;
                     without that file, the snapshot: a changed setting never hides data
    appendonly no    the snapshot

A power cut can leave a log that ends in the middle of a record or a transaction. That tail is cut off, and
a note reports it. Any other damage stops the recovery: an operator must decide to start without some of
the data. Empty files after a truncated file do not count: nothing was written after the tail.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from headrace.errors import HeadraceError, os_error_text
from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.manifest import Manifest, ManifestLine
from headrace.persistence.aof.reader import ADVICE, Execute, LogReader, ReplayResult
from headrace.persistence.damage import Damaged, ForeignDataError
from headrace.persistence.data_directory import DataDirectory, DiskDirectory, Source
from headrace.persistence.rdb.reader import LoadedSnapshot, read_rdb
from headrace.plurals import plural

SELECT_FIRST_DATABASE = [b"SELECT", b"0"]
FOREIGN_ADVICE = "set `load-skip-foreign-types yes` to start without what has other types"
SNAPSHOT_ADVICE = "`headrace check FILE` shows what can be read of it; restore another copy"

ProgressCallback = Callable[[str, int, int], None]  # file, bytes read, size in bytes


class RecoveryResult(NamedTuple):
    """The result of a recovery."""

    manifest: Manifest | None  # None: there is no log yet
    source_kind: str  # "log", "snapshot" or "nothing"
    files: list[str]  # those read, in order, relative to the data directory
    key_count: int
    command_count: int  # replayed from the log
    notes: list[str]  # sentences for the operator: warnings
    ignored_snapshot: str  # a snapshot beside the log, which is not read; empty if there is none
    aux: dict[bytes, bytes]  # the auxiliary fields of a snapshot that is the only source
    last_comment: bytes  # the comment at the end of a log; empty if there is none


def recover(
    files: DataDirectory,
    names: LogFileNames,
    keyspace: Keyspace,
    execute: Execute,
    *,
    appendonly: bool,
    dbfilename: str,
    truncated_ok: bool,
    now_ms: int,
    progress: ProgressCallback | None = None,
    fix_tail: bool = True,
    skip_foreign_types: bool = False,
    foreign_advice: str = FOREIGN_ADVICE,
    verify_checksums: bool = True,
) -> RecoveryResult:
    """Fill an empty keyspace from the disk, as the top of this file describes.

    Args:
        execute: runs a command, see LogReader.
        truncated_ok: accept a log that ends in the middle of a record or transaction.
        fix_tail: also truncate the file where that record or transaction begins.
        skip_foreign_types: leave out keys of types that Headrace does not hold; a note counts them. `execute`
            must skip commands for them, see SkippingReplayer.
        foreign_advice: the advice in the error about such types: what to set or do.
        verify_checksums: compare the records of a log with their checksums.

    Raises:
        Damaged: if a file is damaged. The error has the file, the offset and what to do.
        ForeignDataError: if there are such types, and they are not skipped.
        HeadraceError: if a file cannot be read.
    """
    recovery = Recovery(files, keyspace, execute, now_ms, progress)
    recovery.verify_checksums = verify_checksums
    recovery.skip_foreign_types, recovery.foreign_advice = skip_foreign_types, foreign_advice
    ignored = ""
    with expiry_suspended(keyspace), errors_with_paths(files):
        manifest = None
        if appendonly:
            migrate_single_file(files, names, recovery.notes)
            manifest = Manifest.load(files, names)
        if manifest is not None:
            recovery.read_log(names, manifest, truncated_ok, fix_tail)
            source = "log"
            ignored = dbfilename if files.exists(dbfilename) else ""
        elif files.exists(dbfilename):
            recovery.read_snapshot(dbfilename)
            source = "snapshot"
        else:
            source = "nothing"
    keys = sum(len(database.values) for database in keyspace.databases)
    aux = (
        recovery.loaded_snapshot.aux if source == "snapshot" and recovery.loaded_snapshot is not None else {}
    )
    if recovery.foreign_counts:
        left_out = describe_skipped_counts(recovery.foreign_counts)
        recovery.notes.append(f"left out {left_out}: the next snapshot and rewrite do not contain them")
    if keyspace.cold_storage is not None and keyspace.cold_storage.left_out_removal_count:
        recovery.notes.append(describe_left_out_removals(keyspace.cold_storage))
    return RecoveryResult(
        manifest,
        source,
        recovery.files_read,
        keys,
        recovery.command_count,
        recovery.notes,
        ignored,
        aux,
        recovery.last_comment,
    )


class Recovery:
    """Reads snapshots and log files into a keyspace, and records what it found."""

    def __init__(
        self,
        files: DataDirectory,
        keyspace: Keyspace,
        execute: Execute,
        now_ms: int,
        progress: ProgressCallback | None = None,
    ) -> None:
        self.files = files
        self.keyspace = keyspace
        self.execute = execute
        self.now_ms = now_ms
        self.progress = progress
        self.files_read: list[str] = []
        self.command_count = 0
        self.notes: list[str] = []
        self.verify_checksums = True
        self.skip_foreign_types = False
        self.foreign_advice = FOREIGN_ADVICE
        self.foreign_counts: Counter[str] = Counter()  # what was skipped in snapshots, by its kind
        self.last_comment = b""  # the comment at the end of the last file of a log that is not empty
        self.loaded_snapshot: LoadedSnapshot | None = None  # the snapshot in the last file
        self.reader: LogReader | None = None  # of the last log file

    def read_snapshot(self, name: str, keep_expired: bool = False) -> LoadedSnapshot:
        """Load a snapshot, without expired keys unless keep_expired.

        Raises Damaged, ForeignDataError, OSError.
        """
        with contextlib.closing(self.files.open_source(name)) as source:
            loaded = self._load_snapshot(name, source, keep_expired)
        self.files_read.append(name)
        if loaded.expired_count:
            self.notes.append(f"{name}: {plural(loaded.expired_count, 'key')} had expired and were left out")
        return loaded

    def read_log(self, names: LogFileNames, manifest: Manifest, truncated_ok: bool, fix_tail: bool) -> None:
        """Load all files of a log: base, then incremental files. Raises Damaged, ForeignDataError, OSError.

        Args:
            truncated_ok: accept a log that ends in the middle of a record or transaction.
            fix_tail: also truncate the file where that record or transaction begins.
        """
        lines = manifest.lines_to_load()
        sizes = [self.files.size(names.path(line.file)) for line in lines]
        for at, line in enumerate(lines):
            name = names.path(line.file)
            done = self.read_log_file(name)
            if not done.cut_within:
                continue
            if any(sizes[at + 1 :]):
                what = f"it ends in the middle of a {done.cut_within}, and is not the last file of the log"
                raise Damaged(done.valid_end, what, name, ADVICE)
            if not truncated_ok:
                what = f"it ends in the middle of a {done.cut_within}, and aof-load-truncated is no"
                raise Damaged(done.valid_end, what, name, ADVICE)
            self.notes.append(
                f"{name} ended in the middle of a {done.cut_within}, as after a crash: its last "
                f"{plural(done.size - done.valid_end, 'byte')}, from byte {done.valid_end} on, "
                f"{'were cut off' if fix_tail else 'do not count'}"
            )
            if fix_tail:
                self._cut(name, done.valid_end)

    def read_log_file(self, name: str) -> ReplayResult:
        """Load one file of a log: records, a snapshot, or a snapshot followed by records."""
        self.loaded_snapshot = None
        with contextlib.closing(self.files.open_source(name)) as source:
            self.execute(SELECT_FIRST_DATABASE)
            progress = self._progress_of(name, source.size)
            self.reader = LogReader(source, name, self.execute, progress, self.verify_checksums)
            try:
                done = self.reader.run(
                    lambda head: self._load_snapshot(name, head, keep_expired=True).end_offset
                )
            except ForeignDataError as foreign:
                foreign.advice = foreign.advice or self.foreign_advice
                raise
        self.files_read.append(name)
        self.command_count += done.command_count
        if done.size > 0:
            self.last_comment = done.last_comment
        if done.failed_command_count:
            self.notes.append(f"{name}: {describe_failures(done)}")
        return done

    def _load_snapshot(self, name: str, source: Source, keep_expired: bool) -> LoadedSnapshot:
        try:
            loaded = read_rdb(
                source,
                self.keyspace,
                now_ms=self.now_ms,
                keep_expired=keep_expired,
                progress=self._progress_of(name, source.size),
                skip_foreign_types=self.skip_foreign_types,
                foreign_advice=self.foreign_advice,
            )
        except ForeignDataError as foreign:
            foreign.file = name
            raise
        except Damaged as damage:
            if damage.file:  # a cold file to which the base refers
                raise
            raise Damaged(damage.offset, damage.what, name, damage.advice or SNAPSHOT_ADVICE) from None
        self.loaded_snapshot = loaded
        self.foreign_counts.update({f"{kind} key": n for kind, n in loaded.skipped_key_counts.items()})
        if loaded.module_data_count:
            self.foreign_counts["module data record"] += loaded.module_data_count
        return loaded

    def _progress_of(self, name: str, size: int) -> Callable[[int], None] | None:
        """Return a callback that limits memory use and reports progress; None if neither is needed."""
        progress, cold = self.progress, self.keyspace.cold_storage
        if progress is None and cold is None:
            return None

        def report(done: int) -> None:
            if cold is not None:
                cold.cool_all_to_limit()
            if progress is not None:
                progress(name, done, size)

        return report

    def _cut(self, name: str, size: int) -> None:
        with contextlib.closing(self.files.open_append(name)) as file:
            file.truncate(size)
            file.sync()


def migrate_single_file(files: DataDirectory, names: LogFileNames, notes: list[str]) -> None:
    """Make the single file that Redis wrote before 7.0 the base of a log, under its old name.

    The manifest is written before the file is moved. In the other order, a crash in between would leave the
    file where no recovery looks for it. So a manifest may name a file that is not moved yet.

    Args:
        notes: a note is added if the file was moved, or is not read because there is another log.

    Raises:
        Damaged: if there is a log whose manifest is missing or damaged.
        HeadraceError: if the file cannot be moved.
        OSError: if the directory fails otherwise.
    """
    old, new = names.single_file, names.path(names.single_file)
    if not files.exists(old) or files.exists(new):
        return
    manifest = Manifest(base=ManifestLine(names.single_file, 1))
    if not files.exists(names.manifest):
        Manifest.load(files, names)  # raises Damaged if a log lost its manifest
        files.make_directory(names.directory)
        files.sync_directory("")
        manifest.store(files, names)
    else:
        with contextlib.closing(files.open_source(names.manifest)) as source:
            if Manifest.parse(source.read(source.size), names.manifest) != manifest:
                notes.append(f"{old} is not read: the log is in {names.directory}")
                return
    try:
        files.rename(old, new)
    except OSError as error:
        why = os_error_text(error)
        raise HeadraceError(f"{old} cannot be moved to {new} ({why}): move it there by hand") from error
    files.sync_directory(names.directory)
    files.sync_directory("")
    notes.append(f"{old}, a log in the layout of Redis before 7.0, was moved into {names.directory}")


@contextlib.contextmanager
def expiry_suspended(keyspace: Keyspace) -> Iterator[None]:
    """Suspend expiry while data is loaded: the log itself contains the deletions of expired keys."""
    before = keyspace.ignore_expiry
    keyspace.ignore_expiry = True
    try:
        yield
    finally:
        keyspace.ignore_expiry = before


@contextlib.contextmanager
def errors_with_paths(files: DataDirectory) -> Iterator[None]:
    """Put full paths into Damaged errors, and turn OSError into HeadraceError."""
    try:
        yield
    except Damaged as damage:
        if damage.file and isinstance(files, DiskDirectory):
            damage.file = files.path(damage.file)
        damage.advice = damage.advice.replace("FILE", damage.file)
        raise
    except OSError as error:
        where = error.filename or "the data directory"
        raise HeadraceError(f"{where}: {os_error_text(error)}") from error


def describe_failures(done: ReplayResult) -> str:
    """Describe the commands that returned errors when they were replayed."""
    return (
        f"{plural(done.failed_command_count, 'command')} failed when replayed, the first at byte "
        f"{done.first_failed_offset}: " + done.first_error.decode(errors="replace")
    )


def describe_left_out_removals(cold: ColdStorage) -> str:
    """Describe the removals of a log that needed a cold run that cannot be read."""
    return (
        f"{plural(cold.left_out_removal_count, 'removal')} of the log could not be done: their entries are in"
        f" the streams again ({cold.left_out_removal_reason}). Start again when they can be read; until then"
        " the log is not rewritten"
    )


def describe_skipped_counts(counts: Mapping[str, int]) -> str:
    """Describe what was skipped because of its type, highest count first: `2 list keys, 1 LPUSH command`."""
    return ", ".join(plural(n, what) for what, n in sorted(counts.items(), key=lambda pair: -pair[1]))


def labelled_command_counts(skipped: Mapping[str, int]) -> dict[str, int]:
    """Return counts of skipped commands for describe_skipped_counts(): with " command" after each name."""
    return {f"{name} command": n for name, n in skipped.items()}


def skipped_command_notes(skipped: Mapping[str, int]) -> list[str]:
    """Return the note about commands of a log that were skipped; an empty list if none were."""
    if not skipped:
        return []
    counts = describe_skipped_counts(labelled_command_counts(skipped))
    return [f"left out {counts} in the log: the next rewrite does not contain them"]
