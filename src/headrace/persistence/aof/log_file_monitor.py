"""Detect files of a log that were removed, replaced, truncated or overwritten while it is in use.

An open descriptor remains usable after its file was removed or replaced, but what is written to it is lost
when the process ends. Therefore the paths are compared about once a second with what the log has written:

    path                      must be
    headrace.lock             the file that this process has locked, else the data directory is another one
    manifest                  a regular file with the bytes that were stored last
    base, older incr files    the same device and inode, size and modification time: they are complete
    newest incr file          the same device and inode, with the size that the log has written

A check takes an lstat() for each path and reads the manifest: 75 microseconds for three files. What it does
not detect are bytes of the newest incr file that were overwritten in place without a change of its size.
"""

from __future__ import annotations

import contextlib
import os

from headrace.errors import HeadraceError
from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.manifest import Manifest
from headrace.persistence.data_directory import DataDirectory, FileIdentity

CHECK_INTERVAL_MS = 900  # with a timer that runs every 100 ms a change is detected within one second
REPLACED_MESSAGE = "another file has this name"
NOT_REGULAR_MESSAGE = "it is not a regular file"
MODIFIED_MESSAGE = "it was modified by another process"
WRONG_SIZE_MESSAGE = "it holds {} bytes where the log has written {}"


class LogFileMonitor:
    """The identities of the files of one log when the log last wrote them."""

    def __init__(self, files: DataDirectory, names: LogFileNames) -> None:
        self.files = files
        self.names = names
        self.manifest_bytes = b""  # the bytes stored last
        self.identities: dict[str, FileIdentity] = {}  # by path

    def record_identities(self, manifest: Manifest) -> list[int]:
        """Remember the files of a recovered log; return their sizes in bytes. Raises OSError."""
        paths = [self.names.path(line.file) for line in manifest.lines_to_load()]
        self.identities = {path: self.files.identity(path) for path in paths}
        with contextlib.closing(self.files.open_source(self.names.manifest)) as source:
            self.manifest_bytes = source.read(source.size)
        return [one.size for one in self.identities.values()]

    def record(self, path: str, identity: FileIdentity) -> None:
        """Remember a file that the log has opened or completed."""
        self.identities[path] = identity

    def record_manifest(self, data: bytes, manifest: Manifest) -> None:
        """Remember the manifest as stored, and forget the files that it does not name."""
        self.manifest_bytes = data
        named = {self.names.path(line.file) for line in manifest.lines()}
        self.identities = {path: one for path, one in self.identities.items() if path in named}

    def find_change(self, manifest: Manifest, newest_size: int, exact: bool) -> str:
        """Return which file differs from what the log has written, and how; "" if none differs.

        Args:
            manifest: the files of the log.
            newest_size: bytes that the log has written to the newest incr file.
            exact: False if a part of another record may follow these bytes.
        """
        try:
            self.files.check_lock()
        except HeadraceError as error:
            return str(error)
        except OSError as error:
            return f"{error.filename}: {error.strerror}"
        if change := self._manifest_change():
            return f"{self.names.manifest}: {change}"
        paths = [self.names.path(line.file) for line in manifest.lines_to_load()]
        for path in paths:
            size = newest_size if path == paths[-1] else None
            if change := self._file_change(path, size, exact):
                return f"{path}: {change}"
        return ""

    def is_replaced(self, path: str) -> bool:
        """Return whether another file certainly has this path now. Raises OSError."""
        expected = self.identities.get(path)
        found = self.files.identity(path)
        return not found.is_regular or (expected is not None and not expected.is_same_file(found))

    def _manifest_change(self) -> str:
        try:
            found = self.files.identity(self.names.manifest)
            if not found.is_regular:
                return NOT_REGULAR_MESSAGE
            with contextlib.closing(self.files.open_source(self.names.manifest)) as source:
                data = source.read(len(self.manifest_bytes) + 1)
        except OSError as error:
            return os.strerror(error.errno or 0)
        return "" if data == self.manifest_bytes else MODIFIED_MESSAGE

    def _file_change(self, path: str, newest_size: int | None, exact: bool) -> str:
        expected = self.identities.get(path)
        try:
            found = self.files.identity(path)
        except OSError as error:
            return os.strerror(error.errno or 0)
        if not found.is_regular:
            return NOT_REGULAR_MESSAGE
        if expected is None or not expected.is_same_file(found):
            return REPLACED_MESSAGE
        size = expected.size if newest_size is None else newest_size
        if found.size < size or (found.size > size and (exact or newest_size is None)):
            return WRONG_SIZE_MESSAGE.format(found.size, size)
        if newest_size is None and found.modified_ns != expected.modified_ns:
            return MODIFIED_MESSAGE
        return ""
