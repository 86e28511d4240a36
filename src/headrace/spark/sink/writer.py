"""The writers of df.write and df.writeStream for format("headrace").

By default a streaming query writes exactly once, with markers for its query and batch, and a batch job at
least once. The option delivery changes that.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.errors import CommandError, UsageError
from headrace.spark.errors import brief_errors
from headrace.spark.options import Options
from headrace.spark.sink.attempts import check_repeated_batch, new_execution_id
from headrace.spark.sink.column_roles import ColumnRoles, arrow_schema, column_roles
from headrace.spark.sink.marker import Marker
from headrace.spark.sink.overwrite import StreamReplacement
from headrace.spark.sink.sender import QUERY_ID_PROPERTY, TaskResult, send_batches_of_task, trim_arguments
from headrace.spark.source.range_reader import warn_if_interpreted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH_ID_PROPERTY = "streaming.sql.batchId"  # Spark's local property of a streaming task
DAY_MS = 24 * 3600 * 1000


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """What a task has written, and under which marker: the driver commits with another writer object."""

    result: TaskResult
    marker: Marker | None = None

    @property
    def entries(self) -> int:
        """How many entries the task added: fewer than its rows if an earlier attempt added some."""
        return self.result.added


def checked_sink_columns(options: Options, schema: StructType) -> ColumnRoles:
    """Return the roles of the columns, on the driver: wrong columns fail here, before any task runs."""
    trim_arguments(options)
    return column_roles(arrow_schema(schema), options)


def _check_repeated(options: Options, messages: list[WriterCommitMessage | None]) -> None:
    """Check the partitions of a batch that was written before. Raises RowsChanged."""
    repeated = {
        stream: message.marker
        for message in messages
        if isinstance(message, TaskCommitMessage) and message.marker is not None
        for stream in message.result.repeated_streams
    }
    if repeated:
        with options.servers() as servers:
            check_repeated_batch(servers, next(iter(repeated.values())), repeated)


@brief_errors
class HeadraceWriter(DataSourceArrowWriter):
    """The writer of df.write.format("headrace"), for the modes append and overwrite."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        found = checked_sink_columns(options, schema)
        self._options = options
        self._replacement: StreamReplacement | None = None
        if overwrite:
            if options.stream is None or found.stream is not None:
                raise UsageError(
                    "The mode overwrite replaces one stream: name it by the option stream, without a _stream."
                )
            self._replacement = StreamReplacement(
                options.servers(), options.stream, uuid.uuid4().hex, options.wait_replicas
            )
            self._options = replace(options, stream=self._replacement.temporary_stream)
        self._marker = Marker(options.query_id or "", execution=new_execution_id())
        if overwrite or options.query_id is None:  # needed only for the attempts of this job
            self._marker = Marker(f"job-{uuid.uuid4().hex}", ttl_ms=DAY_MS)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Add the rows of one task."""
        warn_if_interpreted()
        context = TaskContext.get()
        marker = replace(self._marker, partition=context.partitionId() if context else 0)
        if self._replacement is None and self._options.delivery != "exactly-once":
            return TaskCommitMessage(send_batches_of_task(iterator, self._options, None))
        written = TaskCommitMessage(send_batches_of_task(iterator, self._options, marker), marker)
        if self._replacement is not None:
            self._replacement.set_expiry()
        return written

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Complete an overwrite after all tasks have written; check the partitions of a repeated append.

        Raises:
            RowsChanged: if the job was run before with the same queryId and other partitions.
            HeadraceError: if the new stream lacks rows.
        """
        if self._replacement is not None:
            rows = sum(m.result.row_count for m in messages if isinstance(m, TaskCommitMessage))
            self._replacement.commit(rows, bool(trim_arguments(self._options)))
        _check_repeated(self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Undo an overwrite after a task has failed for good. Appended rows remain."""
        if self._replacement is not None:
            self._replacement.abort()


@brief_errors
class HeadraceStreamWriter(DataSourceStreamArrowWriter):
    """The writer of df.writeStream.format("headrace")."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UsageError(
                'The sink only appends: write with outputMode("append"), or use headrace.spark.write_stream '
                "in foreachBatch."
            )
        checked_sink_columns(options, schema)
        self._options = options
        self._execution = new_execution_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Add the rows of one task."""
        warn_if_interpreted()
        marker = self._marker()
        return TaskCommitMessage(send_batches_of_task(iterator, self._options, marker), marker)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Check the partitions of a repeated batch.

        Raises:
            RowsChanged: if the batch was run before with other partitions.
        """
        _check_repeated(self._options, messages)

    def _marker(self) -> Marker | None:
        """Return the marker of this task; None if it delivers at least once."""
        if self._options.delivery == "at-least-once":
            return None
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID_PROPERTY) if context is not None else None
        checkpoint, query = query, self._options.query_id or query
        batch = context.getLocalProperty(BATCH_ID_PROPERTY) if context is not None else None
        if context is not None and query is not None and batch is not None:
            return Marker(
                query,
                context.partitionId(),
                int(batch),
                execution=self._execution,
                checkpoint=checkpoint or "",
            )
        warning = (
            "This Spark gives a sink no query and batch IDs: a row may be written twice after a failure."
        )
        if self._options.delivery == "exactly-once":
            raise CommandError(f"{warning} Use headrace.spark.write_stream in foreachBatch.")
        warnings.warn(warning, stacklevel=2)
        return None
