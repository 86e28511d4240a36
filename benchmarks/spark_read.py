"""Rows a second of the Spark source into the noop sink, which takes every column and writes nothing.

Beside it a plain Python source of redis-py rows, with redis-py's own parser, which is what `pip install
redis` gives, and with hiredis; and one that only yields a record batch made before, which is what Spark
itself can take. The same entries from redis-server, by XRANGE, and from headrace, by XRANGE and by XARROW.
Server, JVM and Python workers share the cores.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks import spark_job as job
from benchmarks.servers import Server
from benchmarks.spark_yardsticks import TYPED, PrebuiltSource, RowSource

SCHEMAS = {"map": "", "typed": TYPED}  # the default schema, and two columns of the entries' fields
WAYS = {  # name: (server, fetch)
    "headrace, from redis-server": ("redis", "resp"),
    "headrace, from headrace by XRANGE": ("headrace", "resp"),
    "headrace, from headrace by XARROW": ("headrace", "arrow"),
}
ROWS, HIREDIS, BATCHES = "redis-py rows", "redis-py rows, hiredis", "prebuilt batches"
Rates = dict[str, dict[str, float]]  # by schema, by way of reading


def measure(spark: SparkSession, servers: dict[str, Server], entries: int, rounds: int) -> Rates:
    """Rows a second, medians."""
    for server in servers.values():
        job.fill(server, entries)
    spark.dataSource.register(RowSource)
    spark.dataSource.register(PrebuiltSource)
    few = entries // job.YARDSTICK_SHARE

    def reading(schema: str, kind: str, rows: int, **options: str) -> tuple[int, Callable[[], None]]:
        reader = spark.read.format(kind).options(**options)
        return rows, job.to_noop((reader.schema(schema) if schema else reader).load())

    found = {}
    for name, schema in SCHEMAS.items():
        jobs = {
            ROWS: reading(schema, "rows", few, url=job.url(servers["redis"]), entries=str(few)),
            HIREDIS: reading(
                schema, "rows", few, url=job.url(servers["redis"]), entries=str(few), hiredis="yes"
            ),
            BATCHES: reading(schema, "prebuilt", entries, entries=str(entries)),
        }
        for way, (where, fetch) in WAYS.items():
            place = {"url": job.url(servers[where]), "subscribe": job.STREAM}
            options = place | {"fetch": fetch, "minPartitions": str(job.TASKS)}
            jobs[way] = reading(schema, "headrace", entries, **options)
        found[name] = job.rates(jobs, rounds)
    return found


def table(found: Rates) -> Table:
    """Rates, and their ratios to both yardsticks."""
    shown = Table(title="Spark source: thousand rows a second into noop")
    for column in ("", "k rows/s", "of redis-py", "of hiredis", "of prebuilt", "of XRANGE"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for schema, by in found.items():
        for way, rate in by.items():
            ratios = [f"{rate / by[ROWS]:.1f}", f"{rate / by[HIREDIS]:.1f}", f"{rate / by[BATCHES]:.2f}", ""]
            if way.endswith("XARROW"):
                ratios[3] = f"{rate / by['headrace, from headrace by XRANGE']:.2f}"
            shown.add_row(f"{schema}: {way}", f"{rate / 1000:,.0f}", *ratios)
    return shown
