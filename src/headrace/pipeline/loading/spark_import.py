"""Load any source that Spark reads (tables, databases, files of a cluster) into a stream through the sink.

Without a time column the server generates the IDs, and each partition of the source is written by its own
task. With a time column the rows are sorted by it and written by one task, because the IDs of a stream only
grow. A rate limit also needs a single task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import redis
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.loading.loader import ROWS_PER_BATCH, MonotonicIds
from headrace.pipeline.loading.time_columns import MS_MAX, TimeColumn, latest_valid_time_ms, time_column
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.pipeline.shared.pacing import RateLimiter
from headrace.plurals import plural
from headrace.positions.stream_state import stream_states
from headrace.spark.errors import explain
from headrace.spark.options import parse_options
from headrace.spark.sink.attempts import AttemptGuard
from headrace.spark.sink.marker import Marker

POLL_SECONDS = 0.2
BATCH_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
# The properties of a thread that setJobGroup() sets.
JOB_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def load_from_spark(
    spark: SparkSession,
    kind: str,
    options: Mapping[str, str],
    url: str,
    stream: str,
    *,
    path: str | None = None,
    time_column_name: str | None = None,
    rate: float | None = None,
    maxlen: int | None = None,
    job: str | None = None,
    allow_future: bool = False,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> int:
    """Add the rows of spark.read.format(kind) to a stream.

    Args:
        spark: The session.
        kind: The format, such as `csv` or `delta`.
        options: The options of the format.
        url: The server.
        stream: The stream's name.
        path: The path to read; None if the options say what to read.
        time_column_name: The column whose times become the IDs; None to have the server generate them.
        rate: Rows per second, at most; None for no limit.
        maxlen: Trim the stream to about this many entries; None to keep all.
        job: A name for the load; the same load run again under this name adds only missing rows.
        allow_future: Whether IDs may be more than a day later than now.
        on_progress: Called several times per second with the number of rows added so far.

    Returns:
        The number of rows that this run has added.

    Raises:
        UsageError: if the time column does not exist, or Spark cannot parse some lines as JSON.
        HeadraceError: if Spark or the server fails, a value of the column is not a valid time, or the stream
            was recreated since an earlier run of the job.
        KeyboardInterrupt: after a signal that defer_interrupts() has recorded.
    """
    with limited_batch_rows(spark, rate):
        try:
            rows = spark.read.format(kind).options(**options).load(path)
            check_parsed(rows, kind, options)
            if time_column_name is not None:
                rows = add_ids(rows, time_column_name, MS_MAX if allow_future else latest_valid_time_ms())
            if rate is not None:
                rows = rate_limited(rows.coalesce(1), rate)
            settings = {"url": url, "stream": stream, "timestampFormat": "iso8601"}
            settings |= {"delivery": "exactly-once", "queryId": job or f"load-{uuid4().hex}"}
            if maxlen is not None:
                settings["maxLength"] = str(maxlen)
            parse_options(settings, "sink")
        except PySparkException as error:
            raise HeadraceError(f"Spark: {explain(error)}") from error
        with closing(Servers(url)) as servers:
            written = WrittenRowCounter(servers, stream, settings["queryId"], rows.rdd.getNumPartitions())
            written.reset_if_stream_deleted()
            count = write_with_progress(spark, rows, settings, written, on_progress)
            if job is None:
                written.delete_markers()
    return count


@contextmanager
def limited_batch_rows(spark: SparkSession, rate: float | None) -> Iterator[None]:
    """Limit the rows of Spark's Arrow batches to RateLimiter.batch_rows(); restore the setting afterwards.

    Without a rate the setting is not changed.
    """
    if rate is None:
        yield
        return
    before = spark.conf.get(BATCH_ROWS_SETTING)
    spark.conf.set(BATCH_ROWS_SETTING, RateLimiter(rate).batch_rows(ROWS_PER_BATCH))
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(BATCH_ROWS_SETTING, before)


def check_parsed(rows: DataFrame, kind: str, options: Mapping[str, str]) -> None:
    """Raise UsageError if Spark could not parse some lines as JSON, and returned their text instead."""
    session = rows.sparkSession
    named = {name.lower(): value for name, value in options.items()}.get("columnnameofcorruptrecord")
    column = named or session.conf.get("spark.sql.columnNameOfCorruptRecord")
    if kind.lower() == "json" and column in rows.columns and named is None:
        raise UsageError(
            "Spark cannot parse some lines as JSON: an array, or objects of several lines, need --option "
            "multiLine=true; --option mode=DROPMALFORMED drops such lines"
        )


def add_ids(rows: DataFrame, column: str, latest_ms: int) -> DataFrame:
    """Return the rows with an ID each, sorted by a column of times, in one partition.

    A value that is not a time, or a time after `latest_ms`, fails the job.

    Raises:
        UsageError: if there is no such column.
    """
    if column not in rows.columns:
        raise UsageError(f"no column {column!r}; the columns are {', '.join(rows.columns)}")
    schema = StructType([StructField("_id", StringType()), *rows.schema.fields])

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids = MonotonicIds()
        times: TimeColumn | None = None
        for batch in batches:
            times = times or time_column(batch, column)
            if times is None:
                raise UsageError(f"column {column!r} does not hold times")
            times = replace(times, latest_valid_ms=latest_ms)
            texts = [f"{ms}-{seq}" for ms, seq in ids.ids_for(times.milliseconds(batch))]
            yield pa.RecordBatch.from_arrays(
                [pa.array(texts, pa.string()), *batch.columns], ["_id", *batch.schema.names]
            )

    return rows.orderBy(rows[f"`{column}`"].asc_nulls_first()).coalesce(1).mapInArrow(numbered, schema)


def rate_limited(rows: DataFrame, rate: float) -> DataFrame:
    """Limit the rows of a single partition to `rate` rows per second."""

    def limited(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        limiter = RateLimiter(rate)
        for batch in batches:
            step = limiter.batch_rows(batch.num_rows)
            for at in range(0, batch.num_rows, step):
                piece = batch.slice(at, step)
                limiter.wait(piece.num_rows)
                yield piece

    return rows.mapInArrow(limited, rows.schema)


def write_with_progress(
    spark: SparkSession,
    rows: DataFrame,
    settings: Mapping[str, str],
    written: WrittenRowCounter,
    on_progress: Callable[[int], None],
) -> int:
    """Write the rows with Spark; a thread reports progress, and cancels the job after SIGINT or SIGTERM.

    Returns:
        The number of rows that this run has written, according to the markers of its tasks.

    Raises:
        HeadraceError: if the Spark job fails.
        KeyboardInterrupt: if the job was cancelled after a signal.
    """
    stream = settings["stream"]
    before = written.count()
    group = f"headrace-load-{uuid4().hex}"
    done = threading.Event()
    count = 0

    def report() -> None:
        nonlocal count
        with suppress(redis.RedisError, OSError, HeadraceError):  # the job itself reports the error
            count = written.count() - before
        on_progress(count)

    def poll() -> None:
        while not done.wait(POLL_SECONDS):
            report()
            try:
                raise_if_interrupted()
            except KeyboardInterrupt:
                spark.sparkContext.cancelJobGroup(group)

    spark.sparkContext.setJobGroup(group, f"load into {stream}", interruptOnCancel=True)
    watcher = threading.Thread(target=poll)
    watcher.start()
    try:
        rows.write.format("headrace").options(**settings).mode("append").save()
    except (PySparkException, Py4JError) as error:
        raise_if_interrupted()
        raise HeadraceError(f"Spark: {explain(error)}") from error
    finally:
        done.set()
        watcher.join()
        for name in JOB_GROUP_PROPERTIES:  # later jobs of the caller do not belong to the group
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]
        report()
    return count


class WrittenRowCounter:
    """Counts the rows that a job has written, from the markers of its tasks, not from the stream's length."""

    def __init__(self, servers: Servers, stream: str, job: str, partitions: int) -> None:
        self._servers = servers
        self._stream = stream
        self._job = job
        self._keys = [Marker(job, number).key(stream_key(stream)) for number in range(partitions)]

    def count(self) -> int:
        """Return how many rows this run and earlier runs of the job have written."""

        def get_each(pipe: Any, stream: str) -> None:
            for marker in self._keys:
                pipe.get(marker)

        values = self._servers.request_many([self._stream], get_each)[self._stream]
        return sum(int(value.split(b":")[1]) for value in values if isinstance(value, bytes))

    def reset_if_stream_deleted(self) -> None:
        """Delete the job's markers if the stream was deleted since an earlier run: all rows are added again.

        Raises:
            HeadraceError: if the stream was deleted and created again. Then its count of added entries is
                lower than the number of rows that this job has written.
        """
        count = self.count()
        if not count:
            return
        state = stream_states(self._servers, [self._stream]).get(self._stream)
        if state is None:
            self.delete_markers()
        elif state.entries_added is not None and state.entries_added < count:
            raise HeadraceError(
                f"{plural(count, 'row')} of the job {self._job!r} were written to stream {self._stream!r}, "
                f"but it has had only {plural(state.entries_added, 'entry')}: it was deleted and created "
                "again. Another --job writes all rows"
            )

    def delete_markers(self) -> None:
        """Delete all keys of the job: the markers with its row counts, and the keys of AttemptGuard."""
        guard, key = AttemptGuard(Marker(self._job)), stream_key(self._stream)
        for each in (*self._keys, guard.attempt_key(key), guard.partitions_key(key)):
            self._servers.client().delete(each)
