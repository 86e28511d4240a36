"""Check the cold files of a log, and whether they have the runs to which the loaded streams refer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace.errors import log_text
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.cold_file import IndexEntry
from headrace.persistence.cold.cold_file_check import ColdFileReport, check_cold_file
from headrace.persistence.cold.run_place import RunPlace
from headrace.persistence.cold.stored_file_check import check_stored_file
from headrace.persistence.cold.uploaded_files import UploadedFiles
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import DataDirectory
from headrace.plurals import plural
from headrace.streams.cold_run import ColdRun
from headrace.streams.stream import Stream


@dataclass
class ColdCheckResult:
    """The result of a check of all cold files of a log."""

    file_count: int = 0
    run_count: int = 0
    size: int = 0  # bytes of the files
    damage: list[Damaged] = field(default_factory=list)
    unreadable_runs: list[str] = field(
        default_factory=list
    )  # which entries of which key, a sentence for each run
    orphans: list[str] = field(default_factory=list)  # paths of files that no manifest names
    orphan_bytes: int = 0
    store_file_count: int = 0  # files that were read from the object store
    unread_file_names: list[str] = field(
        default_factory=list
    )  # names of files that are in an unknown object store

    def notes(self) -> list[str]:
        """Return sentences for the operator about the files and the unreadable runs."""
        found = []
        if self.file_count:
            count = f"{plural(self.file_count, 'cold file')} with {plural(self.run_count, 'readable run')}"
            found.append(f"{count}, {plural(self.size, 'byte')}")
        if self.store_file_count:
            found.append(
                f"{plural(self.store_file_count, 'cold file')} in the object store, read and compared"
            )
        if self.unread_file_names:
            count = plural(len(self.unread_file_names), "cold file")
            found.append(
                f"{count} in an object store, not read: commands of the log that need them fail here, so the"
                " counts may be wrong"
            )
        if self.orphans:
            count = f"{plural(len(self.orphans), 'cold file')}, {plural(self.orphan_bytes, 'byte')}"
            found.append(f"{count}, to which nothing refers: the next start removes them")
        return found + self.unreadable_runs


def check_cold_files(
    files: DataDirectory,
    directory: str,
    names: Iterable[str],
    keyspace: Keyspace | None,
    stored: UploadedFiles | None = None,
) -> ColdCheckResult:
    """Read all cold files that a manifest names.

    Args:
        directory: the directory of the cold files, relative to the data directory.
        names: the names of the files in this directory.
        keyspace: the data that a start loads from the log: their cold runs must be in the files. None: the
            data could not be loaded.
        stored: the files in an object store, which are read if its URL is known. None: no file is in one.
    """
    check = ColdCheckResult()
    readable: dict[str, set[IndexEntry]] = {}
    for name in names:
        readable[name] = _check_copies(check, files, f"{directory}/{name}", name, stored)
    for name in files.list(directory):
        if cold_file.file_number(name) and name not in readable:
            check.orphans.append(f"{directory}/{name}")
            check.orphan_bytes += files.size(f"{directory}/{name}")
    for key, run in _referenced_runs(keyspace) if keyspace is not None else ():
        place = run.storage_location
        assert isinstance(place, RunPlace)
        if place.file.name in check.unread_file_names:
            continue
        if IndexEntry(place.offset, place.size, place.checksum) not in readable.get(place.file.name, ()):
            first, last = f"{run.first_ms}-{run.first_seq}", f"{run.last_ms}-{run.last_seq}"
            check.unreadable_runs.append(
                f"the entries {first} to {last} of the stream {log_text(key)!r} cannot be read: they are in"
                f" {os.path.basename(place.file.path)}, at byte {place.offset}"
            )
            if not check.damage:
                check.damage.append(
                    Damaged(place.offset, "the run that the log needs is not there", place.file.path)
                )
    return check


def _check_copies(
    check: ColdCheckResult, files: DataDirectory, path: str, name: str, stored: UploadedFiles | None
) -> set[IndexEntry]:
    """Read a file where it is: in the data directory, the object store or both; return the readable runs."""
    reports: list[ColdFileReport] = []
    found = stored.get(name) if stored is not None else None
    if found is None or files.exists(path):
        reports.append(check_cold_file(files, path, cold_file.file_number(name)))
    if found is not None and stored is not None and stored.store is not None:
        reports.append(check_stored_file(stored.store, found, name))
        check.store_file_count += 1
    if not reports:
        check.unread_file_names.append(name)
        return set()
    check.file_count += 1
    check.run_count += len(reports[0].readable_runs)
    check.size += reports[0].size
    for report in reports:
        check.damage += report.damage
    return {run for report in reports for run in report.readable_runs}


def _referenced_runs(keyspace: Keyspace) -> Iterator[tuple[bytes, ColdRun]]:
    """Yield the cold runs of all streams, with the keys of these."""
    for database in keyspace.databases:
        for key, value in database.values.items():
            if not isinstance(value, Stream) or value.cold is None:
                continue
            image = value.view_image()
            image.yields_cold_runs = True
            while image.next_node():
                if image.node_run is not None:
                    yield key, image.node_run
