"""`headrace load`: load a file, standard input, or a source that Spark reads, into a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import click
import pyarrow as pa
from rich.console import Console

from headrace.archive.local_paths import local_path
from headrace.cli.option_types import check_finite
from headrace.cli.output import add_hint
from headrace.cli.progress import progress_bar
from headrace.cli.streams import url_option
from headrace.client.servers import Servers
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.file_readers import STDIN, FileProgress, FileReader
from headrace.pipeline.load import load, sorted_by_time
from headrace.pipeline.loader import ROWS_PER_BATCH, BadRowError, LoadJob, LoadReport
from headrace.pipeline.rejects import REASONS_SHOWN, RejectsFile
from headrace.pipeline.replay_pacer import RateLimiter
from headrace.pipeline.time_columns import MS_MAX, TimeColumn, choose_time_column, latest_time
from headrace.plurals import plural


@dataclass(frozen=True)
class LoadOptions:
    """The options of a load from a file."""

    path: Path
    stream: str
    url: str
    time_column: str | None
    new_ids: bool
    sort: bool
    append: bool
    resume: bool
    maxlen: int | None
    null_values: tuple[str, ...]
    delimiter: str | None
    encoding: str
    rejects: Path | None
    batch: int
    rate: float | None
    job: str
    allow_future: bool


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
    type=click.IntRange(1, 100_000),
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
    if new_ids and (time_column or sort):
        raise UsageError(f"--new-ids and {'--time-column' if time_column else '--sort'} exclude each other")
    if rejects is not None and not skip_bad:
        raise UsageError("--rejects is the file for the rows that --skip-bad skips: add --skip-bad")
    if job == "":
        raise UsageError("--job: the name is empty")
    if kind is not None:
        file_options = {
            "--sort": sort, "--append": append, "--resume": resume, "--null": null_values,
            "--delimiter": delimiter is not None, "--encoding": encoding != "utf-8", "--skip-bad": skip_bad,
            "--batch": batch != ROWS_PER_BATCH, "--new-ids": new_ids,
        }  # fmt: skip
        if wrong := [name for name, given in file_options.items() if given]:
            raise UsageError(f"{wrong[0]} is for files that are read without --format; use --option instead")
        load_with_spark(kind, file, spark_options, url, stream, time_column, rate, maxlen, job, allow_future)
        return
    if file is None:
        raise UsageError("nothing to load: give a FILE, - for standard input, or --format")
    if spark_options:
        raise UsageError("--option is for --format")
    path = STDIN if file == "-" else local_path(file)
    if path == STDIN and resume and job is None:
        raise UsageError("--resume of standard input needs the --job NAME of the interrupted load")
    options = LoadOptions(
        path, stream, url, time_column, new_ids, sort, append, resume, maxlen, ("", *null_values), delimiter,
        encoding, rejects_path(path, rejects) if skip_bad else None, batch, rate, job or job_name(path),
        allow_future,
    )  # fmt: skip
    load_file(options)


def job_name(path: Path) -> str:
    """Return a name that identifies a load of the same file; empty for standard input."""
    return "" if path == STDIN else hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]


def rejects_path(path: Path, given: str | None) -> Path:
    """Return the file for rejected rows: the given one, or orders.rejects.csv for orders.csv.gz."""
    if given is not None:
        return local_path(given)
    if path == STDIN:
        return Path("stdin.rejects")
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in (".gz", ".zip")]
    kind = suffixes[-1] if suffixes else ""
    name = path.name.removesuffix("".join(path.suffixes)) if len(path.suffixes) < 3 else path.stem
    return Path(f"{name}.rejects{'.jsonl' if kind == '.parquet' else kind}")


def load_file(options: LoadOptions) -> None:
    """Load a file and print what was done."""
    console = Console(highlight=False)
    report = LoadReport()
    with ExitStack() as stack:
        reader = stack.enter_context(
            FileReader(options.path, options.null_values, options.delimiter, options.encoding)
        )
        servers = stack.enter_context(Servers(options.url, reconnect_timeout=0))
        rejects = None
        if options.rejects is not None:
            rejects = stack.enter_context(RejectsFile(options.rejects, reader, options.resume))
        progress = FileProgress(reader)
        rows, times = read_first_rows(console, reader, progress, options)
        with progress_bar(console) as bar:
            task = bar.add_task(options.stream, total=None, rows=0)

            def show(now: LoadReport) -> None:
                nonlocal report
                report = now
                if rejects is not None and now.is_complete:
                    rejects.finish()
                elif rejects is not None:
                    rejects.write_up_to(now.loaded)
                done = progress.position_after(now.loaded + now.bad)
                bar.update(task, completed=done, total=reader.size or None, rows=now.loaded)

            try:
                report = load(
                    rows,
                    times,
                    servers,
                    options.stream,
                    job=LoadJob(options.job, reader.name, reader.size),
                    append=options.append,
                    resume=options.resume,
                    maxlen=options.maxlen,
                    rows_per_batch=options.batch,
                    rate=RateLimiter(options.rate),
                    on_bad_row=None if rejects is None else rejects.add,
                    on_progress=show,
                    ahead=reader.path.is_file(),
                )
                bar.update(task, completed=reader.size, rows=report.loaded)
            except (HeadraceError, KeyboardInterrupt) as stop:
                hint = resume_hint(report, options.job)
                if hint:
                    add_hint(console, stop, hint)
                if isinstance(stop, BadRowError):
                    words = "--resume --skip-bad" if hint and options.job else "--skip-bad"
                    add_hint(console, stop, f"{words} leaves out bad rows, and writes them to a file")
                raise
    print_report(console, report, options.stream, options.resume)
    if rejects is not None and rejects.count:
        print_rejects(console, rejects)


def read_first_rows(
    console: Console, reader: FileReader, progress: FileProgress, options: LoadOptions
) -> tuple[Iterable[pa.RecordBatch | BadRow], TimeColumn | None]:
    """Read the first rows and print where the IDs come from. Return all rows and the time column."""
    rows = progress.track(reader.rows())
    first: list[pa.RecordBatch | BadRow] = []
    batch = None
    for each in rows:
        first.append(each)
        if not isinstance(each, BadRow):
            batch = each
            break
        if options.rejects is None:
            raise UsageError(f"{reader.name}: {each}")
    if batch is None:
        raise UsageError(f"{reader.name}: has no rows" + (" that can be loaded" if first else ""))
    if reader.found_delimiter:
        found = f"Values are separated by {reader.found_delimiter!r}, as the first line shows (--delimiter)"
        console.print(found, soft_wrap=True)
    latest_ms = MS_MAX if options.allow_future else latest_time()
    times = None
    if not options.new_ids:
        times = choose_time_column(
            batch, options.time_column, latest_ms, lambda reason: console.print(line(reason), soft_wrap=True)
        )
    if times is None:
        why = "" if options.new_ids else "; no column looks like a time (--time-column names one)"
        console.print(f"IDs from the server{why}", soft_wrap=True)
        if options.sort:
            raise UsageError(
                f"{reader.name}: no column looks like a time to sort by; name one with --time-column "
                f"({', '.join(batch.schema.names)})"
            )
    else:
        details = [
            *([f"{times.unit_name} since 1970"] if times.unit_name else []),
            *([] if options.time_column else ["chosen"]),
        ]
        origin = f" ({', '.join(details)})" if details else ""
        console.print(line("IDs from column ", (times.name, "bold"), origin), soft_wrap=True)
    every = chain(first, rows)
    if times is not None and options.sort:
        with console.status("Sorting"):
            every = chain(list(sorted_by_time(every, times)))
    return every, times


def resume_hint(report: LoadReport, job: str) -> str:
    """Return how many rows were added before a failure, and how to add the others; empty if none were."""
    if not report.rows and not report.uncertain:
        return ""
    count = f"{'at least ' if report.uncertain else ''}{plural(report.loaded, 'row')} loaded"
    if not job:
        return f"{count}; standard input cannot be resumed without a --job NAME"
    return f"{count}; the same command with --resume adds the others"


def load_with_spark(
    kind: str,
    file: str | None,
    spark_options: tuple[str, ...],
    url: str,
    stream: str,
    time_column: str | None,
    rate: float | None,
    maxlen: int | None,
    job: str | None,
    allow_future: bool,
) -> None:
    """Load rows that Spark reads."""
    from headrace.cli.spark_session import scratch_spark
    from headrace.pipeline.spark_import import load_from_spark

    options = dict(parse_spark_option(each) for each in spark_options)
    console = Console(highlight=False)
    with scratch_spark("headrace load") as spark, progress_bar(console) as bar:
        task = bar.add_task(stream, total=None, rows=0)
        rows = load_from_spark(
            spark,
            kind,
            options,
            url,
            stream,
            path=file,
            time_column_name=time_column,
            rate=rate,
            maxlen=maxlen,
            job=job,
            allow_future=allow_future,
            on_progress=lambda rows: bar.update(task, rows=rows),
        )
        seconds = bar.tasks[0].elapsed or 0.0
    print_rate(console, rows, seconds, stream)


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


def print_report(console: Console, report: LoadReport, stream: str, resumed: bool) -> None:
    """Print what the load did, and which times it had to change."""
    if resumed and report.skipped and not report.rows:
        complete = f"The load was complete: all {plural(report.skipped, 'row')} were already in stream "
        console.print(line(complete, (stream, "bold"), "; nothing was added"), soft_wrap=True)
        return
    print_rate(console, report.rows, report.seconds, stream)
    if report.rows and report.first_id:
        console.print(f"IDs {report.first_id} to {report.last_id}")
    if report.skipped:
        console.print(f"{plural(report.skipped, 'row')} skipped: already in the stream")
    if report.out_of_order:
        rows = plural(report.out_of_order, "row")
        console.print(f"{rows} got the later time of the previous row (--sort avoids this)")
    if report.without_time:
        rows = plural(report.without_time, "row")
        console.print(f"{rows} without a time got the time of the previous row")


def print_rejects(console: Console, rejects: RejectsFile) -> None:
    """Print how many rows were skipped, where they are, and why the first ones were rejected."""
    count = (plural(rejects.count, "bad row"), "bold")
    console.print(line(count, " skipped, see ", rejects.path, ":"), soft_wrap=True)
    for reason in rejects.reasons:
        console.print(line("  ", reason), soft_wrap=True)
    if rejects.count > REASONS_SHOWN:
        console.print(f"  and {rejects.count - REASONS_SHOWN:,} more")
