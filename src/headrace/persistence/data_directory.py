"""All disk access: the interface of a data directory, and its implementation for the operating system.

Durability relies on the following guarantees and on no others. The simulation keeps exactly these, and
violates everything that they leave open.

    write, truncate  every reader sees them at once; a power cut may lose them, or a part of them
    File.sync        after it has returned, what was written before survives a power cut. After an error it
                     may never: the kernel can have dropped the pages, and report success next time
    create, rename,  every reader sees them at once; a power cut may undo them, in any order;
    remove           a rename is atomic and replaces a file that has the new name
    sync_directory   what was created, renamed and removed in that directory survives a power cut

Names are relative to the data directory, with "/" between.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import stat
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple, Protocol

from headrace.errors import HeadraceError

LOCK_NAME = "headrace.lock"
OWNER_ONLY_MODE = 0o600  # data of clients are read through the server, as its users may
FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: its fsync stops at the drive's own cache
LARGE_FILE_BYTES = 16 << 20  # removing a file of this size takes some milliseconds
CLOSE_DELAY_S = 1.0  # until the caller has synced a directory and a manifest: they would wait for the pages
DELAYED_CLOSES_MAX = 32  # files at once
WAIT_BEFORE_AND_WRITE = 1 | 2  # SYNC_FILE_RANGE_..., linux/fs.h


@functools.cache
def sync_file_range_function() -> Any:
    """Return sync_file_range(2), or None if the system lacks it. Imports ctypes only when called."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


class DirectoryInUse(HeadraceError):
    """Another process, or another server in this one, has locked the directory; holder describes it."""

    def __init__(self, root: str, pid: str, holder: str) -> None:
        self.root = os.path.abspath(root)
        self.pid = pid or "unknown"
        self.holder = holder
        who = f"process {self.pid}" + (f" ({holder})" if holder else "")
        super().__init__(
            f"the directory {self.root} is in use by {who}: "
            "stop that server first, or give this one a --dir of its own"
        )


class DirectoryGone(HeadraceError):
    """The lock file of this process, or its directory, was removed or replaced."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"{os.path.abspath(root)} is not the directory that this process has locked,"
            f" or its {LOCK_NAME} was removed or replaced"
        )


class FileIdentity(NamedTuple):
    """The properties of a file that show whether it was replaced or changed."""

    device: int
    inode: int
    size: int  # bytes; follows a symbolic link
    modified_ns: int
    is_regular: bool  # follows a symbolic link
    is_link: bool = False

    def is_same_file(self, other: FileIdentity) -> bool:
        """Return whether both are the same file; its contents may have changed."""
        mine = (self.device, self.inode, self.is_link)
        return mine == (other.device, other.inode, other.is_link)


class File(Protocol):
    """A file that is written only at its end. Methods raise OSError."""

    name: str

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append data; return the number of bytes written, 1 or more. Raises OSError if none were."""

    def sync(self) -> None:
        """Make everything written so far durable. Must not be retried after an OSError."""

    def start_writeback(self) -> None:
        """Start to write to the disk what was written so far; first wait for what the last call has started.

        A hint, not a guarantee. It shortens a later sync(), of this file and of others: on ext4 a sync waits
        for the new data of every file that grows.
        """

    def truncate(self, size: int) -> None:
        """Keep the first size bytes; the next write appends there."""

    def size(self) -> int:
        """Return the length in bytes."""

    def identity(self) -> FileIdentity:
        """Return the identity of the open file."""

    def close(self) -> None:
        """Close the file without a sync."""


class PendingSync(Protocol):
    """A sync in another thread, like a concurrent.futures.Future."""

    def done(self) -> bool:
        """Return whether result() returns at once."""

    def result(self) -> object:
        """Wait for the sync; raise OSError if it failed."""


class Source(Protocol):
    """A file that is read from its start."""

    size: int

    def read(self, n: int) -> bytes:
        """Return the next n bytes; fewer only at the end of the file, then b""."""

    def close(self) -> None:
        """Close the file."""


class RandomAccessFile(Protocol):
    """A file that is read at any offset, also by several threads at once. Methods raise OSError."""

    def read_at(self, offset: int, n: int) -> bytes:
        """Return n bytes from the offset; fewer only where the file ends."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Close the file. No thread may be reading."""


