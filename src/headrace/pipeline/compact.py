"""Many small files of a day made one, while the same entries count before, during and after.

    _spark_metadata/9.compact     day 1: a b c   day 2: d e        the batches up to 9, put together by Spark
    _spark_metadata/10, 11        day 2: f       day 3: g

Day 1 is over: a later one has begun, and IDs only grow. Its files stand in the compact file alone. So
this replaces them by one of the same rows,

    1  journal   what will be made, and what it replaces
    2  draft     the rows, in a file that is not one of the archive yet; then its real name
    3  log       9.compact with the new file instead of the old ones: one rename, before it the old files
                 count, after it the new one
    4  tidy      the old files go, then the journal

and the next run finishes a journal that it finds: files that it names and the log does not are removed,
on either side of step 3. Spark's next compact file begins with what it finds in this one. All of it happens
while no query writes there (archive_metadata.archive_lock): Spark would not see that the log was changed.

Those who read the log see each entry once, always. A Spark job that is reading the old files when they go
fails and can be run again; keep_seconds leaves them there for a while, but then readers that do not know
the log, and take all files, see both.
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
ROW_GROUP_BYTES = 64 * 1024 * 1024  # before they are packed
JOURNAL = "compacting.json"
UTC_MICROSECONDS = pa.timestamp("us", "UTC")

LogLine = dict[str, Any]


@dataclass(frozen=True)
class CompactionResult:
    """How many files were merged (before), and into how many (after)."""

    before: int = 0
    after: int = 0


def compact(
    directory: Path,
    *,
    target_bytes: int = TARGET_BYTES,
    keep_seconds: float = 0,
    on_file: Callable[[Path, int], None] = lambda made, replaced: None,
) -> CompactionResult:
    """Merge the small files of past days into files of up to about target_bytes.

    Args:
        directory: The archive.
        target_bytes: The size of a merged file.
        keep_seconds: How long to keep replaced files for readers that still use them.
        on_file: Called with each new file and the number of files that it replaces.

    Returns:
        How many files were merged, and into how many.

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
        waiting = {
            (directory / each).parent for journal in journals(directory) for each in new_files(journal)
        }
        for files in groups_to_merge(directory, log, target_bytes):
            if files[0].parent in waiting:
                continue
            made = merge_files(directory, log, files)
            before, after = before + len(files), after + 1
            on_file(made, len(files))
        for journal in journals(directory):
            finish_merge(directory, journal, keep_seconds)
    return CompactionResult(before, after)


def journals(directory: Path) -> list[Path]:
    """Return the journals of unfinished merges."""
    return sorted((directory / HEADRACE_DIRECTORY).glob(f"*-{JOURNAL}"))


def last_compact_file(directory: Path) -> Path | None:
    """Spark's latest compact file; all batches before it are in it. None if there is none yet."""
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
    """Files that are to become one: of one stream and day, next to each other, smaller than the target."""
    days: dict[tuple[str, str], list[LogLine]] = defaultdict(list)
    for line in log_lines(log):
        days[partition_key(directory, line)].append(line)
    later = {partition_key(directory, line) for each in batches_after(log) for line in log_lines(each)}
    last: dict[str, str] = {}
    for stream, date in [*days, *later]:
        last[stream] = max(last.get(stream, ""), date)
    for key, lines in sorted(days.items()):
        stream, date = key
        over = parse_date(date) is not None and date < last[stream] and key not in later
        if over and len(lines) > 1:
            sizes = {resolve_logged_path(directory, line["path"]): int(line["size"]) for line in lines}
            yield from groups_by_size(sorted(sizes, key=first_id), sizes, target_bytes)


def batches_after(log: Path) -> list[Path]:
    """The files of the log that are not in the compact file yet."""
    number = int(log.name.partition(".")[0])
    return [each for each in log.parent.iterdir() if each.name.isdigit() and int(each.name) > number]


def partition_key(directory: Path, line: LogLine) -> tuple[str, str]:
    """Stream and day of a file in the log."""
    keys = partition_values(resolve_logged_path(directory, line["path"]).relative_to(directory))
    return keys.get("stream", ""), keys.get("date", "")


def groups_by_size(files: list[Path], sizes: dict[Path, int], target_bytes: int) -> Iterator[list[Path]]:
    """Neighbours together while they have the same columns and are not too large.

    A file that remains alone is left as it is.
    """
    together: list[Path] = []
    size = 0
    for file in files:
        if together and (
            size + sizes[file] > target_bytes or file_columns(file) != file_columns(together[-1])
        ):
            if len(together) > 1:
                yield together
            together, size = [], 0
        together.append(file)
        size += sizes[file]
    if len(together) > 1:
        yield together


