"""List the committed files of an archive with their streams, and find how far each stream is archived.

    DIR/stream=orders/date=2013-01-01/part-….parquet     an archive of many streams, or
    DIR/date=2013-01-01/part-….parquet                   of the one that _headrace/stream.json names
    DIR/_spark_metadata/0, 1, … 9.compact, 10, …         Spark's log of the committed files
    DIR/_headrace/checkpoint/offsets/10                  how far each stream is archived by batch 10

A file of a killed job is not in the log, and is ignored. In a directory without a log, such as a copy, all
files count. This module does not need Spark.
"""

from __future__ import annotations

import datetime
import json
import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.errors import UsageError
from headrace.spark.archive.names import ENCODED, NAMES_FILE, NULL_PARTITION, recorded_names
from headrace.spark.source.offsets import START, EntryId, advance_offsets, format_id, parse_id, sorted_offsets
from headrace.spark.source.positions import Positions, parse_positions

SPARK_LOG = "_spark_metadata"
HEADRACE_DIRECTORY = "_headrace"

# Days begin at different hours in different time zones, and an archive may be written in several of them.
DAYS_APART_MAX = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArchivedFile:
    """A committed file. date: of its partition; None if it has none, or is after the year 9999."""

    path: Path
    stream: str
    date: datetime.date | None


@dataclass(frozen=True)
class Archive:
    """An archive at one moment.

    files             its committed files
    archived_through  for each stream, the ID up to which it is archived
    positions         the same as positions, as far as the checkpoint has them
    highest_ids       the highest ID in the files of each stream: the same as archived_through, unless the
                      stream was recreated and now has lower IDs
    """

    files: tuple[ArchivedFile, ...]
    archived_through: dict[str, str]
    positions: Positions = field(default_factory=dict)
    highest_ids: dict[str, str] = field(default_factory=dict)


def read_archive(directory: Path) -> Archive:
    """Read the state of an archive, which may be growing. Raises UsageError if it is not an archive."""
    batch = last_batch(directory)
    files = archived_files(directory, batch)
    positions = {} if batch is None else checkpoint_positions(directory, batch)
    unknown = [file for file in files if file.stream not in positions]
    known = {stream: each.id for stream, each in positions.items() if each.id != START}
    through = known | highest_ids(unknown)
    recreated = [file for file in files if file.stream in positions and positions[file.stream].generation]
    highest = advance_offsets(sorted_offsets(through), highest_ids(recreated))
    return Archive(tuple(files), through, positions, highest)


def archived_through(directory: Path) -> dict[str, str]:
    """Return the ID up to which each stream is archived."""
    return read_archive(directory).archived_through


def checkpoint_positions(directory: Path, batch: int) -> Positions:
    """Return the end positions of a committed batch; an empty dict if its checkpoint is missing."""
    offsets = directory / HEADRACE_DIRECTORY / "checkpoint" / "offsets" / str(batch)
    if not offsets.is_file():
        return {}
    found = parse_positions(json.loads(offsets.read_text("utf-8").splitlines()[-1]))
    return {s: each for s, each in found.items() if each.id != START or each.generation}


def archived_files(directory: Path, batch: int | None = None) -> list[ArchivedFile]:
    """Return the committed files, sorted by stream and path.

    Args:
        batch: only the files up to this batch.

    Raises:
        UsageError: if the stream of a file is unknown.
    """
    alone = single_stream(directory)
    names = recorded_names(directory / HEADRACE_DIRECTORY)
    last = last_batch(directory)
    reads = {} if last is None else checkpoint_positions(directory, last)
    if NULL_PARTITION in reads and "" not in reads:
        names[""] = NULL_PARTITION  # an archive that is older than encoded names
    unknown: set[str] = set()
    found = []
    for path in committed_files(directory, batch):
        keys = partition_values(path.relative_to(directory))
        stream = keys.get("stream", alone)
        if stream is None:
            raise UsageError(
                f"{directory} is not an archive: the stream of {path.name} is unknown. Give the directory "
                "that headrace archive wrote."
            )
        if stream not in names and ENCODED.fullmatch(stream):
            unknown.add(stream)
        stream = names.get(stream, stream)
        found.append(ArchivedFile(path, stream, parse_date(keys.get("date", ""))))
    if unknown:
        log.warning(
            "%s has no names for the directories %s; their streams are shown by the directory names.",
            directory / HEADRACE_DIRECTORY / NAMES_FILE,
            ", ".join(sorted(unknown)),
        )
    return sorted(found, key=lambda file: (file.stream, file.path))


