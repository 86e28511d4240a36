"""`headrace archive`: write streams to a Delta table of Parquet files, by stream and day."""

from __future__ import annotations

import datetime
import time
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
from rich.console import Console

from headrace.archive.creation import create_or_open, known_fields
from headrace.archive.files import read_archive
from headrace.archive.location import ArchiveLocation
from headrace.archive.merging import merge_small_files
from headrace.cli.option_types import (
    ArchivePath,
    check_finite,
    check_time_zone,
    quiet_option,
    storage_option,
    with_storage_options,
)
from headrace.cli.progress import progress_bar
from headrace.cli.spark_session import scratch_spark, summarize_misfits
from headrace.cli.streams import select_streams, total_length, url_option
from headrace.columns.value_types import field_types
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archive import (
    ENTRIES_PER_BATCH,
    all_nullable,
    archive,
    check_field_names,
    count_archive,
    publish_if_current,
)
from headrace.pipeline.column_declarations import (
    InferredWith,
    declarations,
    parse_columns,
    parse_schema,
    with_declared,
)
from headrace.pipeline.column_inference import (
    SAMPLE_ENTRIES,
    infer_columns,
    lacks_time_format,
    sample_entries,
    unusable_names,
    with_time_formats,
)
from headrace.pipeline.durations import parse_duration_ms
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.query_progress import BatchProgress
from headrace.plurals import plural
from headrace.spark.arrow_schemas import arrow_schema, spark_columns
from headrace.spark.decode.misfits import READ_WITHOUT, MisfitCounts
from headrace.spark.source.data_loss import DataLoss

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

EVERY_SECONDS = 60.0


@dataclass
class ArchiveJob:
    """The options of the job, and the number of entries written so far.

    Attributes:
        written: Number of entries written.
        keep_ms: The age in milliseconds up to which days are kept; None to keep all.
        time_zone: The time zone of the days.
        reported: Number of those that --follow has printed.
        kept_whole: Number of those whose fields the columns cannot hold exactly, kept in _exact.
        misfits: Number of values that became null, by stream and column.
    """

    url: str
    location: ArchiveLocation
    batch: int
    allow_loss: bool
    compaction: bool
    keep_ms: int | None = None
    time_zone: str = "UTC"
    fields: StructType | None = None
    written: int = 0
    reported: int = 0
    kept_whole: int = 0
    misfits: MisfitCounts = field(default_factory=dict)


