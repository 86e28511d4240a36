"""Check archives for `headrace check`: print damage, and the files that no table refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.fs as pafs
from rich.console import Console

from headrace.archive.delta_log import LOG_DIRECTORY, DeltaLog, read_log
from headrace.archive.files import Archive, ArchivedFile, highest_ids, read_archive, read_file_list
from headrace.archive.location import ArchiveLocation, explain_store_errors
from headrace.archive.unreferenced_files import (
    FileWithUnarchivedEntries,
    PresentFile,
    old_and_orphan_files,
    present_files,
    unarchived_entries,
)
from headrace.archive.verification import check_files
from headrace.cli.check.paths import ARCHIVE_DEPTH_MAX
from headrace.cli.output.progress import progress_bar
from headrace.console.rich_text import line
from headrace.errors import HeadraceError
from headrace.plurals import plural
from headrace.positions.entry_ids import parse_id

LISTED_MAX = 20  # files that do not count, of each kind; the others are counted


def check_archives(location: ArchiveLocation, console: Console) -> int:
    """Check an archive, or all archives in a directory; return the exit code.

    Raises:
        UsageError: if there is no archive.
        HeadraceError: if an archive is damaged, or the store fails.
    """
    found = archives_below(location)
    if len(found) < 2:
        check_archive(found[0] if found else location, console)
        return 0
    failed = 0
    for number, each in enumerate(found):
        if number:
            console.print()
        try:
            check_archive(each, console)
        except HeadraceError as error:
            failed += 1
            console.print(line((str(error), "red")), soft_wrap=True)
    if failed:
        raise HeadraceError(f"{location}: {failed:,} of {plural(len(found), 'archive')} failed the check")
    return 0


def archives_below(location: ArchiveLocation, depth: int = ARCHIVE_DEPTH_MAX) -> list[ArchiveLocation]:
    """Return the archives at a location: itself, or those at most `depth` folders below it, by name.

    Raises:
        HeadraceError: if the store fails.
    """
    with explain_store_errors(location):
        try:
            found = location.filesystem().get_file_info(pafs.FileSelector("", allow_not_found=True))
        except PermissionError:
            return []
    folders = sorted(each.base_name for each in found if each.type == pafs.FileType.Directory)
    if LOG_DIRECTORY in folders:
        return [location]
    if not depth:
        return []
    below = (
        ArchiveLocation(f"{location.uri}/{name}", location.options)
        for name in folders
        if not name.startswith(".")
    )
    return [archive for each in below for archive in archives_below(each, depth - 1)]


def check_archive(location: ArchiveLocation, console: Console) -> None:
    """Check the log of an archive and read all files of its current version; print what is damaged.

    Raises:
        UsageError: if there is no archive.
        HeadraceError: if the archive is damaged, or the store fails.
    """
    present = present_files(location)  # before the table: what a job commits meanwhile counts
    log = read_log(location)
    for damage in log.damages:
        console.print(line((f"{damage}; {damage.remedy}", "red")), soft_wrap=True)
    files = read_file_list(location)
    damaged, rows = check_current_files(files, console)
    archive = None if damaged else read_archive(location)  # it may have to open files
    mismatches = [] if archive is None else position_mismatches(archive)
    for text in mismatches:
        console.print(line((text, "red")), soft_wrap=True)
    counts = f"{plural(rows, 'entry')} in {plural(len(files), 'file')} of "
    console.print(line(counts, (str(location), "bold")), soft_wrap=True)
    has_later = print_unreferenced(
        files if archive is None else archive.files, archive, present, log, console
    )
    if log.damages or mismatches:
        found = len(log.damages) + len(mismatches)
        more = f", and {damaged:,} of {plural(len(files), 'file')}" if damaged else ""
        raise HeadraceError(
            f"{location}: {LOG_DIRECTORY} is damaged in {plural(found, 'place')}{more}; restore from a "
            "copy of the archive"
        )
    if damaged:
        raise HeadraceError(
            f"{location}: {damaged:,} of {plural(len(files), 'file')} damaged or missing; restore "
            "from a copy of the archive"
        )
    console.print("[yellow]No file that counts is damaged[/]" if has_later else "[green]All is good[/]")


def check_current_files(files: Sequence[ArchivedFile], console: Console) -> tuple[int, int]:
    """Read files, with a progress bar; print those that are damaged.

    Returns:
        The number of damaged files, and of entries.
    """
    damaged = rows = uncounted = 0
    with progress_bar(console) as bar:
        task = bar.add_task("files", total=len(files), rows=0)
        for file, result in check_files(files):
            rows += result.rows
            uncounted += not result.has_logged_count
            bar.update(task, advance=1, rows=rows)
            if result.damage is not None:
                damaged += 1
                bar.console.print(line((f"{file.path} {result.damage}", "red")), soft_wrap=True)
    if without_digest := sum(file.digest is None for file in files):
        console.print(
            f"{plural(without_digest, 'file')} without a digest, of another program or an earlier version: "
            "only the pages were checked",
            soft_wrap=True,
        )
    if uncounted:
        console.print(
            f"{plural(uncounted, 'file')} of which the table does not say the number of entries: counted in "
            "the files",
            soft_wrap=True,
        )
    return damaged, rows


def position_mismatches(archive: Archive) -> list[str]:
    """Return a message for each stream whose files have later entries than the table says.

    The opposite is not damage: later entries may have been deleted, from the stream or from the table.
    """
    found = highest_ids(archive.files)
    return [
        f"stream {stream!r}: the newest commit says that it is archived up to {through}, but the files have "
        f"entries up to {found[stream]}"
        for stream, through in archive.archived_through.items()
        if stream in found
        and not (stream in archive.positions and archive.positions[stream].generation)
        and parse_id(found[stream]) > parse_id(through)
    ]


def print_unreferenced(
    files: Sequence[ArchivedFile],
    archive: Archive | None,
    present: Sequence[PresentFile],
    log: DeltaLog,
    console: Console,
) -> bool:
    """Print the files that the table does not refer to.

    Returns:
        Whether one of these files has entries that the table lacks; always False without `archive`, which is
        None if files are damaged.
    """
    current = {file.path for file in files}
    known, unknown = old_and_orphan_files(present, current, log.referenced_paths)
    print_files(known, "that were replaced or deleted, kept a week for readers of older versions", console)
    notes: dict[str, str] = {}
    later: dict[str, list[FileWithUnarchivedEntries]] = {}
    for file in unknown:
        if archive is None:
            break
        try:
            more = unarchived_entries(archive.location, file, archive.archived_through)
        except HeadraceError:
            notes[file.path] = " (not a whole file of entries)"
            continue
        if more is not None:
            notes[file.path] = f" (entries of {more.stream!r} up to {more.last_id})"
            later.setdefault(more.stream, []).append(more)
    print_files(unknown, "that no version has, of a job that was killed or still runs", console, notes)
    for stream, found in sorted(later.items()):
        last = max((each.last_id for each in found), key=parse_id)
        text = (
            f"stream {stream!r}: the archive has it up to {found[0].archived_id}, and files that do not "
            f"count up to {last}. headrace archive adds what is still in the stream; if it was trimmed, a "
            f"commit is missing: copy these files, deleted after a week, and restore {LOG_DIRECTORY}"
        )
        console.print(line((text, "yellow")), soft_wrap=True)
    return bool(later)


def print_files(
    files: Sequence[PresentFile], kind: str, console: Console, notes: Mapping[str, str] | None = None
) -> None:
    """Print files that the table does not refer to, with sizes and notes; of many, only the first ones."""
    if not files:
        return
    size = plural(sum(file.size for file in files), "byte")
    console.print(f"Not referenced: {plural(len(files), 'file')} of {size} {kind}", soft_wrap=True)
    for file in files[:LISTED_MAX]:
        note = (notes or {}).get(file.path, "")
        console.print(line(f"  {file.path} {plural(file.size, 'byte')}{note}"), soft_wrap=True)
    if len(files) > LISTED_MAX:
        console.print(f"  and {len(files) - LISTED_MAX:,} more")
