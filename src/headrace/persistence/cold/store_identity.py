"""Check that an object store's prefix belongs to this data directory: two servers must not share one.

    cold/store-identity                 in the data directory, and the same text
    s3://bucket/prefix/store-identity   in the store

    headrace <random, 32 digits> <inode of the local file>

A copy of a data directory has the text of the original, but not the inode: it does not own the store.
"""

from __future__ import annotations

import contextlib
import secrets

from headrace.errors import HeadraceError
from headrace.persistence.aof.file_names import STORE_IDENTITY
from headrace.persistence.aof.manifest import write_all
from headrace.persistence.cold.object_store import MissingObject, ObjectExists, ObjectStore
from headrace.persistence.cold.uploaded_files import StoredFile
from headrace.persistence.data_directory import DataDirectory, make_directories

IDENTITY_NAME = STORE_IDENTITY
TEMPORARY = f"{IDENTITY_NAME}.new"
BYTES_MAX = 200


class ForeignStore(HeadraceError):
    """The store belongs to another data directory, or does not have the cold files of this one."""


def claim(files: DataDirectory, directory: str, store: ObjectStore, stored: StoredFile | None) -> bytes:
    """Make the store belong to this directory, unless it belongs to another one; return the text for check().

    Args:
        directory: the directory of the cold files, relative to the data directory.
        stored: a file that must be in the store; None if there is none.

    Raises:
        ForeignStore: if it belongs to another directory, or does not have the files of this one.
        StoreError: if a request to the store fails.
        OSError: if the local file cannot be read or written.
    """
    own = _read(files, f"{directory}/{IDENTITY_NAME}")
    with contextlib.suppress(MissingObject):
        if store.get(IDENTITY_NAME) != own:
            raise _foreign_store_error(store)
        return own
    if stored is not None:
        try:
            store.head(stored.object_key)
        except MissingObject:
            raise ForeignStore(
                f"{store.url} does not have the cold files of this data directory, such as "
                f"{stored.object_key}:"
                " give the URL of the store that has them"
            ) from None
    own = own or _create(files, directory)
    with contextlib.suppress(ObjectExists):
        store.put(IDENTITY_NAME, own, new=True)
    if store.get(IDENTITY_NAME) != own:
        raise _foreign_store_error(store)
    return own


def check(store: ObjectStore, own: bytes) -> None:
    """Raise ForeignStore if the store no longer belongs to this directory, StoreError if a request fails."""
    try:
        if store.get(IDENTITY_NAME) == own:
            return
    except MissingObject:
        raise ForeignStore(
            f"the object {IDENTITY_NAME} was removed from {store.url}: restart the server"
        ) from None
    raise _foreign_store_error(store)


def _foreign_store_error(store: ObjectStore) -> ForeignStore:
    return ForeignStore(
        f"{store.url} belongs to another data directory: each needs a prefix of its own. If this directory is"
        f" a copy that replaces the other one, remove the object {IDENTITY_NAME} there and start again"
    )


def _read(files: DataDirectory, path: str) -> bytes:
    """Return the text of the local file; b"" if there is none, or it is a copy of another one."""
    try:
        with contextlib.closing(files.open_source(path)) as source:
            text = source.read(BYTES_MAX)
        inode = files.identity(path).inode
    except FileNotFoundError:
        return b""
    return text if text.endswith(b" %d\n" % inode) else b""


def _create(files: DataDirectory, directory: str) -> bytes:
    """Write a new local file; return its text. Raises OSError."""
    make_directories(files, directory)
    temporary = f"{directory}/{TEMPORARY}"
    with contextlib.closing(files.create(temporary)) as file:
        text = b"headrace %s %d\n" % (secrets.token_hex(16).encode(), file.identity().inode)
        write_all(file, text)
        file.sync()
    files.rename(temporary, f"{directory}/{IDENTITY_NAME}")
    files.sync_directory(directory)
    return text
