"""The location of an archive: a directory, or a URL of an object store, with the options that open it.

    archive/orders, file:///data/orders     a directory that all nodes see
    s3://bucket/orders                      Amazon S3 and stores with its protocol
    gs://bucket/orders                      Google Cloud Storage
    az://container/orders, abfss://…        Azure

Options have the names that the library deltalake gives them, such as AWS_ENDPOINT_URL or
GOOGLE_SERVICE_ACCOUNT. What is not given is taken from the environment variables of the same names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from headrace.archive.local_paths import SCHEME_PATTERN, local_path
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq
    from deltalake.fs import DeltaStorageHandler

OBJECT_STORE_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")
SCHEME_ALIASES = {"s3a": "s3", "azure": "az", "abfss": "abfs"}  # other names of the same stores
COLOR_CODE_PATTERN = re.compile(r"\x1b?\[\d+m")
XML_MESSAGE_PATTERN = re.compile(r"<Message>([^<]*)</Message>")
CREDENTIALS_PATTERN = re.compile(r"^[^/]*:[^/]*@|\?[\w-]+=")  # user:password@, or ?sig=signature
USER_INFO_PATTERN = re.compile(r"//[^/@]*@")
# Of a stack trace of the library.
STACK_FRAME_PATTERN = re.compile(r"\d+: |at \S+:\d+|stack backtrace:|<unknown>")
PERCENT_ESCAPE_PATTERN = re.compile(r"%[0-9A-Fa-f]{2}")
LIBRARY_MISSING_MESSAGE = "archives need the packages deltalake and pyarrow: pip install deltalake pyarrow"

# How long an object store may stay silent. With the defaults of the library a wrong address takes minutes.
STORE_DEFAULTS = {
    "connect_timeout": "5s",
    "timeout": "60s",
    "max_retries": "5",
    "retry_timeout": "60s",
    # Two writers of one version: with this precondition the store rejects the second one.
    "aws_conditional_put": "etag",
}


class ArchiveError(HeadraceError):
    """A file of an archive is missing or damaged, or its store fails."""


@dataclass(frozen=True)
class ArchiveLocation:
    """The place of an archive; picklable, so that tasks can open its files.

    Attributes:
        uri: An absolute path, or a URL of an object store without a slash at its end. As the user gives
            it, not percent-encoded.
        options: The options of the store by name, in order.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # may have credentials

    def __str__(self) -> str:
        return self.uri

    @property
    def is_local(self) -> bool:
        """Whether the archive is a directory."""
        return SCHEME_PATTERN.match(self.uri) is None

    @property
    def path(self) -> Path:
        """The directory of a local archive."""
        assert self.is_local
        return Path(self.uri)

    @property
    def deltalake_uri(self) -> str:
        """The URI for deltalake, which decodes URLs."""
        if self.is_local:
            return self.uri
        scheme, _, rest = self.uri.partition("://")
        return f"{scheme}://{quote(rest, safe='/@.-_~+=')}"

    def storage_options(self) -> dict[str, str] | None:
        """Return the options for deltalake; None for a directory, which has none."""
        if self.is_local:
            return None
        given = dict(self.options)
        named = {name.lower() for name in given}
        found = {name: text for name, text in STORE_DEFAULTS.items() if name not in named}
        endpoint = given.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT_URL", ""))
        if endpoint.startswith("http://"):
            found["AWS_ALLOW_HTTP"] = "true"
        return found | given

    def folder_store(self, folder: str) -> DeltaStorageHandler:
        """Return the object store of a folder of the archive; paths are relative to the folder.

        The library decodes the URL of a store, but encodes each `%` of a path within it. So a path with a
        `%`, such as that of a partition, has to be part of the URL.

        Raises:
            UsageError: if deltalake is not installed.
        """
        try:
            from deltalake.fs import DeltaStorageHandler
        except ModuleNotFoundError as error:
            raise UsageError(LIBRARY_MISSING_MESSAGE) from error
        uri = f"{self.deltalake_uri}/{quote(folder, safe='/=')}" if folder else self.deltalake_uri
        return DeltaStorageHandler(uri, self.storage_options())

    def filesystem(self, folder: str = "") -> pafs.FileSystem:
        """Return a file system whose root is a folder of the archive; by default the archive itself."""
        import pyarrow.fs as pafs

        if self.is_local:
            return pafs.SubTreeFileSystem(str(self.path / folder), pafs.LocalFileSystem())
        return pafs.PyFileSystem(self.folder_store(folder))

    @contextmanager
    def open_parquet(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a Parquet file of the archive for a with block; the checksums of its pages are verified.

        Times of type INT96 are read in microseconds.

        Raises:
            ArchiveError: if the file was deleted or is damaged, or the store fails; also in the block.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder, _, name = path.rpartition("/")
        try:
            # With `filesystem` the reader opens the file itself, so it also closes it.
            with pq.ParquetFile(
                name,
                filesystem=self.filesystem(folder),
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
            ) as parquet:
                yield parquet
        except FileNotFoundError as gone:
            raise ArchiveError(
                f"{self}/{path} is missing. Run the command again, as another job may have merged or deleted "
                "it; if it is still missing, restore it from a copy of the archive"
            ) from gone
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as error:
            raise ArchiveError(
                f"{self}/{path} is damaged: {one_line(error)}{self.damage_check_hint}"
            ) from error
        except OSError as error:  # also a page whose checksum is wrong, or that cannot be decompressed
            raise ArchiveError(
                f"{self}/{path} cannot be read: {one_line(error)}{self.damage_check_hint}"
            ) from error

    @property
    def damage_check_hint(self) -> str:
        """What to append to an error about a damaged file: the command that lists all of them."""
        return f"; headrace check {self} lists damaged files"

    def delete_files(self, paths: Iterable[str]) -> None:
        """Delete files to which no version of the table refers; files that are missing are skipped.

        Raises:
            HeadraceError: if the store fails.
        """
        for path in paths:
            folder, _, name = path.rpartition("/")
            with explain_store_errors(self), suppress(FileNotFoundError):
                self.filesystem(folder).delete_file(name)


def archive_location(
    given: str | os.PathLike[str] | ArchiveLocation, options: Mapping[str, str] | None = None
) -> ArchiveLocation:
    """Return the location that a user gives.

    Args:
        given: A path, a file:// URL, or a URL of an object store; or a location, which is returned as it is.
        options: The options of the store by name.

    Raises:
        UsageError: if `given` is none of these, has credentials or an escape such as %20, or is a directory
            and options are given.
    """
    if isinstance(given, ArchiveLocation):
        return given
    text = os.fspath(given)
    pairs = tuple(sorted((options or {}).items()))
    match = SCHEME_PATTERN.match(text)
    if match is not None and match[1].lower() in OBJECT_STORE_SCHEMES:
        rest = text[match.end() :].strip("/")
        if not rest:
            raise UsageError(f"{text} names no bucket; give one such as {match[1]}://bucket/orders")
        if CREDENTIALS_PATTERN.search(rest):
            raise UsageError(
                f"{match[1]}://…: a URL cannot have credentials; set them as options of the store"
            )
        check_no_percent_escape(text)
        return ArchiveLocation(f"{match[1].lower()}://{rest}", pairs)
    if match is not None and match[1].lower() != "file":
        shown = USER_INFO_PATTERN.sub("//…@", text)
        raise UsageError(
            f"{shown}: {match[1]}:// is not supported; give a directory, or a URL that begins with s3://, "
            "gs://, az:// or abfss://"
        )
    if pairs:
        raise UsageError(f"{text} is a directory, which takes no options of an object store")
    uri = str(local_path(given).absolute())
    check_no_percent_escape(uri)
    return ArchiveLocation(uri)


def is_same_store_url(one: str, other: str) -> bool:
    """Return whether two URLs of object stores name the same place."""

    def parts(url: str) -> tuple[str, str]:
        scheme, _, rest = url.partition("://")
        return SCHEME_ALIASES.get(scheme, scheme), rest

    return parts(one) == parts(other)


def check_no_percent_escape(text: str) -> None:
    """Raise UsageError for a path with an escape such as %20, which deltalake would decode."""
    if escape := PERCENT_ESCAPE_PATTERN.search(text):
        raise UsageError(f"{text}: an archive cannot be in a path with {escape[0]}")


@contextmanager
def explain_store_errors(location: ArchiveLocation) -> Iterator[None]:
    """Raise the errors of a store, and of its library, as one line.

    Raises:
        FileNotFoundError: unchanged.
        ArchiveError: in place of any other OSError and the errors of deltalake.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ArchiveError(f"{location}: {one_line(error)}") from error
    except Exception as error:
        if not type(error).__module__.startswith(("deltalake", "_internal")):
            raise
        raise ArchiveError(f"{location}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """Return the message of a store's error as one line: its first line and its last one.

    The lines between list the layers of the library. If the library appends the XML of the store, the message
    in this XML is added.
    """
    text = COLOR_CODE_PATTERN.sub("", str(getattr(error, "strerror", None) or error))
    message = XML_MESSAGE_PATTERN.search(text)
    lines = [line.strip() for line in text.partition("<?xml")[0].replace("\u21b3", "").splitlines()]
    lines = [line for line in lines if line and not STACK_FRAME_PATTERN.match(line)]
    if not lines:
        return type(error).__name__
    first = lines[0].removeprefix("Kernel error -> ").removeprefix("Generic delta kernel error: ")
    words = [first, *([lines[-1]] if len(lines) > 1 else []), *([message[1]] if message else [])]
    return ": ".join(words)
