"""From streams into Parquet files, a directory a stream and day, each entry exactly once.

DIR/stream=flights/date=2013-01-01/part-….parquet     id, timestamp, sequence, and the fields
DIR/_spark_metadata/                   Spark's list of the files that count
DIR/_headrace/                         whose archive this is (archive_home), and
DIR/_headrace/checkpoint/              how far it has got; the next run goes on from there

After each batch the server is told how far its streams are archived (watermark), so that they can be trimmed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.errors import UsageError
from headrace.pipeline.archive_home import Home, claim, held, record_names
from headrace.pipeline.inference import quoted
from headrace.pipeline.progress import Batch, follow
from headrace.pipeline.watermark import Watermark
from headrace.spark.local_paths import local_path

ENTRIES_PER_BATCH = 250_000

SIMPLE = re.compile(r"[\w.:{}-]+")  # names that need not be quoted

# An entry's own columns, and what they are called in the archive.
METADATA = {"_id": "id", "_timestamp": "timestamp", "_sequence": "sequence"}
CORRUPT = "_corrupt_record"


@dataclass(frozen=True)
class Check:
    """What the archive holds."""

    entries: int
    distinct: int
    days: int


def archive(
    spark: SparkSession,
    url: str,
    streams: str | Sequence[str],
    directory: Path,
    *,
    fields: StructType | None = None,
    entries_per_batch: int = ENTRIES_PER_BATCH,
    fail_on_loss: bool = True,
    on_batch: Callable[[Batch], None] = lambda batch: None,
) -> int:
    """Writes the entries that the archive does not have yet, and returns how many those were.

    With `fields` each named field is a typed column, and what does not fit is kept in `_corrupt_record`;
    without, all fields are one map. Streams may be added from run to run. fail_on_loss: whether to fail, or
    to warn, when entries were gone from the server before they were archived. UsageError if the directory
    holds something else; HeadraceError if another process is at work there, or the query fails.
    """
    names = [streams] if isinstance(streams, str) else list(streams)
    directory = local_path(directory)
    check_names(fields)
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    home = claim(directory, names, None if fields is None else fields.simpleString(), zone)
    watermark = Watermark(url, directory)
    written = 0
    try:
        with held(directory):
            # A run that was killed may have left a batch that is done and not told.
            watermark.tell()
            rows = archive_rows(spark, url, names, home, fields, entries_per_batch, fail_on_loss)
            if home.alone is None:
                rows = in_directories(rows, record_names(directory, names, not has_utf8_paths(spark)))
            query = (
                rows.writeStream.format("parquet")
                .partitionBy(*home.partitions)
                .option("path", str(directory))
                .option("checkpointLocation", str(home.checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            for batch in follow(query):
                written += batch.rows
                watermark.tell()
                on_batch(batch)
            watermark.tell()
    finally:
        watermark.close()
    return written


def archive_rows(
    spark: SparkSession,
    url: str,
    streams: Sequence[str],
    home: Home,
    fields: StructType | None,
    entries_per_batch: int,
    fail_on_loss: bool,
) -> DataFrame:
    """The rows of the archive, as a stream of them."""
    rows = entries(
        spark,
        url,
        streams,
        fields,
        with_stream=home.alone is None,
        with_corrupt=home.alone is None and fields is not None,
        maxOffsetsPerTrigger=entries_per_batch,
        failOnDataLoss=str(fail_on_loss).lower(),
    )
    return rows.withColumn("date", F.to_date("timestamp"))


def has_utf8_paths(spark: SparkSession) -> bool:
    """Whether the JVM can write any name into a path: its locale decides that."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.java.lang.System.getProperty("sun.jnu.encoding")).upper() in ("UTF-8", "UTF8")


def in_directories(rows: DataFrame, directories: Mapping[str, str]) -> DataFrame:
    """The rows, where some streams are called as their directories are to be."""
    if not directories:
        return rows
    pairs = [F.lit(text) for pair in directories.items() for text in pair]
    found = F.element_at(F.create_map(*pairs), F.col("stream"))
    return rows.withColumn("stream", F.coalesce(found, F.col("stream")))


def entries(
    spark: SparkSession,
    url: str,
    streams: str | Sequence[str],
    fields: StructType | None = None,
    *,
    with_stream: bool = False,
    with_corrupt: bool = False,
    **options: int | str,
) -> DataFrame:
    """Streams from their first entries on as a streaming DataFrame: id, timestamp, sequence, the fields."""
    names = [streams] if isinstance(streams, str) else list(streams)
    reader = spark.readStream.format("headrace").option("url", url)
    if all(SIMPLE.fullmatch(name) for name in names):
        reader = reader.option("subscribe", ",".join(names))
    else:
        reader = reader.option("assign", json.dumps(names))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    reader = reader.option("startingOffsets", "earliest")
    if fields is None:
        first = ["stream"] if with_stream else []
        return reader.load().select(*first, "id", "timestamp", "sequence", "fields")
    metadata = schema_of(
        f"_stream STRING, _id STRING, _timestamp TIMESTAMP, _sequence LONG, {CORRUPT} STRING"
    )
    wanted = [*(["_stream"] if with_stream else []), *METADATA]
    schema = StructType([metadata[name] for name in wanted] + fields.fields)
    columns: list[Column] = [F.col(name).alias(METADATA.get(name, "stream")) for name in wanted]
    columns += [F.col(quoted(field.name)) for field in fields]
    if with_corrupt:
        schema = StructType([*schema.fields, metadata[CORRUPT]])
        columns.append(F.col(CORRUPT))
    return reader.schema(schema).load().select(*columns)


def check_names(fields: StructType | None) -> None:
    """UsageError if a typed field would be called what a column of the archive is called already."""
    taken = {"stream", "date", CORRUPT, *METADATA.values()}
    for name in [] if fields is None else fields.names:
        if name.lower() in taken:
            raise UsageError(
                f"a field {name!r} cannot be a column of an archive, which has one of that name; leave out "
                "--fields to archive all fields as one map"
            )


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
    # A stream called 007 is not the number 7.
    guess = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(guess)
    spark.conf.set(guess, "false")
    try:
        table = spark.read.parquet(str(directory))
        entry = ["stream", "id"] if "stream" in table.columns else ["id"]
        row = table.agg(F.count("*"), F.count_distinct(*entry), F.count_distinct("date")).first()
    finally:
        spark.conf.set(guess, before or "true")
    assert row is not None
    return Check(*row)
