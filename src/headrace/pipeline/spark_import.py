"""From any source that Spark reads into a stream, by the sink: tables, databases, other clusters' files.

Without a time column the server makes the IDs, and as many tasks write as the source has partitions. With one
the rows are sorted by it, and one task writes them, for the IDs of a stream only grow. So it is for a rate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
import redis
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.interrupts import raise_if_interrupted
from headrace.pipeline.loader import ROWS_PER_BATCH, Ids
from headrace.pipeline.progress import cause
from headrace.pipeline.replay_pacer import Rate
from headrace.pipeline.times import TimeColumn, time_column
from headrace.spark.options import parse_options
from headrace.spark.servers import Servers
from headrace.spark.sink.marker import Marker
from headrace.spark.stream_names import stream_key

POLL_SECONDS = 0.2


def load_source(
    spark: SparkSession,
    kind: str,
    options: Mapping[str, str],
    url: str,
    stream: str,
    *,
    path: str | None = None,
    time_by: str | None = None,
    rate: float | None = None,
    maxlen: int | None = None,
    job: str | None = None,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Adds the rows of spark.read.format(kind) to the stream; returns how many this run has added.

    time_by: the column whose times become the IDs. rate: rows a second at most. job: a name under which the
    same load, begun again, adds only what is missing. UsageError for a column that is not there;
    HeadraceError if Spark fails.
    """
    try:
        rows = spark.read.format(kind).options(**options).load(path)
        if time_by is not None:
            rows = with_ids(rows, time_by)
        if rate is not None:
            # Spark would gather more rows than that before it hands them on.
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", Rate(rate).at_once(ROWS_PER_BATCH))
            rows = at_rate(rows.coalesce(1), rate)
        settings = {"url": url, "stream": stream, "timestampFormat": "iso8601", "delivery": "exactly-once"}
        if maxlen is not None:
            settings["maxLength"] = str(maxlen)
        settings["queryId"] = job or f"load-{uuid4().hex}"
        parse_options(settings, "sink")
    except PySparkException as error:
        raise HeadraceError(f"Spark: {cause(error)}") from error
    servers = Servers(url)
    try:
        written = WrittenRows(servers, stream, settings["queryId"], rows.rdd.getNumPartitions())
        count = watched(spark, rows, settings, written, on_progress)
        if job is None:
            written.forget()
    finally:
        servers.close()
    return count


def with_ids(rows: DataFrame, column: str) -> DataFrame:
    """The rows in order of a column of times, in one partition, with an ID each."""
    if column not in rows.columns:
        raise UsageError(f"no column {column!r}; the columns are {', '.join(rows.columns)}")
    schema = StructType([StructField("_id", StringType()), *rows.schema.fields])

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = Ids()
        times: TimeColumn | None = None
        for batch in batches:
            times = times or time_column(batch, column)
            if times is None:
                raise UsageError(f"column {column!r} is not a time")
            texts = [f"{ms}-{seq}" for ms, seq in ids.of(times.milliseconds(batch))]
            yield pa.RecordBatch.from_arrays(
                [pa.array(texts, pa.string()), *batch.columns], ["_id", *batch.schema.names]
            )

    return rows.orderBy(rows[f"`{column}`"].asc_nulls_first()).coalesce(1).mapInArrow(numbered, schema)


def at_rate(rows: DataFrame, rate: float) -> DataFrame:
    """The rows of a single partition, so many a second at most."""

    def paced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pace = Rate(rate)
        for batch in batches:
            step = pace.at_once(batch.num_rows)
            for at in range(0, batch.num_rows, step):
                piece = batch.slice(at, step)
                pace.wait(piece.num_rows)
                yield piece

    return rows.mapInArrow(paced, rows.schema)


def watched(
    spark: SparkSession,
    rows: DataFrame,
    settings: Mapping[str, str],
    written: WrittenRows,
    on_progress: Callable[[int], None],
) -> int:
    """Writes the rows; a thread tells meanwhile how many have come in, and cancels the job after a signal."""
    stream = settings["stream"]
    before = written.count()
    group = f"headrace-load-{uuid4().hex}"
    done = threading.Event()
    count = 0

    def tell() -> None:
        nonlocal count
        with suppress(redis.RedisError, OSError, HeadraceError):  # the job will say what is wrong
            count = written.count() - before
        on_progress(count)

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            tell()
            try:
                raise_if_interrupted()
            except KeyboardInterrupt:
                spark.sparkContext.cancelJobGroup(group)

    spark.sparkContext.setJobGroup(group, f"load into {stream}", interruptOnCancel=True)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        rows.write.format("headrace").options(**settings).mode("append").save()
    except (PySparkException, Py4JError) as error:
        raise_if_interrupted()
        raise HeadraceError(f"Spark: {cause(error)}") from error
    finally:
        done.set()
        watcher.join()
        tell()
    return count


class WrittenRows:
    """How many rows a job has written, by the markers of its tasks: entries that others add do not count."""

    def __init__(self, servers: Servers, stream: str, job: str, partitions: int) -> None:
        self._servers = servers
        self._stream = stream
        self._keys = [Marker(job, number).key(stream_key(stream)) for number in range(partitions)]

    def count(self) -> int:
        """Return how many rows are written, by this run of the job and by earlier ones."""

        def get_each(pipe: Any, stream: str) -> None:
            for marker in self._keys:
                pipe.get(marker)

        values = self._servers.request_many([self._stream], get_each)[self._stream]
        return sum(int(value.split(b":")[1]) for value in values if isinstance(value, bytes))

    def forget(self) -> None:
        """Remove the markers of a job without a name, which cannot be run again."""
        for marker in self._keys:
            self._servers.client().delete(marker)
