"""Convert an archive of an earlier version, a Parquet directory of Spark's, to a Delta table.

    DIR/stream=orders/date=2013-01-01/part-….parquet   an archive of many streams, or
    DIR/date=2013-01-01/part-….parquet                 of the one that _headrace/stream.json names
    DIR/_spark_metadata/0, 1, … 9.compact, 10, …       Spark's log of the files that count
    DIR/_headrace/streams.json, names.json             fields, time zone; streams with encoded directories
    DIR/_headrace/checkpoint/offsets/10                how far each stream is archived by batch 10

The new table gets all files in one commit, so a conversion that is interrupted can be run again. The old
archive is only read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.archive_creation import HEAD_COLUMNS, create_or_open
from headrace.pipeline.archive_table import WrittenFile
from headrace.pipeline.archive_writer import DayFile, in_id_order, without_repeated_names
from headrace.spark.archive.files import EXACT_COLUMN, split_ids
from headrace.spark.archive.location import ArchiveLocation, one_line
from headrace.spark.source.offsets import START
from headrace.spark.source.positions import Positions, parse_positions

SPARK_LOG = "_spark_metadata"
METADATA = "_headrace"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # how Spark writes a null, or an empty name, into a path
ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
CORRUPT_COLUMN = "_corrupt_record"  # an entry as JSON that did not fit its columns
BATCH_ROWS = 100_000
LAST_MS = (1 << 63) // 1000 - 1


@dataclass(frozen=True)
class OldFile:
    """A file of the old archive: its path, its stream, and its day (None after the year 9999)."""

    path: Path
    stream: str
    date: str | None


def convert(
    directory: Path,
    location: ArchiveLocation,
    on_file: Callable[[int, int], None] = lambda done, files: None,
) -> int:
    """Copy an old archive into a new one.

    Args:
        directory: The old archive.
        location: The new one, which must not have entries yet.
        on_file: Called after each file with the number of files that are done, and of all files.

    Returns:
        The number of entries.

    Raises:
        UsageError: if the directory is not an old archive, or the new one has entries.
        HeadraceError: if the old one lacks a file, or an entry cannot be restored.
    """
    files = old_files(directory)
    fields = old_fields(files)
    table = create_or_open(location, fields, old_zone(directory))
    if table.archive.files:
        raise UsageError(f"{location} has entries; give another --to")
    written: list[WrittenFile] = []
    columns = to_arrow_schema(table.archive.columns, timezone="UTC")
    for done, file in enumerate(files, 1):
        if (copy := copy_file(file, columns, location)) is not None:
            written.append(copy)
        on_file(done, len(files))
    table.commit(written, old_positions(directory))
    return sum(file.rows for file in written)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Raise what Arrow says about a damaged file with its name, as HeadraceError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise HeadraceError(f"{path} cannot be read: {one_line(error)}") from error


def copy_file(file: OldFile, columns: pa.Schema, location: ArchiveLocation) -> WrittenFile | None:
    """Copy a file into the new archive; None if it has no entries. HeadraceError if it is damaged."""
    with read_errors(file.path), pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as parquet:
        expected = parquet.metadata.num_rows
        if not expected:
            return None
        output = DayFile(location, file.stream, file.date)
        try:
            for batch in parquet.iter_batches(BATCH_ROWS):
                rows = without_repeated_names(new_rows(batch, columns, file.path))
                output.add(in_id_order(rows))
            copy = output.finish()
        except BaseException:
            output.abandon()
            raise
    if copy.rows != expected:
        raise HeadraceError(f"{file.path}: {copy.rows} of {expected} entries were copied")
    return copy


def old_files(directory: Path) -> list[OldFile]:
    """Return the files of an old archive that count.

    Raises:
        UsageError: if the directory is not an old archive.
    """
    log = directory / SPARK_LOG
    if not log.is_dir() or not (directory / METADATA).is_dir():
        raise UsageError(f"{directory} is not an archive of an earlier version")
    only_stream = read_json(directory / METADATA / "stream.json").get("stream")
    names = read_json(directory / METADATA / "names.json")
    found = []
    for path in sorted(logged_files(directory, log)):
        pairs = (part.partition("=") for part in path.relative_to(directory).parts[:-1])
        keys = {key: unquote(value) for key, equals, value in pairs if equals}
        stream = keys.get("stream", only_stream)
        if stream is None:
            raise UsageError(f"{directory} is not an archive: the stream of {path.name} is unknown")
        stream = names.get(stream, "" if stream == NULL_PARTITION else stream)
        date = keys.get("date", "")
        found.append(OldFile(path, stream, date if re.fullmatch(r"\d{4}-\d\d-\d\d", date) else None))
    return found


def old_fields(files: list[OldFile]) -> StructType | None:
    """Return the typed columns of an old archive; None if it has a map of all fields."""
    own = {column.name for column in HEAD_COLUMNS} | {EXACT_COLUMN, CORRUPT_COLUMN}
    for file in files:
        schema = pq.read_schema(file.path)
        if "fields" in schema.names and pa.types.is_map(schema.field("fields").type):
            return None
        note = (schema.metadata or {}).get(ROW_METADATA)
        known = {field.name: field for field in StructType.fromJson(json.loads(note))} if note else {}
        found = from_arrow_schema(schema, prefer_timestamp_ntz=False)
        return StructType([known.get(field.name, field) for field in found if field.name not in own])
    return None


def old_zone(directory: Path) -> str:
    """Return the time zone of the days of an old archive."""
    return str(read_json(directory / METADATA / "streams.json").get("zone", "UTC"))


def old_positions(directory: Path) -> Positions:
    """Return how far each stream is archived, as far as the checkpoint says so."""
    last = max((number for number, _ in batch_logs(directory / SPARK_LOG)), default=None)
    offsets = directory / METADATA / "checkpoint" / "offsets" / str(last)
    if last is None or not offsets.is_file():
        return {}
    found = parse_positions(json.loads(offsets.read_text("utf-8").splitlines()[-1]))
    return {s: each for s, each in found.items() if each.id != START or each.generation}


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one without the file."""
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def batch_logs(log: Path) -> dict[tuple[int, bool], Path]:
    """Return the files of Spark's log by batch and whether they are compact files."""
    matches = ((re.fullmatch(r"(\d+)(\.compact)?", path.name), path) for path in log.iterdir())
    return {(int(match[1]), bool(match[2])): path for match, path in matches if match}


