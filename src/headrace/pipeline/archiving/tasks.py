"""Tasks of the archive job: write a range of a stream to files, or merge small files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.archive.location import ArchiveLocation
from headrace.archive.merging import merge_files
from headrace.archive.table import WrittenFile, WrittenOrArchivedFile
from headrace.archive.writer import without_repeated_names, write_days
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.errors import brief_errors
from headrace.spark.options import Options
from headrace.spark.source.arrow_reader import make_range_reader
from headrace.spark.source.planner import OffsetRange


@brief_errors
class RangeWriter:
    """Writes ranges in tasks; picklable."""

    def __init__(
        self,
        location: ArchiveLocation,
        layout: ColumnLayout,
        names: tuple[str, ...],
        options: Options,
        zone: str,
    ) -> None:
        """Make a writer.

        Args:
            location: The archive.
            layout: The columns to read.
            names: Their names in the archive.
            options: The options of the source.
            zone: The time zone of the days.
        """
        self._location = location
        self._layout = layout
        self._names = names
        self._options = options
        self._zone = zone

    def write(self, part: OffsetRange) -> list[WrittenFile]:
        """Write one range; return its files, which are on disk."""
        batches = make_range_reader(part, self._layout, self._options).batches()
        renamed = (pa.RecordBatch.from_arrays(batch.columns, list(self._names)) for batch in batches)
        return write_days(map(without_repeated_names, renamed), part.stream, self._location, self._zone)


@brief_errors
class FileMerger:
    """Merges files in tasks; picklable."""

    def __init__(self, location: ArchiveLocation, columns: pa.Schema) -> None:
        """Make a merger for an archive whose table has these columns."""
        self._location = location
        self._columns = columns

    def merge(self, files: Sequence[WrittenOrArchivedFile]) -> list[WrittenFile]:
        """Merge files of one stream and day into one. See merge_files()."""
        return [merge_files(self._location, self._columns, files)]
