"""A real data directory with injected failures of its operations.

Syncs are recorded but not done: no test here cuts the power, and a killed process loses nothing that it has
written.
"""

import errno
from collections.abc import Callable
from typing import TypeVar

from headrace.persistence.data_directory import (
    DiskDirectory,
    DiskFile,
    DiskRandomAccessFile,
    DiskSource,
    FileIdentity,
)

T = TypeVar("T")


class FaultyFiles:
    """A DataDirectory over a DiskDirectory. log lists the operations; fail() makes one fail."""

    def __init__(self, files: DiskDirectory) -> None:
        self.files = files
        self.log: list[str] = []
        self.faults: list[tuple[str, int]] = []  # operation, how many of them still succeed
        self.short = -1  # bytes that the next write takes, if not negative
        self.stop_after = -1  # operations until a simulated kill

    def fail(self, operation: str, after: int = 0) -> None:
        """Let one operation of this name fail, after `after` successful ones."""
        self.faults.append((operation, after))

    def step(self, operation: str, name: str, act: Callable[[], T]) -> T:
        """Do one operation, or fail if requested."""
        if self.stop_after == 0:
            raise Killed
        self.stop_after -= 1
        for i, (faulty, after) in enumerate(self.faults):
            if faulty == operation:
                if after == 0:
                    del self.faults[i]
                    raise OSError(errno.EIO, f"{operation} fails", name)
                self.faults[i] = (faulty, after - 1)
        self.log.append(f"{operation} {name}".strip())
        return act()

    def create(self, name: str) -> "FaultyFile":
        return FaultyFile(self, self.step("create", name, lambda: self.files.create(name)))

    def open_append(self, name: str) -> "FaultyFile":
        return FaultyFile(self, self.step("append", name, lambda: self.files.open_append(name)))

    def open_source(self, name: str) -> DiskSource:
        return self.files.open_source(name)

    def open_random_access(self, name: str) -> DiskRandomAccessFile:
        return self.files.open_random_access(name)

    def exists(self, name: str) -> bool:
        return self.files.exists(name)

    def size(self, name: str) -> int:
        return self.files.size(name)

    def identity(self, name: str) -> FileIdentity:
        return self.files.identity(name)

    def list(self, directory: str) -> list[str]:
        return self.files.list(directory)

    def make_directory(self, name: str) -> None:
        self.step("make_directory", name, lambda: self.files.make_directory(name))

    def rename(self, old: str, new: str) -> None:
        self.step("rename", new, lambda: self.files.rename(old, new))

    def remove(self, name: str) -> None:
        self.step("remove", name, lambda: self.files.remove(name))

    def sync_directory(self, name: str) -> None:
        self.step("sync_directory", name, lambda: None)

    def lock(self) -> None:
        self.files.lock()

    def check_lock(self) -> None:
        self.files.check_lock()

    def unlock(self) -> None:
        self.files.unlock()


class FaultyFile:
    """A file of FaultyFiles."""

    def __init__(self, files: FaultyFiles, file: DiskFile) -> None:
        self.files = files
        self.file = file
        self.name = file.name

    def write(self, data: bytes | bytearray | memoryview) -> int:
        if self.files.short >= 0:
            data = memoryview(data)[: self.files.short]
            self.files.short = -1
        return self.files.step("write", self.name, lambda: self.file.write(data))

    def sync(self) -> None:
        self.files.step("sync", self.name, lambda: None)

    def start_writeback(self) -> None:
        self.file.start_writeback()

    def truncate(self, size: int) -> None:
        self.files.step("truncate", self.name, lambda: self.file.truncate(size))

    def size(self) -> int:
        return self.file.size()

    def identity(self) -> FileIdentity:
        return self.file.identity()

    def close(self) -> None:
        self.file.close()


class Killed(BaseException):
    """A simulated kill, which no code of the program catches."""
