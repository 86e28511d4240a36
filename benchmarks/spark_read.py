"""Rows a second of the Spark source, beside a plain source that reads with redis-py and yields tuples.

    python -m benchmarks.spark_read [--entries 500000] [--url redis://127.0.0.1:6379]

Without --url it starts a redis-server of its own. Every figure is the best of three runs of a whole Spark job
into the noop sink, which reads every column and writes nothing; the cores are shared by all of it. The plain
source reads a tenth of the entries: it is slow, and its rate does not depend on how many there are.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from redis._parsers import _RESP2Parser

STREAM = "benchmark"
FIRST_MS = 1_700_000_000_000
TASKS = 2
RUNS = 3
PAGE = 5000


class TupleReader(DataSourceReader):
    """What one writes without headrace: XRANGE by redis-py, a tuple a row."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        n = int(self.options["entries"])
        cuts = [FIRST_MS + n * i // TASKS for i in range(TASKS + 1)]
        return [InputPartition((cuts[i], cuts[i + 1] - 1)) for i in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        start, end = partition.value
        client = redis.Redis.from_url(self.options["url"], decode_responses=True, protocol=2)
        client.connection_pool.connection_kwargs["parser_class"] = _RESP2Parser  # not hiredis
        after = str(start)
        while rows := client.xrange(STREAM, after, end, PAGE):
            for entry_id, fields in rows:
                yield STREAM, entry_id, fields
            after = f"({rows[-1][0]}"


class TupleSource(DataSource):
    """The yardstick."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> str:
        return "stream STRING, id STRING, fields MAP<STRING, STRING>"

    def reader(self, schema: Any) -> TupleReader:
        return TupleReader(self.options)


@contextlib.contextmanager
def server(url: str | None) -> Iterator[str]:
    """The server at url, or one of our own."""
    if url:
        yield url
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    process = subprocess.Popen(["redis-server", "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def fill(url: str, entries: int) -> None:
    """Two short fields an entry, one entry a millisecond."""
    client = redis.Redis.from_url(url)
    while True:
        try:
            client.delete(STREAM)
            break
        except redis.ConnectionError:
            time.sleep(0.1)
    for start in range(0, entries, 5000):
        pipe = client.pipeline(transaction=False)
        for n in range(start, min(start + 5000, entries)):
            fields = {"device": f"dev{n % 1000:03}", "temp": f"{n % 10000 / 100:.2f}"}
            pipe.xadd(STREAM, fields, id=f"{FIRST_MS + n}-0")
        pipe.execute()


def session() -> SparkSession:
    """Two cores, no UI."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def rate(frame: DataFrame, entries: int) -> float:
    """Thousands of rows a second, the best of RUNS after one run to warm up."""
    best = 0.0
    for run in range(RUNS + 1):
        start = time.perf_counter()
        frame.write.format("noop").mode("append").save()
        if run:
            best = max(best, entries / (time.perf_counter() - start) / 1000)
    return best


def measure(entries: int, url: str | None) -> dict[str, float]:
    """Thousands of rows a second by way of reading."""
    with server(url) as where:
        fill(where, entries)
        spark = session()
        try:
            spark.dataSource.register(TupleSource)
            ours = (
                spark.read.format("headrace")
                .option("url", where)
                .option("subscribe", STREAM)
                .option("minPartitions", TASKS)
            )
            return {
                "redis-py, tuples": rate(
                    spark.read.format("tuples").option("url", where).option("entries", entries // 10).load(),
                    entries // 10,
                ),
                "headrace, map of fields": rate(ours.load(), entries),
                "headrace, device STRING, temp DOUBLE": rate(
                    ours.schema("device STRING, temp DOUBLE").load(), entries
                ),
            }
        finally:
            spark.stop()
            redis.Redis.from_url(where).delete(STREAM)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=500_000)
    parser.add_argument("--url")
    args = parser.parse_args()
    rates = measure(args.entries, args.url)
    yardstick = rates["redis-py, tuples"]
    for name, thousands in rates.items():
        print(f"{name:40} {thousands:8.0f} k rows/s {thousands / yardstick:6.1f} x")


if __name__ == "__main__":
    main()
