"""Separate valid rows from bad ones: a row needs a value and, if times give the IDs, a valid time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.time_columns import TimeColumn


@dataclass(frozen=True)
class ValidRows:
    """Valid rows with the columns that become fields, and their times in milliseconds (None: no time)."""

    rows: pa.RecordBatch
    times: Sequence[int | None]

    def slice(self, start: int, stop: int) -> ValidRows:
        """Return the rows [start, stop)."""
        return ValidRows(self.rows.slice(start, max(0, stop - start)), self.times[start:stop])


def split_valid_rows(
    batch: pa.RecordBatch, times: TimeColumn | None, before: int
) -> Iterator[ValidRows | BadRow]:
    """Yield the rows of a batch in order: runs of valid rows, and each bad row by itself.

    Args:
        batch: the rows.
        times: the column that gives the IDs; None if the server generates them.
        before: the number of rows of the file before the batch.
    """
    stamps: list[int | None] = [None] * batch.num_rows
    wrong: dict[int, str] = {}
    fields = batch
    if times is not None:
        stamps, wrong = times.milliseconds_or_reasons(batch)
        if not times.is_field and times.name in batch.schema.names:
            fields = batch.drop_columns([times.name])
    for row in empty_row_indexes(fields):
        wrong.setdefault(row, "no column has a value")
    start = 0
    for row in sorted(wrong):
        if row > start:
            yield ValidRows(fields.slice(start, row - start), stamps[start:row])
        [values] = batch.slice(row, 1).to_pylist()
        yield BadRow(0, wrong[row], row=before + row + 1, values=values)
        start = row + 1
    if start < batch.num_rows:
        yield ValidRows(fields.slice(start), stamps[start:])


def empty_row_indexes(batch: pa.RecordBatch) -> list[int]:
    """Return the indexes of the rows that have no value in any column."""
    if batch.num_columns and any(column.null_count == 0 for column in batch.columns):
        return []
    empty = pa.array([True] * batch.num_rows)
    for column in batch.columns:
        empty = pc.and_(empty, column.is_null())
    return pc.indices_nonzero(empty).to_pylist() if batch.num_rows else []
