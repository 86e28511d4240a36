"""A bounded number of cold files that are open for reading."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator

from headrace.persistence.aof.manifest import write_all
from headrace.persistence.data_directory import (
    DataDirectory,
    File,
    FileIdentity,
    RandomAccessFile,
    identity_of,
    make_directories,
    replace_file,
)

COPY_SUFFIX = ".copy"  # of a file that is being written again
COPY_BYTES = 1 << 20  # at once


class _OpenFile:
    """A file, and the number of threads that are reading it."""

    __slots__ = ("file", "forgotten", "readers")

    def __init__(self, file: RandomAccessFile) -> None:
        self.file = file
        self.readers = 0
        self.forgotten = False  # the last reader closes it


class KeptFile:
    """A file that stays open until release(), even if it was removed from its directory."""

    def __init__(self, files: OpenFiles, kept: _OpenFile, descriptor: int) -> None:
        self.file = kept.file
        self.descriptor = descriptor
        self._files = files
        self._kept: _OpenFile | None = kept

    def write_again(self, files: DataDirectory, path: str) -> None:
        """Copy the open file to this path, durably. Raises OSError."""
        temporary = path + COPY_SUFFIX
        make_directories(files, path.rpartition("/")[0])
        try:
            replace_file(files, path, temporary, self._copy)
        except OSError:
            with contextlib.suppress(OSError):
                files.remove(temporary)
            raise

    def _copy(self, target: File) -> None:
        at = 0
        while data := self.file.read_at(at, COPY_BYTES):
            write_all(target, data)
            at += len(data)

    def release(self) -> None:
        """Let the file be closed. Calls after the first do nothing."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._files.end_reading(kept)


class OpenFiles:
    """A cache of open files, the most recently used ones. Several threads may read the same file.

    More than `maximum` are open only while more than that are being read at once.
    """

    def __init__(self, files: DataDirectory, maximum: int) -> None:
        self.files = files
        self.maximum = maximum
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[RandomAccessFile]:
        """Yield an open file; it stays open during the block. Raises OSError."""
        with self._lock:
            found = self._open.get(path)
            if found is None:
                found = self._open[path] = _OpenFile(self.files.open_random_access(path))
            self._open.move_to_end(path)
            found.readers += 1
            self._close_oldest()
        try:
            yield found.file
        finally:
            self.end_reading(found)

    def end_reading(self, one: _OpenFile) -> None:
        """End one thread's use of a file; close the file if it was forgotten and no thread reads it."""
        with self._lock:
            one.readers -= 1
            if one.forgotten and one.readers == 0:
                one.file.close()
            self._close_oldest()

    def close_file(self, path: str) -> None:
        """Close a file, or have its last reader close it; the next reader opens it again."""
        with self._lock:
            found = self._open.pop(path, None)
            if found is not None:
                found.forgotten = True
                if found.readers == 0:
                    found.file.close()

    def keep_open(self, path: str, identity: FileIdentity) -> KeptFile | None:
        """Keep the open file of this path open.

        Returns None if no file is open under the path, or the open one has another identity.
        """
        with self._lock:
            found = self._open.get(path)
            descriptor: int = getattr(found.file, "descriptor", -1) if found is not None else -1
            if (
                found is None
                or descriptor < 0
                or not identity_of(os.fstat(descriptor)).is_same_file(identity)
            ):
                return None
            found.readers += 1
            return KeptFile(self, found, descriptor)

    def close(self) -> None:
        """Close all files; a file in use is closed by its last reader."""
        for path in list(self._open):
            self.close_file(path)

    def _close_oldest(self) -> None:
        """Close files beyond the maximum that no thread is reading, the least recently used first."""
        excess = len(self._open) - self.maximum
        if excess <= 0:
            return
        idle = [path for path, one in self._open.items() if one.readers == 0]
        for path in idle[:excess]:
            self._open.pop(path).file.close()
