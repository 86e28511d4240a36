"""format("headrace"): options in, readers out. Light to import, for Spark loads it to know its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark.reader import HeadraceReader, HeadraceStreamReader


class HeadraceSource(DataSource):
    """Streams of a Redis, Valkey or Headrace server as a Spark source."""

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
        from headrace.spark.reader import HeadraceReader

        return HeadraceReader(parse_options(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> HeadraceStreamReader:
        """The stream reader."""
        from headrace.spark.options import parse_options
        from headrace.spark.reader import HeadraceStreamReader

        return HeadraceStreamReader(parse_options(self.options, "stream"), schema)
