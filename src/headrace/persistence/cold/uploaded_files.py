"""Record which cold files are in an object store, and read their runs. See object_uploader.py.

    appendonlydir/cold/5.cold           the local copy; it may be missing
    appendonlydir/cold/5.cold.stored    a line: name and size of the object. Written when the store has
                                        confirmed it, removed when the object was deleted
    s3://bucket/prefix/5-9f86d081884c7d65.cold    the object; with the XXH3-64 checksum of all its bytes

So a start does not need to contact the store. The checksum in the name distinguishes files with the same
number: of different data directories, or of one in which a number was used again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from headrace.persistence.aof.manifest import write_all
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.cold_file import DamagedBytes
from headrace.persistence.cold.object_store import ObjectStore, StoreError
from headrace.persistence.data_directory import DataDirectory, File, replace_file

RECORD_SUFFIX = ".stored"
TEMPORARY_SUFFIX = ".new"
RECORD_BYTES_MAX = 200
OBJECT_NAME_PATTERN = re.compile(r"([1-9]\d{0,18})-([0-9a-f]{16})\.cold")
GIVE_URL_ADVICE = "give its URL, as in --cold-store s3://bucket/prefix"
T = TypeVar("T")


class StoredFile(NamedTuple):
    """A cold file in the store: the name of its object, and its size in bytes."""

    object_key: str
    size: int

    @property
    def checksum(self) -> int:
        """The XXH3-64 checksum of its bytes."""
        return int(self.object_key.partition("-")[2][:16], 16)


def object_name(number: int, checksum: int) -> str:
    """Return the name of the object of a cold file."""
    return f"{number}-{checksum:016x}{cold_file.SUFFIX}"


def file_of_object(name: str) -> str:
    """Return the name of the cold file that an object contains; "" if the object is not a cold file."""
    found = OBJECT_NAME_PATTERN.fullmatch(name)
    return cold_file.file_name(int(found[1])) if found else ""


def file_of_record(name: str) -> str:
    """Return the name of the cold file whose record has this name; "" if it is not the name of a record."""
    file = name.removesuffix(RECORD_SUFFIX)
    return file if file != name and cold_file.file_number(file) else ""


def number_in_name(name: str) -> int:
    """Return the number in the name of a cold file or of a record; 0 if it is neither."""
    return cold_file.file_number(file_of_record(name) or name)


class UploadedFiles:
    """The cold files of one directory that are in the store. All methods may be called by several threads."""

    def __init__(
        self, files: DataDirectory, directory: str, store: ObjectStore | None, *, is_read_only: bool = False
    ) -> None:
        """Read nothing yet.

        Args:
            directory: of the cold files, relative to the data directory.
            store: None: it is not known, so nothing can be read from it.
            is_read_only: write no records.
        """
        self.is_read_only = is_read_only
        self.files = files
        self.directory = directory
        self.store = store
        self.on_deletion_scheduled: Callable[[], object] | None = None  # files_to_delete() has a new one
        self._lock = threading.Lock()
        self._stored: dict[str, StoredFile] = {}
        self._to_delete: dict[str, StoredFile] = {}  # their objects are to be deleted
        self._found: dict[str, StoredFile] | None = None  # by a listing of the store

    def load_records(self) -> None:
        """Read the records. Raises OSError."""
        for name in self.files.list(self.directory):
            file = file_of_record(name)
            if file:
                stored = self._read_record(file)
                if stored is None:
                    logging.getLogger("headrace").warning("%s/%s is damaged: ignored", self.directory, name)
                else:
                    self._stored[file] = stored

    def _record_path(self, name: str) -> str:
        return f"{self.directory}/{name}{RECORD_SUFFIX}"

    def _read_record(self, name: str) -> StoredFile | None:
        with contextlib.closing(self.files.open_source(self._record_path(name))) as source:
            words = source.read(RECORD_BYTES_MAX).decode(errors="replace").split(" ")
        if len(words) != 2 or file_of_object(words[0]) != name or not re.fullmatch(r"\d{1,18}\n", words[1]):
            return None
        return StoredFile(words[0], int(words[1]))

    # ---- which files

    def get(self, name: str) -> StoredFile | None:
        """Return the record of a cold file; None if the store does not have it."""
        return self._stored.get(name)

    def names(self) -> list[str]:
        """Return the names of all cold files in the store."""
        with self._lock:
            return list(self._stored)

    def totals(self) -> tuple[int, int]:
        """Return the number and the bytes of the cold files in the store."""
        with self._lock:
            return len(self._stored), sum(each.size for each in self._stored.values())

    def find(self, name: str) -> StoredFile | None:
        """Find a cold file that has no local copy: by its record, else in a listing of the store.

        Returns None if the store does not have it, or has several objects of this number.
        Raises StoreError, OSError.
        """
        stored = self.get(name)
        if stored is not None or self.store is None:
            return stored
        if self._found is None:
            found: dict[str, list[StoredFile]] = {}
            for listed, size in self.store.list().items():
                found.setdefault(file_of_object(listed), []).append(StoredFile(listed, size))
            self._found = {file: some[0] for file, some in found.items() if len(some) == 1}
        stored = self._found.get(name)
        if stored is not None:
            self.add(name, stored)
        return stored

    def add(self, name: str, stored: StoredFile) -> None:
        """Record durably that the store has a file; in memory only if is_read_only. Raises OSError."""
        line = f"{stored.object_key} {stored.size}\n".encode()

        def write(file: File) -> None:
            write_all(file, line)

        if not self.is_read_only:
            replace_file(
                self.files, self._record_path(name), self._record_path(name) + TEMPORARY_SUFFIX, write
            )
        with self._lock:
            self._stored[name] = stored

    # ---- reading

    def read(
        self, name: str, offset: int, size: int, decode: Callable[[bytes], T], seconds: float = 0.0
    ) -> T:
        """Read a part of a file from the store, and return what decode() returns for it.

        After DamagedBytes it is read and decoded once more.

        Args:
            seconds: how long a read may take; 0: as the store is configured.

        Raises:
            StoreError: if it cannot be read.
            DamagedBytes: if it is damaged. Other errors of decode() are passed on.
        """
        stored = self.get(name)
        if self.store is None or stored is None:
            raise StoreError(
                "the file is missing" if stored is None else f"it is in an object store: {GIVE_URL_ADVICE}"
            )
        try:
            return decode(self.store.get_range(stored.object_key, offset, size, seconds))
        except DamagedBytes:
            self.store.retries += 1
            return decode(self.store.get_range(stored.object_key, offset, size, seconds))

    # ---- removal

    def schedule_deletion(self, name: str) -> None:
        """Schedule the deletion of a file's object, if there is one. No run of it may be needed any more."""
        with self._lock:
            stored = self._stored.get(name)
            if stored is None:
                return
            self._to_delete[name] = stored
        if self.on_deletion_scheduled is not None:
            self.on_deletion_scheduled()

    def files_to_delete(self) -> list[tuple[str, StoredFile]]:
        """Return the files whose objects are to be deleted."""
        with self._lock:
            return list(self._to_delete.items())

    def remove_record(self, name: str) -> None:
        """Remove the record of a file whose object is deleted. Raises OSError."""
        self.files.remove(self._record_path(name))
        with self._lock:
            del self._stored[name], self._to_delete[name]
