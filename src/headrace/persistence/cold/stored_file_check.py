"""Check a cold file that is in an object store. The whole object is read into memory."""

from __future__ import annotations

import errno

from xxhash import xxh3_64_intdigest

from headrace.persistence.cold import cold_file
from headrace.persistence.cold.cold_file_check import ColdFileReport, check_cold_file
from headrace.persistence.cold.object_store import ObjectStore, StoreError
from headrace.persistence.cold.uploaded_files import StoredFile


class _ObjectBytes:
    """A RandomAccessFile of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, offset: int, n: int) -> bytes:
        return self.data[offset : offset + n]

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None:
        self.data = b""


class _StoredFile:
    """Opens the object of one cold file."""

    def __init__(self, store: ObjectStore, stored: StoredFile) -> None:
        self.store = store
        self.stored = stored

    def open_random_access(self, name: str) -> _ObjectBytes:
        """Read the object. Raises OSError, also if it is not the one that was uploaded."""
        try:
            data = self.store.get(self.stored.object_key, self.stored.size)
        except StoreError as error:
            raise OSError(errno.EIO, str(error)) from None
        if len(data) != self.stored.size or xxh3_64_intdigest(data) != self.stored.checksum:
            raise OSError(errno.EIO, "it has other bytes than were uploaded")
        return _ObjectBytes(data)


def check_stored_file(store: ObjectStore, stored: StoredFile, name: str) -> ColdFileReport:
    """Read a cold file from the store, and return what was found. name: its name in the data directory."""
    path = f"{store.url}/{stored.object_key}"
    return check_cold_file(_StoredFile(store, stored), path, cold_file.file_number(name))
