"""Which files of an archive count, whose entries they hold, and how far they go.

    DIR/stream=orders/date=2013-01-01/part-….parquet     an archive of many streams, or
    DIR/date=2013-01-01/part-….parquet                   of the one that _headrace/stream.json names
    DIR/_spark_metadata/0, 1, … 9.compact, 10, …         which of the files count
    DIR/_headrace/checkpoint/offsets/10                  how far each stream is archived by batch 10

A file that a killed job left behind is not in the log, and does not count. A directory without a log, a copy
perhaps, counts as it stands. Nothing here needs Spark.
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

# Days begin at other hours in other time zones: an archive may have been written in several.
DAYS_APART_MAX = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArchivedFile:
    """A file that counts. date: of its partition; None if it has none, or its times are past all dates."""

    path: Path
    stream: str
    date: datetime.date | None


@dataclass(frozen=True)
class Archive:
    """An archive at one moment: its files, and the ID up to which each of its streams is there.

    positions: the same as places in the histories of the streams, as far as the checkpoint tells.
    ends: the highest ID in the files. It is the seam, unless the stream was recreated and has lower IDs now.
    """

    files: tuple[ArchivedFile, ...]
    archived_through: dict[str, str]
    positions: Positions = field(default_factory=dict)
    highest_ids: dict[str, str] = field(default_factory=dict)


def read_archive(directory: Path) -> Archive:
    """What is in an archive that may be growing. UsageError if it is none."""
    batch = last_batch(directory)
    files = archived_files(directory, batch)
    found = {} if batch is None else checkpoint_positions(directory, batch)
    unknown = [file for file in files if file.stream not in found]
    known = {stream: each.id for stream, each in found.items() if each.id != START}
    seams = known | highest_ids(unknown)
    again = [file for file in files if file.stream in found and found[file.stream].generation]
    return Archive(tuple(files), seams, found, advance_offsets(sorted_offsets(seams), highest_ids(again)))


def archived_through(directory: Path) -> dict[str, str]:
    """The ID up to which each stream is archived: what comes after it is not there."""
    return read_archive(directory).archived_through


def checkpoint_positions(directory: Path, batch: int) -> Positions:
    """How far a batch, all of whose files count, has got; nothing if the checkpoint is gone."""
    offsets = directory / HEADRACE_DIRECTORY / "checkpoint" / "offsets" / str(batch)
    if not offsets.is_file():
        return {}
    found = parse_positions(json.loads(offsets.read_text("utf-8").splitlines()[-1]))
    return {s: each for s, each in found.items() if each.id != START or each.generation}


def archived_files(directory: Path, batch: int | None = None) -> list[ArchivedFile]:
    """The files that count, by stream and path; those of batches up to one, if it is named.

    UsageError if nothing says whose entries they hold.
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
            raise UsageError(f"{directory} is no archive: nothing says which stream {path.name} is from.")
        if stream not in names and ENCODED.fullmatch(stream):
            unknown.add(stream)
        stream = names.get(stream, stream)
        found.append(ArchivedFile(path, stream, parse_date(keys.get("date", ""))))
    if unknown:
        log.warning(
            "%s does not say which streams are in %s; they are called like their directories.",
            directory / HEADRACE_DIRECTORY / NAMES_FILE,
            ", ".join(sorted(unknown)),
        )
    return sorted(found, key=lambda file: (file.stream, file.path))


def committed_files(directory: Path, batch: int | None = None) -> list[Path]:
    """The Parquet files that Spark's log names; without a log, all that are there.

    UsageError if there is no such directory.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: there is no archive.")
    log = directory / SPARK_LOG
    if log.is_dir():
        return sorted(logged_files(directory, log, batch))
    files = (path.relative_to(directory) for path in directory.rglob("*.parquet"))
    return sorted(directory / path for path in files if not any(part[0] in "._" for part in path.parts))


def last_batch(directory: Path) -> int | None:
    """The last batch whose files count; None if there is none."""
    log = directory / SPARK_LOG
    return max((number for number, _ in batch_logs(log)), default=None) if log.is_dir() else None


def batch_logs(log: Path) -> dict[tuple[int, bool], Path]:
    """The files of Spark's log by batch, and whether they stand for all batches up to that, too."""
    matches = ((re.fullmatch(r"(\d+)(\.compact)?", path.name), path) for path in log.iterdir())
    return {(int(match[1]), bool(match[2])): path for match, path in matches if match}