def logged_files(directory: Path, log: Path) -> set[Path]:
    """Return the files that remain after all batches of the log; a compact file contains all before it."""
    batches = batch_logs(log)
    begin = max((number for number, compact in batches if compact), default=-1)
    files: set[Path] = set()
    for (number, compact), path in sorted(batches.items()):
        if number < begin or (number == begin and not compact):
            continue
        version, *lines = path.read_text().splitlines()
        if version != "v1":
            raise UsageError(f"{path} is a log of version {version!r}; expected v1")
        for line in lines:
            record = json.loads(line)
            file = resolve_logged_path(directory, record["path"])
            (files.discard if record["action"] == "delete" else files.add)(file)
    return files


def resolve_logged_path(directory: Path, uri: str) -> Path:
    """Return where a file of the log is now: the log has absolute paths, and the archive may have moved."""
    path = Path(unquote(urlsplit(uri).path))
    inner = [path.name]
    for part in reversed(path.parts[:-1]):
        if part.partition("=")[0] not in ("date", "stream"):
            break
        inner.insert(0, part)
        if part.startswith("stream="):
            break
    return directory.joinpath(*inner)


def new_rows(batch: pa.RecordBatch, schema: pa.Schema, path: Path) -> pa.RecordBatch:
    """Return rows of an old file with the columns of the new archive; the times are those of the IDs."""
    ids = batch.column("id")
    ms, seq = split_ids(ids)
    arrays = []
    for column in schema:
        if column.name == "timestamp":
            late = pc.greater(ms, pa.scalar(LAST_MS, pa.uint64()))
            micros = pc.multiply(pc.if_else(late, pa.scalar(None, pa.uint64()), ms).cast(pa.int64()), 1000)
            arrays.append(micros.cast(pa.timestamp("us")).cast(column.type))
        elif column.name == "sequence":
            arrays.append(seq.cast(column.type, safe=False))
        elif column.name == EXACT_COLUMN:
            arrays.append(exact_column(batch, column.type, path))
        else:
            arrays.append(batch.column(column.name).cast(column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def exact_column(batch: pa.RecordBatch, kind: pa.DataType, path: Path) -> pa.Array:
    """Return the column `_exact`, with the entries that older versions stored as JSON.

    Raises:
        HeadraceError: if an older version did not store the fields of an entry.
    """
    if "fields" in batch.schema.names and batch.column("fields").null_count:
        missing = batch.column("id").filter(batch.column("fields").is_null())[0]
        raise HeadraceError(f"{path}: entry {missing} has no fields, and cannot be converted")
    if EXACT_COLUMN in batch.schema.names:
        return batch.column(EXACT_COLUMN).cast(kind)
    if CORRUPT_COLUMN not in batch.schema.names:
        return pa.nulls(batch.num_rows, kind)
    return pa.array(list(entries_of(batch.column(CORRUPT_COLUMN).to_pylist(), path)), kind)


def entries_of(texts: list[str | None], path: Path) -> Iterator[list[dict[str, bytes]] | None]:
    """Yield the fields of entries that are stored as JSON; None for those that are not."""
    for text in texts:
        if text is None:
            yield None
            continue
        entry = json.loads(text)
        if "fields" not in entry:
            raise HeadraceError(f"{path}: the fields of entry {entry['id']} were not stored")
        pairs = entry["fields"].items()
        yield [{"name": name.encode(), "value": value.encode()} for name, value in pairs]
