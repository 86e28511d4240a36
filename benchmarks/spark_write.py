"""Rows a second of the Spark sink, beside a plain Python sink that pipelines an XADD a row by redis-py.

Two columns of text that Spark makes on the way, two tasks, into one stream that is empty at the start.
"""

from __future__ import annotations

from collections.abc import Callable

import redis
from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks import spark_job as job
from benchmarks.servers import Server
from benchmarks.spark_yardsticks import RowSource

OUT = "out"
ROWS = "redis-py pipeline of rows"
DELIVERIES = ("at-least-once", "exactly-once")
Rates = dict[str, dict[str, float]]  # by server, by way of writing


def measure(spark: SparkSession, servers: dict[str, Server], entries: int, rounds: int) -> Rates:
    """Rows a second, medians. Every job's entries are counted."""
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
                raise SystemExit(f"{client.xlen(OUT)} entries of {rows} were written to {server.name}")

        return rows, work

    found = {}
    for name, server in servers.items():
        jobs = {ROWS: writing(server, "rows", entries // job.YARDSTICK_SHARE)}
        for delivery in DELIVERIES:
            jobs[f"headrace sink, {delivery}"] = writing(
                server, "headrace", entries, stream=OUT, delivery=delivery
            )
        found[name] = job.rates(jobs, rounds)
    return found


def table(found: Rates) -> Table:
    """Rates, and their ratios to the yardstick."""
    shown = Table(title="Spark sink: thousand rows a second")
    for column in ("", "k rows/s", f"of {ROWS}"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for server, by in found.items():
        for way, rate in by.items():
            shown.add_row(f"{server}: {way}", f"{rate / 1000:,.0f}", f"{rate / by[ROWS]:.1f}")
    return shown
