"""format("headrace"): make readers and writers from options. Other modules are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from headrace.errors import HeadraceError
from headrace.spark.errors import brief_errors, is_spark_worker

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headrace.spark.sink.writer import HeadraceStreamWriter, HeadraceWriter
    from headrace.spark.source.reader import HeadraceReader

STREAM_RUNNER_MODULE = "pyspark.sql.streaming.python_streaming_source_runner"


@brief_errors
class FailedStreamReader(DataSourceStreamReader):
    """A stream reader that raises a given error from every method.

    PySpark's runner of streaming sources replaces an exception of streamReader() by an UnboundLocalError.
    """

    def __init__(self, error: HeadraceError) -> None:
        self._error = error

    def _raise(self, *arguments: Any) -> NoReturn:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:
        """Raise the error."""
        self._raise()

    def getDefaultReadLimit(self) -> Any:
        """Raise the error."""
        self._raise()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        """Raise the error."""
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        """Raise the error."""
        self._raise()

    def read(self, partition: Any) -> Any:
        """Raise the error."""
        self._raise()


@brief_errors
class HeadraceSource(DataSource):
    """Streams of a Redis, Valkey or Headrace server as a Spark source and sink."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "headrace"

    def schema(self) -> str | StructType:
        """Return the default schema, which depends on the option fieldsType. Makes no request to a server.

        For an archive of typed columns it is the schema of these columns and `_exact`.
        """
        from headrace.spark.decode.schema import DEFAULT_SCHEMAS
        from headrace.spark.options import parse_archive_location, parse_fields_type

        kind = parse_fields_type(self.options)
        if "archive" in self.options and "fieldsType" not in self.options:
            from headrace.spark.archive_schema import typed_schema

            if (typed := typed_schema(parse_archive_location(self.options))) is not None:
                return typed
        return DEFAULT_SCHEMAS[kind]

    def reader(self, schema: StructType) -> HeadraceReader:
        """Return the batch reader."""
        from headrace.spark.options import parse_options
        from headrace.spark.source.pushdown import PushdownReader, is_pushdown_worker
        from headrace.spark.source.reader import HeadraceReader

        options = parse_options(self.options, "batch")
        return (PushdownReader if is_pushdown_worker() else HeadraceReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the stream reader; in Spark's streaming worker, on error, a FailedStreamReader.

        Raises:
            HeadraceError: for wrong options or columns, outside of the streaming worker.
        """
        from headrace.spark.options import parse_options
        from headrace.spark.source.stream_reader import HeadraceStreamReader

        try:
            return HeadraceStreamReader(parse_options(self.options, "stream"), schema)
        except HeadraceError as error:
            if not is_spark_worker(STREAM_RUNNER_MODULE):
                raise
            return FailedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> HeadraceWriter:
        """Return the batch writer."""
        from headrace.spark.options import parse_options
        from headrace.spark.sink.writer import HeadraceWriter

        return HeadraceWriter(parse_options(self.options, "sink"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> HeadraceStreamWriter:
        """Return the stream writer."""
        from headrace.spark.options import parse_options
        from headrace.spark.sink.writer import HeadraceStreamWriter

        return HeadraceStreamWriter(parse_options(self.options, "sink"), schema, overwrite)
