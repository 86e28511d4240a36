"""Merge the small files of a past day into one, crash-safe: readers of the log see each entry exactly once.

    _spark_metadata/9.compact     day 1: a b c   day 2: d e        the batches up to 9, merged by Spark
    _spark_metadata/10, 11        day 2: f       day 3: g

Day 1 is over: a later day has begun, and IDs only grow. All its files are listed in the compact file. They
are replaced by one file with the same rows, in four steps:

    1  journal   write the names of the new file and of the files that it replaces
    2  draft     write the rows to a file that readers ignore, then give it its final name
    3  log       replace 9.compact, by one rename, with a copy that lists the new file, not the old ones
    4  cleanup   delete the old files, then the journal

The next run finishes every journal that it finds: it deletes the files that the journal names and the log
does not list. That is correct before and after step 3. Spark copies this compact file into its next one.

No query may write to the archive meanwhile (archive_metadata.archive_lock): Spark would not notice the
changed log.

A Spark job that is reading the old files when they are deleted fails, and can be run again. keep_seconds
keeps them for a while; readers that ignore the log and read all files then see both.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import HeadraceError
from headrace.pipeline.archive_metadata import archive_lock, write_atomically
from headrace.pipeline.ordered_archive_reader import SPARK_METADATA_KEY
from headrace.pipeline.watermark import sync_path
from headrace.spark.archive.files import (
    HEADRACE_DIRECTORY,
    SPARK_LOG,
    logged_files,
    parse_date,
    partition_values,
    resolve_logged_path,
)
from headrace.spark.source.offsets import EntryId, parse_id

TARGET_BYTES = 128 * 1024 * 1024
ROW_GROUP_BYTES = 64 * 1024 * 1024  # before compression
JOURNAL = "compacting.json"
UTC_MICROSECONDS = pa.timestamp("us", "UTC")

LogLine = dict[str, Any]


@dataclass(frozen=True)
class CompactionResult:
    """The result of a compaction.

    Attributes:
        before: Files that were merged.
        after: Files that replaced them.
    """

    before: int = 0
    after: int = 0


def compact_archive(
    directory: Path,
    *,
    target_bytes: int = TARGET_BYTES,
    keep_seconds: float = 0,
    on_file: Callable[[Path, int], None] = lambda merged, replaced: None,
) -> CompactionResult:
    """Merge the small files of past days into larger ones.

    Args:
        directory: The archive.
        target_bytes: The approximate maximum size of a merged file.
        keep_seconds: How long replaced files are kept for readers that still use them.
        on_file: Called with each new file and the number of files that it replaces.

    Returns:
        The number of files merged and created.

    Raises:
        HeadraceError: if another process archives to the directory or compacts it.
    """
    before = after = 0
    with archive_lock(directory):
        for draft in (directory / HEADRACE_DIRECTORY).glob("*.draft"):
            draft.unlink()
        for journal in journals(directory):
            finish_merge(directory, journal, keep_seconds)
        log = last_compact_file(directory)
        if log is None:
            return CompactionResult()
        unfinished = {
            (directory / path).parent
            for journal in journals(directory)
            for path in read_journal(journal)["made"]
        }
        for files in groups_to_merge(directory, log, target_bytes):
            if files[0].parent in unfinished:
                continue
            merged = merge_files(directory, log, files)
            before, after = before + len(files), after + 1
            on_file(merged, len(files))
        for journal in journals(directory):
            finish_merge(directory, journal, keep_seconds)
    return CompactionResult(before, after)


def journals(directory: Path) -> list[Path]:
    """Return the journals of unfinished merges."""
    return sorted((directory / HEADRACE_DIRECTORY).glob(f"*-{JOURNAL}"))


def last_compact_file(directory: Path) -> Path | None:
    """Return Spark's latest compact file, which lists all earlier batches; None if none exists."""
    log = directory / SPARK_LOG
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    numbers = [int(name.partition(".")[0]) for name in names if re.fullmatch(r"\d+\.compact", name)]
    return log / f"{max(numbers)}.compact" if numbers else None


def log_lines(log: Path) -> list[LogLine]:
    """Return the entries of one file of the log. HeadraceError if its version is unknown."""
    version, *lines = log.read_text().splitlines()
    if version != "v1":
        raise HeadraceError(f"{log} is a log of version {version!r}; expected v1")
    return [json.loads(line) for line in lines]


def groups_to_merge(directory: Path, log: Path, target_bytes: int) -> Iterator[list[Path]]:
    """Yield lists of files to merge: consecutive small files of one stream and day."""
    days: dict[tuple[str, str], list[LogLine]] = defaultdict(list)
    for line in log_lines(log):
        days[partition_key(directory, line)].append(line)
    later = {partition_key(directory, line) for each in batches_after(log) for line in log_lines(each)}
    last: dict[str, str] = {}
    for stream, date in [*days, *later]:
        last[stream] = max(last.get(stream, ""), date)
    for key, lines in sorted(days.items()):
        stream, date = key
        is_past = parse_date(date) is not None and date < last[stream] and key not in later
        if is_past and len(lines) > 1:
            sizes = {resolve_logged_path(directory, line["path"]): int(line["size"]) for line in lines}
            yield from groups_by_size(sorted(sizes, key=first_id), sizes, target_bytes)


def batches_after(log: Path) -> list[Path]:
    """Return the files of the log that are newer than the compact file."""
    number = int(log.name.partition(".")[0])
    return [each for each in log.parent.iterdir() if each.name.isdigit() and int(each.name) > number]


