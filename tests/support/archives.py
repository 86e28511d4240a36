"""Archives as the archive job leaves them, made without Spark: files by day, and the table of them."""

from __future__ import annotations

import datetime
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.archive.creation import HEAD_COLUMNS, create_or_open
from headrace.archive.files import ArchivedFile, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.table import WrittenFile
from headrace.archive.watermark import Watermark, raise_watermark
from headrace.archive.writer import write_days
from headrace.positions.entry_ids import parse_id
from headrace.positions.position import parse_position, parse_positions

Entry = tuple[str, Mapping[str, object]]
MAP = pa.map_(pa.string(), pa.string())
LATE_MS = 253_402_300_800_000  # the year 10000


def entries_at(*ids: tuple[int, int]) -> list[Entry]:
    """Return an entry of one field for each ID."""
    return [(f"{ms}-{seq}", {"n": ms}) for ms, seq in ids]


def publish(client: Any, stream: str, position: str, table: str = "main") -> str | None:
    """Raise the watermark of an archive as its job does; return its ID afterwards."""
    return raise_watermark(client, stream, watermark(position, table))


def watermark(position: str, table: str = "main") -> Watermark:
    """Return the watermark of an archive in /lake."""
    return Watermark(parse_position(position), table, f"/lake/{table}")


class ArchiveMaker:
    """An archive that grows batch by batch. schema: the fields as columns of these types, or one map."""

    def __init__(
        self, directory: str | os.PathLike[str] | ArchiveLocation, schema: pa.Schema | None = None
    ) -> None:
        self.location = archive_location(directory)
        self.schema = schema
        self.table = create_or_open(self.location, schema, "UTC")
        self.columns = read_archive(self.location).columns

    @property
    def directory(self) -> Path:
        return self.location.path

    def add(
        self,
        stream: str,
        entries: Sequence[Entry],
        *,
        committed: bool = True,
        shift_hours: int = 0,
        group_rows: int = 1000,
        reached: Mapping[str, str] | None = None,
    ) -> list[WrittenFile]:
        """Add a batch: a file for each day, which may begin hours away from UTC's.

        Args:
            stream: The stream of the entries.
            entries: The entries, in any order.
            committed: Whether the files count.
            shift_hours: How many hours days begin before those of UTC.
            group_rows: The rows of a row group.
            reached: The positions in the commit; none by default.
        """
        days: dict[str | None, list[Entry]] = {}
        for entry in entries:
            days.setdefault(day_of(entry[0], shift_hours), []).append(entry)
        files = [self.write(stream, day, theirs, group_rows) for day, theirs in days.items()]
        if committed:
            self.table.commit(files, parse_positions(reached or {}))
        return files

    def write(self, stream: str, day: str | None, entries: Sequence[Entry], group_rows: int) -> WrittenFile:
        """Write the file of one day."""
        inner = f"stream=x/date={day}/part-{uuid.uuid4()}.parquet"
        path = self.directory / inner
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.rows(entries), path, row_group_size=group_rows)
        times = [parse_id(entry_id)[0] for entry_id, _ in entries]
        bounds = (min(times), max(times)) if day is not None else (None, None)
        return WrittenFile(inner, stream, day, len(entries), path.stat().st_size, *bounds, 0)

    def add_written(self, stream: str, entries: Sequence[Entry]) -> None:
        """Write entries in ascending order as the tasks of the archive job do, and commit them."""
        self.commit(self.write_files(stream, entries), {})

    def write_files(self, stream: str, entries: Sequence[Entry]) -> list[WrittenFile]:
        """Write entries in ascending order as the tasks of the archive job do, without a commit."""
        return list(write_days(self.batches(entries), stream, self.location, "UTC"))

    def commit(self, files: Sequence[WrittenFile], positions: Mapping[str, str]) -> None:
        """Commit files and the positions that they reach, as the archive job does."""
        self.table.commit(files, parse_positions(positions))

    def batches(self, entries: Sequence[Entry]) -> list[pa.RecordBatch]:
        """Return entries as the rows of a batch."""
        return self.rows(entries).combine_chunks().to_batches()

    def remember(self, positions: Mapping[str, str]) -> None:
        """Commit positions without files."""
        self.table.commit([], parse_positions(positions))

    def rows(self, entries: Sequence[Entry]) -> pa.Table:
        """Return entries as the rows of a file. `_exact` of an entry is the value of that column, too."""
        ids = [parse_id(entry_id) for entry_id, _ in entries]
        columns = {
            "id": pa.array([entry_id for entry_id, _ in entries], pa.string()),
            "timestamp": pa.array([min(ms, LATE_MS) * 1000 for ms, _ in ids], pa.timestamp("us", "UTC")),
            "sequence": pa.array([seq for _, seq in ids], pa.int64()),
        }
        for column in self.columns:
            if column.name == "fields" and self.schema is None:
                pairs = [[(name, str(value)) for name, value in fields.items()] for _, fields in entries]
                columns["fields"] = pa.array(pairs, MAP)
            elif column.name not in {each.name for each in HEAD_COLUMNS}:
                found = [fields.get(column.name) for _, fields in entries]
                columns[column.name] = pa.array(found, column.type)
        return pa.table(columns)


def day_of(entry_id: str, shift_hours: int = 0) -> str | None:
    """Return the day of an ID; None after the year 9999."""
    ms = parse_id(entry_id)[0] + shift_hours * 3_600_000
    return None if ms >= LATE_MS else str(datetime.date(1970, 1, 1) + datetime.timedelta(ms // 86_400_000))


def files_in(archive: str | os.PathLike[str] | ArchiveLocation) -> tuple[ArchivedFile, ...]:
    """Return the files of an archive that count."""
    return read_archive(archive_location(archive)).files


def counted_entries(archive: str | os.PathLike[str] | ArchiveLocation) -> Counter[tuple[str, str]]:
    """Return how often each entry is in the files of an archive: (stream, ID)."""
    counts: Counter[tuple[str, str]] = Counter()
    for file in files_in(archive):
        with file.open() as parquet:
            ids = parquet.read(["id"]).column("id").to_pylist()
        assert len(ids) == file.rows
        counts.update((file.stream, entry_id) for entry_id in ids)
    return counts


def damage_column(path: Path, column: str) -> None:
    """Change some bytes in the middle of a column's data, as a bad disk does."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunk = next(
        each for each in map(group.column, range(group.num_columns)) if each.path_in_schema == column
    )
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    at = start + chunk.total_compressed_size - 6
    data[at : at + 4] = bytes(each ^ 0x5A for each in data[at : at + 4])
    path.write_bytes(data)