@click.command(
    "archive",
    epilog="""\b
Examples:
  headrace archive --stream flights --to archive/flights
  headrace archive --stream flights --to archive/delays --fields 'carrier STRING, dep_delay DOUBLE'
  headrace archive --pattern 'orders\\..*' --to s3://lake/orders --fields infer --follow
""",
)
@click.option(
    "--stream", "names", multiple=True, metavar="NAME", help="Archive this stream; may be repeated."
)
@click.option("--pattern", metavar="REGEX", help="Archive all streams whose whole name matches.")
@click.option(
    "--to", "location", required=True, type=ArchivePath(),
    metavar="PATH|URL", help="Write to this directory, or to a URL such as s3://bucket/orders.",
)  # fmt: skip
@storage_option
@url_option
@click.option(
    "--fields",
    metavar="COLUMNS",
    help="Write these fields as typed columns, given in SQL; `infer` chooses them from a sample, and "
    "'infer, n INT' all but n. Without it all fields are one map.",
)
@click.option(
    "--sample", "sampled", type=click.IntRange(min=2),
    metavar="N", help=f"Infer fields from this many entries of each stream.  [default: {SAMPLE_ENTRIES}]",
)  # fmt: skip
@click.option(
    "--time-zone", callback=check_time_zone, default="UTC", show_default=True,
    metavar="ZONE", help="Begin days in this time zone, such as Europe/Berlin.",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(min=1), default=ENTRIES_PER_BATCH, show_default=True,
    metavar="N", help="Commit about N entries at once.",
)  # fmt: skip
@click.option(
    "--once/--follow",
    default=True,
    help="Archive the existing entries and exit, or continue until Ctrl-C.",
)
@click.option(
    "--every", type=click.FloatRange(min=0, min_open=True), callback=check_finite,
    metavar="SECONDS", help=f"Wait this long between runs, with --follow.  [default: {EVERY_SECONDS:g}]",
)  # fmt: skip
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Continue with a warning if entries were trimmed before they were archived.",
)
@click.option(
    "--compact/--no-compact",
    "compaction",
    default=True,
    show_default=True,
    help="Merge the small files of past days.",
)
@click.option(
    "--keep", "keep",
    metavar="TIME", help="Delete days that are older than this, such as 90d.  [default: keep all]",
)  # fmt: skip
@quiet_option
def command(
    names: tuple[str, ...], pattern: str | None, location: ArchiveLocation, storage_options: tuple[str, ...],
    url: str, fields: str | None, sampled: int | None, time_zone: str, batch: int, once: bool,
    every: float | None, allow_loss: bool, compaction: bool, keep: str | None, quiet: bool,
) -> None:  # fmt: skip
    """Write streams to a Delta table of Parquet files, by stream and day, each entry exactly once.

    The next run adds the entries that are new. Read it as a Delta table, with Spark, DuckDB, Polars or
    pandas, also while it grows: its directory has files that do not count any more. The last archived ID is
    stored on the server, so that `headrace trim` can remove archived entries.
    """
    if every is not None and once:
        raise UsageError("--every is for --follow")
    if sampled is not None and (fields is None or not isinstance(parse_columns(fields), InferredWith)):
        raise UsageError("--sample is for --fields infer")
    console = Console(highlight=False, quiet=quiet)
    location = with_storage_options(location, storage_options)
    keep_ms = None if keep is None else parse_duration_ms(keep)
    job = ArchiveJob(url, location, batch, allow_loss, compaction, keep_ms, time_zone)
    streams = select_streams(url, names, pattern)
    job.fields = archived_fields(console, job, streams, fields, sampled or SAMPLE_ENTRIES)
    try:
        if is_current(job, streams) and once:  # an error comes before Spark starts, too
            keep_in_order(console, job, {file.path for file in read_archive(location).files})
        else:
            with scratch_spark("headrace archive", time_zone, job.misfits.update, quiet) as spark:
                archive_once(console, spark, job, streams)
                while not once:
                    print_round(console, job)
                    sleep_until_interrupted(every or EVERY_SECONDS)
                    archive_once(console, spark, job, select_streams(url, names, pattern))
        counts = count_archive(location)
    except KeyboardInterrupt:
        if once or not job.written:
            raise
    written = (plural(job.written, "entry"), "bold")
    console.print(line(written, " written to ", (str(location), "bold")), soft_wrap=True)
    print_kept_whole(console, job)
    if once:
        console.print(f"The archive holds {plural(counts.entries, 'entry')} of {plural(counts.days, 'day')}")


def print_round(console: Console, job: ArchiveJob) -> None:
    """Print when a run of --follow has written entries, and how many; nothing if there were none."""
    new = job.written - job.reported
    if new:
        now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        console.print(f"{now}  {plural(new, 'entry')} written", soft_wrap=True)
        job.reported = job.written


def is_current(job: ArchiveJob, streams: list[str]) -> bool:
    """Return whether the archive has all entries, so that Spark is not needed; create it if there is none."""
    try:
        with allow_loss_named():
            return publish_if_current(job.url, streams, job.location, fields=job.fields, zone=job.time_zone)
    except DataLoss:
        if not job.allow_loss:
            raise
        return False  # the run warns


@contextmanager
def allow_loss_named() -> Iterator[None]:
    """Let errors name options of this command instead of those of the data source."""
    try:
        yield
    except HeadraceError as error:
        text = str(error).replace("Set failOnDataLoss to false", "Use --allow-loss")
        error.args = (text.replace(READ_WITHOUT, "It cannot be archived: leave the stream out."),)
        raise


