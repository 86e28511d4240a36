"""Check a whole cold file: header, every run, index and footer."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Protocol

from headrace.errors import os_error_text
from headrace.persistence.cold import cold_file
from headrace.persistence.cold.codec import MissingCodec
from headrace.persistence.cold.cold_file import DamagedBytes, IndexEntry
from headrace.persistence.damage import Damaged
from headrace.persistence.data_directory import RandomAccessFile


class FileOpener(Protocol):
    """An object that opens files for reading: a data directory, or an object store."""

    def open_random_access(self, name: str) -> RandomAccessFile:
        """Open a file for reading at any offset. Raises OSError."""


@dataclass
class ColdFileReport:
    """What a cold file contains. Sizes are in bytes."""

    path: str
    size: int = 0
    readable_runs: list[IndexEntry] = field(default_factory=list)
    node_count: int = 0  # of these runs
    sealed: bool = False  # it has an index
    # Bytes after the last run of a file without an index. A crash can leave them; no run is known there.
    tail_bytes: int = 0
    damage: list[Damaged] = field(default_factory=list)


def check_cold_file(files: FileOpener, path: str, number: int, size: int | None = None) -> ColdFileReport:
    """Read a cold file once from its start to its end, and return what was found.

    Args:
        path: relative to the data directory.
        number: the number in the file's name.
        size: how much of the file to check, in bytes; None for all. While runs are appended to the file, it
            is the synced size.
    """
    report = ColdFileReport(path)
    try:
        with contextlib.closing(files.open_random_access(path)) as file:
            report.size = file.size() if size is None else size
            _check(file, number, report)
    except OSError as error:
        report.damage.append(Damaged(0, f"it cannot be read: {os_error_text(error)}", path))
    return report


def _check(file: RandomAccessFile, number: int, report: ColdFileReport) -> None:
    """Fill the report. Raises OSError."""
    try:
        cold_file.check_header(file.read_at(0, min(cold_file.HEADER_BYTES, report.size)), number)
    except DamagedBytes as error:
        report.damage.append(Damaged(0, str(error), report.path))
    entries = _read_index(file, report)
    if entries is None:
        _check_unindexed(file, report)
        return
    expected = cold_file.HEADER_BYTES
    for entry in entries:
        if entry.offset != expected:
            report.damage.append(Damaged(entry.offset, "the index has gaps", report.path))
        expected = entry.offset + entry.size
        _check_run(file, entry, report)
    if expected != report.size - cold_file.index_size(len(entries)):
        report.damage.append(Damaged(expected, "bytes that the index does not name", report.path))


def _read_index(file: RandomAccessFile, report: ColdFileReport) -> list[IndexEntry] | None:
    """Return the index; None if there is none, or it is damaged. Raises OSError."""
    footer_at = max(report.size - cold_file.FOOTER_BYTES, 0)
    try:
        offset = cold_file.index_offset(file.read_at(footer_at, report.size - footer_at), report.size)
        if offset is None:
            return None
        report.sealed = True
        return cold_file.parse_index(file.read_at(offset, report.size - offset))
    except DamagedBytes as error:
        report.damage.append(Damaged(footer_at, str(error), report.path))
        return None


def _check_run(file: RandomAccessFile, entry: IndexEntry, report: ColdFileReport) -> None:
    """Read one run, and add it to the report. Raises OSError."""
    what = "the file ends within the run"
    if entry.offset + entry.size <= report.size:
        try:
            data = file.read_at(entry.offset, entry.size)
            report.node_count += len(cold_file.unpack_run(data, entry.checksum))
            report.readable_runs.append(entry)
            return
        except (DamagedBytes, MissingCodec) as error:
            what = str(error)
    report.damage.append(Damaged(entry.offset, what, report.path))


def _check_unindexed(file: RandomAccessFile, report: ColdFileReport) -> None:
    """Check the runs of a file by their headers. Raises OSError.

    Damaged runs at the end are not reported: a crash in the middle of a write leaves them.
    """
    at = end = cold_file.HEADER_BYTES
    damage_before_end = len(report.damage)
    while at < report.size:
        try:
            head = file.read_at(at, min(cold_file.RUN_HEADER_STRUCT.size, report.size - at))
            size = cold_file.stated_run_size(head)
        except DamagedBytes:
            break
        if at + size > report.size:
            break
        stored = file.read_at(at + size - cold_file.CHECKSUM_STRUCT.size, cold_file.CHECKSUM_STRUCT.size)
        runs = len(report.readable_runs)
        _check_run(file, IndexEntry(at, size, *cold_file.CHECKSUM_STRUCT.unpack(stored)), report)
        at += size
        if len(report.readable_runs) > runs:
            end = at
            damage_before_end = len(report.damage)
    if not report.sealed:
        report.tail_bytes = max(report.size - end, 0)
        del report.damage[damage_before_end:]
