"""A client of an object store: S3, Google Cloud Storage, Azure, or a directory. Any thread may use it.

    call ─▶ attempt ─▶ answer
               └─▶ timeout, 503, connection lost ─▶ pause, twice as long each time ─▶ attempt …

After a read that failed in all attempts, further reads fail at once for FAIL_FAST_PERIOD_S: reads in
a queue do not wait for the same outage one after the other.

Credentials are those of the environment, as the package obstore reads them. They are in no URL, text or error
of this module.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

SCHEMES = ("s3", "gs", "az", "file")
LOCAL_BYTES_DEFAULT_MAX = 1 << 30  # of cold files that stay in the data directory when the store has them
CALL_TIMEOUT_S = 30  # of a call with all its attempts
ATTEMPT_S_MAX = 10.0
CONNECT_S_MAX = 5.0
FILE_ATTEMPT_S = 30.0  # of a request that sends or receives a whole file of FILE_BYTES; of others accordingly
FILE_BYTES = 8 << 20
FIRST_PAUSE_S = 0.1
LAST_PAUSE_S = 5.0
FAIL_FAST_PERIOD_S = 1.0
ERROR_TEXT_MAX = 300
T = TypeVar("T")


class StoreError(HeadraceError):
    """A request to the object store failed; the text is one line, without credentials."""


class StoreUnreachable(StoreError):
    """The object store did not answer, or was busy, in all attempts. A later call may succeed."""


class MissingObject(StoreError):
    """There is no object of this name."""


class ObjectExists(StoreError):
    """An object of this name already exists."""


class ObjectInfo(NamedTuple):
    """What a store reports about an object. size is in bytes; e_tag is its entity tag, "" for none."""

    size: int
    e_tag: str


def check_url(url: str) -> None:
    """Raise UsageError unless a URL names a bucket or directory of an object store, without credentials."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise UsageError("not a URL of an object store: it must begin with s3://, gs://, az:// or file://")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(
            "the URL of an object store is like s3://bucket/prefix: options and credentials are read from the"
            " environment"
        )
    if parts.scheme == "file":
        if parts.netloc or not parts.path.strip("/"):
            raise UsageError("a directory is given by its whole path, as in file:///mnt/store")
    elif not parts.netloc:
        raise UsageError(f"the URL names no bucket: it is like {parts.scheme}://bucket/prefix")


