"""Write the data of a directory into one snapshot, with all entries of cold files, in bounded memory.

    manifest ─▶ base, log ──▶ keyspace ──▶ snapshot
                                 │  ▲         ▲
             too much in memory  │  │ places  │ one run after the other
                                 ▼  │         │
                temporary files ◀── cold runs ┘ ◀── cold files of the log

The directory is only read. What the log adds to its base may be larger than memory: it is moved to files in a
temporary directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import DamagedColdRun, HeadraceError, UsageError, os_error_text
from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.aof.file_names import MANIFEST_SUFFIX, LogFileNames
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.aof.reader import SNAPSHOT_HEADS, Execute
from headrace.persistence.check import log_or_snapshot_in
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.cold.object_store import ObjectStore
from headrace.persistence.cold.uploaded_files import UploadedFiles
from headrace.persistence.data_directory import DataDirectory, DirectoryInUse, DiskDirectory, File, write_file
from headrace.persistence.gradual_writer import gradual_writer
from headrace.persistence.rdb.file_checksum import crc_of_file
from headrace.persistence.rdb.versions import COMPATIBLE_VERSION
from headrace.persistence.rdb.writer import SnapshotSize, write_rdb
from headrace.persistence.recovery import ProgressCallback, Recovery, errors_with_paths, expiry_suspended

FOREIGN_ADVICE = "headrace exports streams and strings only"
CHECKSUM_BYTES = 8
TRAILER_BYTES = 1 + CHECKSUM_BYTES  # the opcode of the end, and the CRC-64; zeros: it was not computed
END_OPCODE = 0xFF
SPILL_DIRECTORY = "spill"  # the directory of temporary cold files, in the temporary directory
NOT_WRITABLE_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass
class LoadedData:
    """The data of a directory; notes are sentences for the operator about what was found there."""

    keyspace: Keyspace
    store: ExportStore
    notes: list[str]


class ExportStore(ColdStore):
    """Reads runs from the cold files of the log, and stores runs in temporary ones. Removes no file."""

    def __init__(self, files: ColdFiles, spilled: ColdFiles) -> None:
        super().__init__(files)
        self.spill_files = spilled
        self.load_count = 0

    def write(self, runs: Sequence[Sequence[tuple[bytes, bytes]]]) -> list[Any]:
        """Store runs in temporary files. Raises OSError."""
        return list(self.spill_files.write(runs))

    def load(self, place: Any) -> Sequence[tuple[bytes, bytearray]]:
        """Return keys and listpacks of a run. Raises DamagedColdRun."""
        self.load_count += 1
        is_spilled = place.file.path == self.spill_files.path(place.file.name)
        return (self.spill_files if is_spilled else self.files).read(place)

    def remove_unreferenced(self) -> int:
        """Remove nothing: the files belong to the log."""
        return 0


@contextlib.contextmanager
def loaded_data(
    path: str,
    temporary: str,
    new_engine: Callable[[], tuple[Keyspace, Execute]],
    hot_memory: int,
    now_ms: int,
    progress: ProgressCallback | None = None,
    cold_store: str = "",
) -> Iterator[LoadedData]:
    """Load a data directory, the directory of a log, or a snapshot; yield the data for the block.

    Nothing is changed there. The directory is locked meanwhile, if it is writable.

    Args:
        temporary: an empty directory, for what does not fit into memory.
        new_engine: returns an empty keyspace, and a function that executes commands on it.
        hot_memory: bytes of data that may be in memory.
        progress: called with a file, the bytes read of it, and its size.
        cold_store: the URL of the object store that has cold files of the log; "": none is known.

    Raises:
        UsageError: if there are no data.
        HeadraceError: if a server is running there, or a file is damaged or cannot be read.
    """
    if os.path.isdir(path):
        path = log_or_snapshot_in(path)
    directory, name = os.path.split(os.path.abspath(path))
    names = LogFileNames()
    if name.endswith(MANIFEST_SUFFIX):
        directory, below = os.path.split(directory)
        names = LogFileNames(below, name.removesuffix(MANIFEST_SUFFIX))
    files = DiskDirectory(directory, "headrace export")
    keyspace, execute = new_engine()
    spilled = ColdFiles(DiskDirectory(temporary), SPILL_DIRECTORY)
    store = ExportStore(ColdFiles(files, names.cold_directory), spilled)
    in_store = ObjectStore(cold_store) if cold_store else None
    store.files.uploaded_files = UploadedFiles(files, names.cold_directory, in_store, is_read_only=True)
    keyspace.cold_storage = ColdStorage(keyspace, store, hot_memory)
    recovery = Recovery(files, keyspace, execute, now_ms, progress)
    recovery.foreign_advice = FOREIGN_ADVICE
    with contextlib.closing(store.files), contextlib.closing(spilled), _locked(files):
        with expiry_suspended(keyspace), errors_with_paths(files):
            store.files.uploaded_files.load_records()
            _load_file(recovery, files, names, name)
        if keyspace.cold_storage.last_error:
            raise HeadraceError(f"{temporary}: {keyspace.cold_storage.last_error}")
        yield LoadedData(keyspace, store, recovery.notes)


def _load_file(recovery: Recovery, files: DataDirectory, names: LogFileNames, name: str) -> None:
    """Load a log, whose last record may be incomplete, or a snapshot of this name."""
    if not name.endswith(MANIFEST_SUFFIX):
        recovery.read_snapshot(name)
        return
    manifest = Manifest.load(files, names)
    if manifest is None:
        raise UsageError(f"{names.manifest}: no such file")
    recovery.read_log(names, manifest, truncated_ok=True, fix_tail=False)


@contextlib.contextmanager
def _locked(files: DiskDirectory) -> Iterator[None]:
    """Lock a directory during the block, unless it is read-only, as a backup may be. Raises HeadraceError."""
    try:
        files.lock()
    except DirectoryInUse as used:
        address = used.holder.partition(",")[0]
        what = "end that program first"
        if ":" in address:  # a server; a program has its name here
            what = f"give the URL of that server, such as redis://{address}, instead of its directory"
        raise HeadraceError(f"{used.root} is in use by process {used.pid} ({used.holder}): {what}") from None
    except OSError as error:
        if error.errno not in NOT_WRITABLE_ERRNOS:
            raise HeadraceError(f"{files.root}: {os_error_text(error)}") from None
    try:
        yield
    finally:
        files.unlock()


def write_snapshot(
    data: LoadedData, path: str, now_ms: int, progress: Callable[[int, int], None] | None = None
) -> SnapshotSize:
    """Write all data to a file that redis-server 7.0 and later versions load; return its size.

    Args:
        progress: called about every MiB with the bytes written, and the number of cold runs read so far.

    Raises:
        HeadraceError: if a cold run is damaged, or the file cannot be written.
    """
    directory, name = os.path.split(os.path.abspath(path))
    sizes: list[SnapshotSize] = []
    data.store.load_count = 0

    def write(file: File) -> None:
        sizes.append(
            write_rdb(
                data.keyspace,
                gradual_writer(file),
                version=COMPATIBLE_VERSION,
                now_ms=now_ms,
                progress=progress and (lambda done: progress(done, data.store.load_count)),
            )
        )

    try:
        write_file(DiskDirectory(directory), name, write)
    except DamagedColdRun as error:
        raise HeadraceError(str(error).removeprefix("COLDERR ")) from None
    except OSError as error:
        raise HeadraceError(f"{path}: {os_error_text(error)}") from None
    return sizes[0]


def check_received_snapshot(path: str) -> None:
    """Raise HeadraceError if a file is not a whole snapshot; its contents are compared with its checksum."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(max(map(len, SNAPSHOT_HEADS)))
        file.seek(max(size - TRAILER_BYTES, 0))
        trailer = file.read()
        stored = int.from_bytes(trailer[-CHECKSUM_BYTES:], "little")
        if (
            not head.startswith(SNAPSHOT_HEADS)
            or size < len(head) + TRAILER_BYTES
            or trailer[0] != END_OPCODE
        ):
            raise HeadraceError("the server did not send a whole snapshot")
        if stored and stored != crc_of_file(file.fileno(), size - CHECKSUM_BYTES):
            raise HeadraceError(
                "the snapshot was damaged on its way: its checksum is wrong; repeat the export"
            )


@contextlib.contextmanager
def temporary_replacement(path: str, overwrite: bool) -> Iterator[str]:
    """Yield the path of a temporary file, which is renamed to `path` after the block.

    The block must write and sync the file. If it raises an error, the temporary file is removed.

    Args:
        overwrite: replace an existing file.

    Raises:
        UsageError: if `path` exists and overwrite is False, or its directory does not exist.
        HeadraceError: if the file cannot be renamed, or the block raises OSError.
    """
    directory, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise UsageError(f"{directory}: no such directory")
    temporary = os.path.join(directory, f"temp-{os.getpid()}-{name}")
    _check_absent(path, overwrite)
    try:
        yield temporary
        _check_absent(path, overwrite)
        os.replace(temporary, path)
        DiskDirectory(directory).sync_directory("")
    except OSError as error:
        raise HeadraceError(f"{path}: {os_error_text(error)}") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _check_absent(path: str, overwrite: bool) -> None:
    if os.path.isdir(path):
        raise UsageError(f"{path} is a directory: name a file")
    if not overwrite and os.path.lexists(path):
        raise UsageError(f"{path} exists: --overwrite replaces it")
