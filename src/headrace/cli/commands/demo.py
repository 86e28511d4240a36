"""`headrace demo`: a year of real flights through the server, a streaming query and the archive."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.cli.connections.child_server import temporary_server
from headrace.cli.connections.spark_session import announced_spark
from headrace.cli.demo.data import FLIGHT_COUNT, TIME_COLUMN, ZONE, carrier_name_by_code, data_file, flights
from headrace.cli.demo.drawing import carrier_table, draw_chart, hour_table
from headrace.cli.demo.query import (
    FLIGHT_FIELD_TYPES,
    WATERMARK,
    Delays,
    Window,
    delays_by_hour,
    sum_by_carrier,
    sum_by_carrier_hour,
    worst_hours,
)
from headrace.cli.output.progress import progress_bar
from headrace.client.servers import Servers
from headrace.columns.declarations import parse_columns, parse_schema
from headrace.console.rich_text import line
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archiving.archive_streams import ArchiveCounts, archive_streams, count_archive
from headrace.pipeline.loading.load_rows import load_rows
from headrace.pipeline.loading.loader import LoadReport
from headrace.pipeline.querying.duckdb_query import run_sql
from headrace.pipeline.spark_session.query_progress import BatchProgress
from headrace.plurals import plural
from headrace.version import __version__

STREAM = "flights"
MICRO_BATCHES = 5
ARCHIVE_BATCHES = 3

ENTRY_BYTES = 101  # of a flight in the stream
MOVE_TO_FILES_S = 30.0  # until a busy machine has moved what is above the limit
MOVE_POLL_S = 0.05
STREAM_TO_HOT_MEMORY_RATIO = 12  # the server keeps a twelfth of the stream in memory

INDENT = " " * 11
PORT = 7777  # the default of serve, load and archive

ARCHIVE_SQL = (
    "SELECT count(*) flights, count(DISTINCT _id) entries, count(DISTINCT carrier) carriers, "
    "count(DISTINCT origin || dest) routes, avg((dep_delay > 15)::INT) * 100 late FROM flights"
)

MARK_FILE = "headrace-demo.json"
ARCHIVE_DIRECTORY_NAME = "archive"
CHART_FILE_NAME = "delays.png"
HOURS_FILE_NAME = "delays-by-hour.csv"
SPARK_LOG_FILE_NAME = "spark.log"


@click.command("demo", epilog="Example: headrace demo --output flights-demo")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Write the archive, the table and the chart here; those of an earlier demo are replaced.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, FLIGHT_COUNT),
    default=FLIGHT_COUNT,
    show_default=True,
    metavar="N",
    help="Load only the first N flights.",
)
def command(output: Path, rows: int) -> None:
    """Send a year of real flights through a stream and Spark, in about a minute.

    Starts a temporary server, loads the 336,776 flights that left New York City in 2013, runs a streaming
    query over them, archives them as a Delta table, queries that with DuckDB and draws a chart. The server is
    stopped at the end.
    """
    console = Console(highlight=False)
    output = output.absolute()
    started = time.monotonic()
    prepare_output(output)
    console.print("[bold]A year of flights out of New York[/], through a stream and Spark\n")
    hot_bytes = max(rows * ENTRY_BYTES // STREAM_TO_HOT_MEMORY_RATIO, 1 << 16)
    with temporary_server("--stream-hot-memory", str(hot_bytes)) as url:
        with Servers(url, reconnect_timeout=0) as servers:
            loaded = load_flights(console, servers, rows)
            length = servers.client().xlen(STREAM)
            show_memory(console, servers, hot_bytes)
        try:
            windows, written, counts = query_and_archive(console, url, output, rows)
        except HeadraceError as error:
            raise HeadraceError(f"{error}; Spark's log is {output / SPARK_LOG_FILE_NAME}") from error
        distinct = query_archive(console, url, output / ARCHIVE_DIRECTORY_NAME)
    exact = rows == loaded.added_rows == length == written == counts.entries == distinct
    console.print(
        f"{INDENT}{plural(rows, 'flight')}, {length:,} in the stream, {counts.entries:,} in the archive,\n"
        f"{INDENT}{plural(counts.entries - distinct, 'duplicate')}, {plural(counts.days, 'day')}: "
        + ("[bold green]exact[/]" if exact else "[bold red]NOT EXACT[/]")
    )
    show_result(console, output, windows)
    if not exact:
        raise HeadraceError("the archive differs from the loaded flights; this is a bug, please report it")
    print_next_steps(console, output, time.monotonic() - started)


def query_and_archive(
    console: Console, url: str, output: Path, rows: int
) -> tuple[dict[Window, Delays], int, ArchiveCounts]:
    """Run the query and the archive job; return the windows, the entries written and the archive's counts."""
    with ExitStack() as stack:
        spark = stack.enter_context(announced_spark("headrace demo", output / SPARK_LOG_FILE_NAME, ZONE))
        about = f"delays by carrier and hour, watermark {WATERMARK}, Spark {spark.version}"
        console.print(f"[bold]3 Query[/]    {about}")
        per_batch = -(-rows // MICRO_BATCHES)
        with console.status("Waiting for the next micro-batch"):
            windows = delays_by_hour(spark, url, STREAM, per_batch, lambda batch: print_batch(console, batch))
        console.print("[bold]4 Archive[/]  a Delta table, one directory per day")
        written = archive_flights(console, spark, url, output / ARCHIVE_DIRECTORY_NAME, rows)
    return windows, written, count_archive(output / ARCHIVE_DIRECTORY_NAME)


def prepare_output(output: Path) -> None:
    """Create the output directory, or remove the results of an earlier demo from it.

    Raises:
        UsageError: if the directory contains anything else, or cannot be written.
    """
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; give another --output")
    if output.exists() and any(output.iterdir()) and not (output / MARK_FILE).is_file():
        raise UsageError(f"{output} is not empty and not from an earlier demo; give another --output")
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / MARK_FILE).write_text(
            json.dumps({"made by": "headrace demo", "version": __version__}) + "\n"
        )
    except OSError as error:
        raise UsageError(f"{output}: cannot write there: {error.strerror}") from error
    shutil.rmtree(output / ARCHIVE_DIRECTORY_NAME, ignore_errors=True)
    for name in (CHART_FILE_NAME, HOURS_FILE_NAME, SPARK_LOG_FILE_NAME):
        (output / name).unlink(missing_ok=True)


