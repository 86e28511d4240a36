"""Write entries of a stream to Parquet files of an archive, one for each day.

    record batches → | day 1 | day 1 · day 2 | day 2 |  → a file for day 1, one for day 2

Entries come in the order of their IDs, so at most one file is open. Rows are collected into row groups of
ROW_GROUP_BYTES, which bounds the memory of a task. A file is complete and on disk before it is returned; its
name is unique, so a task that runs twice leaves a file that no commit names. Each page has a checksum, and
the name of the file has a digest of all its bytes:

    part-5f1e2c9a-….-9af3c01e77ab01d2.zstd.parquet
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.files import EXACT_COLUMN, new_digest_hash, split_ids
from headrace.archive.location import ArchiveLocation, explain_store_errors
from headrace.archive.partitions import partition_folder
from headrace.archive.table import WrittenFile, sync_path
from headrace.errors import HeadraceError
from headrace.positions.entry_ids import U64_MAX

ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1_000_000
UPLOAD_BYTES = 8 << 20
LAST_DAY_NUMBER = (datetime.date.max - datetime.date(1970, 1, 1)).days
FIRST_MS_TOO_LATE = (LAST_DAY_NUMBER + 1) * 24 * 3600 * 1000  # the first millisecond after the year 9999


def write_days(
    batches: Iterable[pa.RecordBatch], stream: str, location: ArchiveLocation, zone: str
) -> list[WrittenFile]:
    """Write batches with ascending IDs; return a file for each day.

    Args:
        batches: The rows, with the columns of the archive.
        stream: Their stream.
        location: The archive.
        zone: The time zone of its days.
    """
    files: list[WrittenFile] = []
    day: DayFileWriter | None = None
    try:
        for batch in batches:
            for date, rows in split_days(batch, zone):
                if day is None or day.date != date:
                    if day is not None:
                        files.append(day.finish())
                    day = DayFileWriter(location, stream, date)
                day.add(rows)
        if day is not None:
            files.append(day.finish())
    except BaseException:
        if day is not None:
            day.abandon()
        with contextlib.suppress(HeadraceError):  # the error that is being raised says more
            location.delete_files(file.path for file in files)
        raise
    return files


def without_repeated_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with maps that have each name once, with its last value.

    Not all readers accept a map with a name twice. Such an entry is in `_exact`, with all its fields.
    """
    exact = batch.column(EXACT_COLUMN)
    if exact.null_count == len(exact) or "fields" not in batch.schema.names:
        return batch
    at = batch.schema.names.index("fields")
    maps = batch.column(at)
    if not pa.types.is_map(maps.type):
        return batch
    is_exact = exact.is_valid()
    once = pa.array([list(dict(pairs).items()) for pairs in maps.filter(is_exact).to_pylist()], maps.type)
    order = np.arange(len(maps))
    order[is_exact.to_numpy(zero_copy_only=False)] = len(maps) + np.arange(len(once))
    return batch.set_column(at, batch.schema.field(at), pa.concat_arrays([maps, once]).take(pa.array(order)))


def split_days(batch: pa.RecordBatch, zone: str) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Yield the rows of each day. The day is None after the year 9999, which not all readers support."""
    if batch.num_rows == 0:
        return
    local = pc.local_timestamp(batch.column("timestamp").cast(pa.timestamp("us", zone)))
    # Division rounds down, also for days that begin before 1970 in a zone west of Greenwich.
    days = np.floor_divide(local.cast(pa.int64()).to_numpy(), 24 * 3600 * 1_000_000)
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, stop in itertools.pairwise(starts):
        number = int(days[start])
        # The first time in a zone west of Greenwich is of day -1. The last times wrap in a zone east of it.
        has_date = -1 <= number <= LAST_DAY_NUMBER
        date = str(datetime.date(1970, 1, 1) + datetime.timedelta(number)) if has_date else None
        yield date, batch.slice(start, stop - start)


class DayFileWriter:
    """A Parquet file of one stream and day, which is being written."""

    def __init__(self, location: ArchiveLocation, stream: str, date: str | None) -> None:
        self.date = date
        self._location = location
        self._stream = stream
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = self._rows = self._exact_rows = 0
        self._first_ms = U64_MAX
        self._last_ms = 0
        self._output = ArchiveOutput(location, f"{partition_folder(stream, date)}/part-{uuid.uuid4()}")
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows in the order of their IDs."""
        ids = rows.column("id")
        first, last = (split_ids(ids.slice(at, 1))[0][0].as_py() for at in (0, len(ids) - 1))
        self._first_ms = min(self._first_ms, first)
        self._last_ms = max(self._last_ms, last)
        self._exact_rows += rows.num_rows - rows.column(EXACT_COLUMN).null_count
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Write the waiting rows as a row group."""
        table = pa.Table.from_batches(self._waiting)
        with explain_store_errors(self._location):
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._output, table.schema, compression="zstd", write_page_checksum=True
                )
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def finish(self) -> WrittenFile:
        """Complete the file, make it durable, and return its description."""
        if self._waiting:
            self._flush()
        assert self._writer is not None
        with explain_store_errors(self._location):
            self._writer.close()
            path = self._output.finish()
        first, last = (ms if ms < FIRST_MS_TOO_LATE else None for ms in (self._first_ms, self._last_ms))
        return WrittenFile(
            path, self._stream, self.date, self._rows, self._output.tell(), first, last, self._exact_rows
        )

    def abandon(self) -> None:
        """Close the file after an error, and delete it."""
        if self._writer is not None:
            with contextlib.suppress(Exception):  # the error that is being raised says more
                self._writer.close()
        self._output.abandon()


class ArchiveOutput:
    """A new file of an archive, for writing. It gets its name when it is complete and its digest is known.

    Until then it has a name with .tmp in a directory; for an object store it is a local temporary file.
    """

    def __init__(self, location: ArchiveLocation, stem: str) -> None:
        """Create the file; `stem` is its path without the digest."""
        self._location = location
        self._stem = stem
        self._size = 0
        self._digest = new_digest_hash()
        self.closed = False
        self._partial: Path | None = None
        with explain_store_errors(location):
            if location.is_local:
                self._partial = location.path / f"{stem}.tmp"
                self._partial.parent.mkdir(parents=True, exist_ok=True)
                self._file: IO[bytes] = self._partial.open("xb")
            else:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def write(self, data: Any) -> int:
        """Write bytes, and return how many."""
        piece = memoryview(data).cast("B")
        self._file.write(piece)
        self._digest.update(piece)
        self._size += len(piece)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: finish() writes all."""

    def close(self) -> None:
        """Do nothing: finish() closes the file."""

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False

    def finish(self) -> str:
        """Make the file durable under its final name; return its path within the archive."""
        path = f"{self._stem}-{self._digest.hexdigest()}.zstd.parquet"
        if self._partial is None:
            self._upload(path)
            self._file.close()
        else:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.rename(self._location.path / path)
            for folder in (self._partial.parent, self._partial.parent.parent, self._location.path):
                sync_path(folder)
        self.closed = True
        return path

    def _upload(self, path: str) -> None:
        """Copy the temporary file to the object store."""
        # Not through pyarrow: its file object does not give the library the type it takes.
        folder, _, name = path.rpartition("/")
        output: Any = self._location.folder_store(folder)._handler.open_output_stream(name, None)
        self._file.seek(0)
        while piece := self._file.read(UPLOAD_BYTES):
            output.write(piece)
        output.close()

    def abandon(self) -> None:
        """Discard what was written: the archive does not get the file."""
        self._file.close()
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)
        self.closed = True
