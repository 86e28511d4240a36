"""Archive streams as a Delta table of Parquet files, by stream and day, each entry exactly once.

    DIR/stream=flights/date=2013-01-01/part-….zstd.parquet     id, timestamp, sequence, the fields, _exact
    DIR/_delta_log/                                            which files count, and how far each stream is
                                                               archived

    plan ranges of all new entries → for each batch of ranges: tasks write files → merge those of one day →
    commit → raise watermark

Spark runs the tasks; a task reads its range and writes the files itself. The table is the only state: a job
that was killed continues from the last commit, and files without a commit do not count.

No byte is lost: where the fields, as one map or as typed columns, cannot represent an entry exactly, the
column _exact holds all its fields. A replay reads it from there.

After each batch the archive's watermark on the server is raised, so that the streams can be trimmed.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.archive.copy_detection import check_not_copy
from headrace.archive.creation import create_or_open
from headrace.archive.files import EXACT_COLUMN, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.merging import small_file_groups
from headrace.archive.table import ArchiveTable, WrittenFile
from headrace.archive.watermark_publisher import WatermarkPublisher
from headrace.columns.declarations import parse_schema
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archiving.column_inference import RESERVED_COLUMN_NAMES
from headrace.pipeline.archiving.tasks import FileMerger, RangeWriter
from headrace.pipeline.shared.interrupts import raise_if_interrupted
from headrace.pipeline.spark_session.query_progress import BatchProgress
from headrace.positions.position import Position, Positions, parse_positions
from headrace.spark.arrow_schemas import spark_columns
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.errors import as_headrace_error
from headrace.spark.options import parse_options
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.planner import OffsetRange
from headrace.spark.source.stream_reader import HeadraceStreamReader

T = TypeVar("T")

ENTRIES_PER_BATCH = 4_000_000
POLL_SECONDS = 0.1
TASKS_MAX = 256  # of a batch; with more ranges, as of very many streams, a task writes several

UNQUOTED_NAME_PATTERN = re.compile(r"[\w.:{}-]+")  # names that need not be quoted

# The metadata columns of the Spark source, and their names in the archive.
ARCHIVE_NAME_OF_COLUMN = {"_id": "id", "_timestamp": "timestamp", "_sequence": "sequence"}
SOURCE_SCHEMA_SQL = (
    "_id STRING, _timestamp TIMESTAMP NOT NULL, _sequence LONG NOT NULL, _fields MAP<STRING, STRING>, "
    f"{EXACT_COLUMN} ARRAY<STRUCT<name: BINARY, value: BINARY>>"
)


@dataclass(frozen=True)
class ArchiveCounts:
    """The size of an archive.

    Attributes:
        entries: All entries.
        days: Days that have entries.
    """

    entries: int
    days: int


def archive_streams(
    spark: SparkSession,
    url: str,
    streams: str | Sequence[str],
    directory: str | os.PathLike[str] | ArchiveLocation,
    *,
    fields: pa.Schema | None = None,
    zone: str | None = None,
    entries_per_batch: int = ENTRIES_PER_BATCH,
    fail_on_loss: bool = True,
    on_batch: Callable[[BatchProgress], None] = lambda batch: None,
    on_exact: Callable[[int], None] = lambda entries: None,
) -> int:
    """Add to an archive the entries of streams that it does not have yet.

    Streams and fields may be added from run to run.

    Args:
        spark: The session.
        url: The server.
        streams: The streams' names.
        directory: The archive: a directory, or a URL of an object store; created if it does not exist.
        fields: A typed column for each of these fields; None for one map of all fields.
        zone: The time zone in which days begin; None for that of the session.
        entries_per_batch: About how many entries are committed at once.
        fail_on_loss: Whether to fail, instead of warn, if entries were trimmed before they were archived.
        on_batch: Called after each commit.
        on_exact: Called at the end with the number of entries that this run stored in `_exact`.

    Returns:
        The number of entries written.

    Raises:
        UsageError: if the directory has other files, an archive with other fields or another time zone, or a
            copy of another archive that still exists.
        HeadraceError: if another job writes to the archive, entries were lost, or the server or store fails.
    """
    names = [streams] if isinstance(streams, str) else list(streams)
    location = archive_location(directory)
    check_field_names(fields)
    fields = None if fields is None else with_nullable_fields(fields)
    zone = zone or spark.conf.get("spark.sql.session.timeZone") or "UTC"
    table = create_or_open(location, fields, zone)
    entries_per_task = max(1, entries_per_batch // spark.sparkContext.defaultParallelism)
    options = parse_options(source_options(url, names, entries_per_task, fail_on_loss), "stream")
    columns = entry_schema(fields)
    layout = ColumnLayout.of_arrow(columns, options.timestamp_format)
    writer = RangeWriter(location, layout, archive_column_names(columns), options, zone)
    reader = HeadraceStreamReader(options, spark_columns(columns))
    watermark = WatermarkPublisher(url, table.opened_archive.table_id, str(location))
    written = exact = 0
    try:
        raise_if_copy(watermark, table, names)
        publish_committed_positions(watermark, table, names)
        begun = time.monotonic()
        for number, (ranges, reached) in enumerate(plan_batches(reader, table, names, entries_per_batch)):
            files = merge_files_of_tasks(spark, table, run_tasks(spark, writer.write, ranges))
            table.commit(files, reached)
            watermark.publish(reached)
            rows = sum(file.rows for file in files)
            written += rows
            exact += sum(file.exact_rows for file in files)
            on_batch(BatchProgress(number, rows, time.monotonic() - begun, None, 0))
            raise_if_interrupted()
            begun = time.monotonic()
        on_exact(exact)
    finally:
        watermark.close()
        reader.stop()
    return written


def publish_if_current(
    url: str,
    streams: Sequence[str],
    directory: str | os.PathLike[str] | ArchiveLocation,
    *,
    fields: pa.Schema | None = None,
    zone: str = "UTC",
) -> bool:
    """Return whether an archive has all entries; if so, publish its watermarks. Needs no Spark.

    Args:
        url: The server.
        streams: The streams' names.
        directory: The archive; created if it does not exist.
        fields: A typed column for each of these fields; None for one map of all fields.
        zone: The time zone of its days.

    Raises:
        DataLoss: if entries were trimmed before they were archived.
        UsageError: if the directory has other files, an archive with other fields or another time zone, or a
            copy of another archive that still exists.
        HeadraceError: if the server or the store fails.
    """
    location = archive_location(directory)
    table = create_or_open(location, fields, zone)
    options = parse_options(source_options(url, streams, ENTRIES_PER_BATCH, fail_on_loss=True), "stream")
    watermark = WatermarkPublisher(url, table.opened_archive.table_id, str(location))
    reader = HeadraceStreamReader(options, spark_columns(entry_schema(fields)))
    try:
        raise_if_copy(watermark, table, streams)
        start, end = archived_and_last_positions(reader, table, streams)
        if start != end:
            return False
        publish_committed_positions(watermark, table, streams)
    finally:
        watermark.close()
        reader.stop()
    return True


def raise_if_copy(watermark: WatermarkPublisher, table: ArchiveTable, names: Sequence[str]) -> None:
    """Raise UsageError if the archive is a copy of the one whose watermarks the server has."""
    changed = {*names, *(table.recorded_streams() if table.opened_archive.was_set_back else ())}
    check_not_copy(table.location, table.opened_archive.table_id, watermark.watermarks(sorted(changed)))


def publish_committed_positions(
    watermark: WatermarkPublisher, table: ArchiveTable, names: Sequence[str]
) -> None:
    """Publish the positions of the table: a killed run may have committed a batch without publishing it.

    A watermark above its position is lowered: the table was set back to an earlier version, or is an older
    copy. If another program set the table back, the watermarks of all streams that were ever archived are
    lowered, not only those of this job. The reason: after the next commit the table no longer shows that it
    was set back.
    """
    table.sync_log()
    through = {stream: Position(last) for stream, last in table.opened_archive.archived_through.items()}
    if table.opened_archive.was_set_back:
        watermark.lower(dict.fromkeys(table.recorded_streams(), Position()) | through)
    watermark.lower({name: through.get(name, Position()) for name in names}, is_job=True)
    watermark.publish(table.positions)


def source_options(
    url: str, names: Sequence[str], entries_per_task: int, fail_on_loss: bool
) -> dict[str, str]:
    """Return the options of the source that reads the streams from their first entries on."""
    is_plain = all(UNQUOTED_NAME_PATTERN.fullmatch(name) for name in names)
    subscription = {"subscribe": ",".join(names)} if is_plain else {"assign": json.dumps(list(names))}
    return {
        "url": url,
        **subscription,
        "startingOffsets": "earliest",
        "failOnDataLoss": str(fail_on_loss).lower(),
        "timestampFormat": "auto",
        "maxRecordsPerPartition": str(entries_per_task),
    }


def entry_schema(fields: pa.Schema | None) -> pa.Schema:
    """Return the columns to read for an archive: ID, time, the fields, and `_exact`."""
    entry = parse_schema(SOURCE_SCHEMA_SQL)
    typed = [entry.field("_fields")] if fields is None else fields
    return pa.schema([*map(entry.field, ARCHIVE_NAME_OF_COLUMN), *typed, entry.field(EXACT_COLUMN)])


def archive_column_names(columns: pa.Schema) -> tuple[str, ...]:
    """Return the names that columns of the Spark source have in the archive."""
    return tuple(
        ARCHIVE_NAME_OF_COLUMN.get(name, "fields" if name == "_fields" else name) for name in columns.names
    )


def plan_batches(
    reader: HeadraceStreamReader, table: ArchiveTable, names: Sequence[str], entries_per_batch: int
) -> Iterator[tuple[list[OffsetRange], Positions]]:
    """Yield batches of ranges that cover the entries that exist now, and the positions each batch reaches.

    Streams that were recreated since they were archived are read from their beginning.
    """
    text, end_text = archived_and_last_positions(reader, table, names)
    if end_text == text:
        return
    end = parse_positions(end_text)
    ranges = [part.value for part in reader.partitions(text, end_text) if part.value is not None]
    batches = batch_ranges(ranges, reader.lengths(), entries_per_batch)
    for batch in batches[:-1]:
        yield batch, reader.positions_of({part.stream: part.upto for part in batch}, end)
    yield (batches[-1] if batches else []), end


def archived_and_last_positions(
    reader: HeadraceStreamReader, table: ArchiveTable, names: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the archived and the last positions of the streams; equal if there is nothing new."""
    through = table.opened_archive.archived_through
    start = {s: table.positions.get(s) or Position(through[s]) for s in names if s in through}
    reader.prepareForTriggerAvailableNow()
    text = {stream: str(position) for stream, position in sorted(start.items())}
    return text, reader.latestOffset(text, reader.getDefaultReadLimit())