def committed_files(directory: Path, batch: int | None = None) -> list[Path]:
    """Return the Parquet files in Spark's log; without a log, all Parquet files.

    Raises:
        UsageError: if the directory does not exist.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: there is no archive.")
    log = directory / SPARK_LOG
    if log.is_dir():
        return sorted(logged_files(directory, log, batch))
    files = (path.relative_to(directory) for path in directory.rglob("*.parquet"))
    return sorted(directory / path for path in files if not any(part[0] in "._" for part in path.parts))


def last_batch(directory: Path) -> int | None:
    """Return the last committed batch; None if there is none."""
    log = directory / SPARK_LOG
    return max((number for number, _ in batch_logs(log)), default=None) if log.is_dir() else None


def batch_logs(log: Path) -> dict[tuple[int, bool], Path]:
    """Return the files of Spark's log by batch and whether they are compact files."""
    matches = ((re.fullmatch(r"(\d+)(\.compact)?", path.name), path) for path in log.iterdir())
    return {(int(match[1]), bool(match[2])): path for match, path in matches if match}


def logged_files(directory: Path, log: Path, last: int | None = None) -> set[Path]:
    """Return the files that remain after all batches of the log, up to `last`, added and deleted files.

    A compact file contains all batches up to its own, whose logs may be deleted.
    """
    batches = {each: path for each, path in batch_logs(log).items() if last is None or each[0] <= last}
    begin = max((number for number, compact in batches if compact), default=-1)
    files: set[Path] = set()
    for (number, compact), path in sorted(batches.items()):
        if number < begin or (number == begin and not compact):
            continue
        version, *lines = path.read_text().splitlines()
        if version != "v1":
            raise UsageError(f"{path} is a log of version {version!r}; expected v1.")
        for line in lines:
            record = json.loads(line)
            file = resolve_logged_path(directory, record["path"])
            if record["action"] == "delete":
                files.discard(file)
            else:
                files.add(file)
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


def partition_values(inner: Path) -> dict[str, str]:
    """Return the partition values in the path of a file: stream, date."""
    pairs = (part.partition("=") for part in inner.parts[:-1])
    return {key: "" if value == NULL_PARTITION else unquote(value) for key, equals, value in pairs if equals}


def parse_date(text: str) -> datetime.date | None:
    """Parse the date of a partition; None for a date after the year 9999, or another text."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def single_stream(directory: Path) -> str | None:
    """Return the stream in stream.json of an archive of one stream; None without that file."""
    path = directory / HEADRACE_DIRECTORY / "stream.json"
    if not path.is_file():
        return None
    stream: str | None = json.loads(path.read_text()).get("stream")
    return stream


def highest_ids(files: Iterable[ArchivedFile]) -> dict[str, str]:
    """Return the highest ID of each stream in these files. Reads only the IDs of the last days."""
    by_stream = defaultdict(list)
    for file in files:
        by_stream[file.stream].append(file)
    highest = {stream: highest_id(theirs) for stream, theirs in by_stream.items()}
    return {stream: format_id(found) for stream, found in highest.items() if found > parse_id(START)}


def highest_id(files: list[ArchivedFile]) -> EntryId:
    """Return the highest ID in the files of one stream; 0-0 if they have no entry."""
    dates = [file.date for file in files if file.date is not None]
    since = max(dates, default=datetime.date.min)
    since -= min(datetime.timedelta(DAYS_APART_MAX), since - datetime.date.min)
    latest = parse_id(START)
    for file in files:
        # Files without a date have times after all dates.
        if file.date is None or file.date >= since:
            with pq.ParquetFile(file.path) as parquet:
                for group in row_groups_from(parquet, latest):
                    latest = max(
                        latest, highest_in_column(parquet.read_row_group(group, ["id"]).column("id"))
                    )
    return latest


def row_groups_from(parquet: pq.ParquetFile, latest: EntryId) -> list[int]:
    """Return the row groups that may have a higher ID, by their statistics; without statistics, all."""
    metadata = parquet.metadata
    column = parquet.schema.names.index("timestamp") if "timestamp" in parquet.schema.names else None
    found = []
    for group in range(metadata.num_row_groups):
        stats = None if column is None else metadata.row_group(group).column(column).statistics
        if stats is None or not stats.has_min_max or stats.null_count or max_ms(stats) >= latest[0]:
            found.append(group)
    return found


def max_ms(statistics: pq.Statistics) -> float:
    """Return the maximum time in milliseconds, rounded up; infinity if no datetime can represent it."""
    try:
        last = statistics.max
        since = last.replace(tzinfo=last.tzinfo or datetime.UTC).timestamp()
        return float(math.ceil(since * 1000))
    except (AttributeError, OverflowError, ValueError):
        return math.inf


def split_ids(ids: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the two numbers of each ID: milliseconds and sequence, as UINT64."""
    parts = pc.split_pattern(ids, "-")
    return pc.list_element(parts, 0).cast(pa.uint64()), pc.list_element(parts, 1).cast(pa.uint64())


def highest_in_column(ids: pa.ChunkedArray) -> EntryId:
    """Return the highest of some IDs; 0-0 if there is none."""
    if len(ids) == 0:
        return parse_id(START)
    ms, seq = split_ids(ids)
    highest = pc.max(ms)
    return highest.as_py(), pc.max(pc.filter(seq, pc.equal(ms, highest))).as_py()