def logged_files(directory: Path, log: Path, last: int | None = None) -> set[Path]:
    """What is left when all batches of the log, up to the last, have added and deleted files.

    A compact file stands for all batches up to its own, which may be gone by now.
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
            said = json.loads(line)
            file = resolve_logged_path(directory, said["path"])
            if said["action"] == "delete":
                files.discard(file)
            else:
                files.add(file)
    return files


def resolve_logged_path(directory: Path, uri: str) -> Path:
    """Where a file of the log is now: the log names whole paths, and an archive may have been moved."""
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
    """What the folders on the way to a file say of it: stream, date."""
    pairs = (part.partition("=") for part in inner.parts[:-1])
    return {key: "" if value == NULL_PARTITION else unquote(value) for key, equals, value in pairs if equals}


def parse_date(text: str) -> datetime.date | None:
    """The day that a folder names; None for what lies past the year 9999, or is no day."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def single_stream(directory: Path) -> str | None:
    """The stream of an archive of one stream, as its own note says."""
    mark = directory / HEADRACE_DIRECTORY / "stream.json"
    if not mark.is_file():
        return None
    stream: str | None = json.loads(mark.read_text()).get("stream")
    return stream


def highest_ids(files: Iterable[ArchivedFile]) -> dict[str, str]:
    """The highest ID of each stream in these files. Reads the IDs of the last days only."""
    by_stream = defaultdict(list)
    for file in files:
        by_stream[file.stream].append(file)
    highest = {stream: highest_id(theirs) for stream, theirs in by_stream.items()}
    return {stream: format_id(found) for stream, found in highest.items() if found > parse_id(START)}


def highest_id(files: list[ArchivedFile]) -> EntryId:
    """The highest ID in the files of one stream; 0-0 if they hold no entry."""
    dates = [file.date for file in files if file.date is not None]
    since = max(dates, default=datetime.date.min)
    since -= min(datetime.timedelta(DAYS_APART_MAX), since - datetime.date.min)
    latest = parse_id(START)
    for file in files:
        # Times that no date can say lie behind all others.
        if file.date is None or file.date >= since:
            with pq.ParquetFile(file.path) as parquet:
                for group in row_groups_from(parquet, latest):
                    latest = max(
                        latest, highest_in_column(parquet.read_row_group(group, ["id"]).column("id"))
                    )
    return latest


def row_groups_from(parquet: pq.ParquetFile, latest: EntryId) -> list[int]:
    """The row groups that may hold an ID after the latest: all, if the file does not tell their times."""
    metadata = parquet.metadata
    place = parquet.schema.names.index("timestamp") if "timestamp" in parquet.schema.names else None
    found = []
    for group in range(metadata.num_row_groups):
        told = None if place is None else metadata.row_group(group).column(place).statistics
        if told is None or not told.has_min_max or told.null_count or max_ms(told) >= latest[0]:
            found.append(group)
    return found


def max_ms(statistics: pq.Statistics) -> float:
    """The millisecond in which the last of some times may lie; infinite if no datetime can say it."""
    try:
        last = statistics.max
        since = last.replace(tzinfo=last.tzinfo or datetime.UTC).timestamp()
        return float(math.ceil(since * 1000))
    except (AttributeError, OverflowError, ValueError):
        return math.inf


def split_ids(ids: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Both numbers of each ID: milliseconds and sequence, UINT64."""
    parts = pc.split_pattern(ids, "-")
    return pc.list_element(parts, 0).cast(pa.uint64()), pc.list_element(parts, 1).cast(pa.uint64())


def highest_in_column(ids: pa.ChunkedArray) -> EntryId:
    """The highest of some IDs, as numbers; 0-0 if there is none."""
    if len(ids) == 0:
        return parse_id(START)
    ms, seq = split_ids(ids)
    highest = pc.max(ms)
    return highest.as_py(), pc.max(pc.filter(seq, pc.equal(ms, highest))).as_py()
