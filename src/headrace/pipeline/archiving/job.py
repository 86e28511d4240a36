"""The archive job: write streams to a Delta table, maintain its files, and report what was done."""

from __future__ import annotations

import datetime
import os
import time
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.archive.creation import create_or_open, with_archived_types
from headrace.archive.files import read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.merging import merge_small_files
from headrace.columns.declarations import format_columns, parse_columns, parse_schema, with_declared
from headrace.columns.value_types import field_types
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archiving.archive_streams import (
    ENTRIES_PER_BATCH,
    archive_streams,
    check_field_names,
    count_archive,
    publish_if_current,
    with_nullable_fields,
)
from headrace.pipeline.archiving.column_inference import (
    SAMPLE_ENTRIES,
    infer_columns_sql,
    lacks_time_format,
    reasons_by_unusable_name,
    sample_entries,
    with_time_formats,
)
from headrace.pipeline.shared.arguments import checked_at_least, checked_positive, duration_ms
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.pipeline.shared.stream_selection import select_streams
from headrace.pipeline.spark_session.job_spark import job_spark
from headrace.pipeline.spark_session.query_progress import BatchProgress
from headrace.spark.decode.misfits import SPARK_ID_PART_ADVICE, MisfitCounts
from headrace.spark.options import DEFAULT_URL
from headrace.spark.source.data_loss import DataLoss

SessionContext = AbstractContextManager[SparkSession]


@dataclass(frozen=True)
class ArchiveResult:
    """The result of an archive job.

    Attributes:
        archived: Entries that this call has written.
        kept_exact_count: Number of archived entries with a field that its column cannot hold exactly. The
            column `_exact` keeps all fields of these entries.
        misfits: Number of values that do not fit their column and are null there, by stream and column.
            A Spark session that existed before the call does not report them; its tasks log them.
        deleted: Entries of old days that were deleted, because of `keep`.
        columns: The columns of the fields as SQL declares them; None for one map of all fields.
        entries: Entries that the archive has now, of all its streams.
        days: Days that have entries.
    """

    archived: int
    kept_exact_count: int
    misfits: dict[tuple[str, str], int]
    deleted: int
    columns: str | None
    entries: int
    days: int


@dataclass(frozen=True)
class ArchiveArguments:
    """The arguments of archive(), and the options of the command.

    Attributes:
        keep_ms: The age in milliseconds up to which days are kept; None to keep all.
    """

    streams: str | Sequence[str] | None
    pattern: str | None
    location: ArchiveLocation
    url: str = DEFAULT_URL
    fields: str | None = None
    sample: int | None = None
    time_zone: str = "UTC"
    batch: int = ENTRIES_PER_BATCH
    allow_loss: bool = False
    compact: bool = True
    keep_ms: int | None = None

    def check(self) -> None:
        """Raise UsageError if values are out of range, or do not fit each other."""
        infers = self.fields is not None and parse_columns(self.fields).infers_others
        if self.sample is not None and not infers:
            raise UsageError("--sample is for --fields infer")
        if self.sample is not None:
            checked_at_least("--sample", self.sample, 2)
        checked_at_least("--batch", self.batch, 1)
        if self.time_zone not in zoneinfo.available_timezones():
            raise UsageError(
                f"unknown time zone {self.time_zone!r}; expected a name such as UTC or Europe/Berlin"
            )


class StopSignal(Protocol):
    """Ends a job that continues, such as headrace.Stop and threading.Event."""

    def is_set(self) -> bool:
        """Return whether the job should end."""


class ArchiveObserver:
    """Starts Spark for the job, and receives its reports. Methods that are not overridden ignore them."""

    def session_context(self, zone: str, on_misfits: Callable[[MisfitCounts], object]) -> SessionContext:
        """Return the context of a session in this time zone; on_misfits gets the counts of misfits."""
        raise NotImplementedError

    def on_columns(self, columns: str, unusable: Mapping[bytes, str]) -> None:
        """Receive inferred columns, and the names of fields without a column, each with the reason."""

    def archiving_context(self, streams: Sequence[str]) -> AbstractContextManager[object]:
        """Return a context for the time in which entries of these streams are written."""
        return nullcontext()

    def on_batch(self, batch: BatchProgress) -> None:
        """Receive a batch that was committed."""

    def merging_context(self) -> AbstractContextManager[object]:
        """Return a context for the time in which small files are merged."""
        return nullcontext()

    def on_deleted(self, entries: int, first_day: datetime.date) -> None:
        """Receive the number of deleted entries, and the first day that is kept."""

    def on_round(self, written: int) -> None:
        """Receive the number of entries written so far, after each round of a job that follows."""


