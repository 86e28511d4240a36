"""Archive streams to Parquet files, one directory per stream and day, each entry exactly once.

DIR/stream=flights/date=2013-01-01/part-….parquet     id, timestamp, sequence, the fields, _exact
DIR/_spark_metadata/                   Spark's list of the valid files
DIR/_headrace/                         the archive's metadata (archive_metadata), and
DIR/_headrace/checkpoint/              its progress; the next run continues from there

No byte is lost: where the fields, as one map or as typed columns, cannot represent an entry exactly, the
column _exact holds all its fields. A replay reads it from there.

After each batch the watermark on the server is raised, so that the streams can be trimmed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructField, StructType

from headrace.errors import UsageError
from headrace.pipeline.archive_metadata import (
    ArchiveMetadata,
    archive_lock,
    create_or_open,
    record_directory_names,
)
from headrace.pipeline.column_inference import ARCHIVE_COLUMNS, quote_identifier
from headrace.pipeline.query_progress import BatchProgress, follow_batches
from headrace.pipeline.watermark import WatermarkPublisher
from headrace.spark.archive.files import committed_files
from headrace.spark.archive.local_paths import local_path
from headrace.spark.archive.partition_reader import EXACT_COLUMN

ENTRIES_PER_BATCH = 250_000

UNQUOTED_NAME = re.compile(r"[\w.:{}-]+")  # names that need not be quoted

# The metadata columns of the Spark source, and their names in the archive.
ARCHIVE_NAMES = {"_id": "id", "_timestamp": "timestamp", "_sequence": "sequence"}
SOURCE_COLUMNS = (
    "_stream STRING, _id STRING, _timestamp TIMESTAMP, _sequence LONG, _fields MAP<STRING, STRING>, "
    f"{EXACT_COLUMN} ARRAY<STRUCT<name: BINARY, value: BINARY>>"
)


@dataclass(frozen=True)
class ArchiveCounts:
    """The size of an archive.

    Attributes:
        entries: All entries.
        distinct: Distinct entries: pairs of stream and ID.
        days: Days that have entries.
    """

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
    on_batch: Callable[[BatchProgress], None] = lambda batch: None,
    on_exact: Callable[[int], None] = lambda entries: None,
) -> int:
    """Add the entries to an archive that it does not have yet.

    Streams may be added from run to run.

    Args:
        spark: The session.
        url: The server.
        streams: The streams' names.
        directory: The archive; created if it does not exist.
        fields: A typed column for each of these fields; None for one map of all fields.
        entries_per_batch: Entries in one micro-batch, at most.
        fail_on_loss: Whether to fail, instead of warn, if entries were trimmed before they were archived.
        on_batch: Called after each micro-batch.
        on_exact: Called at the end with the number of entries that this run stored in `_exact`.

    Returns:
        The number of entries written.

    Raises:
        UsageError: if the directory has other files, or an archive with other fields or another time zone.
        HeadraceError: if another process archives or compacts there, or the query fails.
    """
    names = [streams] if isinstance(streams, str) else list(streams)
    directory = local_path(directory)
    check_field_names(fields)
    fields = None if fields is None else all_nullable(fields)
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    metadata = create_or_open(directory, names, None if fields is None else fields.simpleString(), zone)
    watermark = WatermarkPublisher(url, directory)
    written = 0
    try:
        with archive_lock(directory):
            before = set(committed_files(directory))
            # A killed run may have left a complete batch whose watermark is not published.
            watermark.publish_new()
            rows = rows_to_archive(spark, url, names, metadata, fields, entries_per_batch, fail_on_loss)
            if metadata.only_stream is None:
                rows = with_directory_names(
                    rows, record_directory_names(directory, names, not has_utf8_paths(spark))
                )
            query = (
                rows.writeStream.format("parquet")
                .partitionBy(*metadata.partitions)
                .option("path", str(directory))
                .option("checkpointLocation", str(metadata.checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            for batch in follow_batches(query):
                written += batch.rows
                watermark.publish_new()
                on_batch(batch)
            watermark.publish_new()
            on_exact(sum(map(count_exact_rows, set(committed_files(directory)) - before)))
    finally:
        watermark.close()
    return written


def count_exact_rows(path: Path) -> int:
    """Return how many rows of a file have their entry in `_exact`, by the file's statistics if it has any."""
    count = 0
    with pq.ParquetFile(path) as parquet:
        paths = [parquet.schema.column(index).path for index in range(len(parquet.schema))]
        indexes = [index for index, each in enumerate(paths) if each.partition(".")[0] == EXACT_COLUMN]
        for group in range(parquet.num_row_groups) if indexes else ():
            metadata = parquet.metadata.row_group(group)
            statistics = metadata.column(indexes[0]).statistics
            # A list in `_exact` contains no null, so the nulls are rows without a list.
            if statistics is not None and statistics.has_null_count:
                count += metadata.num_rows - statistics.null_count
            else:
                column = parquet.read_row_group(group, [EXACT_COLUMN]).column(EXACT_COLUMN)
                count += metadata.num_rows - column.null_count
    return count


