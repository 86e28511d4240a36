"""The only way to the disk: what is asked of it, and the real one.

All that is durable in headrace rests on these promises and on nothing else; the simulation keeps them and
breaks everything they leave open.

    write, truncate  seen by every reader at once, but a power cut may forget or tear them
    File.sync        what was written before it survives a power cut once it has returned. When it raises,
                     it may never: the kernel can have dropped it, and call the next sync a success
    create, rename,  done at once for every reader, but a power cut may undo them, in any order;
    remove           a rename is never half done, and replaces what had the new name
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
from typing import Any, BinaryIO, NamedTuple, Protocol

from headrace.errors import HeadraceError

LOCK_NAME = "headrace.lock"
FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: its fsync stops at the drive's own cache
LARGE_BYTES = 16 << 20  # of a file that takes some milliseconds to remove
SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h


@functools.cache
def sync_file_range() -> Any:
    """The system's call of that name, or None: Linux has it. Who never writes large files needs no ctypes."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


class DirectoryInUse(HeadraceError):
    """Another process has the directory, or this one has it already. holder is what it said of itself."""

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
    """The lock file of this process is not in place: it, or its directory, was removed or replaced."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"{os.path.abspath(root)} is not the directory that this process has locked,"
            f" or its {LOCK_NAME} was removed or replaced"
        )


class FileIdentity(NamedTuple):
    """What tells a file from another one that has its name."""

    device: int
    inode: int
    size: int  # in bytes; of a symbolic link, of the file it leads to
    modified_ns: int
    is_regular: bool  # itself, or the file that a symbolic link leads to
    is_link: bool = False

    def is_same_file(self, other: FileIdentity) -> bool:
        """Return whether both are one file, however it has changed."""
        mine = (self.device, self.inode, self.is_link)
        return mine == (other.device, other.inode, other.is_link)


class File(Protocol):
    """A file being written, at its end only."""

    name: str

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append; returns the bytes taken, which may be fewer than given. OSError when none could be."""

    def sync(self) -> None:
        """All written before the call is durable when it returns. After an OSError it must not be retried."""

    def start_writeback(self) -> None:
        """Send what was written on its way to the disk. A hint: only that sync() waits for less follows."""

    def truncate(self, size: int) -> None:
        """Keep the first size bytes; writing goes on there. OSError."""

    def size(self) -> int:
        """Its length in bytes."""

    def identity(self) -> FileIdentity:
        """What tells it from another file. OSError."""

    def close(self) -> None:
        """Give the file back; this syncs nothing."""


class PendingSync(Protocol):
    """A sync in another thread, as concurrent.futures has it."""

    def done(self) -> bool:
        """Whether result() would not wait."""

    def result(self) -> object:
        """Wait for it; OSError if it failed."""


class Source(Protocol):
    """A file being read, from its start."""

    size: int

    def read(self, n: int) -> bytes:
        """The next n bytes; fewer only at the end, and then b""."""

    def close(self) -> None:
        """Give the file back."""


class DataDirectory(Protocol):
    """A data directory. Whatever fails raises OSError."""

    def create(self, name: str) -> File:
        """A new file, or an old one emptied."""

    def append(self, name: str) -> File:
        """A file opened at its end, made if it is missing."""

    def source(self, name: str) -> Source:
        """A file to read; FileNotFoundError if there is none."""

    def exists(self, name: str) -> bool:
        """Whether something has that name. OSError if that cannot be known."""

    def size(self, name: str) -> int:
        """The length of a file in bytes; FileNotFoundError if there is none."""

    def identity(self, name: str) -> FileIdentity:
        """What has that name now; FileNotFoundError if nothing has."""

    def list(self, directory: str) -> list[str]:
        """The names in a directory ("" is the data directory), sorted; none if it is missing."""

    def make_directory(self, name: str) -> None:
        """A directory of that name is there afterwards."""

    def rename(self, old: str, new: str) -> None:
        """What is called old is called new from now on, in place of what was called so."""

    def remove(self, name: str) -> None:
        """No file has that name afterwards."""

    def sync_directory(self, name: str) -> None:
        """Make durable what was created, renamed and removed in a directory ("" is the data directory)."""

    def lock(self) -> None:
        """Take the directory for this process; DirectoryInUse names who has it."""

    def check_lock(self) -> None:
        """DirectoryGone when what bears its name now is not what was locked."""

    def unlock(self) -> None:
        """Let others have the directory."""


def identity_of(found: os.stat_result) -> FileIdentity:
    """Return what stat() says of a file's identity."""
    regular = stat.S_ISREG(found.st_mode)
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, regular)


def open_regular(path: str, flags: int) -> int:
    """Open a file to read it. Raises OSError also for a pipe or a device: a pipe would be waited for."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(code, os.strerror(code) if code == errno.EISDIR else "It is not a regular file", path)


class DiskFile:
    """A File by its descriptor."""

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
        call = sync_file_range()
        if call is not None:
            call(self.descriptor, 0, 0, SYNC_FILE_RANGE_WRITE)  # from the start to the end

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def identity(self) -> FileIdentity:
        return identity_of(os.fstat(self.descriptor))

    def close(self) -> None:
        os.close(self.descriptor)


class DiskSource:
    """A Source by a buffered reader."""

    def __init__(self, reader: BinaryIO) -> None:
        self.reader = reader
        self.size = os.fstat(reader.fileno()).st_size

    def read(self, n: int) -> bytes:
        return self.reader.read(n)

    def close(self) -> None:
        self.reader.close()


class DiskDirectory:
    """A real directory, which must exist. holder, such as an address, is shown to others that want it."""

    def __init__(self, root: str, holder: str = "") -> None:
        self.root = root
        self.holder = holder
        self.lock_descriptor = -1

    def path(self, name: str) -> str:
        """Where a name is on this machine."""
        return os.path.join(self.root, name)

    def create(self, name: str) -> DiskFile:
        return self._open(name, os.O_TRUNC)

    def append(self, name: str) -> DiskFile:
        return self._open(name, 0)

    def source(self, name: str) -> DiskSource:
        return DiskSource(open(self.path(name), "rb", opener=open_regular))

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
        last = -1
        with contextlib.suppress(OSError):
            if os.stat(path).st_size >= LARGE_BYTES:
                last = os.open(path, os.O_RDONLY)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        finally:
            if last >= 0:  # releasing its pages takes 0.3 s for a GiB: in the background
                threading.Thread(target=os.close, args=(last,), daemon=True).start()

    def sync_directory(self, name: str) -> None:
        descriptor = os.open(self.path(name), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self) -> None:
        """Take the directory. The file stays behind, but only a living process can hold it."""
        if self.lock_descriptor >= 0:
            return
        descriptor = os.open(self.path(LOCK_NAME), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sign(descriptor)
        except BlockingIOError:
            pid, _, holder = os.read(descriptor, 1000).decode(errors="replace").strip().partition(" ")
            os.close(descriptor)
            raise DirectoryInUse(self.root, pid, holder) from None
        except OSError:
            os.close(descriptor)
            raise
        self.lock_descriptor = descriptor

    def sign(self, holder: str) -> None:
        """Store this description of the process that holds the directory. Raises OSError."""
        self.holder = holder
        if self.lock_descriptor >= 0:
            self._sign(self.lock_descriptor)

    def _sign(self, descriptor: int) -> None:
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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | flag  # a pipe is an error, no wait
        return DiskFile(name, os.open(self.path(name), flags, 0o644))