def archive(
    streams: str | Sequence[str] | None = None,
    *,
    to: str | os.PathLike[str],
    pattern: str | None = None,
    url: str = DEFAULT_URL,
    storage_options: Mapping[str, str] | None = None,
    fields: str | None = None,
    sample: int | None = None,
    time_zone: str = "UTC",
    batch: int = ENTRIES_PER_BATCH,
    allow_loss: bool = False,
    compact: bool = True,
    keep: str | datetime.timedelta | None = None,
    every: float | None = None,
    stop: StopSignal | None = None,
    spark: SparkSession | None = None,
    on_progress: Callable[[BatchProgress], None] = lambda batch: None,
) -> ArchiveResult:
    """Write to an archive the entries of streams that it does not have yet, each exactly once.

    The archive is a Delta table of Parquet files. Call it again for later entries, or let it continue with
    `every`. Without `every`, a call that finds no new entries returns at once and does not start Spark.

    Args:
        streams: The name of a stream, or several names; None if a pattern is given.
        to: The archive: a directory, or a URL such as `s3://lake/orders`; created if there is none.
        pattern: Archive all streams whose whole name matches this regular expression.
        url: The server.
        storage_options: The options of the object store, such as `AWS_ENDPOINT_URL`.
        fields: Write these fields as typed columns, declared in SQL; `"infer"` chooses them from a sample,
            `"infer, n INT"` infers all except n; None for one map of all fields.
        sample: Infer fields from this many entries of each stream.
        time_zone: Begin days in this time zone.
        batch: Commit about this many entries at once.
        allow_loss: Whether to continue with a warning if entries were trimmed before they were archived.
        compact: Whether to merge the small files of past days.
        keep: Delete days that are older than this: a timedelta, or a text such as `"90d"`.
        every: Continue: look for new entries this many seconds after each round. None: archive the entries
            that exist, and return.
        stop: Ends a job that continues, after the current round: a `headrace.Stop`, or a `threading.Event`.
            Without it the job continues until Ctrl-C, which raises KeyboardInterrupt.
        spark: The session that runs the tasks; it cannot be a Spark Connect session. None for the active
            session of this process; if there is none, for a local session that ends with this call.
        on_progress: Called after each commit.

    Returns:
        The result.

    Raises:
        UsageError: if a stream does not exist, an argument is wrong, or `to` has other files or columns.
        DataLoss: if entries were trimmed before they were archived, or a stream was recreated.
        HeadraceError: if the server, the store or Spark fails, or another job writes to the archive.
    """
    keep_ms = None if keep is None else duration_ms("--keep", keep)
    arguments = ArchiveArguments(
        streams, pattern, archive_location(to, storage_options), url, fields, sample, time_zone, batch,
        allow_loss, compact, keep_ms,
    )  # fmt: skip
    if stop is not None and every is None:
        raise UsageError("stop is for a job that continues: give every, too")
    job = ArchiveJob(arguments, CallbackObserver(spark, on_progress))
    if every is None:
        job.run_once()
    else:
        job.follow(checked_positive("--every", every), stop)
    return job.result()


class CallbackObserver(ArchiveObserver):
    """Reports only the progress, to a callback; uses the caller's Spark session if one is given."""

    def __init__(self, given: SparkSession | None, on_progress: Callable[[BatchProgress], None]) -> None:
        self._given = given
        self._on_progress = on_progress

    def session_context(self, zone: str, on_misfits: Callable[[MisfitCounts], object]) -> SessionContext:
        """Return the context of the caller's session, or of the one that job_spark() chooses."""
        return job_spark("headrace archive", self._given, zone, on_misfits)

    def on_batch(self, batch: BatchProgress) -> None:
        """Pass the progress on."""
        self._on_progress(batch)


