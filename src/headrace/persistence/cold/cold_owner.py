"""Record which log the cold files of a directory belong to: a start of another log must not remove them.

    appendonly.aof.manifest   # cold-owner 8a0f...   written with the first manifest that names cold files
    cold/owner                8a0f...                written when that manifest is durable

A copy of a data directory has both texts. If the file `owner` is missing, no manifest has named cold files
yet, or an older version of Headrace has written the manifest.
"""

from __future__ import annotations

import contextlib
import secrets

from headrace.errors import HeadraceError
from headrace.persistence.aof.file_names import COLD_OWNER, LogFileNames
from headrace.persistence.aof.manifest import Manifest, write_all
from headrace.persistence.cold.uploaded_files import number_in_name
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DataDirectory, replace_file
from headrace.plurals import plural

BYTES_MAX = 200


class ForeignColdFiles(HeadraceError):
    """The cold files in the directory of a log belong to another log."""


def new_owner() -> str:
    """Return the identity of a log that is going to name cold files."""
    return secrets.token_hex(16)


def check_owner(files: DataDirectory, names: LogFileNames) -> None:
    """Raise ForeignColdFiles if there are cold files that belong to another log. Raises OSError.

    If another log has left the directory without files, its file `owner` is removed. A manifest that names
    cold files and no owner is accepted: an older version of Headrace has written it. A damaged manifest is no
    error here: it is reported when it is read for the data.
    """
    count = sum(1 for name in files.list(names.cold_directory) if number_in_name(name))
    owner = read_owner(files, names.cold_directory)
    if not owner:
        other = _other_manifest_with_cold_files(files, names) if count else ""
        if other:
            raise _foreign_files_error(count, names, f"they are those of the log {names.path(other)}")
        return
    try:
        manifest = Manifest.load(files, names)
    except Damaged:
        return
    if count == 0:
        if manifest is None or manifest.cold_owner != owner:
            files.remove(f"{names.cold_directory}/{COLD_OWNER}")
        return
    if manifest is None:
        raise _foreign_files_error(count, names, f"there is no log {names.manifest}")
    if manifest.cold_owner != owner and (manifest.cold_owner or not manifest.cold):
        raise _foreign_files_error(count, names, f"they are not those of the log {names.manifest}")


def _other_manifest_with_cold_files(files: DataDirectory, names: LogFileNames) -> str:
    """Return the name of another log's manifest that names cold files, or is damaged; "" if there is none."""
    for name in files.list(names.directory):
        if not names.is_other_manifest(name):
            continue
        with contextlib.closing(files.open_source(names.path(name))) as source:
            try:
                if Manifest.parse(source.read(source.size)).cold:
                    return name
            except Damaged:
                return name
    return ""


def _foreign_files_error(count: int, names: LogFileNames, what: str) -> ForeignColdFiles:
    directory = names.cold_directory
    return ForeignColdFiles(
        f"{directory} has {plural(count, 'cold file')} of another log, and {what}: nothing was removed. Start"
        f" with the appendfilename of that log, put back its files, or move {directory} away"
    )


def read_owner(files: DataDirectory, directory: str) -> str:
    """Return the identity in the directory of cold files; "" if there is none. Raises OSError."""
    try:
        with contextlib.closing(files.open_source(f"{directory}/{COLD_OWNER}")) as source:
            return source.read(BYTES_MAX).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def write_owner(files: DataDirectory, directory: str, owner: str) -> None:
    """Record durably which log the cold files in a directory belong to. Raises OSError."""
    path = f"{directory}/{COLD_OWNER}"
    replace_file(files, path, f"{path}.new", lambda file: write_all(file, owner.encode() + b"\n"))
