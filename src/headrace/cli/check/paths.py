"""Find out what the paths of `headrace check` are: archives, directories of archives, files of a server."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.archive.local_paths import SCHEME_PATTERN
from headrace.errors import HeadraceError, UsageError, os_error_text
from headrace.persistence.check import has_log_or_snapshot

DELTA_LOG = "_delta_log"
ARCHIVE_DEPTH_MAX = 3  # folders below a directory, in search of archives


def is_archive(file: str) -> bool:
    """Return whether the path is a Delta table, or a URL: only archives have URLs."""
    return SCHEME_PATTERN.match(file) is not None or os.path.isdir(os.path.join(file, DELTA_LOG))


def holds_archives(file: str) -> bool:
    """Return whether the path is an archive, or a directory that has archives and no log or snapshot.

    Raises:
        UsageError: if it is a directory that has no archive, log or snapshot.
        HeadraceError: if the directory cannot be read.
    """
    if is_archive(file) or not os.path.isdir(file):
        return is_archive(file)
    try:
        if has_log_or_snapshot(file):
            return False
    except OSError as error:
        raise HeadraceError(f"{error.filename or file}: {os_error_text(error)}") from error
    for folder, below, _ in os.walk(file):
        below.sort()
        if DELTA_LOG in below:
            return True
        if folder[len(file) :].count(os.sep) >= ARCHIVE_DEPTH_MAX:
            below.clear()
    for parent in Path(os.path.abspath(file)).parents:
        if is_archive(str(parent)):
            raise UsageError(f"{file} is within the archive {parent}; name that")
    raise UsageError(
        f"{file} has neither a log, nor a snapshot, nor an archive; name a file such as dump.rdb, a "
        "directory with a log such as appendonlydir, or one with _delta_log"
    )