@dataclass
class ArchiveJob:
    """One run of the job.

    Attributes:
        written_entries: Entries written.
        kept_exact_count: Entries among them that are kept whole in `_exact`.
        misfits: Number of values that became null, by stream and column.
        deleted_entries: Entries of old days that were deleted.
    """

    arguments: ArchiveArguments
    observer: ArchiveObserver
    written_entries: int = 0
    kept_exact_count: int = 0
    misfits: MisfitCounts = field(default_factory=dict)
    deleted_entries: int = 0
    _fields: pa.Schema | None = None

    def run_once(self) -> None:
        """Archive the entries that exist now."""
        streams = self._prepare_streams()
        if self._is_current(streams):  # an error comes before Spark starts, too
            self._maintain_table({file.path for file in read_archive(self.arguments.location).files})
            return
        with self.observer.session_context(self.arguments.time_zone, self.misfits.update) as spark:
            self._archive(spark, streams)

    def follow(self, seconds: float, stop: StopSignal | None = None) -> None:
        """Archive new entries in rounds until `stop` is set; wait `seconds` between two rounds.

        A signal raises KeyboardInterrupt.
        """
        streams = self._prepare_streams()
        self._is_current(streams)  # an error comes before Spark starts, too
        with self.observer.session_context(self.arguments.time_zone, self.misfits.update) as spark:
            self._archive(spark, streams)
            self.observer.on_round(self.written_entries)
            while not wait_for_stop(seconds, stop):
                self._archive(spark, self._select())
                self.observer.on_round(self.written_entries)

    def result(self) -> ArchiveResult:
        """Return what was done, and the size of the archive."""
        counts = count_archive(self.arguments.location)
        columns = None if self._fields is None else format_columns(self._fields)
        return ArchiveResult(
            self.written_entries,
            self.kept_exact_count,
            dict(self.misfits),
            self.deleted_entries,
            columns,
            counts.entries,
            counts.days,
        )  # fmt: skip

    def _prepare_streams(self) -> list[str]:
        """Check the arguments, choose the columns, and return the streams."""
        self.arguments.check()
        streams = self._select()
        self._fields = self._choose_columns(streams)
        return streams

    def _select(self) -> list[str]:
        return select_streams(self.arguments.url, self.arguments.streams, self.arguments.pattern)

    def _choose_columns(self, streams: list[str]) -> pa.Schema | None:
        """Return the columns of the fields; None for one map. Infer them if they are not declared."""
        arguments = self.arguments
        if arguments.fields is None:
            return None
        sampled = arguments.sample or SAMPLE_ENTRIES
        declared = parse_columns(arguments.fields)
        fields = declared.schema
        if declared.infers_others:
            found = sample_entries(arguments.url, streams, sampled)
            inferred = parse_schema(infer_columns_sql(found))
            fields = with_declared(with_archived_types(arguments.location, inferred), fields)
            self.observer.on_columns(format_columns(fields), reasons_by_unusable_name(field_types(found)))
        check_field_names(fields)
        if lacks_time_format(fields):
            fields = with_time_formats(fields, sample_entries(arguments.url, streams, sampled))
        return with_nullable_fields(fields)

    def _is_current(self, streams: list[str]) -> bool:
        """Return whether the archive has all entries, so that Spark is not needed; create it if it is new."""
        arguments = self.arguments
        try:
            with options_renamed_in_errors():
                return publish_if_current(
                    arguments.url, streams, arguments.location, fields=self._fields, zone=arguments.time_zone
                )
        except DataLoss:
            if not arguments.allow_loss:
                raise
            return False  # the run warns

    def _archive(self, spark: SparkSession, streams: list[str]) -> None:
        """Archive the entries that exist now, then merge the small files that earlier runs wrote."""
        arguments = self.arguments
        earlier = {file.path for file in read_archive(arguments.location).files}
        with self.observer.archiving_context(streams), options_renamed_in_errors():
            archive_streams(
                spark,
                arguments.url,
                streams,
                arguments.location,
                fields=self._fields,
                zone=arguments.time_zone,
                entries_per_batch=arguments.batch,
                fail_on_loss=not arguments.allow_loss,
                on_batch=self._count_batch,
                on_exact=self._count_exact,
            )
        self._maintain_table(earlier)

    def _count_batch(self, batch: BatchProgress) -> None:
        self.written_entries += batch.rows
        self.observer.on_batch(batch)

    def _count_exact(self, entries: int) -> None:
        self.kept_exact_count += entries

    def _maintain_table(self, earlier: set[str]) -> None:
        """Merge small files of earlier runs, delete old days, and delete the files of killed jobs."""
        arguments = self.arguments
        table = create_or_open(arguments.location, self._fields, arguments.time_zone)
        now = datetime.datetime.now(datetime.UTC)
        if arguments.compact:
            with self.observer.merging_context():
                merge_small_files(table, earlier)
        if arguments.keep_ms is not None:
            first = first_day_kept(now, arguments.keep_ms, arguments.time_zone)
            if deleted := table.delete_days_before(first).deleted_entries:
                self.deleted_entries += deleted
                self.observer.on_deleted(deleted, first)
        table.vacuum(now)


@contextmanager
def options_renamed_in_errors() -> Iterator[None]:
    """Replace advice on data source options in error messages with advice for the archive job."""
    try:
        yield
    except HeadraceError as error:
        text = str(error).replace("Set failOnDataLoss to false", "Use --allow-loss")
        error.args = (text.replace(SPARK_ID_PART_ADVICE, "It cannot be archived: leave the stream out."),)
        raise


def first_day_kept(now: datetime.datetime, keep_ms: int, zone: str) -> datetime.date:
    """Return the first day, in the time zone `zone`, that may have entries at most `keep_ms` old."""
    return (now - datetime.timedelta(milliseconds=keep_ms)).astimezone(zoneinfo.ZoneInfo(zone)).date()


def wait_for_stop(seconds: float, stop: StopSignal | None) -> bool:
    """Wait this long, or until `stop` is set; return whether it is. A signal raises KeyboardInterrupt."""
    until = time.monotonic() + seconds
    while not (stop is not None and stop.is_set()):
        raise_if_interrupted()
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, 0.1))
    return True
