"""The references for the Spark source and sink: plain Python with redis-py, and prebuilt record batches."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import redis
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from redis._parsers import _HiredisParser, _RESP2Parser

from benchmarks.spark_job import FIRST_MS, STREAM, TASKS

PAGE = 5000
BATCH_ROWS = 10_000
MAP = "stream STRING, id STRING, timestamp TIMESTAMP, sequence BIGINT, fields MAP<STRING, STRING>"
TYPED = "device STRING, temp DOUBLE"


def task_ranges(entries: int) -> list[InputPartition]:
    """Return a partition for each task: the range [start, stop) of its entries' numbers."""
    cuts = [entries * i // TASKS for i in range(TASKS + 1)]
    return [InputPartition((cuts[i], cuts[i + 1])) for i in range(TASKS)]


class RowReader(DataSourceReader):
    """Reads without Headrace: XRANGE by redis-py, a tuple per row."""

    def __init__(self, options: Any, typed: bool) -> None:
        self.options = options
        self.typed = typed

    def partitions(self) -> list[InputPartition]:
        return task_ranges(int(self.options["entries"]))

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        first, end = partition.value
        client: Any = redis.Redis.from_url(self.options["url"], decode_responses=True, protocol=2)
        parser = _HiredisParser if self.options.get("hiredis") else _RESP2Parser
        client.connection_pool.connection_kwargs["parser_class"] = parser
        after, last = str(FIRST_MS + first), str(FIRST_MS + end - 1)
        while rows := client.xrange(STREAM, after, last, PAGE):
            for entry_id, fields in rows:
                if self.typed:
                    yield fields["device"], float(fields["temp"])
                    continue
                ms, sequence = entry_id.split("-")
                when = datetime.datetime.fromtimestamp(int(ms) / 1000, datetime.UTC)
                yield STREAM, entry_id, when, int(sequence), fields
            after = f"({rows[-1][0]}"


class PrebuiltReader(DataSourceReader):
    """Yields the same record batch repeatedly, so that only Spark's own work is measured."""

    def __init__(self, options: Any, schema: Any) -> None:
        self.entries = int(options["entries"])
        self.schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        return task_ranges(self.entries)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = range(BATCH_ROWS)
        devices, temps = [f"dev{n % 1000:03}" for n in rows], [n % 10000 / 100 for n in rows]
        columns: dict[str, list[Any]] = {
            "device": devices,
            "temp": temps,
            "stream": [STREAM] * BATCH_ROWS,
            "id": [f"{FIRST_MS + n}-0" for n in rows],
            "timestamp": [(FIRST_MS + n) * 1000 for n in rows],
            "sequence": [0] * BATCH_ROWS,
            "fields": [[("device", d), ("temp", f"{t:.2f}")] for d, t in zip(devices, temps, strict=True)],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        first, end = partition.value
        for start in range(first, end, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, end - start))


class RowWriter(DataSourceWriter):
    """Writes without Headrace: an XADD per row, in pipelines of redis-py."""

    def __init__(self, options: Any) -> None:
        self.url = options["url"]

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        client = redis.Redis.from_url(self.url)
        pipe = client.pipeline(transaction=False)
        for n, row in enumerate(iterator):
            pipe.xadd("out", row.asDict())
            if n % 1000 == 999:
                pipe.execute()
        pipe.execute()
        return WriterCommitMessage()


class RowSource(DataSource):
    """The source and sink of format("rows")."""

    @classmethod
    def name(cls) -> str:
        return "rows"

    def schema(self) -> str:
        return MAP

    def reader(self, schema: Any) -> RowReader:
        return RowReader(self.options, "device" in schema.names)

    def writer(self, schema: Any, overwrite: bool) -> RowWriter:
        return RowWriter(self.options)


class PrebuiltSource(DataSource):
    """The source of format("prebuilt")."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return MAP

    def reader(self, schema: Any) -> PrebuiltReader:
        return PrebuiltReader(self.options, schema)
