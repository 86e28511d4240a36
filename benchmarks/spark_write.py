"""Measure rows per second of the Spark sink, compared with a Python sink that pipelines XADDs by redis-py.

Two tasks write two columns of text, which Spark generates, into one empty stream.
"""

from __future__ import annotations

from collections.abc import Callable

import redis
from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks import spark_job as job
from benchmarks.servers import Server
from benchmarks.spark_references import RowSource

OUT = "out"
ROWS = "redis-py pipeline of rows"
DELIVERIES = ("at-least-once", "exactly-once")
Rates = dict[str, dict[str, float]]  # by server and by sink


def measure(spark: SparkSession, servers: dict[str, Server], entries: int, rounds: int) -> Rates:
    """Return the median rows per second. The entries of each job are counted."""
    spark.dataSource.register(RowSource)

    def writing(server: Server, kind: str, rows: int, **options: str) -> tuple[int, Callable[[], None]]:
        frame = spark.range(0, rows, 1, job.TASKS).selectExpr(
            "concat('dev', lpad(id % 1000, 3, '0')) AS device", "string(id % 10000 / 100) AS temp"
        )
        client = redis.Redis(port=server.port)

        def work() -> None:
            client.flushall()
            frame.write.format(kind).options(url=job.url(server), **options).mode("append").save()
            if client.xlen(OUT) != rows:
                raise SystemExit(f"{server.name} has {client.xlen(OUT)} entries, expected {rows}")

        return rows, work

    found = {}
    for name, server in servers.items():
        jobs = {ROWS: writing(server, "rows", entries // job.REFERENCE_DIVISOR)}
        for delivery in DELIVERIES:
            jobs[f"headrace sink, {delivery}"] = writing(
                server, "headrace", entries, stream=OUT, delivery=delivery
            )
        found[name] = job.rates(jobs, rounds)
    return found


def table(found: Rates) -> Table:
    """Return the table of the rates and their ratios to the reference."""
    shown = Table(title="Spark sink: thousand rows per second")
    for column in ("", "k rows/s", f"of {ROWS}"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for server, by in found.items():
        for way, rate in by.items():
            shown.add_row(f"{server}: {way}", f"{rate / 1000:,.0f}", f"{rate / by[ROWS]:.1f}")
    return shown