def load_flights(console: Console, servers: Servers, rows: int) -> LoadReport:
    """Load the flights by scheduled departure, with a progress bar."""
    server = servers.client().info("server")
    version = server.get("headrace_version", server.get("redis_version"))
    console.print(f"[bold]1 Server[/]   {servers.url}, version {version}, process {server.get('process_id')}")
    with console.status("Reading the flights"):
        table = flights(rows)
    console.print(f"[bold]2 Load[/]     {rows:,} flights of 2013 by scheduled departure, 19 fields each")
    with progress_bar(console) as bar:
        task = bar.add_task("", total=rows, rows=0)
        report = load_rows(
            table.to_batches(),
            TIME_COLUMN,
            servers,
            STREAM,
            on_progress=lambda now: bar.update(task, completed=now.added_rows, rows=now.added_rows),
        )
    rate = report.added_rows / report.seconds
    console.print(
        f"{INDENT}{plural(report.added_rows, 'entry')} in {report.seconds:.1f} s, {rate:,.0f} entries/s"
    )
    return report


def show_memory(console: Console, servers: Servers, hot_bytes: int) -> None:
    """Wait until the server has moved old entries to files, and print how much of the stream they hold."""
    client = servers.client()
    deadline = time.monotonic() + MOVE_TO_FILES_S
    while (client.memory_usage(STREAM) or 0) > hot_bytes and time.monotonic() < deadline:
        time.sleep(MOVE_POLL_S)
    info = client.xinfo_stream(STREAM)
    cold = int(info.get("cold-entries", 0))
    cold_mb, hot_mb = int(info.get("cold-bytes", 0)) / 1e6, hot_bytes / 1e6
    console.print(
        f"{INDENT}{cold:,} of them ({cold_mb:.1f} MB) in files, the rest within {hot_mb:.1f} MB of memory"
    )


