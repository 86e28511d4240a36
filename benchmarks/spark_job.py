"""What the Spark benchmarks share: a session, the data, and rounds in which the contestants alternate."""

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
YARDSTICK_SHARE = 4  # the slow yardsticks handle this part of the entries; their rate does not depend on it


def session(**settings: str) -> SparkSession:
    """Two cores, no UI, everything else as Spark has it unless settings say otherwise."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # for Spark's workers
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def requests(entries: int) -> Iterator[bytes]:
    """XADDs of two short fields, an entry a millisecond, in pieces."""
    for start in range(0, entries, 10_000):
        yield "".join(
            f"XADD {STREAM} {FIRST_MS + n}-0 device dev{n % 1000:03} temp {n % 10000 / 100:.2f}\r\n"
            for n in range(start, min(start + 10_000, entries))
        ).encode()


def fill(server: Server, entries: int) -> None:
    """The stream, and nothing else."""
    client = redis.Redis(port=server.port)
    client.flushall()
    command = ["redis-cli", "-p", str(server.port), "--pipe"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as pipe:
        assert pipe.stdin is not None
        for piece in requests(entries):
            pipe.stdin.write(piece)
    found = client.xlen(STREAM)
    if found != entries:
        raise SystemExit(f"{server.name} has {found} entries of {entries}")


def url(server: Server) -> str:
    """As the option url takes it."""
    return f"redis://127.0.0.1:{server.port}"


def let_loose(server: Server) -> None:
    """Let the server run on any core, as it would: JVM and Python workers are not kept off its own."""
    pid = redis.Redis(port=server.port).info("server")["process_id"]
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), range(os.cpu_count() or 1))


def to_noop(frame: DataFrame) -> Callable[[], None]:
    """A job that reads every column and writes nothing."""
    return lambda: frame.write.format("noop").mode("append").save()


def rates(jobs: Mapping[str, tuple[int, Callable[[], None]]], rounds: int) -> dict[str, float]:
    """Rows a second of each job, by name: (rows, job). Medians over the rounds, after one to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(rounds + 1):
        for name in sorted(jobs, reverse=bool(turn % 2)):
            rows, job = jobs[name]
            start = time.perf_counter()
            job()
            if turn:
                taken[name].append(rows / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in taken.items()}
