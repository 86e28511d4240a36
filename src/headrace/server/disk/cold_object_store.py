"""Start and stop the object store for cold files as configured, and report it in INFO."""

from __future__ import annotations

from headrace.commands.server_interface import InfoFields
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.persistence.cold.object_store import ObjectStore
from headrace.persistence.cold.object_uploader import START_TIMEOUT_S, ObjectUploader
from headrace.server.config.config import Config


class ColdObjectStore:
    """The object store for cold files, if one is configured."""

    def __init__(self, config: Config, files: ColdFiles) -> None:
        """Contact nothing yet. Raises UsageError if the package for object stores is not installed."""
        self.config = config
        url = config.text("cold-store")
        self.uploader = ObjectUploader(files, ObjectStore(url)) if url else None
        self._is_attached = self._uploads_started = False
        self.apply_config()

    def apply_config(self) -> None:
        """Apply the limits of the configuration."""
        if self.uploader is not None:
            self.uploader.store.seconds = float(self.config.number("cold-store-timeout"))
            self.uploader.set_local_bytes_max(self.config.number("cold-local-bytes"))

    def attach(self, seconds: float = START_TIMEOUT_S) -> None:
        """Make the cold files in the store readable. Call it with the directory locked.

        Does nothing without a store, or if it was called before. Raises OSError, HeadraceError.

        Args:
            seconds: how long to wait for the store; 0: not at all.
        """
        if self.uploader is not None and not self._is_attached:
            self.uploader.attach_store(seconds)
            self._is_attached = True

    def start_uploads(self) -> None:
        """Start to upload files. Call it with the directory locked and the data loaded."""
        if self.uploader is not None and not self._uploads_started:
            self.attach(0)  # it is attached unless the directory was locked now, in the event loop
            self.uploader.start_thread()
            self._uploads_started = True

    def close(self) -> None:
        """Upload nothing more."""
        if self.uploader is not None:
            self.uploader.close()


def info_fields(uploader: ObjectUploader) -> InfoFields:
    """Return the fields of INFO about an object store."""
    store = uploader.store
    files, size = uploader.uploaded_files.totals()
    return [
        ("cold_store", store.url),
        ("cold_store_files", files),
        ("cold_store_bytes", size),
        ("cold_store_waiting_files", uploader.waiting_file_count),
        ("cold_store_uploads", uploader.uploads),
        ("cold_store_uploads_failed", uploader.failures),
        ("cold_store_reads", store.reads),
        ("cold_store_reads_failed", store.read_failures),
        ("cold_store_retries", store.retries),
        ("cold_store_last_error", uploader.store_error),
    ]
