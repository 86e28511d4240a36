"""`headrace archive`: write streams to Parquet files by stream and day."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from headrace.cli.option_types import LocalPath, check_finite, check_time_zone
from headrace.cli.progress import progress_bar
from headrace.cli.spark_session import scratch_spark, summarize_misfits
from headrace.cli.streams import select_streams, total_length, url_option
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archive import (
    ENTRIES_PER_BATCH,
    archive,
    check_field_names,
    count_archive,
    parse_schema,
)
from headrace.pipeline.column_inference import (
    SAMPLE_ENTRIES,
    field_types,
    infer_columns,
    lacks_time_format,
    sample_entries,
    unusable_names,
    with_time_formats,
)
from headrace.pipeline.compaction import compact_archive
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.query_progress import BatchProgress
from headrace.plurals import plural
from headrace.spark.decode.misfits import READ_WITHOUT, MisfitCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

EVERY_SECONDS = 60.0
INFER = "infer"


@dataclass
class ArchiveJob:
    """The options of the job, and the number of entries written so far.

    Attributes:
        written: Number of entries written.
        kept_whole: Number of those whose fields the columns cannot hold exactly, kept in _exact.
        misfits: Number of values that became null, by stream and column.
    """

    url: str
    directory: Path
    batch: int
    allow_loss: bool
    compaction: bool
    fields: StructType | None = None
    written: int = 0
    kept_whole: int = 0
    misfits: MisfitCounts = field(default_factory=dict)


@click.command(
    "archive",
    epilog="""\b
Examples:
  headrace archive --stream flights --to archive/flights
  headrace archive --stream flights --to archive/delays --fields 'carrier STRING, dep_delay DOUBLE'
  headrace archive --pattern 'orders\\..*' --to archive/orders --fields infer --follow
""",
)
@click.option(
    "--stream", "names", multiple=True, metavar="NAME", help="Archive this stream; may be repeated."
)
@click.option("--pattern", metavar="REGEX", help="Archive all streams whose whole name matches.")
@click.option("--to", "directory", required=True, type=LocalPath(), help="Write the files to this directory.")
@url_option
@click.option(
    "--fields",
    metavar="COLUMNS",
    help="Write these fields as typed columns, given in SQL; `infer` chooses them from a sample. Without it "
    "all fields are one map.",
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
    metavar="N", help="Archive N entries per micro-batch.",
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
def command(
    names: tuple[str, ...], pattern: str | None, directory: Path, url: str, fields: str | None,
    sampled: int | None, time_zone: str, batch: int, once: bool, every: float | None, allow_loss: bool,
    compaction: bool,
) -> None:  # fmt: skip
    """Write streams to Parquet files, one directory per stream and day, each entry exactly once.

    The next run adds the entries that are new. The archive is plain Parquet, which any tool reads. The last
    archived ID is stored on the server, so that `headrace trim` can remove archived entries.
    """
    if every is not None and once:
        raise UsageError("--every is for --follow")
    if sampled is not None and fields != INFER:
        raise UsageError("--sample is for --fields infer")
    console = Console(highlight=False)
    job = ArchiveJob(url, directory.absolute(), batch, allow_loss, compaction)
    streams = select_streams(url, names, pattern)
    if fields == INFER:
        found = sample_entries(url, streams, sampled or SAMPLE_ENTRIES)
        fields = infer_columns(found)
        console.print(line(f"Fields: {fields}"), soft_wrap=True)
        for name, why in unusable_names(field_types(found)).items():
            console.print(line("No column: the field '", name, "' ", why), soft_wrap=True)
    try:
        with scratch_spark("headrace archive", time_zone, job.misfits.update) as spark:
            job.fields = None if fields is None else parse_schema(fields)
            check_field_names(job.fields)
            if job.fields is not None and lacks_time_format(job.fields):
                job.fields = with_time_formats(
                    job.fields, sample_entries(url, streams, sampled or SAMPLE_ENTRIES)
                )
            archive_once(console, spark, job, streams)
            while not once:
                sleep_until_interrupted(every or EVERY_SECONDS)
                archive_once(console, spark, job, select_streams(url, names, pattern))
            with console.status("Counting"):
                counts = count_archive(spark, job.directory)
    except KeyboardInterrupt:
        if once or not job.written:
            raise
    written = (plural(job.written, "entry"), "bold")
    console.print(line(written, " written to ", (job.directory, "bold")), soft_wrap=True)
    print_kept_whole(console, job)
    if once:
        console.print(
            f"The archive holds {plural(counts.entries, 'entry')}, {counts.distinct:,} distinct, "
            f"of {plural(counts.days, 'day')}"
        )


def archive_once(console: Console, spark: SparkSession, job: ArchiveJob, streams: list[str]) -> None:
    """Archive the entries that exist now, then merge small files."""
    with progress_bar(console) as bar:
        name = streams[0] if len(streams) == 1 else f"{len(streams)} streams"
        task = bar.add_task(name, total=total_length(job.url, streams), rows=0)

        def count_kept_whole(entries: int) -> None:
            job.kept_whole += entries

        def show(done: BatchProgress) -> None:
            bar.advance(task, done.rows)
            bar.update(task, rows=bar.tasks[task].completed)
            job.written += done.rows

        try:
            archive(
                spark,
                job.url,
                streams,
                job.directory,
                fields=job.fields,
                entries_per_batch=job.batch,
                fail_on_loss=not job.allow_loss,
                on_batch=show,
                on_exact=count_kept_whole,
            )
        except HeadraceError as error:
            # The texts name options of the data source: name those of this command instead.
            text = str(error).replace("Set failOnDataLoss to false", "Use --allow-loss")
            error.args = (text.replace(READ_WITHOUT, "It cannot be archived: leave the stream out."),)
            raise
    if job.compaction:
        with console.status("Merging small files"):
            compact_archive(job.directory)


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
