"""Measure rows per second of the Spark source into the noop sink, which reads every column.

The references are a Python source of redis-py rows, with redis-py's own parser and with hiredis, and a source
that yields prebuilt record batches, which shows the limit of Spark. The same entries are read from
redis-server by XRANGE, and from Headrace by XRANGE and by XARROW. Server, JVM and Python workers share the
cores.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession
from rich.table import Table

from benchmarks import spark_job as job
from benchmarks.servers import Server
from benchmarks.spark_references import TYPED, PrebuiltSource, RowSource

SCHEMAS = {"map": "", "typed": TYPED}  # the default schema, and two columns of the entries' fields
READERS = {  # name: (server, fetch)
    "headrace, from redis-server": ("redis", "resp"),
    "headrace, from headrace by XRANGE": ("headrace", "resp"),
    "headrace, from headrace by XARROW": ("headrace", "arrow"),
}
ROWS, HIREDIS, BATCHES = "redis-py rows", "redis-py rows, hiredis", "prebuilt batches"
Rates = dict[str, dict[str, float]]  # by schema and by reader


def measure(spark: SparkSession, servers: dict[str, Server], entries: int, rounds: int) -> Rates:
    """Return the median rows per second."""
    for each in servers.values():
        job.fill(each, entries)
    spark.dataSource.register(RowSource)
    spark.dataSource.register(PrebuiltSource)
    few = entries // job.REFERENCE_DIVISOR
    from_redis = {"url": job.url(servers["redis"]), "entries": str(few)}

    def reading(schema: str, kind: str, rows: int, **options: str) -> tuple[int, Callable[[], None]]:
        reader = spark.read.format(kind).options(**options)
        return rows, job.to_noop((reader.schema(schema) if schema else reader).load())

    found = {}
    for name, schema in SCHEMAS.items():
        jobs = {
            ROWS: reading(schema, "rows", few, **from_redis),
            HIREDIS: reading(schema, "rows", few, hiredis="yes", **from_redis),
            BATCHES: reading(schema, "prebuilt", entries, entries=str(entries)),
        }
        for reader, (server, fetch) in READERS.items():
            source = {"url": job.url(servers[server]), "subscribe": job.STREAM}
            options = source | {"fetch": fetch, "minPartitions": str(job.TASKS)}
            jobs[reader] = reading(schema, "headrace", entries, **options)
        found[name] = job.rates(jobs, rounds)
    return found


def table(found: Rates) -> Table:
    """Return the table of the rates and their ratios to the references."""
    shown = Table(title="Spark source: thousand rows per second into noop")
    for column in ("", "k rows/s", "of redis-py", "of hiredis", "of prebuilt", "of XRANGE"):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for schema, by in found.items():
        for way, rate in by.items():
            ratios = [f"{rate / by[ROWS]:.1f}", f"{rate / by[HIREDIS]:.1f}", f"{rate / by[BATCHES]:.2f}", ""]
            if way.endswith("XARROW"):
                ratios[3] = f"{rate / by['headrace, from headrace by XRANGE']:.2f}"
            shown.add_row(f"{schema}: {way}", f"{rate / 1000:,.0f}", *ratios)
    return shown
