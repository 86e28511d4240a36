"""The load job: add the rows of a file, or of a source that Spark reads, to a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from headrace.pipeline.loading.arguments import LoadArguments
from headrace.pipeline.loading.file_load import FileLoad, LoadObserver, LoadResult
from headrace.pipeline.loading.loader import ROWS_PER_BATCH
from headrace.spark.options import DEFAULT_URL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Returns a context with the session that reads a format.
SparkSessionFactory = Callable[[], "AbstractContextManager[SparkSession]"]


def load(
    file: str | os.PathLike[str] | None = None, *, stream: str, url: str = DEFAULT_URL,
    time_column: str | None = None, new_ids: bool = False, allow_future: bool = False, sort: bool = False,
    append: bool = False, resume: bool = False, maxlen: int | None = None, null: str | Sequence[str] = (),
    delimiter: str | None = None, encoding: str = "utf-8", skip_bad: bool = False,
    rejects: str | os.PathLike[str] | None = None, batch: int = ROWS_PER_BATCH, rate: float | None = None,
    format: str | None = None, options: Mapping[str, str] | None = None, job: str | None = None,
    spark: SparkSession | None = None, on_progress: Callable[[LoadResult], None] = lambda progress: None,
) -> LoadResult:  # fmt: skip
    """Add the rows of a file to a stream, each exactly once: a row becomes an entry, its columns the fields.

    Args:
        file: CSV, TSV or JSON lines, plain, `.gz` or `.zip`, or a Parquet file; `-` for standard input.
        stream: Add the rows to this stream.
        url: The server.
        time_column: Take the IDs from the times in this column; None for a column that looks like times.
        new_ids: Whether the server generates the IDs, even if a column looks like times.
        allow_future: Whether to load rows whose times are more than a day later than now.
        sort: Whether to sort the rows by time first; the whole file is then held in memory.
        append: Whether rows older than the stream's last entry are added after it, with later IDs.
        resume: Whether to continue an interrupted load: rows that are in the stream are skipped.
        maxlen: Trim the stream to about this number of entries while loading.
        null: Texts in CSV that mean a missing value, such as `"NA"`.
        delimiter: The CSV delimiter; None to detect it from the first line.
        encoding: The encoding of CSV or JSON lines.
        skip_bad: Whether to skip rows that cannot be loaded, and write them to the file `rejects`.
        rejects: The file for skipped rows; None for `NAME.rejects.SUFFIX` in the current directory.
        batch: Rows in one transaction.
        rate: Rows per second, at most.
        format: A format that Spark reads, such as `delta`; the rows come from `file` or from `options`.
        options: Options of the format (`--option`).
        job: A name under which the load is remembered. `resume` needs a name if the file was moved. With
            `format`, a second load of the same name adds only the missing rows.
        spark: The session that reads a format; None for the active one of this process, else a local one.
        on_progress: Called with the result so far when the server has confirmed rows.

    Returns:
        The result.

    Raises:
        UsageError: for a bad row, an ID not above the stream's last one, or a wrong argument.
        HeadraceError: if the server is not reachable or rejects rows, or Spark fails. The text of an error
            says how many rows of a file were added; `resume` adds the others.
    """
    arguments = LoadArguments(
        file, stream, url, time_column, new_ids, allow_future, sort, append, resume, maxlen,
        (null,) if isinstance(null, str) else tuple(null), delimiter, encoding, skip_bad, rejects, batch,
        rate, format, dict(options or {}), job,
    )  # fmt: skip
    return run_load(arguments, ProgressObserver(on_progress), lambda: load_job_session(spark))


class ProgressObserver(LoadObserver):
    """Passes only the progress on."""

    def __init__(self, on_progress: Callable[[LoadResult], None]) -> None:
        self._on_progress = on_progress

    def on_progress(self, result: LoadResult, done: int, size: int) -> None:
        """Pass the progress on."""
        self._on_progress(result)


def load_job_session(given: SparkSession | None) -> AbstractContextManager[SparkSession]:
    """Return the context of the session for a load: `given`, this process's active one, or a local one."""
    from headrace.pipeline.spark_session.job_spark import job_spark

    return job_spark("headrace load", given)


def run_load(arguments: LoadArguments, observer: LoadObserver, spark: SparkSessionFactory) -> LoadResult:
    """Load what the arguments name.

    Args:
        arguments: What to load, and how.
        observer: Receives notes, the progress and the rejected rows.
        spark: Returns the context of the session that reads a format; unused for files.
    """
    arguments.check()
    if arguments.format is not None:
        return load_with_spark(arguments, arguments.format, observer, spark)
    return FileLoad(arguments, observer).run()


def load_with_spark(
    arguments: LoadArguments, kind: str, observer: LoadObserver, spark: SparkSessionFactory
) -> LoadResult:
    """Load the rows of a format that Spark reads."""
    from headrace.pipeline.loading.spark_import import load_from_spark

    with spark() as session, observer.loading_context():
        started = time.monotonic()

        def result(rows: int) -> LoadResult:
            seconds = time.monotonic() - started
            return LoadResult(added=rows, time_column=arguments.time_column, seconds=seconds)

        rows = load_from_spark(
            session,
            kind,
            arguments.options,
            arguments.url,
            arguments.stream,
            path=None if arguments.file is None else os.fspath(arguments.file),
            time_column_name=arguments.time_column,
            rate=arguments.rate,
            maxlen=arguments.maxlen,
            job=arguments.job,
            allow_future=arguments.allow_future,
            on_progress=lambda rows: observer.on_progress(result(rows), 0, 0),
        )
        return result(rows)