class DataDirectory(Protocol):
    """A data directory. Methods raise OSError on failure."""

    def create(self, name: str) -> File:
        """Create a file, or truncate an existing one to 0 bytes."""

    def open_append(self, name: str) -> File:
        """Open a file for appending; create it if it is missing."""

    def open_source(self, name: str) -> Source:
        """Open a file for reading; raise FileNotFoundError if it is missing."""

    def open_random_access(self, name: str) -> RandomAccessFile:
        """Open a file for reading at any offset; raise FileNotFoundError if it is missing."""

    def exists(self, name: str) -> bool:
        """Return whether the name exists; raise OSError if that cannot be determined."""

    def size(self, name: str) -> int:
        """Return the length of a file in bytes; raise FileNotFoundError if it is missing."""

    def identity(self, name: str) -> FileIdentity:
        """Return the identity of the file with this name; raise FileNotFoundError if it is missing."""

    def list(self, directory: str) -> list[str]:
        """Return the sorted names in a directory ("" is the data directory); [] if it is missing."""

    def make_directory(self, name: str) -> None:
        """Create a directory unless it exists."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing a file that has the new name."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def sync_directory(self, name: str) -> None:
        """Make durable what was created, renamed and removed in a directory ("" is the data directory)."""

    def lock(self) -> None:
        """Lock the directory for this process; raise DirectoryInUse if another one holds it."""

    def check_lock(self) -> None:
        """Raise DirectoryGone if the directory or its lock file is not the locked one any more."""

    def unlock(self) -> None:
        """Release the lock."""


class _DelayedClose:
    """Closes descriptors of removed files after a while, in one thread for all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptors: list[int] = []

    def is_full(self) -> bool:
        """Return whether no further descriptor should be added, because their number is limited."""
        return len(self._descriptors) >= DELAYED_CLOSES_MAX

    def add(self, descriptor: int) -> None:
        """Close a descriptor later; at once if no thread can be started."""
        with self._lock:
            self._descriptors.append(descriptor)
            if len(self._descriptors) > 1:
                return
        timer = threading.Timer(CLOSE_DELAY_S, self._close_all)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:
            self._close_all()

    def _close_all(self) -> None:
        with self._lock:
            descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


_delayed_close = _DelayedClose()


def identity_of(found: os.stat_result) -> FileIdentity:
    """Return the identity in a result of stat()."""
    regular = stat.S_ISREG(found.st_mode)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, regular)


def open_regular(path: str, flags: int) -> int:
    """Open a regular file. Raises OSError for anything else, such as a pipe, on which open() would block."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(code, os.strerror(code) if code == errno.EISDIR else "It is not a regular file", path)


class DiskFile:
    """A File of the operating system."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor

    def write(self, data: bytes | bytearray | memoryview) -> int:
        return os.write(self.descriptor, data)

    def sync(self) -> None:
        if FULL_SYNC is not None:
            fcntl.fcntl(self.descriptor, FULL_SYNC)
        else:
            os.fdatasync(self.descriptor)

    def start_writeback(self) -> None:
        call = sync_file_range_function()
        if call is not None:
            call(self.descriptor, 0, 0, WAIT_BEFORE_AND_WRITE)  # from the start to the end

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def identity(self) -> FileIdentity:
        return identity_of(os.fstat(self.descriptor))

    def close(self) -> None:
        os.close(self.descriptor)


class DiskSource:
    """A Source of the operating system, with a buffer."""

    def __init__(self, reader: BinaryIO) -> None:
        self.reader = reader
        self.descriptor = reader.fileno()
        self.size = os.fstat(self.descriptor).st_size

    def read(self, n: int) -> bytes:
        return self.reader.read(n)

    def close(self) -> None:
        self.reader.close()