def batch_ranges(
    ranges: Sequence[OffsetRange], lengths: Mapping[str, int], entries_per_batch: int
) -> list[list[OffsetRange]]:
    """Split ranges in order into batches of about `entries_per_batch` entries.

    Args:
        ranges: The ranges; all ranges of one stream have about the same number of entries.
        lengths: The number of entries of each stream.
        entries_per_batch: The number of entries of a batch.
    """
    counts = Counter(part.stream for part in ranges)
    batches: list[list[OffsetRange]] = []
    room = 0.0
    for part in ranges:
        entries = lengths.get(part.stream, 0) / counts[part.stream]
        if room < entries or not batches:
            batches.append([])
            room = float(entries_per_batch)
        batches[-1].append(part)
        room -= entries
    return batches


def merge_files_of_tasks(
    spark: SparkSession, table: ArchiveTable, files: Sequence[WrittenFile]
) -> list[WrittenFile]:
    """Merge the small files of a day that several tasks of a batch have written; return the batch's files.

    The small files are deleted at once: no version of the table has them.
    """
    groups = list(small_file_groups(files))
    merged = run_tasks(spark, FileMerger(table.location, table.opened_archive.columns).merge, groups)
    pieces = {file.path for group in groups for file in group}
    table.location.delete_files(pieces)
    return [*(file for file in files if file.path not in pieces), *merged]


