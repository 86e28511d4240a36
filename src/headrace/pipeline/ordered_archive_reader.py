"""The entries of one archived stream in the order of their IDs.

Files come in no order, and a file's rows are in order only if the job that wrote it kept it. So each row
group first tells which IDs it has, from where to where:

    |----a----|                 alone: read batch by batch
                |---b---|
                    |---c---|   b and c overlap: read whole and sorted together

The columns come as they were when the entries were compared with them (spark.exact_rows), times as the texts
that they are written as; so what is replayed of them is what was archived.

Only the days near the one that is being read are looked at, so a large archive begins at once.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from headrace.spark.archive.files import DAYS_APART_MAX, ArchivedFile, numbers_of
from headrace.spark.archive.partition_reader import Piece, rows_at_once, within
from headrace.spark.decode.time_formats import format_of
from headrace.spark.sink.arrow_cells import time_texts
from headrace.spark.source.offsets import EntryId
from headrace.spark.source.range_reader import BATCH_ROWS

# Of an entry's own columns only its ID is needed: it says the time and the sequence.
NOTE = b"org.apache.spark.sql.parquet.row.metadata"
LEFT_OUT = ("timestamp", "sequence")


@dataclass(frozen=True)
class Extent:
    """A row group that has IDs from first to last; is_sorted: in order."""

    file: ArchivedFile
    group: int
    first: EntryId
    last: EntryId
    is_sorted: bool


def entries_in_order(files: Iterable[ArchivedFile], after: str, upto: str) -> Iterator[pa.RecordBatch]:
    """The entries after one ID, up to and including another: id and fields, or id and a column for each."""
    for cluster in clusters(files):
        for batch in read(cluster):
            rows = within(batch, after, upto)
            if rows.num_rows:
                yield rows


def clusters(files: Iterable[ArchivedFile]) -> Iterator[list[Extent]]:
    """Row groups in order, those that overlap together.

    A day's folder may hold entries that lie before some of a folder DAYS_APART_MAX earlier, but none before
    those of an earlier one.
    """
    by_day = sorted(files, key=lambda file: file.date or datetime.date.max)
    waiting: list[Extent] = []
    for day, theirs in groupby(by_day, key=lambda file: file.date or datetime.date.max):
        waiting += [extent for file in theirs for extent in extents(file)]
        waiting.sort(key=lambda extent: (extent.first, extent.last))
        while waiting:
            size = overlapping(waiting)
            if any(is_near(extent.file.date, day) for extent in waiting[:size]):
                break
            yield waiting[:size]
            del waiting[:size]
    while waiting:
        size = overlapping(waiting)
        yield waiting[:size]
        del waiting[:size]


def is_near(date: datetime.date | None, day: datetime.date) -> bool:
    """Whether folders after `day` may hold entries that belong before one of `date`."""
    return date is None or (day - date).days < DAYS_APART_MAX


def overlapping(extents: list[Extent]) -> int:
    """How many of the extents, which are sorted, overlap the first, or each other in a chain."""
    last = extents[0].last
    for count, extent in enumerate(extents):
        if count and extent.first > last:
            return count
        last = max(last, extent.last)
    return len(extents)


def extents(file: ArchivedFile) -> Iterator[Extent]:
    """The row groups of a file. Reads its IDs."""
    with pq.ParquetFile(file.path) as parquet:
        for group in range(parquet.metadata.num_row_groups):
            ms, seq = numbers_of(parquet.read_row_group(group, ["id"]).column("id").combine_chunks())
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
            yield Extent(file, group, first, last, pc.all(later).as_py() is not False)


def read(cluster: list[Extent]) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups in order."""
    if len(cluster) == 1 and cluster[0].is_sorted:
        [alone] = cluster
        with opened(alone.file.path) as parquet:
            rows = rows_at_once(parquet, Piece(alone.file.path, (alone.group,)))
            fields = fields_of(parquet.metadata.metadata)
            for batch in parquet.iter_batches(rows, [alone.group], columns_of(parquet)):
                yield as_read(batch, fields)
        return
    tables = []
    for extent in cluster:
        with opened(extent.file.path) as parquet:
            table = parquet.read_row_group(extent.group, columns_of(parquet)).combine_chunks()
            fields = fields_of(parquet.metadata.metadata)
            batches = [as_read(batch, fields) for batch in table.to_batches()]
            tables.append(pa.Table.from_batches(batches))
    together = pa.concat_tables(tables, promote_options="default")
    ms, seq = numbers_of(together.column("id"))
    order = pc.sort_indices(pa.table({"ms": ms, "seq": seq}), [("ms", "ascending"), ("seq", "ascending")])
    yield from together.take(order).to_batches(BATCH_ROWS)


def fields_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, StructField]:
    """The columns of a file as Spark noted them in its metadata; nothing if it did not."""
    note = (metadata or {}).get(NOTE)
    try:
        return {field.name: field for field in StructType.fromJson(json.loads(note or b""))}
    except ValueError:
        return {}


def as_read(batch: pa.RecordBatch, fields: Mapping[str, StructField]) -> pa.RecordBatch:
    """The columns with the types under which they were read from the server, times as texts.

    Parquet keeps some types otherwise: times, also within structs, without their zone.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        field = fields.get(name)
        if field is not None:
            kind = to_arrow_schema(StructType([field]), timezone="UTC").field(0).type
            column = column if column.type == kind else column.cast(kind)
        if pa.types.is_timestamp(column.type):
            form = "epoch_ms" if field is None else format_of(field, "epoch_ms")
            column = time_texts(column, form)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def opened(path: Path) -> pq.ParquetFile:
    """A file, its times read as far as microseconds go."""
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def columns_of(parquet: pq.ParquetFile) -> list[str]:
    """The columns that an entry is made of again."""
    return [name for name in parquet.schema_arrow.names if name not in LEFT_OUT]
