"""Query streams in SQL with Spark: each stream that a query names becomes a view (queries/views)."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.archive.location import ArchiveLocation, archive_location
from headrace.columns.declarations import DeclaredColumns, quote_identifier
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.querying.spark_errors import query_error_message
from headrace.pipeline.querying.spark_rows import record_batches
from headrace.pipeline.querying.stream_dataset import source_location_options
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.pipeline.spark_session.query_progress import follow_batches
from headrace.queries.views import StreamView, find_views
from headrace.spark.arrow_schemas import spark_columns


def register_views(
    spark: SparkSession,
    sql: str,
    url: str | None,
    *,
    archive: str | os.PathLike[str] | ArchiveLocation | None = None,
    fields: Mapping[str, DeclaredColumns] | None = None,
    following: bool = False,
    options: Mapping[str, str] | None = None,
) -> list[StreamView]:
    """Create views of the streams that a query names.

    Spark is set to distinguish case if names of streams or columns differ only in case.

    Args:
        spark: The session.
        sql: The query.
        url: The server; None to read only the archive.
        archive: An archive; its entries and the live ones are one view.
        fields: Declared columns by stream; those under "" are for all other streams. Columns of streams
            without a declaration are inferred.
        following: Create streaming views.
        options: Options of the source for all views. Default: times in milliseconds or ISO 8601.

    Returns:
        The views, in the order in which the query names them.

    Raises:
        UsageError: if the query names no stream.
        HeadraceError: if the server is not reachable.
    """
    views = find_views(sql, url, archive=archive, fields=fields)
    if differ_in_case([view.stream for view in views]) or any(
        differ_in_case(view.columns.names) for view in views
    ):
        spark.conf.set("spark.sql.caseSensitive", "true")  # otherwise both names mean the same column
    location = None if archive is None else archive_location(archive)
    for view in views:
        create_view(spark, url, view, location, following, options or {})
    return views


def differ_in_case(names: Sequence[str]) -> bool:
    """Return whether two of the names differ only in case."""
    return len({name.lower() for name in names}) < len(names)


def create_view(
    spark: SparkSession,
    url: str | None,
    table: StreamView,
    archive: ArchiveLocation | None,
    following: bool,
    options: Mapping[str, str],
) -> None:
    """Create the view of one stream."""
    reader = spark.readStream if following else spark.read
    reader = reader.format("headrace").option("assign", json.dumps([table.stream]))
    reader = reader.options(**source_location_options(url, archive))
    if following:
        reader = reader.option("startingOffsets", "earliest")
    reader = reader.options(**{"timestampFormat": "auto", **options})
    rows = reader.schema(spark_columns(table.columns)).load()
    rows.createOrReplaceTempView(quote_identifier(table.stream))


def run_query(
    spark: SparkSession, sql: str, tables: Sequence[StreamView] = (), known: Iterable[str] = ()
) -> DataFrame:
    """Return the query's rows as a DataFrame; Spark computes them when they are read.

    Args:
        spark: The session with the views that `register_views` created.
        sql: The query.
        tables: The views that `register_views` returned; an error for a missing column lists theirs.
        known: The names of all streams, iterated only if the query names a table that does not exist.

    Raises:
        UsageError: if Spark rejects the SQL.
    """
    try:
        return spark.sql(sql)
    except PySparkException as error:
        raise UsageError(f"Spark: {query_error_message(error, tables, known)}") from error


def follow_query(
    rows: DataFrame,
    max_rows: int | None,
    on_result: Callable[[list[str], Iterable[pa.RecordBatch], bool], None],
    seconds: float = 0.0,
) -> None:
    """Run a streaming query until it is interrupted.

    Args:
        rows: The query.
        max_rows: Rows per result, at most; None for all.
        on_result: Called after each batch with the column names, the rows, and whether they are the whole
            result (of a query that aggregates) or only new rows.
        seconds: The minimum time between two batches, in seconds.

    Raises:
        KeyboardInterrupt: after a signal.
        HeadraceError: if Spark cannot run the query as a stream.
    """

    def batch_handler(whole: bool) -> Callable[[DataFrame, int], None]:
        def handle(batch: DataFrame, number: int) -> None:
            found = record_batches(batch if max_rows is None else batch.limit(max_rows))
            first = next(found, None)
            if whole or first is not None:
                on_result(batch.columns, found if first is None else itertools.chain([first], found), whole)

        return handle

    for mode in ("complete", "append"):
        whole = mode == "complete"
        writer = rows.writeStream.outputMode(mode).foreachBatch(batch_handler(whole))
        try:
            query = writer.trigger(processingTime=f"{seconds} seconds").start()
        except PySparkException as error:
            if whole:
                continue  # the query does not aggregate: append mode yields each row once
            raise HeadraceError(f"Spark cannot follow this query: {query_error_message(error)}") from error
        for _ in follow_batches(query):
            raise_if_interrupted()
        return