def run_tasks(
    spark: SparkSession, write: Callable[[T], Iterable[WrittenFile]], parts: Sequence[T]
) -> list[WrittenFile]:
    """Call write() with each part in Spark tasks; return the files that were written.

    Raises:
        DataLoss: if a task found that entries are missing.
        HeadraceError: if a task failed more often than Spark retries it.
        KeyboardInterrupt: after a signal. The tasks are cancelled, but not other jobs of the session.
    """
    if not parts:
        return []
    context = spark.sparkContext
    group = f"headrace archive {uuid.uuid4()}"
    found: list[WrittenFile] = []
    errors: list[Exception] = []

    def collect() -> None:
        try:
            context.setJobGroup(group, "headrace archive")  # of this thread
            slices = min(len(parts), TASKS_MAX)
            found.extend(context.parallelize(parts, slices).flatMap(write).collect())
        except (PySparkException, Py4JJavaError) as error:
            errors.append(task_error(error))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=collect, name="archive tasks")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            raise_if_interrupted()
    except KeyboardInterrupt:
        while thread.is_alive():
            context.cancelJobGroup(group)  # again, because the job may not have begun before
            thread.join(POLL_SECONDS)
        raise
    if errors:
        raise errors[0]
    return found


def task_error(error: Exception) -> HeadraceError:
    """Return the error for a failure of Spark: a DataLoss if a task has raised DataLoss."""
    found = as_headrace_error(error)
    is_loss = f"{DataLoss.__module__}.{DataLoss.__name__}: " in str(error)
    return DataLoss(str(found)) if is_loss else found


def check_field_names(fields: pa.Schema | None) -> None:
    """Raise UsageError if a typed field has the name of one of the archive's own columns."""
    for field in [] if fields is None else fields:
        is_map = field.name == "fields" and pa.types.is_map(field.type)
        if is_map or field.name.lower() in RESERVED_COLUMN_NAMES:
            raise UsageError(
                f"field {field.name!r} cannot be a column: the archive has its own column of that name; "
                "leave out --fields to archive all fields as one map"
            )


def with_nullable_fields(fields: pa.Schema) -> pa.Schema:
    """Return the columns without NOT NULL, so that entries without them are archived too."""
    return pa.schema([field.with_nullable(True) for field in fields])


def count_archive(directory: str | os.PathLike[str] | ArchiveLocation) -> ArchiveCounts:
    """Count the entries and days of an archive from its log, without reading its files."""
    files = read_archive(archive_location(directory)).files
    return ArchiveCounts(sum(file.rows for file in files), len({file.date for file in files}))
