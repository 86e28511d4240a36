"""Maintain the directory of a log: choose free file numbers, remove leftovers, replaced files and orphans."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
from collections.abc import Iterable, Mapping

from headrace.persistence.aof.file_names import LogFileNames
from headrace.persistence.aof.log_file_monitor import LogFileMonitor
from headrace.persistence.aof.manifest import Manifest, ManifestLine
from headrace.persistence.cold import cold_file, cold_owner
from headrace.persistence.cold.cold_files import ColdFile, ColdFiles, KnownIdentity
from headrace.persistence.data_directory import DataDirectory
from headrace.plurals import plural

REPLACED_SUFFIX = ".replaced"


def next_free_number(files: DataDirectory, names: LogFileNames, manifest: Manifest) -> int:
    """Return a number for a new incr file and its base. Raises OSError.

    Numbers of existing files are skipped, even if no manifest names these. Only an empty incr file is
    reused: a log that stopped before its manifest was stored leaves one.
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
    if number == 1:  # a base without a manifest: left by a start that was killed
        return False
    return any(files.exists(names.path(names.base_name(number, rdb))) for rdb in (True, False))


def restore_directory(files: DataDirectory, names: LogFileNames) -> None:
    """Create the directory of a log if it is missing.

    Anything but a regular file at the path of the manifest is renamed, so that a manifest can be written.

    Raises:
        HeadraceError: if the data directory is not the one that was locked. It is left alone.
        OSError: if the directory cannot be made.
    """
    files.check_lock()
    files.make_directory(names.directory)
    files.sync_directory("")
    with contextlib.suppress(FileNotFoundError):
        if not files.identity(names.manifest).is_regular:  # no file can be renamed over a directory
            rename_foreign_file(files, names.manifest)


def remove_leftovers(files: DataDirectory, names: LogFileNames, manifest: Manifest | None) -> None:
    """Remove what a killed rewrite left: temporary files, and a base that no manifest names.

    A base with a higher number than that of the next rewrite is kept: no killed rewrite has left it.
    """
    named = {line.file for line in manifest.lines()} if manifest else set()
    highest = manifest.max_sequence() + 1 if manifest else 0
    for name in files.list(names.directory):
        unnamed_base = name not in named and 0 < names.base_number(name) <= highest
        if names.is_temporary(name) or unnamed_base:
            remove_if_possible(files, names.path(name))


def cold_file_lines(
    files: DataDirectory, references: Iterable[ColdFile], known: Mapping[str, KnownIdentity]
) -> list[ManifestLine]:
    """Check the cold files to which a new base refers; return their lines for the manifest.

    Raises OSError if one is missing, too short or another file, and not in an object store either.

    Args:
        known: the identities of the files that were written, by name; other files are not compared.
    """
    for file in references:
        written = known.get(file.name)
        try:
            found = files.identity(file.path)
        except FileNotFoundError:
            if not file.in_store:
                raise
            continue
        if file.in_store:
            continue
        if found.size < file.size:
            raise OSError(errno.EIO, "the cold file was truncated", file.path)
        if written is not None and not found.is_same_file(written.identity):
            raise OSError(errno.EIO, "another file has the name of the cold file", file.path)
    lines = [ManifestLine(file.name, cold_file.file_number(file.name)) for file in references]
    return sorted(lines, key=lambda line: line.sequence)


def prepare_cold_directory(files: DataDirectory, names: LogFileNames, cold_files: ColdFiles) -> None:
    """Lock the directory of the cold files, if it exists, and check that they are those of this log.

    Call it before orphans are removed, and before data are loaded: loading may add files.

    Raises:
        ForeignColdFiles: if they belong to another log.
        DirectoryInUse: if another process uses them.
        OSError: if the directory cannot be read.
    """
    cold_files.lock_directory()
    cold_owner.check_owner(files, names)


def remove_unlogged_orphans(files: DataDirectory, names: LogFileNames, cold_files: ColdFiles) -> None:
    """Remove the cold files that nothing refers to. Call it when the data are loaded and the log is off.

    The cold files of a log that is on disk, but not in use, are kept. Raises OSError, and
    Damaged if its manifest is damaged.
    """
    if files.exists(names.manifest):
        files.sync_directory(names.directory)  # a power cut would bring back the manifest before this one
    manifest = Manifest.load(files, names)
    cold_files.set_needed_names(manifest.cold_names() if manifest is not None else ())
    remove_orphans(cold_files)


def remove_orphans(cold_files: ColdFiles) -> None:
    """Remove the cold files that nothing refers to, and report their number in the message log."""
    removed, size = cold_files.remove_orphans()
    if removed:
        text = "removed %s (%d bytes) that nothing refers to: an earlier process left them"
        logging.getLogger("headrace").warning(text, plural(removed, "cold file"), size)


def remove_history(
    files: DataDirectory, names: LogFileNames, manifest: Manifest, monitor: LogFileMonitor
) -> list[ManifestLine]:
    """Remove the history files of a manifest; return those that could not be removed.

    A file of another program that has the name of a log file is renamed instead.
    """
    needed = {line.file for line in manifest.lines_to_load()}
    left: list[ManifestLine] = []
    for line in manifest.history:
        if line.file in needed:
            continue
        path = names.path(line.file)
        try:
            if monitor.is_replaced(path):
                rename_foreign_file(files, path)
            else:
                files.remove(path)
        except FileNotFoundError:
            continue
        except OSError:
            left.append(line)
    return left


def rename_foreign_file(files: DataDirectory, path: str) -> None:
    """Rename a file that another program has put in the place of a log file. Raises OSError."""
    kept = f"{path}{REPLACED_SUFFIX}"
    for number in itertools.count(2):
        if not files.exists(kept):
            break
        kept = f"{path}{REPLACED_SUFFIX}-{number}"
    files.rename(path, kept)
    logging.getLogger("headrace").warning("%s is not a file of this log: renamed to %s", path, kept)


def remove_if_possible(files: DataDirectory, path: str) -> None:
    """Remove a file that is not read any more; ignore errors."""
    with contextlib.suppress(OSError):
        files.remove(path)


def describe_error(error: Exception) -> str:
    """Return file and reason of an OSError; of another error its text, or its class name without a text."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
