"""`headrace archive`: write streams to a Delta table of Parquet files, by stream and day."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import click
from rich.console import Console
from rich.progress import Progress

from headrace.archive.location import ArchiveLocation
from headrace.cli.connections.spark_session import scratch_spark
from headrace.cli.options.option_types import (
    ArchivePath,
    check_finite,
    check_time_zone,
    quiet_option,
    storage_option,
    with_storage_options,
)
from headrace.cli.options.server_options import url_option
from headrace.cli.output.misfits import summarize_misfits
from headrace.cli.output.progress import progress_bar
from headrace.console.rich_text import line
from headrace.errors import UsageError
from headrace.pipeline.archiving.archive_streams import ENTRIES_PER_BATCH
from headrace.pipeline.archiving.column_inference import SAMPLE_ENTRIES
from headrace.pipeline.archiving.job import ArchiveArguments, ArchiveJob, ArchiveObserver, SessionContext
from headrace.pipeline.shared.durations import parse_duration_ms
from headrace.pipeline.shared.stream_selection import total_length
from headrace.pipeline.spark_session.query_progress import BatchProgress
from headrace.plurals import plural
from headrace.spark.decode.misfits import MisfitCounts

EVERY_SECONDS = 60.0


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
    pandas, also while it grows. Do not read its files one by one: the directory also has files that are no
    longer part of the table. The last archived ID is stored on the server, so that `headrace trim` can remove
    archived entries.
    """
    if every is not None and once:
        raise UsageError("--every is for --follow")
    console = Console(highlight=False, quiet=quiet)
    arguments = ArchiveArguments(
        names, pattern, with_storage_options(location, storage_options), url, fields, sampled, time_zone,
        batch, allow_loss, compaction, None if keep is None else parse_duration_ms(keep),
    )  # fmt: skip
    job = ArchiveJob(arguments, PrintingObserver(console, url, quiet))
    try:
        if once:
            job.run_once()
        else:
            job.follow(every or EVERY_SECONDS)
        result = job.result()
    except KeyboardInterrupt:
        if once or not job.written_entries:
            raise
    written = (plural(job.written_entries, "entry"), "bold")
    console.print(line(written, " written to ", (str(location), "bold")), soft_wrap=True)
    print_inexact_counts(console, job)
    if once:
        counts = f"{plural(result.entries, 'entry')} of {plural(result.days, 'day')}"
        console.print(f"The archive holds {counts}")


class PrintingObserver(ArchiveObserver):
    """Prints notes and a progress bar."""

    def __init__(self, console: Console, url: str, quiet: bool) -> None:
        self._console = console
        self._url = url
        self._quiet = quiet
        self._bar: Progress | None = None
        self._reported = 0  # entries that --follow has printed

    def session_context(self, zone: str, on_misfits: Callable[[MisfitCounts], object]) -> SessionContext:
        """Return the context of a local Spark session, whose start is printed."""
        return scratch_spark("headrace archive", zone, on_misfits, self._quiet)

    def on_columns(self, columns: str, unusable: Mapping[bytes, str]) -> None:
        """Print the columns, and which fields have none."""
        self._console.print(line(f"Fields: {columns}"), soft_wrap=True)
        for name, why in unusable.items():
            self._console.print(line("No column: the field '", name, "' ", why), soft_wrap=True)

    def archiving_context(self, streams: Sequence[str]) -> AbstractContextManager[object]:
        """Show a progress bar."""
        name = streams[0] if len(streams) == 1 else f"{len(streams)} streams"
        self._bar = bar = progress_bar(self._console)
        bar.add_task(name, total=total_length(self._url, streams), rows=0)
        return bar

    def on_batch(self, batch: BatchProgress) -> None:
        """Update the progress bar."""
        assert self._bar is not None
        [task] = self._bar.tasks
        self._bar.advance(task.id, batch.rows)
        self._bar.update(task.id, rows=task.completed)

    def merging_context(self) -> AbstractContextManager[object]:
        """Show that files are merged."""
        return self._console.status("Merging small files")

    def on_deleted(self, entries: int, first_day: datetime.date) -> None:
        """Print how many entries were deleted."""
        self._console.print(
            f"Deleted from the archive: {plural(entries, 'entry')} of days before {first_day}"
        )

    def on_round(self, written: int) -> None:
        """Print when a round has written entries, and how many; nothing if there were none."""
        if new := written - self._reported:
            now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
            self._console.print(f"{now}  {plural(new, 'entry')} written", soft_wrap=True)
            self._reported = written


def print_inexact_counts(console: Console, job: ArchiveJob) -> None:
    """Print how many entries are kept whole, and which columns have values that did not fit."""
    if job.kept_exact_count:
        console.print(
            f"{job.kept_exact_count:,} of {job.written_entries:,} entries have fields that their columns "
            "cannot hold exactly; they are kept whole in _exact",
            soft_wrap=True,
        )
    if text := summarize_misfits(job.misfits):
        console.print(text, markup=False, soft_wrap=True)
