"""Measure the archive job beside Spark's own Parquet sink, on the same entries, in one run.

All write one stream of four fields, by day, with the same session. `CPU, s/M` is the time of the JVM, its
Python workers and the driver, for a million entries; the server's is not in it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.table import Table

from benchmarks import spark_job as job
from benchmarks.servers import Server
from headrace.archive.table import ArchiveTable, WrittenFile
from headrace.columns.declarations import parse_schema
from headrace.pipeline.archiving.archive_streams import archive_streams
from headrace.positions.position import Positions

FIELDS = "device STRING, temp DOUBLE, city STRING, count INT"
METADATA = "_stream STRING, _id STRING, _timestamp TIMESTAMP, _sequence LONG"
SINK = "Spark's Parquet sink"
TICKS = os.sysconf("SC_CLK_TCK")
STARTS = 3
START_SPARK = """
import os, pathlib
from headrace.pipeline.spark_session.local_spark import local_spark
with local_spark("start", pathlib.Path(os.devnull)):
    pass
"""
Figures = dict[str, dict[str, float]]  # by job, and seconds by command


def four_fields(n: int) -> str:
    """Return the fields of the n-th entry."""
    return f"{job.two_fields(n)} city city{n % 50} count {n % 7}"


def cpu_s(root: int) -> float:
    """Return the user and system time of a process and its descendants so far, in seconds."""
    parents, times = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = path.read_text().partition(" ")
        except OSError:  # it has ended
            continue
        words = rest.rpartition(")")[2].split()
        parents[int(pid)] = int(words[1])
        times[int(pid)] = sum(map(int, words[11:15])) / TICKS  # with its ended children
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(times.get(pid, 0.0) for pid in found)


def measure(spark: SparkSession, server: Server, entries: int, rounds: int) -> Figures:
    """Return for each job its rows per second and CPU seconds per million entries, medians of the rounds."""
    job.fill(server, entries, four_fields)
    spark.conf.set("spark.sql.session.timeZone", "UTC")  # that of the command
    url, scratch = job.url(server), Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    typed = parse_schema(FIELDS)
    commits: list[float] = []

    def archived(columns: bool) -> None:
        wrote = archive_streams(
            spark, url, job.STREAM, scratch / "archive", fields=typed if columns else None
        )
        check(wrote, entries)

    def by_sink(columns: bool) -> None:
        source = spark.readStream.format("headrace").option("url", url).option("subscribe", job.STREAM)
        source = source.option("startingOffsets", "earliest")
        rows = source.load()  # stream, id, timestamp, sequence, and one map of all fields
        if columns:
            rows = source.schema(f"{METADATA}, {FIELDS}").load()
            rows = rows.withColumnsRenamed({name: name.removeprefix("_") for name in rows.columns})
        writer = rows.withColumn("date", F.to_date("timestamp")).writeStream.format("parquet")
        writer = writer.partitionBy("stream", "date").option("checkpointLocation", str(scratch / "state"))
        writer.trigger(availableNow=True).start(str(scratch / "sink")).awaitTermination()
        check(spark.read.parquet(str(scratch / "sink")).count(), entries)

    jobs: dict[str, Callable[[], None]] = {}
    for kind, columns in (("typed columns", True), ("one map", False)):
        jobs[f"headrace archive, {kind}"] = lambda columns=columns: archived(columns)
        jobs[f"{SINK}, {kind}"] = lambda columns=columns: by_sink(columns)
    try:
        with commit_times(commits):
            found = run_rounds(jobs, entries, rounds, scratch)
        empty(scratch)
        archived(True)
        found["seconds"] = {"commit": statistics.median(commits)} | commands(url, scratch / "archive")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return found


def check(found: int, entries: int) -> None:
    """Stop the benchmark if a job has not written all entries."""
    if found != entries:
        raise SystemExit(f"{found} entries were written, expected {entries}")


def empty(directory: Path) -> None:
    """Remove everything in a directory."""
    for path in directory.iterdir():
        shutil.rmtree(path)


def run_rounds(jobs: dict[str, Callable[[], None]], entries: int, rounds: int, scratch: Path) -> Figures:
    """Run each job into an empty directory in each round, in alternating order, after a round of warm-up."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name in list(jobs)[:: -1 if turn % 2 else 1]:
            empty(scratch)
            start, cpu = time.perf_counter(), cpu_s(os.getpid())
            jobs[name]()
            seconds, cpu = time.perf_counter() - start, cpu_s(os.getpid()) - cpu
            if turn:
                taken[name].append((entries / seconds, cpu * 1e6 / entries))
    return {
        name: {
            "rate": statistics.median(rate for rate, _ in samples),
            "cpu_s": statistics.median(cpu for _, cpu in samples),
        }
        for name, samples in taken.items()
    }


@contextmanager
def commit_times(seconds: list[float]) -> Iterator[None]:
    """Add the time of each commit of an archive in the block."""
    commit = ArchiveTable.commit

    def timed(table: ArchiveTable, files: Iterable[WrittenFile], positions: Positions) -> None:
        start = time.perf_counter()
        commit(table, files, positions)
        seconds.append(time.perf_counter() - start)

    ArchiveTable.commit = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        ArchiveTable.commit = commit  # type: ignore[method-assign]


def commands(url: str, directory: Path) -> dict[str, float]:
    """Return the seconds of whole commands on an archive that has all entries, medians."""
    headrace = [sys.executable, "-m", "headrace"]
    archive_again = [*headrace, "archive", "--url", url, "--stream", job.STREAM, "--to", str(directory)]
    sql = f"SELECT * FROM {job.STREAM} WHERE temp > 50 LIMIT 5"
    runs = {
        "start and end of Spark": [sys.executable, "-c", START_SPARK],
        "headrace archive, no new entries": [*archive_again, "--fields", FIELDS],
        "headrace query, five rows": [
            *(*headrace, "query", sql, "--url", url, "--archive", str(directory)),
            *("--fields", FIELDS),
        ],
    }
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for name in list(runs) * STARTS:
        start = time.perf_counter()
        subprocess.run(runs[name], check=True, capture_output=True)
        taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def table(found: Figures) -> Table:
    """Return the table of the rates, and of the seconds of commands."""
    shown = Table(title="Archive: a stream of four fields, by day")
    for column in ("", "k rows/s", "of the sink", "CPU, s/M", "CPU of the sink"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, figures in found.items():
        if name == "seconds":
            continue
        sink = found[f"{SINK}, {name.rpartition(', ')[2]}"]
        shown.add_row(
            name,
            f"{figures['rate'] / 1000:,.0f}",
            f"{figures['rate'] / sink['rate']:.1f}",
            f"{figures['cpu_s']:.2f}",
            f"{sink['cpu_s'] / figures['cpu_s']:.1f}",
        )
    shown.add_section()
    for name, seconds in found["seconds"].items():
        shown.add_row(f"{name}, s", f"{seconds:.2f}")
    return shown
