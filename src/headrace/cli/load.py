"""`headrace load`: a file, or whatever Spark can read, into a stream, with a progress bar."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console

from headrace.cli.broken_off import add_hint
from headrace.cli.drawing import progress_bar
from headrace.cli.streams import url_option
from headrace.cli.values import finite
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.link import Link
from headrace.pipeline.load import ROWS_PER_BATCH, Report, in_time_order, load
from headrace.pipeline.pace import Rate
from headrace.pipeline.tables import Table
from headrace.pipeline.times import choose_time_column
from headrace.spark.local_paths import local_path


@click.command(
    "load",
    epilog="""\b
Examples:
  headrace load flights.csv.gz --stream flights --sort
  headrace load events.jsonl --stream events --url redis://127.0.0.1:7777 --time-column at
  headrace load orders.parquet --stream orders --rate 5000
  headrace load --format delta --option path=/lake/orders --stream orders --job orders-1
""",
)
@click.argument("file", required=False)
@click.option("--stream", required=True, help="The stream to load into.")
@url_option
@click.option(
    "--time-column", metavar="COLUMN", help="The column that gives the IDs; chosen by itself if left out."
)
@click.option("--sort", is_flag=True, help="Sort the rows by time first; holds the file in memory.")
@click.option("--append", is_flag=True, help="Put the rows after the entries that are there already.")
@click.option(
    "--resume", is_flag=True, help="Go on with a load that stopped: skip rows up to the stream's last ID."
)
@click.option(
    "--maxlen", type=click.IntRange(min=1), help="Trim the stream to about this many entries while loading."
)
@click.option(
    "--null", "null_values", multiple=True, metavar="TEXT", help="CSV text that means no value, such as NA."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 100_000),
    default=ROWS_PER_BATCH,
    show_default=True,
    help="Rows in one transaction.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    help="At most so many rows a second.",
)
@click.option("--format", "kind", metavar="NAME", help="Read FILE, or what the options say, with Spark.")
@click.option(
    "--option", "given", multiple=True, metavar="NAME=VALUE", help="An option for Spark's format; repeat it."
)
@click.option(
    "--job", metavar="NAME", help="With --format: a name; begun again by it, only what is missing is added."
)
def command(
    file: str | None,
    stream: str,
    url: str,
    time_column: str | None,
    sort: bool,
    append: bool,
    resume: bool,
    maxlen: int | None,
    null_values: tuple[str, ...],
    batch: int,
    rate: float | None,
    kind: str | None,
    given: tuple[str, ...],
    job: str | None,
) -> None:
    """Load FILE (.csv, .csv.gz, .csv.zip, .jsonl or .parquet) into a stream.

    Each row becomes an entry: its time gives the ID, its columns the fields. Missing values are left out.
    With --format Spark reads, in any format that it knows, and the server makes the IDs, unless
    --time-column names the column that gives them.
    """
    if kind is not None:
        if sort or append or resume or null_values:
            raise UsageError("--sort, --append, --resume and --null are not for --format")
        load_by_spark(kind, file, given, url, stream, time_column, rate, maxlen, job)
        return
    if file is None:
        raise UsageError("name a FILE, or a --format")
    if given or job:
        raise UsageError("--option and --job are for --format")
    if append and resume:
        raise UsageError("--append and --resume exclude each other")
    existing = "append" if append else "resume" if resume else "refuse"
    console = Console(highlight=False)
    report = Report()

    def show(now: Report) -> None:
        nonlocal report
        report = now
        bar.update(task, completed=table.position, total=table.size, rows=now.rows + now.skipped)

    with Table(local_path(file), ("", *null_values)) as table, Link(url) as link:
        batches = table.batches()
        first = next(batches, None)
        if first is None:
            raise UsageError(f"{file}: has no rows")
        times = choose_time_column(first, time_column)
        chosen = "" if time_column else " (chosen)"
        console.print(line("IDs from column ", (times.name, "bold"), chosen))
        rows = chain([first], batches)
        with progress_bar(console) as bar:
            task = bar.add_task(stream, total=None, rows=0)
            try:
                report = load(
                    in_time_order(rows, times) if sort else rows,
                    times,
                    link,
                    stream,
                    existing=existing,
                    maxlen=maxlen,
                    rows_per_batch=batch,
                    rate=Rate(rate),
                    on_progress=show,
                )
            except (HeadraceError, KeyboardInterrupt) as stop:
                if report.rows:
                    add_hint(console, stop, f"{report.rows:,} rows are in, --resume goes on from there")
                raise
    tell(console, report, stream)


def load_by_spark(
    kind: str,
    file: str | None,
    given: tuple[str, ...],
    url: str,
    stream: str,
    time_column: str | None,
    rate: float | None,
    maxlen: int | None,
    job: str | None,
) -> None:
    """Loads what Spark reads."""
    from headrace.cli.spark_session import announced_spark
    from headrace.pipeline.load_spark import load_source

    options = dict(name_and_value(each) for each in given)
    console = Console(highlight=False)
    with ExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="headrace-load-"))
        spark = stack.enter_context(announced_spark("headrace load", Path(scratch) / "spark.log"))
        with progress_bar(console) as bar:
            task = bar.add_task(stream, total=None, rows=0)
            rows = load_source(
                spark,
                kind,
                options,
                url,
                stream,
                path=file,
                time_by=time_column,
                rate=rate,
                maxlen=maxlen,
                job=job,
                on_progress=lambda rows: bar.update(task, rows=rows),
            )
            seconds = bar.tasks[0].elapsed or 0.0
    tell_rate(console, rows, seconds, stream)


def name_and_value(text: str) -> tuple[str, str]:
    """What NAME=VALUE says. UsageError if it says nothing of the kind."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--option {text}: expected NAME=VALUE, such as path=/lake/orders")
    return name, value


def tell_rate(console: Console, rows: int, seconds: float, stream: str) -> None:
    """Says how many rows are in, and how fast they went."""
    rate = rows / max(seconds, 1e-9)
    console.print(line((f"{rows:,}", "bold"), " rows in stream ", (stream, "bold"), f", {rate:,.0f} rows/s"))


def tell(console: Console, report: Report, stream: str) -> None:
    """Says what the load did, and what it had to change."""
    tell_rate(console, report.rows, report.seconds, stream)
    if report.rows:
        console.print(f"IDs {report.first_id} to {report.last_id}")
    if report.skipped:
        console.print(f"{report.skipped:,} rows were there already and were skipped")
    if report.moved:
        console.print(
            f"{report.moved:,} rows went back in time and took the time before them (--sort avoids this)"
        )
    if report.untimed:
        console.print(f"{report.untimed:,} rows have no time and took the time before them")
