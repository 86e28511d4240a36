"""Merge the small files of a day: those of one batch before its commit, and those of past days afterwards.

    the tasks of a batch     a day that several of them wrote gets one file; the pieces, which no version of
                             the table has, are deleted at once
    after a run              the small files that earlier runs wrote for a day that has ended are replaced.
                             They stay for a week, for the readers of older versions

So no entry is in two files right after a run that wrote it, also for programs that read the files without
the log. The pages of the files are checked while they are read: damaged entries are not copied.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa

from headrace.archive.files import Archive, ArchivedFile, read_archive
from headrace.archive.location import ArchiveLocation
from headrace.archive.rows import sorted_by_id
from headrace.archive.table import ArchiveTable, UpkeepResult, WrittenFile, WrittenOrArchivedFile
from headrace.archive.writer import DayFileWriter
from headrace.errors import HeadraceError
from headrace.plurals import plural

SMALL_FILE_BYTES = 64 << 20
MERGED_FILE_BYTES = 256 << 20
BATCH_ROWS = 50_000


def merge_files(
    location: ArchiveLocation, columns: pa.Schema, files: Sequence[WrittenOrArchivedFile]
) -> WrittenFile:
    """Write the entries of some files of one stream and day to a new file, which is on disk afterwards.

    Args:
        location: The archive.
        columns: The columns of its table; those that none of the files has are left out.
        files: The files.

    Raises:
        HeadraceError: if one is damaged or was deleted, or the store fails.
    """
    day = files[0].date
    output = DayFileWriter(location, files[0].stream, None if day is None else str(day))
    try:
        with ExitStack() as stack:
            opened = [stack.enter_context(location.open_parquet(file.path)) for file in files]
            names = {name for parquet in opened for name in parquet.schema_arrow.names}
            schema = pa.schema([column for column in columns if column.name in names])
            for parquet in opened:
                for batch in parquet.iter_batches(BATCH_ROWS):
                    output.add(sorted_by_id(conform_to_schema(batch, schema)))
        merged = output.finish()
    except BaseException:
        output.abandon()
        raise
    if merged.rows != (expected := sum(file.rows for file in files)):
        location.delete_files([merged.path])
        raise HeadraceError(
            f"{location}: {plural(len(files), 'file')} such as {files[0].path} should have {expected} "
            f"entries, and have {merged.rows}; they were not merged"
        )
    return merged


def conform_to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with exactly the columns of a schema, cast to its types; a missing column is null."""
    columns = [
        batch.column(column.name).cast(column.type)
        if column.name in batch.schema.names
        else pa.nulls(len(batch), column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def small_file_groups(files: Iterable[WrittenOrArchivedFile]) -> Iterator[list[WrittenOrArchivedFile]]:
    """Yield groups of two or more small files of one stream and day, each of MERGED_FILE_BYTES at most."""
    days: dict[tuple[str, str], list[WrittenOrArchivedFile]] = defaultdict(list)
    for file in files:
        if file.size < SMALL_FILE_BYTES:
            days[file.stream, str(file.date)].append(file)
    for small in days.values():
        group: list[WrittenOrArchivedFile] = []
        for file in small:
            if group and sum(each.size for each in group) + file.size > MERGED_FILE_BYTES:
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def merge_small_files(table: ArchiveTable, earlier: Collection[str] | None = None) -> UpkeepResult:
    """Merge the small files of each day that has ended; readers see each entry once at any time.

    Args:
        table: The table.
        earlier: The paths of the files to merge; None for all.

    Raises:
        HeadraceError: if a file is damaged, another program changes the same files, or the store fails.
    """
    archive = read_archive(table.location)
    past = [file for file in files_of_past_days(archive) if earlier is None or file.path in earlier]
    merged = into = 0
    for group in small_file_groups(past):
        table.replace_files(group, [merge_files(table.location, archive.columns, group)])
        merged += len(group)
        into += 1
    return UpkeepResult(merged, into)


def files_of_past_days(archive: Archive) -> list[ArchivedFile]:
    """Return the files of all days but the last one of each stream, which may still grow."""
    last: Mapping[str, datetime.date] = {
        file.stream: file.date for file in archive.files if file.date is not None
    }
    return [file for file in archive.files if file.date is not None and file.date < last[file.stream]]
