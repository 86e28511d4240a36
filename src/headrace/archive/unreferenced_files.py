"""Find files in an archive's directory to which the current version of its table does not refer.

    replaced    an earlier version of the table has them; its readers may still need them, for a week
    unknown     no version has them: a job was killed before its commit, or is running; or a commit is missing

A killed job's entries are usually still in the stream, and the next job archives them. If a commit was lost
after the stream was trimmed, such a file has the only copy of its entries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow.fs as pafs

from headrace.archive.files import highest_id_in_column
from headrace.archive.location import ArchiveLocation, explain_store_errors
from headrace.archive.partitions import NULL_VALUE, folder_stream_name
from headrace.errors import HeadraceError
from headrace.positions.entry_ids import START, format_id, parse_id

STREAM_FOLDER_PREFIX = "stream="


@dataclass(frozen=True)
class PresentFile:
    """A file in the directory of an archive: its path within the archive, and its size in bytes."""

    path: str
    size: int


@dataclass(frozen=True)
class FileWithUnarchivedEntries:
    """A file that no version has, with entries that the table lacks.

    Attributes:
        stream: The stream, by the name of the folder.
        last_id: The highest ID in the file.
        archived_id: The ID up to which the table has the stream.
    """

    stream: str
    last_id: str
    archived_id: str


def present_files(location: ArchiveLocation) -> list[PresentFile]:
    """Return all files of an archive, sorted by path.

    Files in top-level folders whose names start with `_` or `.` are left out, such as those of its log.

    Raises:
        HeadraceError: if the store fails.
    """
    found = []
    with explain_store_errors(location):
        top = location.filesystem().get_file_info(pafs.FileSelector("", allow_not_found=True))
        for each in top:
            if each.is_file:
                found.append(PresentFile(each.base_name, each.size))
            elif not each.base_name.startswith(("_", ".")):
                folder = each.base_name
                inner = location.filesystem(folder).get_file_info(
                    pafs.FileSelector("", recursive=True, allow_not_found=True)
                )
                found += [PresentFile(f"{folder}/{one.path}", one.size) for one in inner if one.is_file]
    return sorted(found, key=lambda file: file.path)


def old_and_orphan_files(
    present: Collection[PresentFile], current: Collection[str], referenced: Collection[str]
) -> tuple[list[PresentFile], list[PresentFile]]:
    """Return the files that do not count: those that an earlier version has, and those that none has.

    Args:
        present: All files of the archive.
        current: The paths of those that count.
        referenced: The paths of those that any version adds or removes.
    """
    others = [file for file in present if file.path not in current]
    known = [file for file in others if file.path in referenced]
    return known, [file for file in others if file.path not in referenced]


def unarchived_entries(
    location: ArchiveLocation, file: PresentFile, archived_through: Mapping[str, str]
) -> FileWithUnarchivedEntries | None:
    """Return which entries of a file the table lacks by their IDs; None if it lacks none.

    Raises:
        HeadraceError: if the file is not a whole Parquet file with IDs.
    """
    name = file.path.partition("/")[0].removeprefix(STREAM_FOLDER_PREFIX)
    known = (stream for stream in archived_through if folder_stream_name(stream) == name)
    stream = next(known, "" if name == NULL_VALUE else unquote(name))
    try:
        with location.open_parquet(file.path) as parquet:
            highest = highest_id_in_column(parquet.read(["id"]).column("id"))
    except (KeyError, ValueError) as error:
        raise HeadraceError(f"{file.path} has no IDs of entries") from error
    archived = archived_through.get(stream, START)
    if highest <= parse_id(archived):
        return None
    return FileWithUnarchivedEntries(stream, format_id(highest), archived)
