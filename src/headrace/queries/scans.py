"""Scans of a stream by DuckDB, and the range of times that a filter can select.

A filter of Arrow cannot be taken apart. But Arrow can say whether it contradicts another expression. So the
first and the last time that a filter admits are found by bisection: does it contradict `_timestamp < x`?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

TIME_COLUMN = "_timestamp"
TIME_TYPE = pa.timestamp("us", "UTC")
MS_MAX = (1 << 63) // 1000 - 1  # the last millisecond that a timestamp in microseconds can represent


class StreamScan:
    """One scan, without threads.

    The threads of Arrow's Scanner would continue to read after a query with a LIMIT has ended.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        schema: pa.Schema,
        columns: list[str] | None,
        condition: ds.Expression | None,
    ) -> None:
        self._batches = batches
        self._names = schema.names if columns is None else columns
        self._schema = pa.schema([schema.field(name) for name in self._names])
        self._condition = condition

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the scan."""
        return self._schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows; they are read while they are consumed."""
        return pa.RecordBatchReader.from_batches(self._schema, self._selected())

    def _selected(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self._condition is None:
                yield batch.select(self._names)
                continue
            rows = pa.Table.from_batches([batch]).filter(self._condition).select(self._names)
            yield from rows.to_batches()


class ScannedStream(ds.Dataset):  # type: ignore[misc]
    """A stream as a data set; DuckDB uses only `schema` and `scanner`. A subclass reads the stream.

    Attributes:
        error: The exception that made a scan fail; None if none has failed.
    """

    error: Exception | None

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.error = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self, columns: list[str] | None = None, filter: ds.Expression | None = None, **settings: Any
    ) -> StreamScan:
        """Return a scan of some columns of the rows that a filter selects."""
        first, last = time_bounds(filter, self._schema)
        names = self._schema.names if columns is None else columns
        return StreamScan(self._record_errors(self.read(names, first, last)), self._schema, columns, filter)

    def read(self, columns: list[str], first_ms: int, last_ms: int) -> Iterator[pa.RecordBatch]:
        """Yield at least these columns of entries from first_ms to last_ms (MS_MAX: to the last entry)."""
        raise NotImplementedError

    def _record_errors(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            self.error = error
            raise


def time_bounds(condition: ds.Expression | None, schema: pa.Schema) -> tuple[int, int]:
    """Return the first and the last millisecond that a filter can select; 0 and MS_MAX without a bound.

    The first is above the last if the filter selects no time.
    """
    if condition is None or TIME_COLUMN not in schema.names:
        return 0, MS_MAX
    time = ds.field(TIME_COLUMN)

    def admits(known: ds.Expression) -> bool:
        form = ds.IpcFileFormat()
        part = form.make_fragment(pa.py_buffer(b""), partition_expression=known)
        return any(True for _ in ds.FileSystemDataset([part], schema, form).get_fragments(condition))

    # Up to `first` no time is admitted, and after `last` none.
    first = bisect(lambda ms: not admits(time < time_scalar(ms)))
    last = bisect(lambda ms: admits(time > time_scalar(ms)))
    return first, min(last + 1, MS_MAX)


def bisect(holds: Callable[[int], bool]) -> int:
    """Return the largest number up to MS_MAX for which `holds` is true; 0 if there is none.

    `holds` must be true for all smaller numbers, too.
    """
    low, high = 0, MS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def time_scalar(ms: int) -> pa.Scalar:
    """Return a time in milliseconds as a value of the time column."""
    return pa.scalar(ms * 1000, pa.int64()).cast(TIME_TYPE)
