"""Append runs to one cold file, and seal it."""

from __future__ import annotations

import contextlib

from headrace.persistence.aof.manifest import write_all
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.cold_file import IndexEntry, PackedRun
from headrace.persistence.data_directory import DataDirectory


class ColdFileWriter:
    """Appends runs to one cold file. After an OSError only abandon() may be called.

    size is the size of the file in bytes; synced_size and synced_run_count are its bytes and runs at the last
    sync.
    """

    def __init__(self, files: DataDirectory, path: str, number: int) -> None:
        """Create the file. Raises OSError."""
        self.files = files
        self.path = path
        self.size = self.synced_size = self.synced_run_count = 0
        self.index_entries: list[IndexEntry] = []
        self.sealed = False
        self._entered = False  # the directory on the disk has its name
        self._file = files.create(path)
        try:
            self.identity = self._file.identity()
            self._write(cold_file.header(number))
        except OSError:
            self.abandon()
            raise

    def fits(self, run: PackedRun, file_bytes_max: int) -> bool:
        """Return whether the file, with this run and an index, has file_bytes_max bytes at most.

        The first run always fits.
        """
        size = self.size + len(run.data) + cold_file.index_size(len(self.index_entries) + 1)
        return not self.index_entries or size <= file_bytes_max

    def has_changed(self) -> bool:
        """Return whether the file was truncated or extended by others. Raises OSError."""
        return self._file.size() != self.size

    def append(self, run: PackedRun) -> IndexEntry:
        """Append a run, and return where it is. The next sync makes it durable. Raises OSError."""
        entry = IndexEntry(self.size, len(run.data), run.checksum)
        self._write(run.data)
        self.index_entries.append(entry)
        return entry

    def sync(self) -> None:
        """Make the appended runs durable. Raises OSError."""
        self._file.sync()
        if not self._entered:
            self.files.sync_directory(self.path.rpartition("/")[0])
            self._entered = True
        self.synced_size = self.size
        self.synced_run_count = len(self.index_entries)

    def seal(self) -> None:
        """Append index and footer, sync and close the file. Raises OSError."""
        self._write(cold_file.index_and_footer(self.index_entries, self.size))
        self.sync()
        self.sealed = True
        self._file.close()

    def abandon(self) -> None:
        """Cut the file to its last sync and close it; remove it if it had no run then. Ignores errors."""
        if self.sealed:
            return
        with contextlib.suppress(OSError):
            if self.synced_run_count == 0:
                self.files.remove(self.path)
            elif self._file.size() >= self.synced_size:  # a file that others have truncated stays as it is
                self._file.truncate(self.synced_size)  # gives space back to a full disk; not needed otherwise
        self.size = self.synced_size
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, data: bytes) -> None:
        write_all(self._file, data)
        self.size += len(data)
