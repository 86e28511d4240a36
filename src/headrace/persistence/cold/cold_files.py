"""The cold files of a data directory: write runs, read them, remove files that nothing refers to.

    RunPlace ──▶ ColdFile ◀─ ─ ─ ─ ColdFiles         weakly: a run in memory keeps its file, nothing else does
    (of a run    (a file   ◀────── the file to which runs are appended
     in memory)   on disk)         the names that durable manifests need

A run is durable when write() returns it. A file is only appended to, and never after an error: the next
write begins another one. A number is not used again while this object lives.

With an object store a file may be there as well, or only there: uploaded_files.py.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from headrace.errors import DamagedColdRun, os_error_text
from headrace.persistence.cold import cold_file, cold_owner
from headrace.persistence.cold.codec import CODECS, Codec, MissingCodec
from headrace.persistence.cold.cold_file import DamagedBytes, PackedRun, Run
from headrace.persistence.cold.cold_file_check import ColdFileReport, check_cold_file
from headrace.persistence.cold.cold_file_writer import ColdFileWriter
from headrace.persistence.cold.object_store import StoreError
from headrace.persistence.cold.open_files import COPY_SUFFIX, KeptFile, OpenFiles
from headrace.persistence.cold.run_place import RunPlace
from headrace.persistence.cold.uploaded_files import (
    GIVE_URL_ADVICE,
    RECORD_SUFFIX,
    StoredFile,
    UploadedFiles,
    number_in_name,
)
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import (
    DataDirectory,
    DirectoryGone,
    DiskDirectory,
    FileIdentity,
    make_directories,
)

OPEN_FILES_MAX = 64
T = TypeVar("T")


class ColdFile:
    """A cold file that something refers to. Sizes are in bytes."""

    __slots__ = (
        "__weakref__",
        "in_store",
        "is_local",
        "last_read_s",
        "live_bytes",
        "logged_from_offset",
        "name",
        "path",
        "released_sizes",
        "run_bytes",
        "size",
        "unreadable_offsets",
    )

    def __init__(self, name: str, path: str) -> None:
        self.name = name  # in its directory
        self.path = path  # relative to the data directory
        self.size = 0
        self.run_bytes = 0  # of all its runs
        self.live_bytes = 0  # of all places that were made, so a run with two places counts twice
        self.released_sizes: list[int] = []  # the sizes of those that were dropped, in any thread
        self.is_local = True  # it is in the data directory, as far as is known
        self.in_store = False  # the object store has confirmed that it has it
        self.last_read_s = 0.0  # when a run was read last, by time.monotonic()
        self.unreadable_offsets: set[int] = set()  # the offsets of runs whose last read failed
        self.logged_from_offset = 0  # the entries of runs from this offset on are also in the log

    @property
    def dead_bytes(self) -> int:
        """The bytes of the runs that nothing refers to; fewer if a run has had several places."""
        return max(0, self.run_bytes - self.live_bytes + sum(self.released_sizes))


class ColdTotals(NamedTuple):
    """The cold files on disk: their number, and bytes. Dead bytes are of runs that nothing refers to."""

    file_count: int
    bytes: int
    dead_bytes: int


class KnownIdentity(NamedTuple):
    """A file as it was when it was opened or written. The file at the path must have `size` bytes or more."""

    path: str
    identity: FileIdentity
    size: int


class _KnownFile:
    """A file that this object may remove. size is what it takes on disk, as far as is known."""

    __slots__ = ("identity", "reference", "size")

    def __init__(self) -> None:
        self.reference: weakref.ref[ColdFile] | None = None
        self.size = 0
        self.identity: FileIdentity | None = None

    def file(self) -> ColdFile | None:
        return self.reference() if self.reference is not None else None


class ColdFiles:
    """The cold files in one directory. All methods may be called by several threads."""

    def __init__(
        self,
        files: DataDirectory,
        directory: str,
        *,
        codec: Codec | None = None,
        file_bytes_max: int = cold_file.FILE_BYTES_MAX,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        """Make no file and read none yet.

        Args:
            directory: relative to the data directory. It and those above are created with the first run.
            codec: for new runs; None: CODECS.preferred().
        """
        self.files = files
        self.directory = directory
        self.file_bytes_max = file_bytes_max
        self._codec = codec
        self._open_files = OpenFiles(files, open_files_max)
        self._write_lock = threading.Lock()  # acquired before _lock
        self._lock = threading.Lock()
        self._known: dict[str, _KnownFile] = {}  # by name
        self._needed: frozenset[str] = frozenset()
        self._removing: set[str] = set()  # names of files that nothing needed, until they are removed
        self._last_number = 0
        self._directory_is_durable = False
        self._directory_lock: DiskDirectory | None = None
        self._owner = ""  # the identity of the log whose manifest names the files; "": none has named any
        self._writer: ColdFileWriter | None = None
        self._current: ColdFile | None = None
        self.uploaded_files: UploadedFiles | None = None  # None: there is no object store
        self.on_sealed: Callable[[str], object] | None = None  # nothing is appended to this file any more

    def path(self, name: str) -> str:
        """Return the path of a cold file, relative to the data directory."""
        return f"{self.directory}/{name}"

    # ---- the directory

    def lock_directory(self) -> None:
        """Lock the directory if it exists: two data directories may share it through a symbolic link.

        Does nothing if this object has locked it. Raises DirectoryInUse, OSError.
        """
        if not isinstance(self.files, DiskDirectory) or not self.files.exists(self.directory):
            return
        if self._directory_lock is not None:
            try:
                self._directory_lock.check_lock()
            except DirectoryGone:
                self.unlock_directory()
            else:
                return
        lock = DiskDirectory(self.files.path(self.directory), self.files.holder)
        lock.lock()
        self._directory_lock = lock

    def unlock_directory(self) -> None:
        """Release the lock of the directory."""
        lock, self._directory_lock = self._directory_lock, None
        if lock is not None:
            lock.unlock()

    def set_owner(self, owner: str) -> None:
        """Record, durably, the identity of the log whose manifest names the files.

        An OSError is logged; the next call tries again.
        """
        self._owner = owner
        try:
            exists = self.files.exists(self.directory)  # else it is written with the first run
            if exists and cold_owner.read_owner(self.files, self.directory) != owner:
                cold_owner.write_owner(self.files, self.directory, owner)
        except OSError as error:
            text = "%s: the owner of the cold files was not recorded: %s"
            logging.getLogger("headrace").warning(text, self.directory, os_error_text(error))

    # ---- runs

    def write(self, runs: Sequence[Run]) -> list[RunPlace]:
        """Append runs, sync them, and read them back once.

        Returns:
            The place of each run. The runs survive a power cut.

        Raises:
            OSError: if the disk fails or is full, or returns other bytes. No earlier run is affected.
            MissingCodec: if the package to compress them is not installed.
            DirectoryInUse: if another process uses the directory.
        """
        if not runs:
            return []
        if self._codec is None:
            self._codec = CODECS.preferred()
        codec = self._codec
        packed = [cold_file.pack_run(run, codec) for run in runs]
        with self._write_lock:
            try:
                places = [self._append(run) for run in packed]
                if self._writer is not None:
                    self._sync(self._writer)
                self._verify_written(packed, places)
            except BaseException:
                self._abandon()
                raise
        return places

    def read(self, place: RunPlace, ids: str = "", seconds: float = 0.0) -> list[tuple[bytes, bytearray]]:
        """Return the keys and listpacks of a run, in order.

        Args:
            ids: the range of its entries, for the text of the error.
            seconds: how long a read of the object store may take; 0: as configured.

        Raises:
            DamagedColdRun: if the file is missing, or the run is damaged or cannot be read.
        """
        return self._read(place, cold_file.unpack_run, ids, seconds)

    def _read(
        self, place: RunPlace, decode: Callable[[bytes, int], T], ids: str = "", seconds: float = 0.0
    ) -> T:
        """Return what decode returns for the bytes and the checksum of a run. Raises DamagedColdRun."""
        file = place.file
        file.last_read_s = time.monotonic()
        try:
            found = self._read_anywhere(place, decode, ids, seconds)
        except DamagedColdRun:
            file.unreadable_offsets.add(place.offset)
            raise
        file.unreadable_offsets.discard(place.offset)
        return found

    def _read_anywhere(
        self, place: RunPlace, decode: Callable[[bytes, int], T], ids: str, seconds: float
    ) -> T:
        file = place.file
        if file.is_local or not file.in_store:
            try:
                return self._read_local(place, decode)
            except DamagedColdRun as error:
                if not file.in_store:
                    raise DamagedColdRun(file.path, place.offset, error.what, ids) from None
                if file.is_local:  # else it was removed in this moment
                    text = "%s, at byte %d: %s: it is read from the object store instead"
                    logging.getLogger("headrace").warning(text, file.path, place.offset, error.what)
                    file.is_local = False
        assert self.uploaded_files is not None
        what = ""
        try:
            return self.uploaded_files.read(
                file.name, place.offset, place.size, lambda data: decode(data, place.checksum), seconds
            )
        except (DamagedBytes, MissingCodec, StoreError) as error:
            what = str(error)
        raise DamagedColdRun(file.path, place.offset, what, ids)

    def _read_local(self, place: RunPlace, decode: Callable[[bytes, int], T]) -> T:
        """Read a run from the data directory. Raises DamagedColdRun."""
        try:
            with self._open_files.reading(place.file.path) as file:
                if place.offset + place.size > file.size():
                    raise DamagedBytes("the file ends before the end of the run")
                data = file.read_at(place.offset, place.size)
            return decode(data, place.checksum)
        except OSError as error:
            what = "the file is missing" if isinstance(error, FileNotFoundError) else os_error_text(error)
        except (DamagedBytes, MissingCodec) as error:
            what = str(error)
        raise DamagedColdRun(place.file.path, place.offset, what)

    # ---- files

    def place_from_log(self, name: str, offset: int, size: int, checksum: int) -> RunPlace:
        """Return the place of a run that was written earlier, from what the log says. The run is not read.

        Raises:
            Damaged: if the file is missing, or too short.
        """
        file = self.open(name)
        if not cold_file.HEADER_BYTES <= offset <= offset + size <= file.size:
            what = f"it has {file.size} bytes, which do not contain the run of {size} bytes at {offset}"
            raise Damaged(file.size, what, file.path)
        file.logged_from_offset = max(file.logged_from_offset, offset + size)
        return RunPlace(file, offset, size, checksum)

    def open(self, name: str) -> ColdFile:
        """Return the ColdFile of this name, for the places of its runs. Its contents are not checked.

        Raises:
            Damaged: if it is missing, or cannot be read.
        """
        with self._lock:
            known = self._known.get(name)
            file = known.file() if known is not None else None
            if file is None:
                file = self._open(name)
                known = self._known.setdefault(name, _KnownFile())
                known.reference = weakref.ref(file)
                known.size = file.size
                if known.identity is None:
                    with contextlib.suppress(OSError):
                        known.identity = self.files.identity(file.path)
            return file

    def set_needed_names(self, names: Iterable[str]) -> None:
        """Keep the files with these names until the next call: durable manifests name them."""
        with self._lock:
            self._needed = frozenset(names)
            for name in self._needed:
                if name not in self._known:
                    known = self._known[name] = _KnownFile()
                    with contextlib.suppress(OSError):
                        known.size = self.files.size(self.path(name))

    def remove_unreferenced(self) -> int:
        """Remove files that neither a place nor a durable manifest refers to.

        The removal is not synced: a file that returns after a power cut is an orphan. The next call retries
        what could not be removed.

        Returns:
            The number of removed files.
        """
        with self._lock:  # not during the removal: the event loop acquires it, too
            unneeded = {
                name: known
                for name, known in self._known.items()
                if name not in self._needed and known.file() is None
            }
            for name in unneeded:
                del self._known[name]
                self._last_number = max(self._last_number, cold_file.file_number(name))
            self._removing |= unneeded.keys()
        removed = 0
        for name, known in unneeded.items():
            path = self.path(name)
            try:
                self.files.remove(path)
            except OSError:
                with self._lock:
                    self._known.setdefault(name, known)
            else:
                removed += 1
                self._open_files.close_file(path)
                if self.uploaded_files is not None:
                    self.uploaded_files.schedule_deletion(name)
            with self._lock:
                self._removing.discard(name)
        return removed

    def sealed_names(self) -> list[str]:
        """Return the names of known files to which nothing is appended any more."""
        with self._lock:
            return [name for name in self._known if self._current is None or name != self._current.name]

    def is_known(self, name: str) -> bool:
        """Return whether a place or a durable manifest may refer to a file."""
        return name in self._known or name in self._removing

    def set_in_store(self, name: str) -> None:
        """Record that the object store has a file."""
        with self._lock:
            known = self._known.get(name)
            file = known.file() if known is not None else None
            if file is not None:
                file.in_store = True

    def remove_local(self, name: str) -> None:
        """Remove the local copy of a file that the object store has. Raises OSError."""
        with self._lock:
            known = self._known.get(name)
            file = known.file() if known is not None else None
            if known is not None:
                known.identity = None  # the monitor does not miss it
            if file is not None:
                file.is_local = False
        self.files.remove(self.path(name))
        self._open_files.close_file(self.path(name))

    def last_read_s(self, name: str) -> float:
        """Return when a file was read last, by time.monotonic(); 0 if it was not."""
        known = self._known.get(name)
        file = known.file() if known is not None else None
        return file.last_read_s if file is not None else 0.0

    def orphans(self) -> list[str]:
        """Return the names of cold files in the directory that nothing refers to. Raises OSError.

        An earlier process has left them. They include copies that a crash has interrupted: see KeptFile.
        """
        with self._lock:
            used = self._known.keys() | self._removing
            return [
                name
                for name in self.files.list(self.directory)
                if name not in used and cold_file.file_number(name.removesuffix(COPY_SUFFIX))
            ]

    def remove_orphans(self) -> tuple[int, int]:
        """Remove orphans; return their number and bytes.

        Call it at the start, after set_needed_names() and open(). After an OSError the rest stays until the
        next start.
        """
        removed = freed = 0
        with contextlib.suppress(OSError):
            for name in self.orphans():
                size = self.files.size(self.path(name))
                self.files.remove(self.path(name))
                removed += 1
                freed += size
        return removed, freed

    def verify(self, name: str) -> ColdFileReport:
        """Read a whole file, check all its runs, and return what was found."""
        size = None
        with self._write_lock:  # between two writes all of the current file is synced
            if self._current is not None and self._current.name == name:
                size = self._current.size
        return check_cold_file(self.files, self.path(name), cold_file.file_number(name), size)

    def totals(self) -> ColdTotals:
        """Return number and bytes of the files. Their dead bytes may be too few: see ColdFile.dead_bytes."""
        with self._lock:
            known = list(self._known.values())
        size = dead = 0
        for one in known:
            file = one.file()
            size += one.size if file is None else file.size
            dead += one.size if file is None else file.dead_bytes
        return ColdTotals(len(known), size, dead)

    def is_stale(self, file: ColdFile) -> bool:
        """Return whether more than half of a file's bytes are dead, and nothing is appended to it."""
        return file is not self._current and 2 * file.dead_bytes > file.run_bytes

    def has_stale_files(self) -> bool:
        """Return whether a run in memory refers to a file that is stale: see is_stale()."""
        with self._lock:
            found = [known.file() for known in self._known.values()]
        return any(file is not None and self.is_stale(file) for file in found)

    # ---- changes by others: see cold_file_monitor.py

    def identities(self) -> dict[str, KnownIdentity]:
        """Return the expected identities of the files that must be in the data directory, by name."""
        with self._lock:
            return {
                name: KnownIdentity(self.path(name), known.identity, known.size)
                for name, known in self._known.items()
                if known.identity is not None and self._must_be_local(name, known)
            }

    def _must_be_local(self, name: str, known: _KnownFile) -> bool:
        """Return whether a file is needed, and the object store does not have it."""
        file = known.file()
        return name in self._needed if file is None else not file.in_store

    def stop_appending(self, name: str) -> None:
        """Append nothing to this file any more: others have changed it."""
        with self._write_lock:
            if self._current is not None and self._current.name == name:
                self._abandon()

    def keep_open(self, known: KnownIdentity) -> KeptFile | None:
        """Keep a file open that others have removed or replaced; return None if it is not open."""
        return self._open_files.keep_open(known.path, known.identity)

    def accept_replaced_file(self, name: str, identity: FileIdentity) -> None:
        """Use the file that has this name now, instead of the one that was written."""
        with self._lock:
            if name in self._known:
                self._known[name].identity = identity
        self._open_files.close_file(self.path(name))

    def close(self) -> None:
        """Seal the current file, and close all files. Ignores errors: its runs are durable already."""
        with self._write_lock:
            if self._writer is not None:
                try:
                    self._seal(self._writer)
                except OSError:
                    self._abandon()
        self._open_files.close()
        self.unlock_directory()

    # ---- writing; with the write lock

    def _append(self, run: PackedRun) -> RunPlace:
        """Append a run to the current file or to a new one. Raises OSError."""
        writer = self._writer
        if writer is not None and (writer.has_changed() or not writer.fits(run, self.file_bytes_max)):
            self._seal(writer)
        if self._writer is None or self._current is None:
            self._writer, self._current = self._create()
        offset, size, checksum = self._writer.append(run)
        return RunPlace(self._current, offset, size, checksum)

    def _create(self) -> tuple[ColdFileWriter, ColdFile]:
        """Create a file with the next number. Raises OSError."""
        if not self._directory_is_durable:
            self._make_directory()
        with self._lock:
            numbers = map(number_in_name, [*self.files.list(self.directory), *self._known])
            self._last_number = number = max(self._last_number, *numbers, 0) + 1
            name = cold_file.file_name(number)
            file = ColdFile(name, self.path(name))
            known = self._known[name] = _KnownFile()
            known.reference = weakref.ref(file)
        writer = ColdFileWriter(self.files, file.path, number)
        known.identity = writer.identity
        return writer, file

    def _make_directory(self) -> None:
        """Make the directory, durably. Raises OSError."""
        make_directories(self.files, self.directory)
        self.lock_directory()
        if self._owner and not cold_owner.read_owner(self.files, self.directory):
            cold_owner.write_owner(self.files, self.directory, self._owner)
        self._directory_is_durable = True

    def _sync(self, writer: ColdFileWriter) -> None:
        """Make the appended runs durable. Raises OSError."""
        writer.sync()
        self._update_current_size(writer)

    def _seal(self, writer: ColdFileWriter) -> None:
        """End the current file. Raises OSError."""
        if writer.has_changed():  # with more bytes, its size would not show that it was truncated
            self._abandon()
            return
        writer.seal()
        self._update_current_size(writer)
        self._end_current()

    def _end_current(self) -> None:
        """Append nothing to the current file any more."""
        name = self._current.name if self._current is not None else ""
        self._writer = self._current = None
        if name and self.on_sealed is not None:
            self.on_sealed(name)

    def _update_current_size(self, writer: ColdFileWriter) -> None:
        """Note the size of the current file."""
        assert self._current is not None
        self._current.size = self._known[self._current.name].size = writer.size
        self._current.run_bytes = sum(entry.size for entry in writer.index_entries)

    def _abandon(self) -> None:
        """Leave the current file as it was synced, and have the next write begin another one."""
        if self._writer is not None:
            self._writer.abandon()
        self._end_current()
        self._directory_is_durable = False  # it may have been removed

    def _verify_written(self, runs: Sequence[PackedRun], places: Sequence[RunPlace]) -> None:
        """Read the runs back. Raises OSError if they are not what was written."""
        for run, place in zip(runs, places, strict=True):
            try:
                raw, _ = self._read(place, cold_file.decompress_run)
            except DamagedColdRun as error:
                raise OSError(errno.EIO, f"it cannot be read back: {error.what}", place.file.path) from None
            if raw != run.raw:
                raise OSError(errno.EIO, "other nodes are read back than were written", place.file.path)

    # ---- opening; with the lock

    def _open(self, name: str) -> ColdFile:
        """Return a file that exists; its footer says how much of it are runs. Raises Damaged."""
        path = self.path(name)
        if not cold_file.file_number(name):
            raise Damaged(0, "this is not the name of a cold file", path)
        file = ColdFile(name, path)
        stored = self.uploaded_files.get(name) if self.uploaded_files is not None else None
        end = None
        try:
            with self._open_files.reading(path) as source:
                file.size = source.size()
                footer = source.read_at(max(0, file.size - cold_file.FOOTER_BYTES), cold_file.FOOTER_BYTES)
            with contextlib.suppress(DamagedBytes):
                end = cold_file.index_offset(footer, file.size)
            file.in_store = stored is not None
        except FileNotFoundError:
            stored = self._find_in_store(name)
            if stored is None:
                raise Damaged(0, "the file is missing", path, "put it back where it was") from None
            file.is_local = False
        except OSError as error:
            raise Damaged(0, os_error_text(error), path) from None
        if stored is not None and file.size != stored.size:  # the local copy is not whole
            file.size, file.is_local, file.in_store = stored.size, False, True
        file.run_bytes = (file.size if end is None else end) - cold_file.HEADER_BYTES
        return file

    def _find_in_store(self, name: str) -> StoredFile | None:
        """Return a file without a local copy; None if the store has none either. Raises Damaged."""
        try:
            if self.uploaded_files is not None:
                return self.uploaded_files.find(name)
            if self.files.exists(self.path(name) + RECORD_SUFFIX):
                raise Damaged(0, "the file is in an object store", self.path(name), GIVE_URL_ADVICE)
            return None
        except (StoreError, OSError) as error:
            what = f"the file is missing, and it is unknown whether the store has it: {error}"
            raise Damaged(0, what, self.path(name)) from None