def file_columns(file: Path) -> tuple[pa.Schema, bytes | None]:
    """The columns of a file, and what Spark noted of them: an older file may lack one."""
    with pq.ParquetFile(file) as parquet:
        return schema_for(parquet).remove_metadata(), (parquet.metadata.metadata or {}).get(
            SPARK_METADATA_KEY
        )


def first_id(file: Path) -> EntryId:
    """The ID of a file's first row."""
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(1, columns=["id"]):
            return parse_id(batch.column(0)[0].as_py())
    return (0, 0)


def merge_files(directory: Path, log: Path, files: list[Path]) -> Path:
    """The four steps for some files of one day, up to the log; returns the new file."""
    name = f"part-headrace-{uuid.uuid4()}"
    made = files[0].with_name(f"{name}.snappy.parquet")
    draft = files[0].with_name(f".{name}.draft")
    told = {
        "made": [str(path.relative_to(directory)) for path in (made, draft)],
        "replaced": [str(path.relative_to(directory)) for path in files],
        "since": time.time(),
    }
    write_atomically(directory / HEADRACE_DIRECTORY / f"{name}-{JOURNAL}", json.dumps(told) + "\n")
    sync_path(directory / HEADRACE_DIRECTORY)
    write_rows(draft, files)
    sync_path(draft)
    draft.replace(made)
    sync_path(made.parent)
    replace_in_log(directory, log, files, made)
    return made


def replace_in_log(directory: Path, log: Path, files: list[Path], made: Path) -> None:
    """Makes the new file count instead of the old ones, in one go."""
    gone = set(files)
    lines: list[LogLine] = []
    replaced = False
    for line in log_lines(log):
        if resolve_logged_path(directory, line["path"]) not in gone:
            lines.append(line)
        elif not replaced:
            replaced = True
            status = made.stat()
            path = f"{line['path'].rpartition('/')[0]}/{made.name}"
            lines.append(
                line | {"path": path, "size": status.st_size, "modificationTime": int(status.st_mtime * 1000)}
            )
    # Hadoop keeps a file's checksum beside it where it is told nothing else; it would not fit any more.
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    draft = directory / HEADRACE_DIRECTORY / f"{log.name}.draft"
    write_atomically(draft, "\n".join(["v1", *(json.dumps(line, separators=(",", ":")) for line in lines)]))
    draft.replace(log)
    sync_path(log.parent)


def write_rows(path: Path, files: list[Path]) -> None:
    """The rows of the files, one after the other, with the same columns and Spark's own notes on them."""
    with pq.ParquetFile(files[0]) as first:
        notes = dict(first.metadata.metadata or {})
        notes.pop(b"ARROW:schema", None)  # pyarrow's own, which the writer makes again
        schema = schema_for(first)
    schema = schema.with_metadata(notes)
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        for batches in row_groups(rows_of(files, schema)):
            writer.write_table(pa.Table.from_batches(batches, schema))


def rows_of(files: list[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file after the other."""
    for file in files:
        with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            for batch in parquet.iter_batches():
                columns = [cast_column(batch.column(field.name), field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """So many batches together as make a good row group."""
    together: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        together.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield together
            together, size = [], 0
    if together:
        yield together


def schema_for(parquet: pq.ParquetFile) -> pa.Schema:
    """The file's columns. Times in Spark's old form, which says nothing of a zone, are UTC."""
    old = {
        parquet.schema.column(index).path
        for index in range(len(parquet.schema))
        if parquet.schema.column(index).physical_type == "INT96"
    }
    return pa.schema(
        [field.with_type(UTC_MICROSECONDS) if field.name in old else field for field in parquet.schema_arrow]
    )


def cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column, with its times as UTC if they are to be."""
    return column if column.type == kind else column.cast(kind)


def new_files(journal: Path) -> list[str]:
    """Return the files that a merge creates."""
    made: list[str] = json.loads(journal.read_text())["made"]
    return made


def finish_merge(directory: Path, journal: Path, keep_seconds: float = 0) -> None:
    """Finish a merge: remove the files that are not in the log, either the replaced or the new ones."""
    told = json.loads(journal.read_text())
    count = logged_files(directory, directory / SPARK_LOG)
    made = [directory / path for path in told["made"]]
    replaced = [directory / path for path in told["replaced"]]
    committed = any(path in count for path in made)
    if not committed and not all(path in count for path in replaced):
        raise HeadraceError(
            f"{journal}: neither what was made nor what it replaces counts in the archive's log"
        )
    if committed and time.time() - told["since"] < keep_seconds:
        return
    for path in (*made, *replaced):
        if path not in count:
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    journal.unlink()
