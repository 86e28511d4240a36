"""What is on the disk becomes the keyspace again.

    the log is on    its base and the files of records behind it, as the manifest lists them;
                     if there is none, the single file of Redis before 7.0, which is moved in;
                     if there is none, the snapshot: data is never left lying because a setting changed
    the log is off   the snapshot

A log that ends in the middle of a record or of a transaction is what a power cut leaves: the tail is cut off
and said in a note. Everything else that is wrong stops the recovery: to start without a part of the data
is a decision for a person. Files that are empty behind a cut tail do not matter: nothing came after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.manifest import Manifest, ManifestLine
from headrace.persistence.aof.names import LogFileNames
from headrace.persistence.aof.reader import ADVICE, Execute, LogReader, Replayed
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DataDirectory, DiskDirectory, Source
from headrace.persistence.rdb.reader import LoadedSnapshot, read_rdb
from headrace.plurals import plural

FIRST_DATABASE = [b"SELECT", b"0"]
SNAPSHOT_ADVICE = "`headrace check FILE` shows what can be read of it; put another copy in its place"

Progress = Callable[[str, int, int], None]  # file, bytes done, bytes in all


class Recovered(NamedTuple):
    """What was found and loaded."""

    manifest: Manifest | None  # None: there is no log yet
    source: str  # "log", "snapshot" or "nothing"
    files: list[str]  # what was read, in order, by their names for Files
    keys: int
    commands: int  # carried out from the log
    notes: list[str]  # what an operator should know, a sentence each


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
    progress: Progress | None = None,
    fix_tail: bool = True,
) -> Recovered:
    """Fill an empty keyspace from the disk; see the head. execute is as LogReader wants it.

    truncated_ok: a tail that was cut is no damage. fix_tail: it is also cut off in the file.
    Raises Damaged, which names file, place and next step, and HeadraceError for what cannot be read.
    """
    recovery = Recovery(files, keyspace, execute, now_ms, progress)
    with expiry_suspended(keyspace), errors_with_paths(files):
        manifest = None
        if appendonly:
            migrate_single_file(files, names, recovery.notes)
            manifest = Manifest.load(files, names)
        if manifest is not None:
            recovery.read_log(names, manifest, truncated_ok, fix_tail)
            source = "log"
        elif files.exists(dbfilename):
            recovery.read_snapshot(dbfilename)
            source = "snapshot"
        else:
            source = "nothing"
    keys = sum(len(database.values) for database in keyspace.databases)
    return Recovered(manifest, source, recovery.read, keys, recovery.commands, recovery.notes)


class Recovery:
    """One pass over the files, and what it found."""

    def __init__(
        self,
        files: DataDirectory,
        keyspace: Keyspace,
        execute: Execute,
        now_ms: int,
        progress: Progress | None = None,
    ) -> None:
        self.files = files
        self.keyspace = keyspace
        self.execute = execute
        self.now_ms = now_ms
        self.progress = progress
        self.read: list[str] = []
        self.commands = 0
        self.notes: list[str] = []
        self.loaded: LoadedSnapshot | None = None  # of the snapshot that the last file began with, or was
        self.reader: LogReader | None = None  # of the last file

    def read_snapshot(self, name: str, keep_expired: bool = False) -> LoadedSnapshot:
        """Load a snapshot, without the keys that have died since."""
        with contextlib.closing(self.files.source(name)) as source:
            loaded = self._snapshot(name, source, keep_expired)
        self.read.append(name)
        if loaded.expired:
            self.notes.append(f"{name}: {plural(loaded.expired, 'key')} had expired and were left out")
        return loaded

    def read_log(self, names: LogFileNames, manifest: Manifest, truncated_ok: bool, fix_tail: bool) -> None:
        """Load a base and the files behind it."""
        lines = manifest.read_lines()
        sizes = [self.files.size(names.path(line.file)) for line in lines]
        for at, line in enumerate(lines):
            name = names.path(line.file)
            done = self.read_file(name)
            if not done.cut:
                continue
            if any(sizes[at + 1 :]):
                what = f"it ends in the middle of a {done.cut}, and is not the last of the log"
                raise Damaged(done.valid, what, name, ADVICE)
            if not truncated_ok:
                what = f"it ends in the middle of a {done.cut}, and aof-load-truncated is no"
                raise Damaged(done.valid, what, name, ADVICE)
            self.notes.append(
                f"{name} ended in the middle of a {done.cut}, as after a crash: its last "
                f"{plural(done.size - done.valid, 'byte')}, from byte {done.valid} on, "
                f"{'were cut off' if fix_tail else 'do not count'}"
            )
            if fix_tail:
                self._cut(name, done.valid)

    def read_file(self, name: str) -> Replayed:
        """Load one file of a log: records, a snapshot, or a snapshot with records behind it."""
        self.loaded = None
        with contextlib.closing(self.files.source(name)) as source:
            self.execute(FIRST_DATABASE)
            self.reader = LogReader(source, name, self.execute, self._progress_of(name, source.size))
            done = self.reader.run(lambda head: self._snapshot(name, head, keep_expired=True).end)
        self.read.append(name)
        self.commands += done.commands
        if done.failed:
            self.notes.append(f"{name}: {describe_failures(done)}")
        return done

    def _snapshot(self, name: str, source: Source, keep_expired: bool) -> LoadedSnapshot:
        try:
            loaded = read_rdb(
                source,
                self.keyspace,
                now_ms=self.now_ms,
                keep_expired=keep_expired,
                progress=self._progress_of(name, source.size),
            )
        except Damaged as damage:
            raise Damaged(damage.offset, damage.what, name, damage.advice or SNAPSHOT_ADVICE) from None
        self.loaded = loaded
        return loaded

    def _progress_of(self, name: str, size: int) -> Callable[[int], None] | None:
        """Return the progress callback of one file, or None if there is none."""
        progress = self.progress
        if progress is None:
            return None
        return lambda done: progress(name, done, size)

    def _cut(self, name: str, size: int) -> None:
        with contextlib.closing(self.files.append(name)) as file:
            file.truncate(size)
            file.sync()


def migrate_single_file(files: DataDirectory, names: LogFileNames, notes: list[str]) -> None:
    """Make the single file that Redis wrote before 7.0 the base of a log, under its old name.

    The manifest stands first: were the file moved first, a crash in between would leave it where no
    recovery finds it. So a manifest may name a file that has yet to be moved.
    """
    old, new = names.single_file, names.path(names.single_file)
    if not files.exists(old) or files.exists(new):
        return
    manifest = Manifest(base=ManifestLine(names.single_file, 1))
    if not files.exists(names.manifest):
        Manifest.load(files, names)  # a log without its manifest is damage, and not to be hidden by a new one
        files.make_directory(names.directory)
        files.sync_directory("")
        manifest.store(files, names)
    else:
        with contextlib.closing(files.source(names.manifest)) as source:
            if Manifest.parse(source.read(source.size), names.manifest) != manifest:
                notes.append(f"{old} is not read: the log is in {names.directory}")
                return
    try:
        files.rename(old, new)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise HeadraceError(f"{old} cannot be moved to {new} ({why}): move it there by hand") from error
    files.sync_directory(names.directory)
    files.sync_directory("")
    notes.append(f"{old}, a log in the layout of Redis before 7.0, was moved into {names.directory}")


@contextlib.contextmanager
def expiry_suspended(keyspace: Keyspace) -> Iterator[None]:
    """While data is loaded no key dies of age: the log itself says which ones did."""
    before = keyspace.keep_expired
    keyspace.keep_expired = True
    try:
        yield
    finally:
        keyspace.keep_expired = before


@contextlib.contextmanager
def errors_with_paths(files: DataDirectory) -> Iterator[None]:
    """What is raised inside names the file as the machine knows it, and is a HeadraceError."""
    try:
        yield
    except Damaged as damage:
        if damage.file and isinstance(files, DiskDirectory):
            damage.file = files.path(damage.file)
        damage.advice = damage.advice.replace("FILE", damage.file)
        raise
    except OSError as error:
        where = error.filename or "the data directory"
        raise HeadraceError(f"{where}: {(error.strerror or str(error)).lower()}") from error


def describe_failures(done: Replayed) -> str:
    """Of the commands that were refused when they were carried out again."""
    return (
        f"{plural(done.failed, 'command')} failed when replayed, the first at byte {done.first_failed}: "
        + done.first_error.decode(errors="replace")
    )
