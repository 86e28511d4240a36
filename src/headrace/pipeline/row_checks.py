"""Which rows of a batch can become entries: those with a value, and with a time if times give the IDs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.times import TimeColumn


@dataclass(frozen=True)
class Checked:
    """Good rows, only with the columns that become fields, and their times."""

    rows: pa.RecordBatch
    times: Sequence[int | None]

    def slice(self, start: int, stop: int) -> Checked:
        """Return the rows [start, stop)."""
        return Checked(self.rows.slice(start, max(0, stop - start)), self.times[start:stop])


def checked(batch: pa.RecordBatch, times: TimeColumn | None, before: int) -> Iterator[Checked | BadRow]:
    """Yield the rows of a batch in order, the bad ones apart.

    Args:
        batch: the rows.
        times: the column that gives the IDs, if one does.
        before: how many rows of the file come before the batch.
    """
    stamps: list[int | None] = [None] * batch.num_rows
    wrong: dict[int, str] = {}
    fields = batch
    if times is not None:
        stamps, wrong = times.readings(batch)
        if not times.is_field and times.name in batch.schema.names:
            fields = batch.drop_columns([times.name])
    for row in empty_rows(fields):
        wrong.setdefault(row, "no column has a value")
    start = 0
    for row in sorted(wrong):
        if row > start:
            yield Checked(fields.slice(start, row - start), stamps[start:row])
        [values] = batch.slice(row, 1).to_pylist()
        yield BadRow(0, wrong[row], row=before + row + 1, values=values)
        start = row + 1
    if start < batch.num_rows:
        yield Checked(fields.slice(start), stamps[start:])


def empty_rows(batch: pa.RecordBatch) -> list[int]:
    """Return the numbers of the rows that have no value in any column."""
    if batch.num_columns and any(column.null_count == 0 for column in batch.columns):
        return []
    empty = pa.array([True] * batch.num_rows)
    for column in batch.columns:
        empty = pc.and_(empty, column.is_null())
    return pc.indices_nonzero(empty).to_pylist() if batch.num_rows else []
