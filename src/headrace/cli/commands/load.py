"""`headrace load`: load a file, standard input, or a source that Spark reads, into a stream."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click
from rich.console import Console

from headrace.cli.options.option_types import check_finite
from headrace.cli.options.server_options import url_option
from headrace.cli.output.progress import progress_bar
from headrace.console.rich_text import line
from headrace.errors import UsageError
from headrace.pipeline.loading.arguments import BATCH_ROWS_MAX, LoadArguments
from headrace.pipeline.loading.file_load import LoadObserver, LoadResult, resume_hint
from headrace.pipeline.loading.job import run_load
from headrace.pipeline.loading.loader import ROWS_PER_BATCH
from headrace.pipeline.loading.rejects import REASONS_SHOWN, RejectsFile
from headrace.pipeline.loading.time_columns import TimeColumn
from headrace.plurals import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command(
    "load",
    epilog="""\b
Examples:
  headrace load orders.csv --stream orders
  headrace load flights.csv.gz --stream flights --sort
  headrace load events.jsonl --stream events --time-column at --skip-bad
  zcat export.gz | headrace load - --stream orders --delimiter ';' --encoding latin-1
  headrace load orders.parquet --stream orders --rate 5000
  headrace load --format delta --option path=/lake/orders --stream orders --job orders-1
""",
)
@click.argument("file", required=False)
@click.option("--stream", required=True, metavar="NAME", help="Add the rows to this stream.")
@url_option
@click.option(
    "--time-column",
    metavar="COLUMN",
    help="Take the IDs from the times in this column.  [default: a column that looks like times; without one "
    "the server generates the IDs]",
)
@click.option(
    "--new-ids", is_flag=True, help="Let the server generate the IDs, even if a column looks like times."
)
@click.option(
    "--allow-future",
    is_flag=True,
    help="Load rows whose times are more than a day later than now: the IDs that the server generates for "
    "later entries will have the latest of these times.",
)
@click.option("--sort", is_flag=True, help="Sort the rows by time first; the whole file is held in memory.")
@click.option(
    "--append",
    is_flag=True,
    help="If rows are older than the last entry of the stream, add them after it.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue an interrupted load: add the rows that are not in the stream yet.",
)
@click.option(
    "--maxlen",
    metavar="N",
    type=click.IntRange(min=1),
    help="Trim the stream to about N entries while loading.",
)
@click.option(
    "--null",
    "null_values",
    multiple=True,
    metavar="TEXT",
    help="Treat this CSV text as a missing value, such as NA; may be repeated.",
)
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    help="Split CSV values at this character, such as ; or | or tab.  [default: what "
    "the first line shows: a comma, or ; tab | if it has none; a tab in .tsv]",
)
@click.option(
    "--encoding",
    default="utf-8",
    show_default=True,
    metavar="NAME",
    help="Read CSV or JSON lines in this encoding, such as latin-1.",
)
@click.option(
    "--skip-bad", is_flag=True, help="Skip rows that cannot be loaded, and write them to the --rejects file."
)
@click.option(
    "--rejects", metavar="PATH", help="Write skipped rows to this file.  [default: ./NAME.rejects.SUFFIX]"
)
@click.option(
    "--batch",
    type=click.IntRange(1, BATCH_ROWS_MAX),
    default=ROWS_PER_BATCH,
    show_default=True,
    metavar="N",
    help="Load N rows per transaction.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    callback=check_finite,
    metavar="N",
    help="Load at most N rows per second.  [default: no limit]",
)
@click.option(
    "--format",
    "kind",
    metavar="NAME",
    help="Read FILE, or the source of --option, with this Spark format.",
)
@click.option(
    "--option",
    "spark_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an option of the --format; may be repeated.",
)
@click.option(
    "--job",
    metavar="NAME",
    help="Remember the load under this name. --resume needs it for standard input and for a file that was "
    "moved. With --format, a repeated load of the same name adds only the missing rows.",
)
def command(
    file: str | None,
    stream: str,
    url: str,
    time_column: str | None,
    new_ids: bool,
    allow_future: bool,
    sort: bool,
    append: bool,
    resume: bool,
    maxlen: int | None,
    null_values: tuple[str, ...],
    delimiter: str | None,
    encoding: str,
    skip_bad: bool,
    rejects: str | None,
    batch: int,
    rate: float | None,
    kind: str | None,
    spark_options: tuple[str, ...],
    job: str | None,
) -> None:
    """Load FILE (.csv, .tsv, .jsonl, also .gz or .zip, or .parquet) or standard input (-) into a stream.

    Each row becomes an entry. Its columns are the fields; missing values are left out. The IDs come from a
    column of times; without one the server generates them. With --format Spark reads the rows, in any format
    that it knows, and the server generates the IDs unless --time-column is given.
    """
    console = Console(highlight=False)
    options = dict(map(parse_spark_option, spark_options))
    arguments = LoadArguments(
        file, stream, url, time_column, new_ids, allow_future, sort, append, resume, maxlen, null_values,
        delimiter, encoding, skip_bad, rejects, batch, rate, kind, options, job,
    )  # fmt: skip
    observer = PrintingObserver(console, arguments)
    try:
        result = run_load(arguments, observer, load_session)
    except KeyboardInterrupt:
        can_resume = job is not None or file != "-"
        if kind is None and (hint := resume_hint(observer.result, can_resume)):
            console.print(line(hint), soft_wrap=True)
        raise
    print_result(console, result, stream, resume)
    if observer.rejects is not None:
        print_rejects(console, observer.rejects)


class PrintingObserver(LoadObserver):
    """Prints notes and a progress bar.

    Attributes:
        result: The progress so far.
        rejects: The rejected rows, if there are any.
    """

    def __init__(self, console: Console, arguments: LoadArguments) -> None:
        self.result = LoadResult()
        self.rejects: RejectsFile | None = None
        self._console = console
        self._arguments = arguments
        self._bar = progress_bar(console)

    def on_note(self, text: str) -> None:
        """Print a note."""
        self._console.print(line(text), soft_wrap=True)

    def on_time_column(self, times: TimeColumn | None) -> None:
        """Print where the IDs come from."""
        if times is None:
            named = self._arguments.new_ids
            why = "" if named else "; no column looks like a time (--time-column names one)"
            self._console.print(f"IDs from the server{why}", soft_wrap=True)
            return
        details = [
            *([f"{times.unit_name} since 1970"] if times.unit_name else []),
            *([] if self._arguments.time_column else ["chosen"]),
        ]
        origin = f" ({', '.join(details)})" if details else ""
        self._console.print(line("IDs from column ", (times.name, "bold"), origin), soft_wrap=True)

    def sorting_context(self) -> AbstractContextManager[object]:
        """Show that rows are sorted."""
        return self._console.status("Sorting")

    def loading_context(self) -> AbstractContextManager[object]:
        """Show the progress bar."""
        self._bar.add_task(self._arguments.stream, total=None, rows=0)
        return self._bar

    def on_progress(self, result: LoadResult, done: int, size: int) -> None:
        """Update the progress bar."""
        self.result = result
        [task] = self._bar.task_ids
        self._bar.update(task, completed=done, total=size or None, rows=result.loaded)

    def on_rejects(self, rejects: RejectsFile) -> None:
        """Keep the file of rejected rows; its path, row count and some reasons are printed at the end."""
        self.rejects = rejects


def load_session() -> AbstractContextManager[SparkSession]:
    """Return the context of the Spark session that reads a format."""
    from headrace.cli.connections.spark_session import scratch_spark

    return scratch_spark("headrace load")


def parse_spark_option(text: str) -> tuple[str, str]:
    """Return name and value of NAME=VALUE. UsageError if it has another form."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--option {text}: expected NAME=VALUE, such as path=/lake/orders")
    return name, value


