"""Separate valid rows from bad ones: a row needs a value and, if times give the IDs, a valid time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.value_texts import DIRECT_TYPE_IDS, plain_value, texts_and_reasons
from headrace.pipeline.file_formats.csv_records import BadRow
from headrace.pipeline.loading.time_columns import TimeColumn

BATCH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class ValidRows:
    """Valid rows with the columns that become fields, and their times in milliseconds (None: no time)."""

    rows: pa.RecordBatch
    times: Sequence[int | None]

    def slice(self, start: int, stop: int) -> ValidRows:
        """Return the rows [start, stop)."""
        return ValidRows(self.rows.slice(start, max(0, stop - start)), self.times[start:stop])


def prepare_rows(
    rows: Iterable[pa.RecordBatch | BadRow], times: TimeColumn | None, batch_rows: int
) -> Iterator[ValidRows | BadRow]:
    """Yield rows in parts that are sent together, with their times, and each bad row in its place."""
    before = 0
    for each in rows:
        if isinstance(each, BadRow):
            before += 1
            yield each
            continue
        for piece in split_batch(each, batch_rows):
            yield from split_valid_rows(piece, times, before)
            before += piece.num_rows


def split_batch(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most `rows` rows and, on average, at most BATCH_BYTES."""
    share = BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
    step = max(1, min(rows, share))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def split_valid_rows(
    batch: pa.RecordBatch, times: TimeColumn | None, before: int, keep_types: bool = False
) -> Iterator[ValidRows | BadRow]:
    """Yield the rows of a batch in order: runs of valid rows, and each bad row separately.

    Args:
        batch: the rows.
        times: the column that gives the IDs; None if the server generates them.
        before: the number of rows of the file before the batch.
        keep_types: whether the valid rows keep the types of their columns; otherwise types that the sink does
            not write directly are converted to text.
    """
    stamps: list[int | None] = [None] * batch.num_rows
    wrong: dict[int, str] = {}
    fields = batch
    if times is not None:
        stamps, wrong = times.milliseconds_and_reasons(batch)
        if not times.is_field and times.name in batch.schema.names:
            fields = batch.drop_columns([times.name])
    for row in empty_row_indexes(fields):
        wrong.setdefault(row, "no column has a value")
    texts = columns_as_text(fields, wrong)
    if not keep_types:
        fields = texts
    start = 0
    for row in sorted(wrong):
        if row > start:
            yield ValidRows(fields.slice(start, row - start), stamps[start:row])
        values = {
            name: plain_value(column, row)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        yield BadRow(0, wrong[row], row_number=before + row + 1, values=values)
        start = row + 1
    if start < batch.num_rows:
        yield ValidRows(fields.slice(start), stamps[start:])


def columns_as_text(batch: pa.RecordBatch, wrong: dict[int, str]) -> pa.RecordBatch:
    """Convert columns of types that the sink does not write directly to text.

    Rows with a value that has no text are added to `wrong`, with the reason by row. The conversion is done
    once here, because the digest of the load and the sender both need it.
    """
    if all(column.type.id in DIRECT_TYPE_IDS for column in batch.columns):
        return batch
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        texts, reasons = texts_and_reasons(column, "iso8601")
        columns.append(texts)
        for row, reason in reasons.items():
            wrong.setdefault(row, f"column {name!r} holds {reason}")
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def empty_row_indexes(batch: pa.RecordBatch) -> list[int]:
    """Return the indexes of the rows that have no value in any column."""
    if batch.num_columns and any(column.null_count == 0 for column in batch.columns):
        return []
    empty = pa.array([True] * batch.num_rows)
    for column in batch.columns:
        empty = pc.and_(empty, column.is_null())
    return pc.indices_nonzero(empty).to_pylist() if batch.num_rows else []
