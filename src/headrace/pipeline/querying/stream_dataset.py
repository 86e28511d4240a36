"""A stream, with its archive if there is one, as a data set that DuckDB scans.

    SELECT n FROM orders WHERE _timestamp >= '2026-03-01 12:00'
        → scanner(columns=["n"], filter=_timestamp >= …)       DuckDB calls it for each scan of the table
        → the tasks of the Spark source from that time on
        → record batches, task by task

The rows come from the readers behind the Spark source, which need no PySpark. All scans of a query end at the
same entry of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa

from headrace.archive.location import ArchiveLocation
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.positions.entry_ids import START, U64_MAX, format_id, parse_id
from headrace.queries.scans import MS_MAX, ScannedStream
from headrace.spark.archive_reader import ArchiveReader
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.batch_reader import BatchReader


def source_location_options(url: str | None, archive: ArchiveLocation | None) -> dict[str, str]:
    """Return the options of the Spark source for a server and an archive; without a URL only the archive."""
    options = {"archiveOnly": "true"} if url is None else {"url": url}
    if archive is not None:
        options["archive"] = archive.uri
        if archive.options:
            options["archiveOptions"] = json.dumps(dict(archive.options))
    return options


class StreamDataset(ScannedStream):
    """One stream as a data set, with its archive if there is one."""

    def __init__(
        self,
        url: str | None,
        stream: str,
        columns: pa.Schema,
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
        super().__init__(columns)
        self._stream = stream
        self._named = set(columns.names if named is None else named)
        self._options = {"assign": json.dumps([stream]), "timestampFormat": "auto"}
        self._options |= source_location_options(url, archive)
        self._end = self._reader({}, columns).last_ids().get(stream, START)

    def _reader(self, more: dict[str, str], columns: pa.Schema) -> BatchReader:
        options = parse_options({**self._options, **more}, "batch")
        layout = ColumnLayout.of_arrow(columns, options.timestamp_format)
        return (BatchReader if options.archive is None else ArchiveReader)(options, layout)

    def read(self, columns: list[str], first_ms: int, last_ms: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a time range: these columns and those that the query names.

        Args:
            columns: The names of the columns.
            first_ms: The beginning of the range in milliseconds since 1970, inclusive.
            last_ms: Its end, inclusive; MS_MAX for the end of the stream.
        """
        after = START if first_ms == 0 else format_id((first_ms - 1, U64_MAX))
        end = self._end if last_ms == MS_MAX else min(self._end, format_id((last_ms, U64_MAX)), key=parse_id)
        if parse_id(after) >= parse_id(end):
            return
        needed = self._named.union(columns)
        offsets = {
            "startingOffsets": json.dumps({self._stream: after}),
            "endingOffsets": json.dumps({self._stream: end}),
        }
        reader = self._reader(offsets, pa.schema([each for each in self.schema if each.name in needed]))
        for task in reader.partitions():
            for batch in reader.read(task):
                raise_if_interrupted()
                yield batch
