"""`headrace archive`: streams into Parquet files by stream and day."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from headrace.cli.drawing import progress_bar
from headrace.cli.spark_session import announced_spark
from headrace.cli.streams import lengths, url_option, wanted_streams
from headrace.cli.values import LocalPath, finite, time_zone
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
from headrace.spark.decode.misfits import (
    READ_WITHOUT,
    MisfitCounts,
    collected_misfits,
    collecting_misfits,
    summarize_misfits,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

EVERY_SECONDS = 60.0
INFER = "infer"


@dataclass
class Wanted:
    """What the command was told, and how much it has written."""

    names: tuple[str, ...]
    pattern: str | None
    url: str
    directory: Path
    batch: int
    allow_loss: bool
    compaction: bool
    fields: StructType | None = None
    written: int = 0
    exact: int = 0
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
@click.option("--stream", "names", multiple=True, help="The stream to archive; may be said several times.")
@click.option("--pattern", metavar="REGEX", help="All streams whose whole name matches.")
@click.option("--to", "directory", required=True, type=LocalPath(), help="Where the files go.")
@url_option
@click.option(
    "--fields",
    metavar="COLUMNS",
    help="Fields as typed columns, in SQL, or `infer` to have them proposed; all as one map if left out.",
)
@click.option(
    "--sample", "sampled", type=click.IntRange(min=2),
    help=f"Entries of each stream to infer fields from.  [default: {SAMPLE_ENTRIES}]",
)  # fmt: skip
@click.option(
    "--time-zone", callback=time_zone, default="UTC", show_default=True,
    help="Where a day begins, such as Europe/Berlin.",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(min=1), default=ENTRIES_PER_BATCH, show_default=True,
    help="Entries in one micro-batch.",
)  # fmt: skip
@click.option("--once/--follow", default=True, help="Archive what is there and end, or go on until Ctrl-C.")
@click.option(
    "--every", type=click.FloatRange(min=0, min_open=True), callback=finite,
    help=f"With --follow: seconds from one look to the next.  [default: {EVERY_SECONDS:g}]",
)  # fmt: skip
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Go on, with a warning, where entries were gone before they were archived.",
)
@click.option(
    "--compact/--no-compact", "compaction", default=True, help="Put the files of past days together."
)
def command(
    names: tuple[str, ...], pattern: str | None, directory: Path, url: str, fields: str | None,
    sampled: int | None, time_zone: str, batch: int, once: bool, every: float | None, allow_loss: bool,
    compaction: bool,
) -> None:  # fmt: skip
    """Write streams to Parquet files, a directory a stream and day, each entry exactly once.

    Run again, it adds what has come since. The archive is plain Parquet: any tool reads it. The server is
    told how far it has got, so that `headrace trim` may remove the rest.
    """
    if every is not None and once:
        raise UsageError("--every is for --follow")
    if sampled is not None and fields != INFER:
        raise UsageError("--sample is for --fields infer")
    console = Console(highlight=False)
    wanted = Wanted(names, pattern, url, directory.absolute(), batch, allow_loss, compaction)
    streams = wanted_streams(url, names, pattern)
    if fields == INFER:
        found = sample_entries(url, streams, sampled or SAMPLE_ENTRIES)
        fields = infer_columns(found)
        console.print(line(f"Fields: {fields}"), soft_wrap=True)
        for name, why in unusable_names(field_types(found)).items():
            console.print(line("No column: the field '", name, "' ", why), soft_wrap=True)
    try:
        with ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-archive-"))
            stack.enter_context(collecting_misfits(Path(scratch)))
            stack.callback(lambda: wanted.misfits.update(collected_misfits(Path(scratch))))
            log = Path(scratch) / "spark.log"
            spark = stack.enter_context(announced_spark("headrace archive", log, time_zone))
            wanted.fields = None if fields is None else parse_schema(fields)
            check_field_names(wanted.fields)
            if wanted.fields is not None and lacks_time_format(wanted.fields):
                wanted.fields = with_time_formats(
                    wanted.fields, sample_entries(url, streams, sampled or SAMPLE_ENTRIES)
                )
            run(console, spark, wanted, streams)
            while not once:
                wait(every or EVERY_SECONDS)
                run(console, spark, wanted, wanted_streams(url, names, pattern))
            with console.status("Counting"):
                held = count_archive(spark, wanted.directory)
    except KeyboardInterrupt:
        if once or not wanted.written:
            raise
    console.print(
        line((f"{wanted.written:,}", "bold"), " entries written to ", (wanted.directory, "bold")),
        soft_wrap=True,
    )
    tell_kept(console, wanted)
    if once:
        console.print(
            f"The archive holds {held.entries:,} entries, {held.distinct:,} distinct, of {held.days:,} days"
        )


def run(console: Console, spark: SparkSession, wanted: Wanted, streams: list[str]) -> None:
    """Archives what is there now, and then puts small files together."""
    with progress_bar(console) as bar:
        name = streams[0] if len(streams) == 1 else f"{len(streams)} streams"
        task = bar.add_task(name, total=lengths(wanted.url, streams), rows=0)

        def note(entries: int) -> None:
            wanted.exact += entries

        def show(done: BatchProgress) -> None:
            bar.advance(task, done.rows)
            bar.update(task, rows=bar.tasks[task].completed)
            wanted.written += done.rows

        try:
            archive(
                spark,
                wanted.url,
                streams,
                wanted.directory,
                fields=wanted.fields,
                entries_per_batch=wanted.batch,
                fail_on_loss=not wanted.allow_loss,
                on_batch=show,
                on_exact=note,
            )
        except HeadraceError as error:
            # The same choice goes by another name here, or there is none.
            text = str(error).replace("Set failOnDataLoss to false", "Say --allow-loss")
            error.args = (text.replace(READ_WITHOUT, "It cannot be archived: leave the stream out."),)
            raise
    if wanted.compaction:
        with console.status("Putting small files together"):
            compact_archive(wanted.directory)


def tell_kept(console: Console, wanted: Wanted) -> None:
    """Say how many entries are kept whole, and which values the columns could not hold."""
    if wanted.exact:
        console.print(
            f"{wanted.exact:,} of {wanted.written:,} entries have fields that their columns cannot hold "
            "exactly; they are kept whole in _exact",
            soft_wrap=True,
        )
    if text := summarize_misfits(wanted.misfits):
        console.print(text, markup=False, soft_wrap=True)


def wait(seconds: float) -> None:
    """Sleeps, but for Ctrl-C."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        raise_if_interrupted()
        time.sleep(min(left, 0.1))
    raise_if_interrupted()
