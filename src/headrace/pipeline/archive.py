"""From a stream into Parquet files, a directory a day, each entry exactly once.

DIR/date=2013-01-01/part-….parquet     id, timestamp, sequence, and the fields
DIR/_spark_metadata/                   Spark's list of the files that count
DIR/_headrace/stream.json              which stream this is an archive of
DIR/_headrace/checkpoint/              how far it has got; the next run goes on from there
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.errors import UsageError
from headrace.pipeline.progress import Batch, follow

ENTRIES_PER_BATCH = 250_000
OURS = "_headrace"

# An entry's own columns, and what they are called in the archive.
METADATA = {"_id": "id", "_timestamp": "timestamp", "_sequence": "sequence"}


@dataclass(frozen=True)
class Check:
    """What the archive holds."""

    entries: int
    distinct: int
    days: int


def archive(
    spark: SparkSession,
    url: str,
    stream: str,
    directory: Path,
    *,
    fields: StructType | None = None,
    entries_per_batch: int = ENTRIES_PER_BATCH,
    on_batch: Callable[[Batch], None] = lambda batch: None,
) -> int:
    """Writes the entries that the archive does not have yet, and returns how many those were.

    With `fields` each named field is a typed column; without, all fields are one map. UsageError if the
    directory holds something else.
    """
    claim(directory, stream, fields)
    query = (
        entries(spark, url, stream, fields, maxOffsetsPerTrigger=entries_per_batch)
        .withColumn("date", F.to_date("timestamp"))
        .writeStream.format("parquet")
        .partitionBy("date")
        .option("path", str(directory))
        .option("checkpointLocation", str(directory / OURS / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    written = 0
    for batch in follow(query):
        written += batch.rows
        on_batch(batch)
    return written


def entries(
    spark: SparkSession, url: str, stream: str, fields: StructType | None = None, **options: int
) -> DataFrame:
    """The stream from its first entry on as a streaming DataFrame: id, timestamp, sequence, the fields."""
    reader = spark.readStream.format("headrace").option("url", url).option("subscribe", stream)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    reader = reader.option("startingOffsets", "earliest")
    if fields is None:
        return reader.load().select("id", "timestamp", "sequence", "fields")
    metadata = schema_of("_id STRING, _timestamp TIMESTAMP, _sequence LONG")
    columns: list[Column] = [F.col(name).alias(alias) for name, alias in METADATA.items()]
    columns += [F.col(f"`{field.name}`") for field in fields]
    return reader.schema(StructType(metadata.fields + fields.fields)).load().select(*columns)


def schema_of(columns: str) -> StructType:
    """The columns that a text in SQL declares, such as `carrier STRING, delay INT`, or UsageError."""
    try:
        schema = StructType.fromDDL(columns)
    except ParseException as error:
        raise UsageError(f"{columns!r} is no list of columns, such as 'carrier STRING, delay INT'") from error
    if not isinstance(schema, StructType):
        raise UsageError(
            f"{columns!r} is one type, not a list of columns such as 'carrier STRING, delay INT'"
        )
    return schema


def check(spark: SparkSession, directory: Path) -> Check:
    """Counts what is in the archive, reading it as anybody would."""
    table = spark.read.parquet(str(directory))
    row = table.agg(F.count("*"), F.count_distinct("id"), F.count_distinct("date")).first()
    assert row is not None
    return Check(*row)


def claim(directory: Path, stream: str, fields: StructType | None) -> None:
    """Makes the directory the stream's archive; UsageError if it is another's, or holds other files."""
    mark = directory / OURS / "stream.json"
    ours = {"stream": stream, "fields": None if fields is None else fields.simpleString()}
    if mark.is_file():
        theirs = json.loads(mark.read_text())
        if theirs["stream"] != stream:
            raise UsageError(f"{directory} is the archive of stream {theirs['stream']!r}; give another --to")
        if theirs != ours:
            what = theirs["fields"] or "all in one map"
            raise UsageError(f"{directory} was written with other fields ({what}); give another --to")
        return
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty and not an archive; give another --to")
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps(ours) + "\n")
