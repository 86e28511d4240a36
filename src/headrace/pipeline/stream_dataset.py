"""A stream, with its archive if there is one, as a data set that DuckDB scans.

    SELECT n FROM orders WHERE _timestamp >= '2026-03-01 12:00'
        → scanner(columns=["n"], filter=_timestamp >= …)       DuckDB calls it for each scan of the table
        → the tasks of the Spark source from that time on
        → record batches, task by task

The rows come from the readers of the Spark source, which run in this process. All scans of a query end at the
same entry of the stream.

A filter of Arrow cannot be taken apart. But Arrow can say whether it contradicts another expression. So the
first and the last time that a filter admits are found by bisection: does it contradict `_timestamp < x`?
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.spark.archive.location import ArchiveLocation
from headrace.spark.archive.table import ArchiveReader
from headrace.spark.options import parse_options
from headrace.spark.source.offsets import START, U64_MAX, format_id, parse_id
from headrace.spark.source.reader import HeadraceReader

TIME_COLUMN = "_timestamp"
TIME_TYPE = pa.timestamp("us", "UTC")
MS_MAX = (1 << 63) // 1000 - 1  # the last millisecond that a timestamp in microseconds can represent


def place_options(url: str | None, archive: ArchiveLocation | None) -> dict[str, str]:
    """Return the options of the Spark source for a server and an archive; without a URL only the archive."""
    options = {"archiveOnly": "true"} if url is None else {"url": url}
    if archive is not None:
        options["archive"] = archive.uri
        if archive.options:
            options["archiveOptions"] = json.dumps(dict(archive.options))
    return options


class StreamDataset(ds.Dataset):  # type: ignore[misc]
    """One stream as a data set; DuckDB uses only `schema` and `scanner`."""

    def __init__(
        self,
        url: str | None,
        stream: str,
        columns: StructType,
        named: Iterable[str] | None = None,
        archive: ArchiveLocation | None = None,
    ) -> None:
        """Look up the end of the stream.

        Args:
            url: The server; None to read only the archive.
            stream: The stream's name.
            columns: The columns.
            named: The columns that the query names, which include those of its conditions; None for all.
            archive: An archive; its entries and the live ones are one data set.
        """
        self._stream = stream
        self._columns = columns
        self._named = set(columns.names if named is None else named)
        self._schema = to_arrow_schema(columns, timezone="UTC")
        self._options = {"assign": json.dumps([stream]), "timestampFormat": "auto"}
        self._options |= place_options(url, archive)
        self._end = self._reader({}, columns).last_ids().get(stream, START)
        self.error: Exception | None = None  # what made a scan fail

    def _reader(self, more: dict[str, str], columns: StructType) -> HeadraceReader:
        options = parse_options({**self._options, **more}, "batch")
        return (HeadraceReader if options.archive is None else ArchiveReader)(options, columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self, columns: list[str] | None = None, filter: ds.Expression | None = None, **settings: Any
    ) -> StreamScan:
        """Return a scan of some columns of the rows that a filter selects."""
        first, last = time_bounds(filter, self._schema)
        after = START if first == 0 else format_id((first - 1, U64_MAX))
        end = self._end if last == MS_MAX else min(self._end, format_id((last, U64_MAX)), key=parse_id)
        offsets = {
            "startingOffsets": json.dumps({self._stream: after}),
            "endingOffsets": json.dumps({self._stream: end}),
        }
        needed = self._named.union(self._columns.names if columns is None else columns)
        read = StructType([column for column in self._columns if column.name in needed])
        batches = self._batches(offsets if parse_id(after) < parse_id(end) else None, read)
        return StreamScan(batches, self._schema, columns, filter)

    def _batches(self, offsets: dict[str, str] | None, columns: StructType) -> Iterator[pa.RecordBatch]:
        if offsets is None:
            return
        try:
            reader = self._reader(offsets, columns)
            for task in reader.partitions():
                for batch in reader.read(task):
                    raise_if_interrupted()
                    yield batch
        except Exception as error:
            self.error = error
            raise


class StreamScan:
    """One scan. Without the threads of Arrow's Scanner, which read on when a query with a LIMIT has ended."""

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


def time_bounds(condition: ds.Expression | None, schema: pa.Schema) -> tuple[int, int]:
    """Return the first and the last millisecond that a filter may admit; 0 and MS_MAX without a bound."""
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
    """Return the last number from 0 to MS_MAX for which a condition holds that holds for all before; or 0."""
    low, high = 0, MS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def time_scalar(ms: int) -> pa.Scalar:
    """Return a time in milliseconds as a value of the time column."""
    return pa.scalar(ms * 1000, pa.int64()).cast(TIME_TYPE)
