"""The batch reader for Spark: it wraps the tasks as partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import Options
from headrace.spark.source.batch_reader import BatchReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class HeadraceReader(DataSourceReader):
    """The reader of spark.read.format("headrace"), with or without the option archive."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._reader: BatchReader
        layout = ColumnLayout(schema, options.timestamp_format)
        if options.archive is None:
            self._reader = BatchReader(options, layout)
        else:
            from headrace.spark.archive_reader import ArchiveReader

            self._reader = ArchiveReader(options, layout)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Spark plans each action separately, so each one reads the current streams."""
        return [InputPartition(task) for task in self._reader.partitions()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Spark makes one task without a value if there is nothing to read."""
        if partition.value is not None:
            yield from self._reader.read(partition.value)
