"""The directory of a database in this process: opening it, and what its errors say."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from headrace.errors import HeadraceError, UsageError
from headrace.persistence.data_directory import DataDirectory, DirectoryInUse, DiskDirectory

HOLDER_NOTE = "by headrace.open"  # part of the lock file's text


def open_directory(path: str | os.PathLike[str]) -> DiskDirectory:
    """Open the directory of a database; create it if it is missing. Raises HeadraceError.

    The path is resolved once, so a later chdir() or a changed symbolic link has no effect.
    """
    given = os.fsdecode(path)
    if not given:
        raise UsageError(
            "'' is not a directory: use open() for memory only, or open('.') for the current directory"
        )
    if "://" in given:
        raise UsageError(f"{given!r} is a server's address, not a directory: use headrace.connect()")
    try:
        root = os.path.realpath(given)
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        raise HeadraceError(f"{given}: {error.strerror}: a database needs a directory of its own") from error
    except ValueError as error:  # UnicodeEncodeError is one
        raise UsageError(f"{given!r} is not a valid name of a directory: {error}") from error
    return DiskDirectory(root, f"{os.path.basename(sys.argv[0]) or 'python'}, {HOLDER_NOTE}")


@contextlib.contextmanager
def explain_disk_errors(files: DataDirectory) -> Iterator[None]:
    """Convert errors of the disk into a HeadraceError that says what to do."""
    try:
        yield
    except DirectoryInUse as used:
        raise HeadraceError(in_use_message(used)) from None
    except OSError as error:
        where = error.filename or getattr(files, "root", "the database")
        raise HeadraceError(f"{where}: {error.strerror or error}") from error


def in_use_message(used: DirectoryInUse) -> str:
    """Return which process has the directory, and how to share it."""
    who = "this process" if used.pid == str(os.getpid()) else f"process {used.pid}"
    holder = f" ({used.holder})" if used.holder else ""
    text = f"{used.root} is in use by {who}{holder}, and one process has it at a time"
    if used.holder and HOLDER_NOTE not in used.holder:  # a server, which states its addresses
        address = used.holder.partition(",")[0]
        return f'{text}: that is a server, use headrace.connect("redis://{address}") instead'
    if who == "this process":
        return (
            f"{text}: open it once and hand the Database on, it is safe to use from many threads, "
            "or call its close() before it is opened again"
        )
    return (
        f"{text}. To share it, run a server on it, `headrace serve --dir {used.root}`, "
        'and use headrace.connect("redis://127.0.0.1:7777") in every process'
    )