def archived_fields(
    console: Console, job: ArchiveJob, streams: list[str], given: str | None, sampled: int
) -> StructType | None:
    """Return the columns of the fields; None for one map. Infer them from a sample if they are not given.

    Args:
        console: Where inferred columns are printed.
        job: The job.
        streams: Its streams.
        given: The option --fields.
        sampled: The number of entries of each stream to infer columns and formats of times from.
    """
    if given is None:
        return None
    fields = parse_columns(given)
    if isinstance(fields, InferredWith):
        found = sample_entries(job.url, streams, sampled)
        inferred = parse_schema(infer_columns(found))
        fields = with_declared(spark_columns(known_fields(job.location, arrow_schema(inferred))), fields)
        console.print(line(f"Fields: {declarations(fields)}"), soft_wrap=True)
        for name, why in unusable_names(field_types(found)).items():
            console.print(line("No column: the field '", name, "' ", why), soft_wrap=True)
    check_field_names(fields)
    if lacks_time_format(fields):
        fields = with_time_formats(fields, sample_entries(job.url, streams, sampled))
    return all_nullable(fields)


def archive_once(console: Console, spark: SparkSession, job: ArchiveJob, streams: list[str]) -> None:
    """Archive the entries that exist now, then merge the small files that earlier runs wrote."""
    earlier = {file.path for file in read_archive(job.location).files}
    with progress_bar(console) as bar:
        name = streams[0] if len(streams) == 1 else f"{len(streams)} streams"
        task = bar.add_task(name, total=total_length(job.url, streams), rows=0)

        def count_kept_whole(entries: int) -> None:
            job.kept_whole += entries

        def show(done: BatchProgress) -> None:
            bar.advance(task, done.rows)
            bar.update(task, rows=bar.tasks[task].completed)
            job.written += done.rows

        with allow_loss_named():
            archive(
                spark,
                job.url,
                streams,
                job.location,
                fields=job.fields,
                entries_per_batch=job.batch,
                fail_on_loss=not job.allow_loss,
                on_batch=show,
                on_exact=count_kept_whole,
            )
    keep_in_order(console, job, earlier)


def keep_in_order(console: Console, job: ArchiveJob, earlier: set[str]) -> None:
    """Merge small files of earlier runs, delete old days, and delete the files of killed jobs."""
    table = create_or_open(
        job.location, None if job.fields is None else arrow_schema(job.fields), job.time_zone
    )
    now = datetime.datetime.now(datetime.UTC)
    if job.compaction:
        with console.status("Merging small files"):
            merge_small_files(table, earlier)
    if job.keep_ms is not None:
        first = first_day_kept(now, job.keep_ms, job.time_zone)
        deleted = table.delete_days_before(first).deleted
        if deleted:
            console.print(f"Deleted from the archive: {plural(deleted, 'entry')} of days before {first}")
    table.vacuum(now)


def first_day_kept(now: datetime.datetime, keep_ms: int, zone: str) -> datetime.date:
    """Return the first day, in a time zone, that has entries which are not older than this."""
    return (now - datetime.timedelta(milliseconds=keep_ms)).astimezone(zoneinfo.ZoneInfo(zone)).date()


def print_kept_whole(console: Console, job: ArchiveJob) -> None:
    """Print how many entries are kept whole, and which columns have values that did not fit."""
    if job.kept_whole:
        console.print(
            f"{job.kept_whole:,} of {job.written:,} entries have fields that their columns cannot hold "
            "exactly; they are kept whole in _exact",
            soft_wrap=True,
        )
    if text := summarize_misfits(job.misfits):
        console.print(text, markup=False, soft_wrap=True)


def sleep_until_interrupted(seconds: float) -> None:
    """Sleep; KeyboardInterrupt after a signal."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        raise_if_interrupted()
        time.sleep(min(left, 0.1))
    raise_if_interrupted()