class DiskRandomAccessFile:
    """A RandomAccessFile of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def read_at(self, offset: int, n: int) -> bytes:
        data = os.pread(self.descriptor, n, offset)
        if len(data) == n:
            return data
        parts = [data]  # the system reads at most 2 GiB at once
        while parts[-1] and (missing := n - sum(map(len, parts))) > 0:
            parts.append(os.pread(self.descriptor, missing, offset + n - missing))
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        os.close(self.descriptor)


class DiskDirectory:
    """A DataDirectory of the operating system, which must exist.

    holder: describes this process to another one that finds the directory locked, for example by an address.
    """

    def __init__(self, root: str, holder: str = "") -> None:
        self.root = root
        self.holder = holder
        self.lock_descriptor = -1

    def path(self, name: str) -> str:
        """Return the path in the file system of a name in the data directory."""
        return os.path.join(self.root, name)

    def create(self, name: str) -> DiskFile:
        return self._open(name, os.O_TRUNC)

    def open_append(self, name: str) -> DiskFile:
        return self._open(name, 0)

    def open_source(self, name: str) -> DiskSource:
        return DiskSource(open(self.path(name), "rb", opener=open_regular))

    def open_random_access(self, name: str) -> DiskRandomAccessFile:
        return DiskRandomAccessFile(open_regular(self.path(name), os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, name: str) -> bool:
        try:
            os.lstat(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, name: str) -> int:
        return os.stat(self.path(name)).st_size

    def identity(self, name: str) -> FileIdentity:
        path = self.path(name)
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return identity_of(os.stat(path))._replace(is_link=True)
        return identity_of(found)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self.path(directory)))
        except FileNotFoundError:
            return []

    def make_directory(self, name: str) -> None:
        path = self.path(name)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, old: str, new: str) -> None:
        os.replace(self.path(old), self.path(new))

    def remove(self, name: str) -> None:
        path = self.path(name)
        descriptor = -1
        with contextlib.suppress(OSError):
            if os.stat(path).st_size >= LARGE_FILE_BYTES and not _delayed_close.is_full():
                descriptor = os.open(path, os.O_RDONLY)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        finally:
            if descriptor >= 0:  # the last close frees the pages: 0.3 s for a GiB, so in the background
                _delayed_close.add(descriptor)

    def sync_directory(self, name: str) -> None:
        descriptor = os.open(self.path(name), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self) -> None:
        """Lock the directory. The lock file is never removed, but only a running process can hold it."""
        if self.lock_descriptor >= 0:
            return
        descriptor = os.open(self.path(LOCK_NAME), os.O_RDWR | os.O_CREAT, OWNER_ONLY_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write_holder(descriptor)
        except BlockingIOError:
            pid, _, holder = os.read(descriptor, 1000).decode(errors="replace").strip().partition(" ")
            os.close(descriptor)
            raise DirectoryInUse(self.root, pid, holder) from None
        except OSError:
            os.close(descriptor)
            raise
        self.lock_descriptor = descriptor

    def set_holder(self, holder: str) -> None:
        """Change the description of this process in the lock file. Raises OSError."""
        self.holder = holder
        if self.lock_descriptor >= 0:
            self._write_holder(self.lock_descriptor)

    def _write_holder(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {self.holder}".strip().encode() + b"\n", 0)

    def check_lock(self) -> None:
        if self.lock_descriptor < 0:
            return
        try:
            found = os.stat(self.path(LOCK_NAME))
        except FileNotFoundError:
            raise DirectoryGone(self.root) from None
        if not os.path.samestat(found, os.fstat(self.lock_descriptor)):
            raise DirectoryGone(self.root)

    def unlock(self) -> None:
        if self.lock_descriptor >= 0:
            os.close(self.lock_descriptor)
            self.lock_descriptor = -1

    def _open(self, name: str, flag: int) -> DiskFile:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | flag  # do not block on a pipe
        return DiskFile(name, os.open(self.path(name), flags, OWNER_ONLY_MODE))


def make_directories(files: DataDirectory, name: str) -> None:
    """Make a directory and those above it, durably. Raises OSError."""
    parent = ""
    for part in name.split("/"):
        directory = f"{parent}/{part}" if parent else part
        files.make_directory(directory)
        files.sync_directory(parent)
        parent = directory


def write_file(files: DataDirectory, name: str, write: Callable[[File], None]) -> None:
    """Create a file, have `write` fill it, and sync it. Raises OSError."""
    with contextlib.closing(files.create(name)) as file:
        write(file)
        file.sync()


def replace_file(files: DataDirectory, name: str, temporary: str, write: Callable[[File], None]) -> None:
    """Have `write` fill a file, and give it this name when it is durable. Raises OSError.

    Args:
        temporary: the file's name until then, in the same directory. The file may remain after an error.
    """
    write_file(files, temporary, write)
    files.rename(temporary, name)
    files.sync_directory(name.rpartition("/")[0])
