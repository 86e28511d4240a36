"""Measure the latency of a query that copies single entries from one stream to another on the same server.

    python -m benchmarks.spark_latency [--tuned] [--entries 60]     prints JSON, by server

The latency of an entry is the time in the ID of its copy minus the time in its own ID, both from the server's
clock. Then the query is idle for some seconds, while the server counts its commands. Each measurement is a
separate process, because some settings are settings of the JVM.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks import spark_job as job
from benchmarks.servers import Server

IDLE_S = 8
WARM_UP = 10  # entries that are not counted
GAPS_S = (0.3, 0.7)
TUNED = {  # for checkpoints on a local disk, and a JVM that starts fast
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
Figures = dict[str, float]  # median_ms, p95_ms, polls_per_s, commands_per_s


@contextmanager
def copying(spark: SparkSession, server: Server) -> Iterator[Any]:
    """Run a query that copies the stream `in` to the stream `out` within the block."""
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.readStream.format("headrace").options(url=job.url(server), subscribe="in")
        writer = rows.option("startingOffsets", "earliest").schema("n LONG").load().writeStream
        writer = writer.format("headrace").options(url=job.url(server), stream="out")
        query = writer.option("checkpointLocation", folder).start()
        try:
            yield query
        finally:
            query.stop()


def measure(spark: SparkSession, server: Server, entries: int) -> Figures:
    """Return the figures of one server."""
    client: Any = redis.Redis(port=server.port)
    chance = random.Random(7)
    client.flushall()
    job.allow_all_cores(server)
    with copying(spark, server) as query:
        for n in range(WARM_UP + entries):
            client.xadd("in", {"n": n})
            if n < WARM_UP or n == WARM_UP + entries - 1:
                wait_for_copies(client, query, n + 1)
            time.sleep(chance.uniform(*GAPS_S))
        time.sleep(1)
        client.config_resetstat()
        time.sleep(IDLE_S)
        calls = {name: stat["calls"] for name, stat in client.info("commandstats").items()}
    sent = {int(fields[b"n"]): millisecond(i) for i, fields in client.xrange("in")}
    latencies = [millisecond(i) - sent[int(fields[b"n"])] for i, fields in client.xrange("out")][WARM_UP:]
    return {
        "median_ms": statistics.median(latencies),
        "p95_ms": statistics.quantiles(latencies, n=20)[18],
        "polls_per_s": max(calls.values(), default=0) / IDLE_S,
        "commands_per_s": sum(n for name, n in calls.items() if "config" not in name) / IDLE_S,
    }


def wait_for_copies(client: Any, query: Any, n: int) -> None:
    while client.xlen("out") < n:
        if not query.isActive:
            raise SystemExit(f"the query failed: {query.exception()}")
        time.sleep(0.01)


def millisecond(entry_id: bytes) -> int:
    return int(entry_id.split(b"-")[0])


def run_in_subprocess(entries: int, *, tuned: bool) -> dict[str, Figures]:
    """Return the figures by server, measured in a subprocess."""
    command = [sys.executable, "-m", "benchmarks.spark_latency", "--entries", str(entries)]
    command += ["--tuned"] if tuned else []
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found: dict[str, Figures] = json.loads(out.splitlines()[-1])
    return found


def table(found: Mapping[str, Mapping[str, Figures]]) -> Table:
    """Return the table of all figures."""
    shown = Table(title="Spark: from XADD to the sink, and an idle query")
    for column in ("", "median ms", "p95 ms", "idle: polls/s", "commands/s"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for settings, by in found.items():
        for server, f in by.items():
            figures = (f["median_ms"], f["p95_ms"], f["polls_per_s"], f["commands_per_s"])
            shown.add_row(f"{settings}: {server}", *(f"{figure:,.1f}" for figure in figures))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--entries", type=int, default=60)
    args = parser.parse_args()
    spark = job.session(**(TUNED if args.tuned else {}))
    found = {}
    for make in (Server.redis, Server.headrace):
        with make() as server:
            found[server.name] = measure(spark, server, args.entries)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