def partition_key(directory: Path, line: LogLine) -> tuple[str, str]:
    """Return the stream and the day of a file in the log."""
    keys = partition_values(resolve_logged_path(directory, line["path"]).relative_to(directory))
    return keys.get("stream", ""), keys.get("date", "")


def groups_by_size(files: list[Path], sizes: dict[Path, int], target_bytes: int) -> Iterator[list[Path]]:
    """Yield groups of consecutive files with the same columns, of at most `target_bytes` each."""
    group: list[Path] = []
    size = 0
    for file in files:
        if group and (size + sizes[file] > target_bytes or file_columns(file) != file_columns(group[-1])):
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += sizes[file]
    if len(group) > 1:
        yield group


def file_columns(file: Path) -> tuple[pa.Schema, bytes | None]:
    """Return the columns of a file and Spark's metadata about them; an older file may lack a column."""
    with pq.ParquetFile(file) as parquet:
        return schema_for(parquet).remove_metadata(), (parquet.metadata.metadata or {}).get(
            SPARK_METADATA_KEY
        )


def first_id(file: Path) -> EntryId:
    """Return the ID of a file's first row; (0, 0) if it has none."""
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(1, columns=["id"]):
            return parse_id(batch.column(0)[0].as_py())
    return (0, 0)


def merge_files(directory: Path, log: Path, files: list[Path]) -> Path:
    """Merge files of one day, steps 1 to 3, and return the new file."""
    name = f"part-headrace-{uuid.uuid4()}"
    merged = files[0].with_name(f"{name}.snappy.parquet")
    draft = files[0].with_name(f".{name}.draft")
    journal = {
        "made": [str(path.relative_to(directory)) for path in (merged, draft)],
        "replaced": [str(path.relative_to(directory)) for path in files],
        "since": time.time(),
    }
    write_atomically(directory / HEADRACE_DIRECTORY / f"{name}-{JOURNAL}", json.dumps(journal) + "\n")
    sync_path(directory / HEADRACE_DIRECTORY)
    write_merged_file(draft, files)
    sync_path(draft)
    draft.replace(merged)
    sync_path(merged.parent)
    replace_in_log(directory, log, files, merged)
    return merged


def replace_in_log(directory: Path, log: Path, files: list[Path], merged: Path) -> None:
    """Replace the old files by the new one in the log, atomically."""
    old = set(files)
    lines: list[LogLine] = []
    replaced = False
    for line in log_lines(log):
        if resolve_logged_path(directory, line["path"]) not in old:
            lines.append(line)
        elif not replaced:
            replaced = True
            status = merged.stat()
            path = f"{line['path'].rpartition('/')[0]}/{merged.name}"
            lines.append(
                line | {"path": path, "size": status.st_size, "modificationTime": int(status.st_mtime * 1000)}
            )
    # By default Hadoop stores a file's checksum in a second file, which would no longer match.
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    draft = directory / HEADRACE_DIRECTORY / f"{log.name}.draft"
    write_atomically(draft, "\n".join(["v1", *(json.dumps(line, separators=(",", ":")) for line in lines)]))
    draft.replace(log)
    sync_path(log.parent)


def write_merged_file(path: Path, files: list[Path]) -> None:
    """Write the rows of the files, one file after the other, with their columns and Spark's metadata."""
    with pq.ParquetFile(files[0]) as first:
        metadata = dict(first.metadata.metadata or {})
        metadata.pop(b"ARROW:schema", None)  # pyarrow's own, which the writer adds again
        schema = schema_for(first)
    schema = schema.with_metadata(metadata)
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        for batches in row_groups(read_batches(files, schema)):
            writer.write_table(pa.Table.from_batches(batches, schema))


def read_batches(files: list[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file after the other, with the columns of the schema."""
    for file in files:
        with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            for batch in parquet.iter_batches():
                columns = [batch.column(field.name).cast(field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield lists of batches, each for one row group of about ROW_GROUP_BYTES."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def schema_for(parquet: pq.ParquetFile) -> pa.Schema:
    """Return the file's columns. Times in Spark's old INT96 format, which has no zone, are UTC."""
    int96 = {
        parquet.schema.column(index).path
        for index in range(len(parquet.schema))
        if parquet.schema.column(index).physical_type == "INT96"
    }
    return pa.schema(
        [
            field.with_type(UTC_MICROSECONDS) if field.name in int96 else field
            for field in parquet.schema_arrow
        ]
    )


def read_journal(journal: Path) -> dict[str, Any]:
    """Return a journal: `made` and `replaced`, paths relative to the archive, and `since`, a Unix time."""
    content: dict[str, Any] = json.loads(journal.read_text())
    return content


def finish_merge(directory: Path, journal: Path, keep_seconds: float = 0) -> None:
    """Finish a merge: delete the files that are not in the log, either the replaced or the new ones.

    Raises:
        HeadraceError: if the log lists neither the new file nor all replaced ones.
    """
    content = read_journal(journal)
    valid = logged_files(directory, directory / SPARK_LOG)
    made = [directory / path for path in content["made"]]
    replaced = [directory / path for path in content["replaced"]]
    committed = any(path in valid for path in made)
    if not committed and not all(path in valid for path in replaced):
        raise HeadraceError(
            f"{journal}: the archive's log lists neither the merged file nor all files that it replaces"
        )
    if committed and time.time() - content["since"] < keep_seconds:
        return
    for path in (*made, *replaced):
        if path not in valid:
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    journal.unlink()