def rows_to_archive(
    spark: SparkSession,
    url: str,
    streams: Sequence[str],
    metadata: ArchiveMetadata,
    fields: StructType | None,
    entries_per_batch: int,
    fail_on_loss: bool,
) -> DataFrame:
    """Return the rows to archive as a streaming DataFrame."""
    rows = read_entries(
        spark,
        url,
        streams,
        fields,
        with_stream=metadata.only_stream is None,
        with_exact=True,
        maxOffsetsPerTrigger=entries_per_batch,
        failOnDataLoss=str(fail_on_loss).lower(),
        timestampFormat="auto",
    )
    return rows.withColumn("date", F.to_date("timestamp"))


def has_utf8_paths(spark: SparkSession) -> bool:
    """Return whether the JVM can write any name into a path, which depends on its locale."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.java.lang.System.getProperty("sun.jnu.encoding")).upper() in ("UTF-8", "UTF8")


def with_directory_names(rows: DataFrame, directories: Mapping[str, str]) -> DataFrame:
    """Return the rows with the directory names of streams in place of their names."""
    if not directories:
        return rows
    pairs = [F.lit(text) for pair in directories.items() for text in pair]
    directory_name = F.element_at(F.create_map(*pairs), F.col("stream"))
    return rows.withColumn("stream", F.coalesce(directory_name, F.col("stream")))


def read_entries(
    spark: SparkSession,
    url: str,
    streams: str | Sequence[str],
    fields: StructType | None = None,
    *,
    with_stream: bool = False,
    with_exact: bool = False,
    **options: int | str,
) -> DataFrame:
    """Return streams from their first entries on as a streaming DataFrame: id, timestamp, sequence, fields.

    Args:
        spark: The session.
        url: The server.
        streams: The streams' names.
        fields: A typed column for each of these fields; None for one map, `fields`.
        with_stream: Whether to add a column `stream`, as the first one.
        with_exact: Whether to add the column `_exact`, as the last one.
        options: Further options of the source.
    """
    names = [streams] if isinstance(streams, str) else list(streams)
    reader = spark.readStream.format("headrace").option("url", url)
    if all(UNQUOTED_NAME.fullmatch(name) for name in names):
        reader = reader.option("subscribe", ",".join(names))
    else:
        reader = reader.option("assign", json.dumps(names))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    reader = reader.option("startingOffsets", "earliest")
    entry = parse_schema(SOURCE_COLUMNS)
    columns_read = [*(["_stream"] if with_stream else []), *ARCHIVE_NAMES]
    typed = StructType([entry["_fields"]]) if fields is None else fields
    schema = StructType([entry[name] for name in columns_read] + typed.fields)
    columns: list[Column] = [F.col(name).alias(ARCHIVE_NAMES.get(name, "stream")) for name in columns_read]
    if fields is None:
        columns.append(F.col("_fields").alias("fields"))
    else:
        columns += [F.col(quote_identifier(field.name)) for field in fields]
    if with_exact:
        schema = StructType([*schema.fields, entry[EXACT_COLUMN]])
        columns.append(F.col(EXACT_COLUMN))
    return reader.schema(schema).load().select(*columns)


def check_field_names(fields: StructType | None) -> None:
    """Raise UsageError if a typed field has the name of one of the archive's own columns."""
    for field in [] if fields is None else fields:
        is_map = field.name == "fields" and isinstance(field.dataType, MapType)
        if is_map or field.name.lower() in ARCHIVE_COLUMNS:
            raise UsageError(
                f"field {field.name!r} cannot be a column: the archive has its own column of that name; "
                "leave out --fields to archive all fields as one map"
            )


def all_nullable(fields: StructType) -> StructType:
    """Return the columns without NOT NULL, so that entries without them are archived too."""
    return StructType([StructField(f.name, f.dataType, True, f.metadata) for f in fields])


def parse_schema(columns: str) -> StructType:
    """Parse columns in SQL, such as `carrier STRING, delay INT`.

    Raises:
        UsageError: if they are not valid.
    """
    try:
        schema = StructType.fromDDL(columns)
    except ParseException as error:
        raise UsageError(
            f"not a list of columns: {columns!r}; expected one such as 'carrier STRING, delay INT'"
        ) from error
    if not isinstance(schema, StructType):
        raise UsageError(
            f"one type, not a list of columns: {columns!r}; expected one such as 'carrier STRING, delay INT'"
        )
    return schema


def count_archive(spark: SparkSession, directory: Path) -> ArchiveCounts:
    """Count the entries of an archive by reading its Parquet files."""
    # Without inference: a stream named 007 is not the number 7.
    inference = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(inference)
    spark.conf.set(inference, "false")
    try:
        table = spark.read.parquet(str(directory))
        entry = ["stream", "id"] if "stream" in table.columns else ["id"]
        row = table.agg(F.count("*"), F.count_distinct(*entry), F.count_distinct("date")).first()
    finally:
        spark.conf.set(inference, before or "true")
    assert row is not None
    return ArchiveCounts(*row)
