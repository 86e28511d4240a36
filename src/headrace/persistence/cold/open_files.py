"""A bounded number of cold files that are open for reading."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator

from headrace.persistence.data_directory import DataDirectory, FileIdentity, RandomAccessFile, identity_of


class _OpenFile:
    """A file, and the number of threads that are reading it."""

    __slots__ = ("file", "forgotten", "readers")

    def __init__(self, file: RandomAccessFile) -> None:
        self.file = file
        self.readers = 0
        self.forgotten = False  # the last reader closes it


class OpenFiles:
    """Files that are kept open, the most recently used ones. Several threads may read the same file.

    There are more than `maximum` only while more are being read at once.
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
        """Keep a file open during the block. Raises OSError."""
        with self._lock:
            found = self._open.get(path)
            if found is None:
                found = self._open[path] = _OpenFile(self.files.random_access(path))
            self._open.move_to_end(path)
            found.readers += 1
            self._close_oldest()
        try:
            yield found.file
        finally:
            with self._lock:
                found.readers -= 1
                if found.forgotten and found.readers == 0:
                    found.file.close()
                self._close_oldest()

    def forget(self, path: str) -> None:
        """Close a file, or have its last reader close it; the next reader opens it again."""
        with self._lock:
            found = self._open.pop(path, None)
            if found is not None:
                found.forgotten = True
                if found.readers == 0:
                    found.file.close()

    def keep_open(self, path: str, identity: FileIdentity) -> int:
        """Keep the file of this identity open until reopen(); return its descriptor, -1 if it is not open."""
        with self._lock:
            found = self._open.get(path)
            descriptor: int = getattr(found.file, "descriptor", -1) if found is not None else -1
            if (
                found is None
                or descriptor < 0
                or not identity_of(os.fstat(descriptor)).is_same_file(identity)
            ):
                return -1
            found.readers += 1
            return descriptor

    def reopen(self, path: str, was_kept_open: bool) -> None:
        """Have the next reader open a file again. was_kept_open: keep_open() returned a descriptor."""
        with self._lock:
            found = self._open.get(path)
            if found is not None and was_kept_open:
                found.readers -= 1
        self.forget(path)

    def close(self) -> None:
        """Close all files, those in use by their last reader."""
        for path in list(self._open):
            self.forget(path)

    def _close_oldest(self) -> None:
        """Close files that no thread is reading, the least recently used first, down to the maximum."""
        excess = len(self._open) - self.maximum
        if excess <= 0:
            return
        idle = [path for path, one in self._open.items() if one.readers == 0]
        for path in idle[:excess]:
            self._open.pop(path).file.close()
