"""The common parts of the Spark benchmarks: the session, the data, and rounds of alternating jobs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import redis
from pyspark.sql import DataFrame, SparkSession

from benchmarks.servers import Server

STREAM = "benchmark"
FIRST_MS = 1_700_000_000_000
TASKS = 2
REFERENCE_DIVISOR = 4  # slow references get this fraction of the entries; their rate does not depend on it


def session(**settings: str) -> SparkSession:
    """Start a session on two cores without UI, otherwise with Spark's defaults and the given settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # for Spark's workers
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def two_fields(n: int) -> str:
    """Return the fields of the n-th entry."""
    return f"device dev{n % 1000:03} temp {n % 10000 / 100:.2f}"


def requests(entries: int, fields: Callable[[int], str]) -> Iterator[bytes]:
    """Yield inline XADDs of short fields, with one millisecond between entries, in blocks."""
    for start in range(0, entries, 10_000):
        yield "".join(
            f"XADD {STREAM} {FIRST_MS + n}-0 {fields(n)}\r\n"
            for n in range(start, min(start + 10_000, entries))
        ).encode()


def fill(server: Server, entries: int, fields: Callable[[int], str] = two_fields) -> None:
    """Delete all keys of the server and fill the stream."""
    client = redis.Redis(port=server.port)
    client.flushall()
    command = ["redis-cli", "-p", str(server.port), "--pipe"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as pipe:
        assert pipe.stdin is not None
        for block in requests(entries, fields):
            pipe.stdin.write(block)
    found = client.xlen(STREAM)
    if found != entries:
        raise SystemExit(f"{server.name} has {found} entries, expected {entries}")


def url(server: Server) -> str:
    """Return the server's URL."""
    return f"redis://127.0.0.1:{server.port}"


def allow_all_cores(server: Server) -> None:
    """Let the server run on any core, because the JVM and Python workers use all cores too."""
    pid = redis.Redis(port=server.port).info("server")["process_id"]
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), range(os.cpu_count() or 1))


def to_noop(frame: DataFrame) -> Callable[[], None]:
    """Return a job that reads every column and writes nothing."""
    return lambda: frame.write.format("noop").mode("append").save()


def rates(jobs: Mapping[str, tuple[int, Callable[[], None]]], rounds: int) -> dict[str, float]:
    """Return the median rows per second of each job, after one round of warm-up; jobs: name: (rows, job)."""
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name in sorted(jobs, reverse=bool(turn % 2)):
            rows, job = jobs[name]
            start = time.perf_counter()
            job()
            if turn:
                taken[name].append(rows / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in taken.items()}
