"""format("headrace"): options in, readers and writers out. Light to import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark.reader import HeadraceReader
    from headrace.spark.stream_reader import HeadraceStreamReader
    from headrace.spark.writer import HeadraceStreamWriter, HeadraceWriter


class HeadraceSource(DataSource):
    """Streams of a Redis, Valkey or Headrace server as a Spark source and sink."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "headrace"

    def schema(self) -> str:
        """The schema of a read that names none. No server is asked."""
        from headrace.spark.schema import DEFAULT_SCHEMA

        return DEFAULT_SCHEMA

    def reader(self, schema: StructType) -> HeadraceReader:
        """The batch reader."""
        from headrace.spark.options import parse_options
        from headrace.spark.pushdown import PushReader, is_pushing
        from headrace.spark.reader import HeadraceReader

        options = parse_options(self.options, "batch")
        if options.archive is not None:
            from headrace.spark.archive_table import ArchiveReader, PushArchiveReader

            return (PushArchiveReader if is_pushing() else ArchiveReader)(options, schema)
        return (PushReader if is_pushing() else HeadraceReader)(options, schema)

    def streamReader(self, schema: StructType) -> HeadraceStreamReader:
        """The stream reader."""
        from headrace.spark.options import parse_options
        from headrace.spark.stream_reader import HeadraceStreamReader

        return HeadraceStreamReader(parse_options(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> HeadraceWriter:
        """The batch writer."""
        from headrace.spark.options import parse_options
        from headrace.spark.writer import HeadraceWriter

        return HeadraceWriter(parse_options(self.options, "sink"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> HeadraceStreamWriter:
        """The stream writer."""
        from headrace.spark.options import parse_options
        from headrace.spark.writer import HeadraceStreamWriter

        return HeadraceStreamWriter(parse_options(self.options, "sink"), schema, overwrite)
