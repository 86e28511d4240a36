"""The load job: add the rows of a file, or of a source that Spark reads, to a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.archive.local_paths import local_path
from headrace.errors import UsageError
from headrace.pipeline.file_readers import STDIN
from headrace.pipeline.job_arguments import at_least, positive
from headrace.pipeline.load_file import (
    FileLoad,
    FileOptions,
    LoadObserver,
    LoadResult,
    job_name,
    rejects_path,
)
from headrace.pipeline.loader import ROWS_PER_BATCH
from headrace.spark.options import DEFAULT_URL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS_MAX = 100_000


@dataclass(frozen=True)
class LoadArguments:
    """The arguments of load(), and the options of the command."""

    file: str | os.PathLike[str] | None
    stream: str
    url: str = DEFAULT_URL
    time_column: str | None = None
    new_ids: bool = False
    allow_future: bool = False
    sort: bool = False
    append: bool = False
    resume: bool = False
    maxlen: int | None = None
    null: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str = "utf-8"
    skip_bad: bool = False
    rejects: str | os.PathLike[str] | None = None
    batch: int = ROWS_PER_BATCH
    rate: float | None = None
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None

    def check(self) -> None:
        """Raise UsageError if values are out of range, or exclude each other."""
        if self.new_ids and (self.time_column or self.sort):
            other = "--time-column" if self.time_column else "--sort"
            raise UsageError(f"--new-ids and {other} exclude each other")
        if self.rejects is not None and not self.skip_bad:
            raise UsageError("--rejects is the file for the rows that --skip-bad skips: add --skip-bad")
        if self.job == "":
            raise UsageError("--job: the name is empty")
        if self.maxlen is not None:
            at_least("--maxlen", self.maxlen, 1)
        if not 1 <= self.batch <= BATCH_ROWS_MAX:
            raise UsageError(f"--batch: {self.batch} is not in the range 1 to {BATCH_ROWS_MAX:,}")
        if self.rate is not None:
            positive("--rate", self.rate)
        file_options = {
            "--sort": self.sort, "--append": self.append, "--resume": self.resume, "--null": self.null,
            "--delimiter": self.delimiter is not None, "--encoding": self.encoding != "utf-8",
            "--skip-bad": self.skip_bad, "--batch": self.batch != ROWS_PER_BATCH, "--new-ids": self.new_ids,
        }  # fmt: skip
        if self.format is not None:
            if wrong := [name for name, given in file_options.items() if given]:
                raise UsageError(
                    f"{wrong[0]} is for files that are read without --format; use --option instead"
                )
        elif self.file is None:
            raise UsageError("nothing to load: give a FILE, - for standard input, or --format")
        elif self.options:
            raise UsageError("--option is for --format")

    def file_options(self, file: str | os.PathLike[str]) -> FileOptions:
        """Return the options of a load of a file. UsageError if a path cannot be used."""
        path = STDIN if os.fspath(file) == "-" else local_path(file)
        if path == STDIN and self.resume and self.job is None:
            raise UsageError("--resume of standard input needs the --job NAME of the interrupted load")
        rejects = rejects_path(path, self.rejects) if self.skip_bad else None
        return FileOptions(
            path, self.stream, self.url, self.time_column, self.new_ids, self.sort, self.append, self.resume,
            self.maxlen, ("", *self.null), self.delimiter, self.encoding, rejects, self.batch, self.rate,
            self.job or job_name(path), self.allow_future,
        )  # fmt: skip


# Returns a context with the session that reads a format.
SparkContextFactory = Callable[[], "AbstractContextManager[SparkSession]"]


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
        append: Whether to add rows that are older than the stream's last entry after it.
        resume: Whether to continue an interrupted load: rows that are in the stream are skipped.
        maxlen: Trim the stream to about this number of entries while loading.
        null: Texts in CSV that mean a missing value, such as `"NA"`.
        delimiter: The CSV delimiter; None for what the first line shows.
        encoding: The encoding of CSV or JSON lines.
        skip_bad: Whether to skip rows that cannot be loaded, and write them to the file `rejects`.
        rejects: The file for skipped rows; None for `NAME.rejects.SUFFIX` in the current directory.
        batch: Rows in one transaction.
        rate: Rows per second, at most.
        format: Have Spark read `file`, or the source that `options` name, in this format, such as `delta`.
        options: Options of the format (`--option`).
        job: Remember the load under this name: `resume` needs it for a file that was moved. With `format`, a
            repeated load of the same name adds only the missing rows.
        spark: The session that reads a format; None for that of this process, or else a local one.
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
    return run_load(arguments, ProgressObserver(on_progress), lambda: own_session(spark))


class ProgressObserver(LoadObserver):
    """Passes only the progress on."""

    def __init__(self, on_progress: Callable[[LoadResult], None]) -> None:
        self._on_progress = on_progress

    def on_progress(self, result: LoadResult, done: int, size: int) -> None:
        """Pass the progress on."""
        self._on_progress(result)


def own_session(given: SparkSession | None) -> AbstractContextManager[SparkSession]:
    """Return the context of a session for a load."""
    from headrace.pipeline.job_spark import job_spark

    return job_spark("headrace load", given)


def run_load(arguments: LoadArguments, observer: LoadObserver, spark: SparkContextFactory) -> LoadResult:
    """Load what the arguments name.

    Args:
        arguments: What to load, and how.
        observer: Is told what happens.
        spark: Returns the context of the session that reads a format; unused for files.
    """
    arguments.check()
    if arguments.format is not None:
        return load_format(arguments, arguments.format, observer, spark)
    assert arguments.file is not None
    return FileLoad(arguments.file_options(arguments.file), observer).run()


def load_format(
    arguments: LoadArguments, kind: str, observer: LoadObserver, spark: SparkContextFactory
) -> LoadResult:
    """Load the rows of a format that Spark reads."""
    from headrace.pipeline.spark_import import load_from_spark

    with spark() as session, observer.loading():
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
