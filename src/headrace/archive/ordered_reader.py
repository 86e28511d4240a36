"""Read the entries of one archived stream in the order of their IDs.

Files are in no order, and the rows of a file may be unsorted. So the reader first determines the first and
last ID of each row group:

    |----a----|                 no overlap: read batch by batch
                |---b---|
                    |---c---|   b and c overlap: read whole and sorted together

Times are converted to text in the format that the comment of their column specifies, so a replay gives the
archived fields.

Only the days near the current one are examined, so reading a large archive begins at once.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.files import TIME_ZONE_DAYS_MAX, ArchivedFile, split_ids
from headrace.archive.rows import BATCH_ROWS, FileRowGroups, filter_id_range, may_contain, rows_per_batch
from headrace.columns.time_formats import SLASHED_DATE_FORMAT, column_time_format
from headrace.columns.value_texts import time_texts, to_encodable
from headrace.positions.entry_ids import EntryId

# Derived columns are not read: the ID contains the time and the sequence.
DERIVED_COLUMNS = ("timestamp", "sequence")


@dataclass(frozen=True)
class RowGroupRange:
    """A row group with its first and last ID; is_sorted: whether its rows are in order."""

    file: ArchivedFile
    group_index: int
    first_id: EntryId
    last_id: EntryId
    is_sorted: bool


def entries_in_order(
    files: Iterable[ArchivedFile], columns: pa.Schema, after: str, upto: str
) -> Iterator[pa.RecordBatch]:
    """Yield the entries after one ID, up to and including another: id and fields, or id and typed columns.

    Args:
        files: The files of one stream.
        columns: The columns of the table.
        after: The ID after which to begin.
        upto: The last ID.
    """
    within = [file for file in files if may_contain(file, after, upto)]
    fields = {field.name: field for field in columns}
    for cluster in overlapping_row_groups(within):
        for batch in read_row_groups(cluster, fields):
            rows = filter_id_range(batch, after, upto)
            if rows.num_rows:
                yield rows


def overlapping_row_groups(files: Iterable[ArchivedFile]) -> Iterator[list[RowGroupRange]]:
    """Yield row groups in order, overlapping ones together.

    IDs in the directory of a day may be lower than IDs of the TIME_ZONE_DAYS_MAX days before it, but not
    lower than IDs of earlier days.
    """
    by_day = sorted(files, key=lambda file: file.date or datetime.date.max)
    waiting: list[RowGroupRange] = []
    for day, files_of_day in groupby(by_day, key=lambda file: file.date or datetime.date.max):
        waiting += [each for file in files_of_day for each in row_group_ranges(file)]
        waiting.sort(key=lambda each: (each.first_id, each.last_id))
        while waiting:
            size = count_overlapping(waiting)
            if any(may_precede(each.file.date, day) for each in waiting[:size]):
                break
            yield waiting[:size]
            del waiting[:size]
    while waiting:
        size = count_overlapping(waiting)
        yield waiting[:size]
        del waiting[:size]


def may_precede(date: datetime.date | None, day: datetime.date) -> bool:
    """Return whether directories after `day` may have entries before those of `date`."""
    return date is None or (day - date).days < TIME_ZONE_DAYS_MAX


def count_overlapping(ranges: list[RowGroupRange]) -> int:
    """Return how many of the sorted ranges overlap the first one, directly or in a chain."""
    last = ranges[0].last_id
    for count, each in enumerate(ranges):
        if count and each.first_id > last:
            return count
        last = max(last, each.last_id)
    return len(ranges)


def row_group_ranges(file: ArchivedFile) -> Iterator[RowGroupRange]:
    """Yield the ranges of a file's row groups; reads the column of IDs."""
    with file.open() as parquet:
        for group in range(parquet.metadata.num_row_groups):
            ms, seq = split_ids(parquet.read_row_group(group, ["id"]).column("id").combine_chunks())
            if len(ms) == 0:
                continue
            later = pc.or_(
                pc.greater(ms[1:], ms[:-1]),
                pc.and_(pc.equal(ms[1:], ms[:-1]), pc.greater(seq[1:], seq[:-1])),
            )
            first, last = (
                (bound.as_py(), edge(pc.filter(seq, pc.equal(ms, bound))).as_py())
                for bound, edge in ((pc.min(ms), pc.min), (pc.max(ms), pc.max))
            )
            yield RowGroupRange(file, group, first, last, pc.all(later).as_py() is not False)


def read_row_groups(cluster: list[RowGroupRange], fields: dict[str, pa.Field]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of overlapping row groups in order."""
    if len(cluster) == 1 and cluster[0].is_sorted:
        [only] = cluster
        with only.file.open() as parquet:
            rows = rows_per_batch(parquet, FileRowGroups(only.file, (only.group_index,)))
            for batch in parquet.iter_batches(rows, [only.group_index], entry_columns(parquet)):
                yield restore_types(batch, fields)
        return
    tables = []
    for each in cluster:
        with each.file.open() as parquet:
            table = parquet.read_row_group(each.group_index, entry_columns(parquet)).combine_chunks()
            batches = [restore_types(batch, fields) for batch in table.to_batches()]
            tables.append(pa.Table.from_batches(batches))
    together = pa.concat_tables(tables, promote_options="default")
    ms, seq = split_ids(together.column("id"))
    order = pc.sort_indices(pa.table({"ms": ms, "seq": seq}), [("ms", "ascending"), ("seq", "ascending")])
    yield from together.take(order).to_batches(BATCH_ROWS)


def restore_types(batch: pa.RecordBatch, fields: dict[str, pa.Field]) -> pa.RecordBatch:
    """Return the columns with the types with which they were read from the server.

    Times, and dates with slashes, become text. Parquet stores some types differently: for example, times lose
    their zone, also within structs.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        field = fields.get(name)
        if field is not None:
            column = column if column.type == field.type else column.cast(field.type)
        if pa.types.is_timestamp(column.type):
            column = time_texts(column, "epoch_ms" if field is None else time_format(field, "epoch_ms"))
        elif field is not None and time_format(field, "") == SLASHED_DATE_FORMAT:
            column = to_encodable(column, SLASHED_DATE_FORMAT)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def time_format(field: pa.Field, default: str) -> str:
    """Return the format in the comment of a column, or else the default."""
    comment = (field.metadata or {}).get(b"comment", b"").decode(errors="replace")
    return column_time_format(comment, bool(pa.types.is_date(field.type)), default)


def entry_columns(parquet: pq.ParquetFile) -> list[str]:
    """Return the columns that are needed to restore an entry."""
    return [name for name in parquet.schema_arrow.names if name not in DERIVED_COLUMNS]