class ObjectStore:
    """The objects below one URL. All methods that contact the store raise StoreError.

    Counters: `retries` of all calls; `reads` and `read_failures` of get_range(). `last_read_error` is the
    text of its last failure, until a call succeeds.
    """

    def __init__(self, url: str, seconds: float = CALL_TIMEOUT_S) -> None:
        """Contact nothing yet.

        Args:
            url: such as s3://bucket/prefix.
            seconds: how long a call may take with all its attempts. One that sends or receives a whole file
                has FILE_ATTEMPT_S for an attempt, or more.

        Raises:
            UsageError: if the URL is not one of an object store, or the package obstore is not installed.
        """
        check_url(url)
        self.url = url.rstrip("/")
        self.seconds = seconds
        self.retries = self.reads = self.read_failures = 0
        self.last_read_error = ""
        self._clients: dict[float, Client] = {}  # by the seconds that a request may take
        self._closed = threading.Event()
        self._failing_until = 0.0  # of time.monotonic()
        self._failure = ""
        try:
            import obstore
            import obstore.exceptions
            import obstore.store
        except ImportError:
            raise UsageError(
                f"{self.url}: an object store needs a package: pip install 'headrace[cloud]'"
            ) from None
        self._library = obstore

    # ---- objects

    def get_range(self, name: str, offset: int, size: int, seconds: float = 0.0) -> bytes:
        """Return `size` bytes of an object, from the offset on.

        seconds: how long the call may take with all its attempts; 0: as `self.seconds` says.
        """
        self.reads += 1
        is_patient = not seconds
        seconds = seconds or self.seconds
        client = self._client(max(min(1.0, seconds), min(ATTEMPT_S_MAX, seconds / 3)))

        def read() -> bytes:
            data = bytes(self._library.get_range(client, name, start=offset, length=size))
            if len(data) != size:
                raise StoreError(f"{self.url}: the object {name} ends {size - len(data)} bytes too early")
            return data

        try:
            if time.monotonic() < self._failing_until:
                raise StoreUnreachable(self._failure)
            return self._attempts(read, seconds)
        except StoreUnreachable as error:
            self._count_read_failure(error)
            if is_patient and time.monotonic() >= self._failing_until:
                self._failing_until, self._failure = time.monotonic() + FAIL_FAST_PERIOD_S, str(error)
            raise
        except StoreError as error:
            self._count_read_failure(error)
            raise

    def _count_read_failure(self, error: StoreError) -> None:
        self.read_failures += 1
        self.last_read_error = str(error)

    def get(self, name: str, size: int = 0) -> bytes:
        """Return a whole object. size: about its bytes, which determine how long an attempt may take."""
        client = self._client(_file_seconds(size))
        return self._attempts(lambda: bytes(self._library.get(client, name).bytes()))

    def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        """Store an object, in one request: a crash leaves no part of it.

        Args:
            new: raise ObjectExists if an object of this name exists. Some stores cannot check this: there it
                is replaced.
        """
        client = self._client(_file_seconds(len(data)))
        put = self._library.put

        def write() -> None:
            if new:
                try:
                    put(client, name, data, mode="create", use_multipart=False)
                    return
                except self._library.exceptions.NotSupportedError:
                    pass
            put(client, name, data, use_multipart=False)

        self._attempts(write)
        if self.url.startswith("file:"):
            self._sync_file(name)

    def _sync_file(self, name: str) -> None:
        """Make a file of a directory durable, which the package does not."""
        path = os.path.join(unquote(urlsplit(self.url).path), name)
        try:
            for each in (path, os.path.dirname(path)):
                descriptor = os.open(each, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from None

    def head(self, name: str) -> ObjectInfo:
        """Return size and entity tag of an object."""
        client = self._client(ATTEMPT_S_MAX)
        found = self._attempts(lambda: self._library.head(client, name))
        return ObjectInfo(found["size"], (found["e_tag"] or "").strip('"'))

    def delete(self, name: str) -> None:
        """Delete an object if it exists."""
        client = self._client(ATTEMPT_S_MAX)

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._library.delete(client, name)

        self._attempts(delete)

    def list(self) -> dict[str, int]:
        """Return the names of all objects, and their sizes in bytes."""
        client = self._client(ATTEMPT_S_MAX)
        return self._attempts(
            lambda: {each["path"]: each["size"] for page in self._library.list(client) for each in page}
        )

    def close(self) -> None:
        """Prevent further retries. Attempts that have begun are not interrupted."""
        self._closed.set()

    # ---- attempts

    def _client(self, seconds: float) -> Client:
        """Return the client whose requests may take this number of seconds. Raises StoreError."""
        client = self._clients.get(seconds)
        if client is None:
            try:
                client = self._clients[seconds] = self._new_client(seconds)
            except Exception as error:  # of the environment: an unknown region, a credential that is no JSON
                raise StoreError(self._error_text(error)) from None
        return client

    def _new_client(self, seconds: float) -> Any:
        from_url: Any = self._library.store.from_url
        if self.url.startswith("file:"):
            return from_url(self.url, mkdir=True)
        return from_url(
            self.url,
            client_options={
                "timeout": timedelta(seconds=seconds),
                "connect_timeout": timedelta(seconds=min(CONNECT_S_MAX, seconds)),
                **_plain_http_option(self.url),
            },
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=seconds)},
        )

    def _attempts(self, call: Callable[[], T], seconds: float = 0.0) -> T:
        """Return what a call returns, after several attempts if the store cannot be reached."""
        errors = self._library.exceptions
        deadline = time.monotonic() + (seconds or self.seconds)
        pause = FIRST_PAUSE_S
        while True:
            try:
                result = call()
                self.last_read_error = ""
                return result
            except FileNotFoundError as error:
                raise MissingObject(self._error_text(error)) from None
            except (errors.AlreadyExistsError, FileExistsError) as error:
                raise ObjectExists(self._error_text(error)) from None
            except (errors.GenericError, StoreUnreachable, OSError) as error:
                wait = pause * random.uniform(0.5, 1)
                if time.monotonic() + wait > deadline or self._closed.wait(wait):
                    raise StoreUnreachable(self._error_text(error)) from None
            except errors.BaseError as error:  # permissions, names
                raise StoreError(self._error_text(error)) from None
            self.retries += 1
            pause = min(2 * pause, LAST_PAUSE_S)

    def _error_text(self, error: Exception) -> str:
        """Return the first line of an error, with the URL, without what may be a signature."""
        text = str(error).partition("\n")[0].partition(": <")[0].strip() or type(error).__name__
        text = re.sub(r" in [\d.]+(ns|µs|ms|s)\b", "", text)  # so that the same error has the same text
        text = re.sub(r"\?[^\s\"')]*", "?...", text)
        return f"{self.url}: {text[:ERROR_TEXT_MAX]}"


def _file_seconds(size: int) -> float:
    """Return how many seconds a request of `size` bytes may take; few values, as each needs a client."""
    return FILE_ATTEMPT_S * (1 << (max(size - 1, 0) // FILE_BYTES).bit_length())


def _plain_http_option(url: str) -> dict[str, bool]:
    """Return the option for a store without TLS, if the environment asks for it: see _new_client().

    Options of a client replace all that the package would read there.
    """
    name = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}[urlsplit(url).scheme]
    return {"allow_http": True} if os.environ.get(name, "").lower() in ("1", "true", "yes") else {}
