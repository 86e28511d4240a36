"""File names of a log that are free, and files of a log that are no longer read."""

from __future__ import annotations

import contextlib
import itertools
import logging

from headrace.persistence.aof.log_file_monitor import LogFileMonitor
from headrace.persistence.aof.manifest import Manifest, ManifestLine
from headrace.persistence.aof.names import LogFileNames
from headrace.persistence.data_directory import DataDirectory

REPLACED_SUFFIX = ".replaced"


def free_number(files: DataDirectory, names: LogFileNames, manifest: Manifest) -> int:
    """Return a number for a new incr file and its base. Raises OSError.

    A number is skipped if something already has one of the names, though no manifest names it. Only an
    empty incr file is reused: a log of which no manifest was stored leaves one.
    """
    number = manifest.max_sequence() + 1
    while _is_taken(files, names, number):
        number += 1
    return number


def _is_taken(files: DataDirectory, names: LogFileNames, number: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        found = files.identity(names.path(names.incr_name(number)))
        if found.size > 0 or not found.is_regular:
            return True
    if number == 1:  # before the first manifest a base is worth nothing: a killed start left it
        return False
    return any(files.exists(names.path(names.base_name(number, rdb))) for rdb in (True, False))


def restore_directory(files: DataDirectory, names: LogFileNames) -> None:
    """Make the directory of a log again if it was removed, and its manifest replaceable.

    Raises:
        HeadraceError: if the data directory is not the one that was locked. It is left alone.
        OSError: if the directory cannot be made.
    """
    files.check_lock()
    files.make_directory(names.directory)
    files.sync_directory("")
    with contextlib.suppress(FileNotFoundError):
        if not files.identity(names.manifest).is_regular:  # no file can be renamed over a directory
            keep_replaced(files, names.manifest)


def remove_leftovers(files: DataDirectory, names: LogFileNames, manifest: Manifest | None) -> None:
    """Remove what a killed rewrite left: temporary files, and a base that no manifest names.

    The highest number that such a base has is that of the next rewrite.
    """
    named = {line.file for line in manifest.lines()} if manifest else set()
    highest = manifest.max_sequence() + 1 if manifest else 0
    for name in files.list(names.directory):
        unnamed_base = name not in named and 0 < names.base_number(name) <= highest
        if names.is_temporary(name) or unnamed_base:
            remove(files, names.path(name))


def remove_history(
    files: DataDirectory, names: LogFileNames, manifest: Manifest, monitor: LogFileMonitor
) -> list[ManifestLine]:
    """Remove the history files of a manifest; return those that could not be removed.

    What has the name of a log file and is not that file is renamed: it belongs to another program.
    """
    needed = {line.file for line in manifest.read_lines()}
    left: list[ManifestLine] = []
    for line in manifest.history:
        if line.file in needed:
            continue
        path = names.path(line.file)
        try:
            if monitor.is_replaced(path):
                keep_replaced(files, path)
            else:
                files.remove(path)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(line)
    return left


def keep_replaced(files: DataDirectory, path: str) -> None:
    """Rename a file that another program has put in the place of a log file. Raises OSError."""
    kept = f"{path}{REPLACED_SUFFIX}"
    for number in itertools.count(2):
        if not files.exists(kept):
            break
        kept = f"{path}{REPLACED_SUFFIX}-{number}"
    files.rename(path, kept)
    logging.getLogger("headrace").warning("%s is not a file of this log: renamed to %s", path, kept)


def remove(files: DataDirectory, path: str) -> None:
    """Remove a file that nothing reads any more, if the disk lets us."""
    with contextlib.suppress(OSError):
        files.remove(path)


def describe_error(error: Exception) -> str:
    """Return an error in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