def print_batch(console: Console, batch: BatchProgress) -> None:
    """Print a line about a micro-batch."""
    if batch.rows:
        known = batch.watermark is not None and not batch.watermark.startswith("1970")
        watermark = f"watermark {str(batch.watermark)[:10]}" if known else "no watermark yet"
        console.print(
            f"{INDENT}batch {batch.number}  {batch.rows:>7,} entries {batch.seconds:5.1f} s "
            f"{batch.rows_per_second:>8,.0f}/s  [dim]{watermark}[/]"
        )


def archive_flights(console: Console, spark: SparkSession, url: str, directory: Path, rows: int) -> int:
    """Archive the stream with a progress bar; return the number of entries written."""
    started = time.monotonic()
    with progress_bar(console) as bar:
        task = bar.add_task("", total=rows, rows=0)

        def show(done: BatchProgress) -> None:
            bar.advance(task, done.rows)
            bar.update(task, rows=bar.tasks[task].completed)

        per_batch = -(-rows // ARCHIVE_BATCHES)
        fields = parse_schema(FLIGHT_FIELD_TYPES)
        written = archive_streams(
            spark, url, STREAM, directory, fields=fields, entries_per_batch=per_batch, on_batch=show
        )
    console.print(f"{INDENT}{plural(written, 'entry')} in {time.monotonic() - started:.1f} s")
    return written


def query_archive(console: Console, url: str, directory: Path) -> int:
    """Query the archive with DuckDB, print the result, and return the number of distinct entries."""
    console.print("[bold]5 SQL[/]      on the archive and the stream as one table, with DuckDB")
    console.print(line(f"{INDENT}{ARCHIVE_SQL}"), soft_wrap=True)
    started = time.monotonic()
    with run_sql(
        ARCHIVE_SQL, url, archive=directory, fields={"": parse_columns(FLIGHT_FIELD_TYPES)}
    ) as result:
        [row] = result.rows.read_all().to_pylist()
    seconds = time.monotonic() - started
    console.print(
        f"{INDENT}{plural(row['flights'], 'flight')} of {row['carriers']} carriers on {row['routes']} routes"
        f", {row['late'] or 0:.0f} % late, in {seconds:.1f} s"
    )
    return int(row["entries"])


def show_result(console: Console, output: Path, windows: dict[Window, Delays]) -> None:
    """Print the tables; write the chart and the query's result to files."""
    names = carrier_name_by_code()
    carriers = sum_by_carrier(windows)
    console.print()
    console.print(carrier_table(carriers, names))
    console.print(hour_table(worst_hours(windows, 5)))
    draw_chart(output / CHART_FILE_NAME, carriers, sum_by_carrier_hour(windows), names)
    with (output / HOURS_FILE_NAME).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["start", "carrier", "flights", "departed", "late", "delay_minutes"])
        for window, delays in sorted(windows.items(), key=lambda each: (each[0].start, each[0].carrier)):
            writer.writerow(
                [window.start, window.carrier, delays.flights, delays.departed, delays.late, delays.minutes]
            )


def print_next_steps(console: Console, output: Path, seconds: float) -> None:
    """Print where the results are, and commands to try next."""
    console.print()
    console.print(
        line(f"Done in {seconds:.0f} s; the server has stopped. In ", (relative_path(output), "bold"), ":")
    )
    console.print(f"  {CHART_FILE_NAME:<20} the chart: carriers by hour of the day")
    console.print(f"  {HOURS_FILE_NAME:<20} the query's result, one line per carrier and hour")
    console.print(f"  {ARCHIVE_DIRECTORY_NAME + '/':<20} the flights as a Delta table of Parquet files")
    console.print("\nTry next, the first in a terminal of its own:")
    invoked = Path(sys.argv[0])
    program = relative_path(invoked) if invoked.name == "headrace" else "headrace"
    flights = relative_path(data_file("flights.csv.zip"))
    for command_line in (
        f"{program} serve",
        f"{program} load {flights} --stream flights --sort --null NA",
        f"redis-cli -p {PORT} XRANGE flights - + COUNT 1",
        f"{program} archive --stream flights --to flights-archive",
        f"{program} query --archive flights-archive 'SELECT carrier, count(*) FROM flights GROUP BY ALL'",
    ):
        console.print(line(f"  {command_line}"), soft_wrap=True)


def relative_path(path: Path) -> Path:
    """Return the path relative to the current directory, if it is inside; else the absolute path."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
