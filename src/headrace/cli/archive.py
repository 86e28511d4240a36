"""`headrace archive`: a stream into Parquet files by day."""

from __future__ import annotations

import tempfile
import zoneinfo
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from headrace.cli.drawing import progress_bar
from headrace.errors import UsageError
from headrace.pipeline.archive import ENTRIES_PER_BATCH, archive, check, claim, schema_of
from headrace.pipeline.link import Link
from headrace.pipeline.progress import Batch
from headrace.pipeline.sessions import local_spark
from headrace.spark.options import DEFAULT_URL


@click.command(
    "archive",
    epilog="""\b
Examples:
  headrace archive --stream flights --to archive/flights
  headrace archive --stream flights --to archive/delays --fields 'carrier STRING, dep_delay DOUBLE'
""",
)
@click.option("--stream", required=True, help="The stream to archive.")
@click.option("--to", "directory", required=True, type=click.Path(path_type=Path), help="Where the files go.")
@click.option(
    "--url", default=DEFAULT_URL, show_default=True, help="The server: redis://, rediss:// or unix://."
)
@click.option(
    "--fields", metavar="COLUMNS", help="Fields as typed columns, in SQL; all as one map if left out."
)
@click.option(
    "--time-zone", default="UTC", show_default=True, help="Where a day begins, such as Europe/Berlin."
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=ENTRIES_PER_BATCH,
    show_default=True,
    help="Entries in one micro-batch.",
)
def command(stream: str, directory: Path, url: str, fields: str | None, time_zone: str, batch: int) -> None:
    """Write a stream's entries to Parquet files, a directory a day, each entry exactly once.

    Run again, it adds what has come since. The archive is plain Parquet: any tool reads it.
    """
    console = Console(highlight=False)
    directory = directory.absolute()
    if time_zone not in zoneinfo.available_timezones():
        raise UsageError(f"no time zone {time_zone!r}; expected a name such as UTC or Europe/Berlin")
    with Link(url) as link:
        if link.last_id(stream) is None:
            raise UsageError(f"{url}: there is no stream {stream!r}")
        length = link.length(stream)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-archive-"))
        with console.status("Starting Spark"):
            log = Path(scratch) / "spark.log"
            spark = stack.enter_context(local_spark("headrace archive", log, time_zone))
        schema = None if fields is None else schema_of(fields)
        claim(directory, stream, schema)
        with progress_bar(console) as bar:
            task = bar.add_task(stream, total=length, rows=0)

            def show(done: Batch) -> None:
                bar.advance(task, done.rows)
                bar.update(task, rows=bar.tasks[task].completed)

            written = archive(
                spark, url, stream, directory, fields=schema, entries_per_batch=batch, on_batch=show
            )
        with console.status("Counting"):
            held = check(spark, directory)
    console.print(f"[bold]{written:,}[/] entries written to [bold]{directory}[/]")
    console.print(
        f"The archive holds {held.entries:,} entries, {held.distinct:,} distinct, of {held.days:,} days"
    )