def print_rate(console: Console, rows: int, seconds: float, stream: str) -> None:
    """Print the number of added rows and the rate."""
    rate = rows / max(seconds, 1e-9)
    count = (plural(rows, "row"), "bold")
    console.print(line(count, " added to stream ", (stream, "bold"), f", {rate:,.0f} rows/s"), soft_wrap=True)


def print_result(console: Console, result: LoadResult, stream: str, resumed: bool) -> None:
    """Print what the load did, and which times it had to change."""
    if resumed and result.skipped and not result.added:
        complete = f"The load was complete: all {plural(result.skipped, 'row')} were already in stream "
        console.print(line(complete, (stream, "bold"), "; nothing was added"), soft_wrap=True)
        return
    print_rate(console, result.added, result.seconds, stream)
    if result.added and result.first_id:
        console.print(f"IDs {result.first_id} to {result.last_id}")
    if result.skipped:
        console.print(f"{plural(result.skipped, 'row')} skipped: already in the stream")
    if result.out_of_order:
        rows = plural(result.out_of_order, "row")
        console.print(f"{rows} got the later time of the previous row (--sort avoids this)")
    if result.without_time:
        rows = plural(result.without_time, "row")
        console.print(f"{rows} without a time got the time of the previous row")


def print_rejects(console: Console, rejects: RejectsFile) -> None:
    """Print how many rows were skipped, where they are, and why the first ones were rejected."""
    count = (plural(rejects.count, "bad row"), "bold")
    console.print(line(count, " skipped, see ", rejects.path, ":"), soft_wrap=True)
    for reason in rejects.reasons:
        console.print(line("  ", reason), soft_wrap=True)
    if rejects.count > REASONS_SHOWN:
        console.print(f"  and {rejects.count - REASONS_SHOWN:,} more")
