"""A stream, with its archive if there is one, as a data set that DuckDB scans.

    SELECT n FROM orders WHERE _timestamp >= '2026-03-01 12:00'
        → scanner(columns=["n"], filter=_timestamp >= …)       DuckDB calls it for each scan of the table
        → the tasks of the Spark source from that time on
        → record batches, task by task

The rows come from the readers of the Spark source, which run in this process. All scans of a query end at the
same entry of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.queries.scans import MS_MAX, StreamScan, time_bounds
from headrace.spark.archive.location import ArchiveLocation
from headrace.spark.archive.table import ArchiveReader
from headrace.spark.options import parse_options
from headrace.spark.source.offsets import START, U64_MAX, format_id, parse_id
from headrace.spark.source.reader import HeadraceReader


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
