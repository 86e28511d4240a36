"""Run the query of `headrace query` with Spark, once or following its streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack

import pyarrow as pa
from pyspark.sql import DataFrame
from rich.console import Console
from rich.live import Live

from headrace.archive.location import ArchiveLocation
from headrace.cli.connections.spark_session import scratch_spark
from headrace.cli.query.output import (
    check_fields_are_read,
    limited_grid,
    print_misfits,
    print_notes,
    result_console,
    write_rows,
)
from headrace.cli.query.result_values import rows_of
from headrace.client.servers import servers_at
from headrace.columns.declarations import DeclaredColumns
from headrace.pipeline.querying.spark_errors import query_errors_explained
from headrace.pipeline.querying.spark_query import follow_query, register_views, run_query
from headrace.pipeline.querying.spark_rows import record_batches


def query_with_spark(
    errors: Console, sql: str, url: str | None, archive: ArchiveLocation | None,
    fields: Mapping[str, DeclaredColumns], following: bool, time_zone: str, limit: int, form: str | None,
) -> None:  # fmt: skip
    """Run a query with Spark, and print its rows."""
    with scratch_spark("headrace query", time_zone, lambda counts: print_misfits(errors, counts)) as spark:
        views = register_views(spark, sql, url, archive=archive, fields=fields, following=following)
        check_fields_are_read(fields, views)
        for view in views:
            print_notes(errors, view)
        if following:
            print_followed(run_query(spark, sql, views, stream_names(url)), limit, form, time_zone)
        else:
            with query_errors_explained():
                result = run_query(spark, sql, views, stream_names(url))
                print_result(errors, result, limit, form, time_zone)


def stream_names(url: str | None) -> Iterator[str]:
    """Return the names of the server's streams; connect when the first one is requested."""
    if url is not None:
        with servers_at(url) as servers:
            yield from servers.matching_streams(".*")


def print_result(errors: Console, result: DataFrame, limit: int, form: str | None, time_zone: str) -> None:
    """Print the rows of a finite query."""
    if form is None:
        with errors.status("Running the query"):
            rows = list(rows_of(record_batches(result.limit(limit + 1)), time_zone))
        result_console().print(limited_grid(result.columns, rows, limit))
        return
    write_rows(form, result.columns, rows_of(record_batches(result), time_zone))


def print_followed(result: DataFrame, limit: int, form: str | None, time_zone: str) -> None:
    """Print the results of a streaming query until Ctrl-C."""
    console = result_console()
    with ExitStack() as stack:
        live: Live | None = None
        begun = False

        def show(names: list[str], found: Iterable[pa.RecordBatch], whole: bool) -> None:
            nonlocal live, begun
            rows = rows_of(found, time_zone)
            if form is not None:
                write_rows(form, names, rows, head=whole or not begun)
                begun = True
                return
            drawn = limited_grid(names, list(rows), limit)
            if not whole or not console.is_terminal:
                console.print(drawn)
                return
            if live is None:
                live = stack.enter_context(Live(console=console, auto_refresh=False))
            live.update(drawn, refresh=True)

        follow_query(result, limit + 1 if form is None else None, show)
