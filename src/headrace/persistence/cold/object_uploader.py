"""Upload cold files to an object store, in a thread, and delete the objects that nothing refers to.

    sealed file ─▶ read, check runs ─▶ PUT ─▶ HEAD: size, checksum ─▶ record ─▶ local copy may be removed
                                              └─ no usable checksum: GET, compare

    no reference, no manifest ─▶ discarded ─▶ DELETE ─▶ record removed

A crash leaves at worst an object without a record. Such objects are deleted once after each start, when the
data are loaded and the store was found to be that of this directory (store_identity.py).

What fails is tried again after a pause, which doubles up to RETRY_S_MAX; the files stay where they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable

from xxhash import xxh3_64_intdigest

from headrace.errors import os_error_text
from headrace.persistence.cold import cold_file, store_identity
from headrace.persistence.cold.cold_file import DamagedBytes
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.object_store import (
    LOCAL_BYTES_DEFAULT_MAX,
    ObjectStore,
    StoreError,
    StoreUnreachable,
)
from headrace.persistence.cold.store_identity import ForeignStore
from headrace.persistence.cold.uploaded_files import StoredFile, UploadedFiles, file_of_object, object_name
from headrace.persistence.cold.whole_file_check import check_checksums
from headrace.plurals import plural

START_TIMEOUT_S = 10.0  # how long a start waits for the store
RETRY_S = 1.0
RETRY_S_MAX = 60.0
CHECK_OWNER_S = 60.0
CLOSE_TIMEOUT_S = 2.0  # how long close() waits for a request to the store


class ObjectUploader:
    """Uploads the cold files of one data directory to an object store; deletes objects without a reference.

    attach_store() and start_thread() start it, close() ends it.
    """

    def __init__(
        self, cold: ColdFiles, store: ObjectStore, local_bytes: int = LOCAL_BYTES_DEFAULT_MAX
    ) -> None:
        """Do no I/O yet.

        Args:
            local_bytes: limit on the bytes of local files; those that are not uploaded yet may exceed it.
        """
        self.cold_files = cold
        self.store = store
        self.uploaded_files = UploadedFiles(cold.files, cold.directory, store)
        self.local_bytes_max = local_bytes
        self.uploads = self.failures = self.deletions = 0
        self.last_error = ""  # of uploads and deletions; empty: the last attempt of all succeeded
        self._own = b""  # the identity; empty: it is not known whose the store is
        self._is_foreign = False
        self._checked_at = 0.0
        self._has_removed_orphans = False
        self._waiting: dict[str, None] = {}  # names of sealed files that are not in the store
        self._lock = threading.Lock()
        self._disk_lock = threading.Lock()  # while a record is written: not after close()
        self._closed = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # ---- in the thread of the server or program

    def attach_store(self, seconds: float = START_TIMEOUT_S) -> None:
        """Make the files in the store readable. Call it with the directory locked, before data are loaded.

        Args:
            seconds: how long to wait for the store, to check that it belongs to this directory; 0: do not
                check. If it does not answer, the thread checks before it changes anything there.

        Raises:
            ForeignStore: if the store belongs to another directory.
            OSError: if the directory cannot be read.
        """
        self.uploaded_files.load_records()
        self.cold_files.uploaded_files = self.uploaded_files
        self.uploaded_files.on_deletion_scheduled = self._wake.set
        self.cold_files.on_sealed = self._on_sealed
        if seconds <= 0:
            return
        timeout, self.store.seconds = self.store.seconds, seconds
        try:
            self._claim()
        except StoreError as error:
            self._fail(error)
        finally:
            self.store.seconds = timeout

    def start_thread(self) -> None:
        """Start the thread. Call it after the data are loaded and unreferenced cold files are removed."""
        for name in self.uploaded_files.names():
            if not self.cold_files.is_known(name):
                self.uploaded_files.schedule_deletion(name)
        for name in self.cold_files.sealed_names():
            self._on_sealed(name)
        self._thread = threading.Thread(target=self._run, name="cold-store", daemon=True)
        self._thread.start()

    def set_local_bytes_max(self, size: int) -> None:
        """Limit the bytes of local copies."""
        if size != self.local_bytes_max:
            self.local_bytes_max = size
            self._wake.set()

    def close(self) -> None:
        """End the thread. An upload that takes more than CLOSE_TIMEOUT_S is repeated after the next start."""
        self.store.close()
        with self._disk_lock:
            self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)

    @property
    def waiting_file_count(self) -> int:
        """The number of files that are to be uploaded."""
        return len(self._waiting)

    @property
    def store_error(self) -> str:
        """Why the last upload, deletion or read failed; "" if the last one succeeded."""
        return self.last_error or self.store.last_read_error

    def _on_sealed(self, name: str) -> None:
        """Have a file uploaded, unless the store has it."""
        if self.uploaded_files.get(name) is None:
            with self._lock:
                self._waiting[name] = None
            self._wake.set()

    # ---- in the thread

    def _run(self) -> None:
        pause = RETRY_S
        while not self._closed:
            self._wake.clear()
            if self._step():
                pause = RETRY_S
                self._wake.wait()
            else:
                self._sleep(pause)
                pause = min(2 * pause, RETRY_S_MAX)

    def _sleep(self, seconds: float) -> None:
        """Wait, also if there is something new to do: the store has just failed."""
        end = time.monotonic() + seconds
        while not self._closed and (left := end - time.monotonic()) > 0:
            self._wake.clear()
            self._wake.wait(left)

    def _step(self) -> bool:
        """Do what is to be done; return False if something failed, which does not stop the rest."""
        failure: Exception | None = None
        steps = [self._upload_all, self._remove_local, self._delete_scheduled, self._delete_orphans]
        for step in [self._remove_local] if self._is_foreign else steps:
            try:
                step()
            except Exception as error:  # whatever it is: otherwise nothing would be uploaded any more
                failure = failure or error
        if failure is not None:
            self._fail(failure)
            return False
        if self.last_error and not self._is_foreign:
            logging.getLogger("headrace").warning("the object store %s works again", self.store.url)
            self.last_error = ""
        return True

    def _fail(self, error: Exception) -> None:
        """Record an error, and log it if it differs from the last one."""
        if self._closed:
            return
        self._is_foreign = self._is_foreign or isinstance(error, ForeignStore)
        text = os_error_text(error) if isinstance(error, OSError) else str(error) or type(error).__name__
        if text != self.last_error:
            what = "nothing is uploaded or deleted any more" if self._is_foreign else "it is tried again"
            logging.getLogger("headrace").warning("cold files in the object store: %s; %s", text, what)
        self.last_error = text

    def _claim(self) -> None:
        """Claim the store for this directory. Raises ForeignStore, StoreError, OSError."""
        names = self.uploaded_files.names()
        some = self.uploaded_files.get(names[0]) if names else None
        self._own = store_identity.claim(self.cold_files.files, self.cold_files.directory, self.store, some)
        self._checked_at = time.monotonic()

    def _check_owner(self) -> None:
        """Raise ForeignStore if the store is not that of this directory, and StoreError, OSError."""
        if not self._own:
            self._claim()
        elif time.monotonic() - self._checked_at >= CHECK_OWNER_S:
            store_identity.check(self.store, self._own)
            self._checked_at = time.monotonic()

    def _upload_all(self) -> None:
        """Upload the files that wait. Raises the first error, after the others were tried."""
        failure: Exception | None = None
        self._check_owner()
        for name in sorted(self._waiting, key=cold_file.file_number):
            if self._closed:
                return
            try:
                self._check_owner()
                if self.cold_files.is_known(name):
                    self._upload(name)
                with self._lock:
                    del self._waiting[name]
            except (StoreError, OSError, DamagedBytes) as error:
                if self._closed:
                    return
                failure = failure or error
                self._fail(failure)  # before it is counted: INFO shows both
                self.failures += 1
                if isinstance(error, StoreUnreachable):
                    break
        if failure is not None:
            raise failure

    def _upload(self, name: str) -> None:
        """Store one file. Raises StoreError, OSError, DamagedBytes."""
        path = self.cold_files.path(name)
        try:
            with contextlib.closing(self.cold_files.files.open_source(path)) as source:
                data = source.read(source.size)
        except FileNotFoundError:
            if not self.cold_files.is_known(name):  # it was removed meanwhile
                return
            raise
        number = cold_file.file_number(name)
        try:
            check_checksums(data, number)  # what was read wrongly must not replace what is on the disk
        except DamagedBytes as error:
            raise DamagedBytes(f"{path} is not uploaded: {error}") from None
        stored = StoredFile(object_name(number, xxh3_64_intdigest(data)), len(data))
        self.store.put(stored.object_key, data)
        self._confirm(stored, data)
        self._write_unless_closed(lambda: self.uploaded_files.add(name, stored))
        self.cold_files.set_in_store(name)
        self.uploads += 1
        if not self.cold_files.is_known(name):
            self.uploaded_files.schedule_deletion(name)

    def _confirm(self, stored: StoredFile, data: bytes) -> None:
        """Raise StoreError unless the store has exactly these bytes."""
        info = self.store.head(stored.object_key)
        if info.size == len(data):
            if info.e_tag == hashlib.md5(data, usedforsecurity=False).hexdigest():
                return
            if self.store.get(stored.object_key, len(data)) == data:
                return
        raise StoreError(
            f"{self.store.url}: the object {stored.object_key} has other bytes than were uploaded"
        )

    def _write_unless_closed(self, write: Callable[[], None]) -> None:
        """Call `write` to change files of the data directory. Raises StoreError after close()."""
        with self._disk_lock:
            if self._closed:
                raise StoreError("the server is closing")
            write()

    def _remove_local(self) -> None:
        """Remove local copies beyond the limit, the least recently read first. Raises StoreError, OSError."""
        sizes: dict[str, int] = {}
        for name in self.cold_files.files.list(self.cold_files.directory):
            if cold_file.file_number(name):
                with contextlib.suppress(FileNotFoundError):
                    sizes[name] = self.cold_files.files.size(self.cold_files.path(name))
        excess = sum(sizes.values()) - self.local_bytes_max
        by_age = sorted(
            sizes, key=lambda name: (self.cold_files.last_read_s(name), cold_file.file_number(name))
        )
        for name in by_age:
            if excess <= 0:
                return
            if self.uploaded_files.get(name) is not None:
                self._write_unless_closed(lambda name=name: self.cold_files.remove_local(name))  # type: ignore[misc]
                excess -= sizes[name]

    def _delete_scheduled(self) -> None:
        """Delete the objects of files that nothing refers to any more."""
        for name, stored in self.uploaded_files.files_to_delete():
            self._check_owner()
            self.store.delete(stored.object_key)
            self._write_unless_closed(lambda name=name: self.uploaded_files.remove_record(name))  # type: ignore[misc]
            self.deletions += 1

    def _delete_orphans(self) -> None:
        """Delete, once, the objects of cold files that a crash has left without a record."""
        if self._has_removed_orphans:
            return
        self._check_owner()
        removed = 0
        for name in self.store.list():
            file = file_of_object(name)
            stored = self.uploaded_files.get(file)
            is_orphan = not self.cold_files.is_known(file) if stored is None else stored.object_key != name
            if file and is_orphan:
                self.store.delete(name)
                removed += 1
        self._has_removed_orphans = True
        if removed:
            text = "deleted %s of the object store that nothing refers to: an earlier process left them"
            logging.getLogger("headrace").warning(text, plural(removed, "object"))
