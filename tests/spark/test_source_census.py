"""The Spark source leaves no reference cycle, descriptor or thread: a worker may run a thousand tasks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.range_reader import RangeReader
from headrace.spark.source.reader import HeadraceReader
from headrace.spark.source.stream_reader import HeadraceStreamReader
from support.census import TIMES_OF_JOBS, assert_nothing_left
from support.stream_server import StreamServer

SCHEMA = StructType([StructField("_id", StringType()), StructField("n", LongType())])
ENTRIES = 300
OURS = "headrace."  # PySpark and redis-py have cycles of their own


def read_range(server: StreamServer, **options: str) -> RangeReader:
    parsed = parse_options({"url": server.url, "entriesPerFetch": "100", **options}, "batch")
    part = OffsetRange("s", "1000000-0", f"{1_000_000 + ENTRIES - 1}-0", True)
    return RangeReader(part, ColumnLayout(SCHEMA, "epoch_ms"), parsed)


def read_whole(server: StreamServer) -> None:
    """Read a range to its end."""
    assert sum(batch.num_rows for batch in read_range(server).batches()) == ENTRIES - 1


def leave_early(server: StreamServer) -> None:
    """Leave a range after its first batch, as a task with a LIMIT does."""
    for _ in read_range(server).batches():
        break


def read_lost(server: StreamServer) -> None:
    """Read a range of which entries were trimmed."""
    server.client.delete("s")
    server.fill("s", ENTRIES)
    server.client.xtrim("s", maxlen=ENTRIES // 2, approximate=False)
    with pytest.raises(DataLoss):
        list(read_range(server).batches())


def read_all(server: StreamServer) -> None:
    """Plan and read a whole stream, as a batch query does."""
    reader = HeadraceReader(parse_options({"url": server.url, "subscribe": "s"}, "batch"), SCHEMA)
    rows = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
    assert sum(rows) == ENTRIES


def run_micro_batch(server: StreamServer) -> None:
    """Plan, read and commit one micro-batch, and stop."""
    options = {"url": server.url, "subscribe": "s", "startingOffsets": "earliest"}
    reader = HeadraceStreamReader(parse_options(options, "stream"), SCHEMA)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = [part for part in reader.partitions(start, end) if part.value is not None]
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == ENTRIES
    reader.commit(end)
    reader.stop()


@pytest.mark.parametrize("times", TIMES_OF_JOBS)
@pytest.mark.parametrize("work", [read_whole, leave_early, read_lost, read_all, run_micro_batch])
def test_the_source_leaves_nothing(
    stream_server: StreamServer, work: Callable[[StreamServer], None], times: int
) -> None:
    stream_server.fill("s", ENTRIES)
    assert_nothing_left(lambda: work(stream_server), times, OURS)
