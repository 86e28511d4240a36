"""`headrace load`: a file, standard input, or what Spark can read, into a stream, with a progress bar."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pyarrow as pa
from rich.console import Console

from headrace.cli.drawing import progress_bar
from headrace.cli.resume_hint import add_hint
from headrace.cli.streams import url_option
from headrace.cli.values import finite
from headrace.client.servers import Servers
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.csv_records import BadRow
from headrace.pipeline.file_progress import FileProgress
from headrace.pipeline.file_readers import STDIN, FileReader
from headrace.pipeline.load import load, sorted_by_time
from headrace.pipeline.loader import ROWS_PER_BATCH, LoadJob, LoadReport
from headrace.pipeline.rejects import REASONS_SHOWN, RejectsFile
from headrace.pipeline.replay_pacer import RateLimiter
from headrace.pipeline.time_columns import TimeColumn, choose_time_column
from headrace.plurals import plural
from headrace.spark.archive.local_paths import local_path


@dataclass(frozen=True)
class Wanted:
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
@click.option("--stream", required=True, help="The stream to load into.")
@url_option
@click.option(
    "--time-column",
    metavar="COLUMN",
    help="The column that gives the IDs. Left out: one that looks like times, or the server generates the "
    "IDs.",
)
@click.option("--new-ids", is_flag=True, help="The server generates the IDs, whatever times the rows have.")
@click.option("--sort", is_flag=True, help="Sort the rows by time first; holds the file in memory.")
@click.option(
    "--append",
    is_flag=True,
    help="Put the rows after the entries that are there, if their times are earlier.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue a load that stopped: add the rows that are not yet in the stream.",
)
@click.option(
    "--maxlen", type=click.IntRange(min=1), help="Trim the stream to about this many entries while loading."
)
@click.option(
    "--null", "null_values", multiple=True, metavar="TEXT", help="CSV text that means no value, such as NA."
)
@click.option("--delimiter", metavar="CHARACTER", help="What separates the values of CSV: ; or | or tab.")
@click.option(
    "--encoding",
    default="utf-8",
    show_default=True,
    metavar="NAME",
    help="Of CSV or JSON lines, such as latin-1.",
)
@click.option(
    "--skip-bad", is_flag=True, help="Leave out rows that cannot be loaded, and write them to --rejects."
)
@click.option(
    "--rejects", metavar="PATH", help="The file for them. Left out: FILE's name with .rejects in it, here."
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
    help="Rows per second at most.",
)
@click.option("--format", "kind", metavar="NAME", help="Read FILE, or what the options say, with Spark.")
@click.option(
    "--option", "given", multiple=True, metavar="NAME=VALUE", help="An option for Spark's format; repeat it."
)
@click.option(
    "--job",
    metavar="NAME",
    help="A name under which the load is remembered: for --resume of standard input or of a file that was "
    "moved; with --format a load that is run again under it adds only what is missing.",
)
def command(
    file: str | None,
    stream: str,
    url: str,
    time_column: str | None,
    new_ids: bool,
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
    given: tuple[str, ...],
    job: str | None,
) -> None:
    """Load FILE (.csv, .tsv, .jsonl, also .gz or .zip, or .parquet) or standard input (-) into a stream.

    Each row becomes an entry: its columns are the fields, a missing value is left out. A column of times
    gives the IDs; without one the server generates them. With --format Spark reads, in any format that it
    knows, and the server generates the IDs, unless --time-column names the column that gives them.
    """
    if new_ids and (time_column or sort):
        raise UsageError(f"--new-ids and {'--time-column' if time_column else '--sort'} exclude each other")
    if rejects is not None and not skip_bad:
        raise UsageError("--rejects is the file for the rows that --skip-bad leaves out: add --skip-bad")
    if job == "":
        raise UsageError("--job: the name is empty")
    if kind is not None:
        of_files = {
            "--sort": sort, "--append": append, "--resume": resume, "--null": null_values,
            "--delimiter": delimiter is not None, "--encoding": encoding != "utf-8", "--skip-bad": skip_bad,
            "--batch": batch != ROWS_PER_BATCH, "--new-ids": new_ids,
        }  # fmt: skip
        if wrong := [name for name, said in of_files.items() if said]:
            raise UsageError(f"{wrong[0]} is for files that are read without --format; see Spark's --option")
        load_by_spark(kind, file, given, url, stream, time_column, rate, maxlen, job)
        return
    if file is None:
        raise UsageError("give a FILE, - for standard input, or a --format")
    if given:
        raise UsageError("--option is for --format")
    path = STDIN if file == "-" else local_path(file)
    if path == STDIN and resume and job is None:
        raise UsageError("--resume of standard input needs the --job NAME that the load was begun with")
    wanted = Wanted(
        path, stream, url, time_column, new_ids, sort, append, resume, maxlen, ("", *null_values), delimiter,
        encoding, rejects_path(path, rejects) if skip_bad else None, batch, rate, job or job_name(path),
    )  # fmt: skip
    load_file(wanted)


def job_name(path: Path) -> str:
    """Return a name by which a load of the same file is known again; empty for standard input."""
    return "" if path == STDIN else hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]


def rejects_path(path: Path, given: str | None) -> Path:
    """Return the file for rejected rows: the one given, or orders.rejects.csv for a file orders.csv.gz."""
    if given is not None:
        return local_path(given)
    if path == STDIN:
        return Path("stdin.rejects")
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() not in (".gz", ".zip")]
    kind = suffixes[-1] if suffixes else ""
    name = path.name.removesuffix("".join(path.suffixes)) if len(path.suffixes) < 3 else path.stem
    return Path(f"{name}.rejects{'.jsonl' if kind == '.parquet' else kind}")


def load_file(wanted: Wanted) -> None:
    """Load a file, and say what was done."""
    console = Console(highlight=False)
    report = LoadReport()
    with ExitStack() as stack:
        reader = stack.enter_context(
            FileReader(wanted.path, wanted.null_values, wanted.delimiter, wanted.encoding)
        )
        servers = stack.enter_context(Servers(wanted.url, reconnect_timeout=0))
        rejects = None
        if wanted.rejects is not None:
            rejects = stack.enter_context(RejectsFile(wanted.rejects, reader, wanted.resume))
        progress = FileProgress(reader)
        rows, times = begin(console, reader, progress, wanted)
        with progress_bar(console) as bar:
            task = bar.add_task(wanted.stream, total=None, rows=0)

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
                    wanted.stream,
                    job=LoadJob(wanted.job, reader.name, reader.size),
                    append=wanted.append,
                    resume=wanted.resume,
                    maxlen=wanted.maxlen,
                    rows_per_batch=wanted.batch,
                    rate=RateLimiter(wanted.rate),
                    on_bad_row=None if rejects is None else rejects.add,
                    on_progress=show,
                )
                bar.update(task, completed=reader.size, rows=report.loaded)
            except (HeadraceError, KeyboardInterrupt) as stop:
                if hint := how_to_go_on(report, wanted):
                    add_hint(console, stop, hint)
                raise
    tell(console, report, wanted.stream, wanted.resume)
    if rejects is not None and rejects.count:
        tell_rejects(console, rejects)


def begin(
    console: Console, reader: FileReader, progress: FileProgress, wanted: Wanted
) -> tuple[Iterable[pa.RecordBatch | BadRow], TimeColumn | None]:
    """Read the first rows, and say what gives the IDs. Returns all rows, and that column."""
    rows = progress.track(reader.rows())
    first: list[pa.RecordBatch | BadRow] = []
    batch = None
    for each in rows:
        first.append(each)
        if not isinstance(each, BadRow):
            batch = each
            break
        if wanted.rejects is None:
            raise UsageError(f"{reader.name}: {each}")
    if batch is None:
        raise UsageError(f"{reader.name}: has no rows" + (" that can be loaded" if first else ""))
    times = None if wanted.new_ids else choose_time_column(batch, wanted.time_column)
    if times is None:
        why = "" if wanted.new_ids else "; no column looks like a time (--time-column names one)"
        console.print(f"IDs from the server{why}", soft_wrap=True)
        if wanted.sort:
            raise UsageError(
                f"{reader.name}: no column looks like a time to sort by; name one with --time-column "
                f"({', '.join(batch.schema.names)})"
            )
    else:
        details = [
            *([f"{times.unit_name} since 1970"] if times.unit_name else []),
            *([] if wanted.time_column else ["chosen"]),
        ]
        origin = f" ({', '.join(details)})" if details else ""
        console.print(line("IDs from column ", (times.name, "bold"), origin), soft_wrap=True)
    every = chain(first, rows)
    if times is not None and wanted.sort:
        with console.status("Sorting"):
            every = chain(list(sorted_by_time(every, times)))
    return every, times


def how_to_go_on(report: LoadReport, wanted: Wanted) -> str:
    """Return how many rows are in the stream after a failure, and how to add the others; empty for none."""
    if not report.rows and not report.uncertain:
        return ""
    count = f"{'at least ' if report.uncertain else ''}{report.loaded:,} rows are in"
    if not wanted.job:
        return f"{count}; standard input cannot be resumed without a --job NAME"
    return f"{count}; the same command with --resume adds the others"


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
    from headrace.pipeline.spark_import import load_from_spark

    options = dict(name_and_value(each) for each in given)
    console = Console(highlight=False)
    with ExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="headrace-load-"))
        spark = stack.enter_context(announced_spark("headrace load", Path(scratch) / "spark.log"))
        with progress_bar(console) as bar:
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
    count = (plural(rows, "row"), "bold")
    console.print(line(count, " added to stream ", (stream, "bold"), f", {rate:,.0f} rows/s"), soft_wrap=True)


def tell(console: Console, report: LoadReport, stream: str, resumed: bool) -> None:
    """Say what the load did, and what it had to change."""
    if resumed and report.skipped and not report.rows:
        complete = f"The load is complete: all {report.skipped:,} rows are in stream "
        console.print(line(complete, (stream, "bold"), " already, nothing was added"), soft_wrap=True)
        return
    tell_rate(console, report.rows, report.seconds, stream)
    if report.rows and report.first_id:
        console.print(f"IDs {report.first_id} to {report.last_id}")
    if report.skipped:
        skipped = plural(report.skipped, "row")
        console.print(f"{skipped} skipped: already in the stream")
    if report.out_of_order:
        rows = plural(report.out_of_order, "row")
        console.print(f"{rows} got the time of the row before, which is later (--sort avoids this)")
    if report.without_time:
        rows = plural(report.without_time, "row")
        console.print(f"{rows} without a time got the time of the row before")


def tell_rejects(console: Console, rejects: RejectsFile) -> None:
    """Say how many rows were left out, where they are, and what was wrong with the first of them."""
    count = (f"{rejects.count:,}", "bold")
    console.print(line(count, " bad rows were left out, see ", rejects.path, ":"), soft_wrap=True)
    for reason in rejects.reasons:
        console.print(line("  ", reason), soft_wrap=True)
    if rejects.count > REASONS_SHOWN:
        console.print(f"  and {rejects.count - REASONS_SHOWN:,} more")
