"""Read a sample of the entries of archived files, from which a query infers columns.

    files        f1  f2  f3  f4  f5  f6  f7  f8  f9       by day
    sampled      ^       ^       ^       ^       ^        evenly, the first and the last one included

Fields come and go over the days of an archive, so the sample has entries of several files. A file is sampled
at the beginning of its first row group; the last file also at the beginning of its last row group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq

from headrace.archive.files import EXACT_COLUMN, ArchivedFile
from headrace.archive.rows import exact_as_map, exact_fields, has_fields_map

SAMPLE_FILES = 8
ENTRIES_PER_FILE = 100
FILES_AT_ONCE = 4
SCAN_BATCH_ROWS = 65_536  # rows of a file whose column `_exact` is read at a time


def sample_and_unread_count(files: Sequence[ArchivedFile]) -> tuple[list[Mapping[bytes, bytes]], int]:
    """Return the fields of some entries of the files of one stream, and the number of files not sampled.

    Raises:
        HeadraceError: if a file cannot be read.
    """
    chosen = evenly_spaced(files, SAMPLE_FILES)
    found: list[Mapping[bytes, bytes]] = []
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        for entries in pool.map(lambda file: archived_sample(file, with_end=file is files[-1]), chosen):
            found += entries
    return found, len(files) - len(chosen)


def evenly_spaced(files: Sequence[ArchivedFile], count: int) -> list[ArchivedFile]:
    """Return at most `count` of the files, the first and the last one included."""
    if len(files) <= count:
        return list(files)
    return [files[n * (len(files) - 1) // (count - 1)] for n in range(count)]


def archived_sample(file: ArchivedFile, *, with_end: bool) -> list[Mapping[bytes, bytes]]:
    """Return the fields of some entries of a file; for a file of typed columns, only of those in `_exact`."""
    with file.open() as parquet:
        if has_fields_map(parquet.schema_arrow):
            return sample_of_maps(parquet, with_end)
        return sample_of_exact(parquet)


def sample_of_maps(parquet: pq.ParquetFile, with_end: bool) -> list[Mapping[bytes, bytes]]:
    """Return the first entries of the first row group of a file of maps; with_end: also of its last."""
    columns = [name for name in ("fields", EXACT_COLUMN) if name in parquet.schema_arrow.names]
    count = parquet.num_row_groups
    found: list[Mapping[bytes, bytes]] = []
    for group in sorted({0, count - 1} if with_end else {0}) if count else ():
        if (batch := next(parquet.iter_batches(ENTRIES_PER_FILE, [group], columns), None)) is not None:
            found += [dict(pairs) for pairs in exact_fields(batch).to_pylist() if pairs is not None]
    return found


def sample_of_exact(parquet: pq.ParquetFile) -> list[Mapping[bytes, bytes]]:
    """Return the first entries in the column `_exact` of a file of typed columns."""
    found: list[Mapping[bytes, bytes]] = []
    if EXACT_COLUMN not in parquet.schema_arrow.names:
        return found
    for batch in parquet.iter_batches(SCAN_BATCH_ROWS, columns=[EXACT_COLUMN]):
        exact = batch.column(EXACT_COLUMN)
        rows = exact_as_map(exact.filter(exact.is_valid()).slice(0, ENTRIES_PER_FILE - len(found)))
        found += [dict(pairs) for pairs in rows.to_pylist()]
        if len(found) >= ENTRIES_PER_FILE:
            break
    return found
