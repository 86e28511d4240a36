"""Read the state of an archive: its files, and how far each stream is archived.

An archive is a Delta table, partitioned by stream and day. Its log says which files count:

    DIR/_delta_log/00000000000000000007.json     a commit: the files that it adds and removes, and for each
                                                 stream the position that the archive has reached
    DIR/stream=orders/date=2013-01-01/….parquet  a file; one that no commit names does not count

The name of a stream is in the log, so the name of its directory has no meaning. For the stream with an empty
name, the log has a null. Every commit of Headrace has the position. If the log has lost the position, because
Delta deletes commits after a month, or because the table was set back, it is read from the files.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.archive.delta_log import (
    LOG_DIRECTORY,
    damage_error,
    explain_table_errors,
    raise_if_commit_empty,
    read_log,
)
from headrace.archive.delta_schema import arrow_schema
from headrace.archive.location import LIBRARY_MISSING_MESSAGE, ArchiveError, ArchiveLocation
from headrace.errors import HeadraceError, UsageError
from headrace.positions.entry_ids import START, EntryId, format_id, parse_id
from headrace.positions.offsets import advance_offsets, sorted_offsets
from headrace.positions.position import Positions, parse_positions

if TYPE_CHECKING:
    from deltalake import DeltaTable

# The keys of Headrace in the commits and in the properties of a table.
POSITIONS_KEY = "headrace.archived"
LAST_VACUUM_KEY = "headrace.vacuumed"  # the time of the last vacuum, in milliseconds
ZONE_KEY = "headrace.zone"

PARTITION_COLUMNS = ("stream", "date")
EXACT_COLUMN = "_exact"  # the whole entry, if the other columns do not represent it byte for byte

DIGEST_SUFFIX_PATTERN = re.compile(r"-([0-9a-f]{16})\.zstd\.parquet$")
DIGEST_BYTES = 8
OLD_LAYOUT_FOLDERS = ("_spark_metadata", "_headrace")  # directories of archives that earlier versions wrote

# Days begin at different hours in different time zones, and an archive may be written in several of them.
TIME_ZONE_DAYS_MAX = 2

HISTORY_STEPS = (1, 20, 400, None)  # how many commits to read, newest first, in search of the positions

# Features of Delta by which a file has other rows, or other names of columns, than its table.
UNREADABLE_FEATURES = {"deletionVectors", "columnMapping"}


@dataclass(frozen=True)
class ArchivedFile:
    """A data file that belongs to the current version of an archive.

    Attributes:
        path: Its path within the archive.
        stream: The stream of its entries.
        date: Their day; None for a day after the year 9999.
        logged_rows: The number of entries according to the log; None if the log has no number.
        size: Its size in bytes.
        first_ms: The time of its first entry in milliseconds; None if the log does not say.
        last_ms: The time of its last entry in milliseconds; None if the log does not say.
        location: The archive.
    """

    path: str
    stream: str
    date: datetime.date | None
    logged_rows: int | None
    size: int
    first_ms: int | None
    last_ms: int | None
    location: ArchiveLocation

    @property
    def digest(self) -> str | None:
        """The digest of its bytes, which is in its name; None if another program or version wrote it."""
        found = DIGEST_SUFFIX_PATTERN.search(self.path)
        return None if found is None else found[1]

    @cached_property
    def rows(self) -> int:
        """The number of entries; counted in the file if the log does not say it."""
        if self.logged_rows is not None:
            return self.logged_rows
        with self.open() as parquet:
            count: int = parquet.metadata.num_rows
            return count

    @contextmanager
    def open(self) -> Iterator[pq.ParquetFile]:
        """Open the file for a with block, which checks the pages it reads. See open_parquet().

        Raises:
            ArchiveError: also if the file has other columns than an archive, or another number of entries.
        """
        with self.location.open_parquet(self.path) as parquet:
            if (found := self.mismatch(parquet)) is not None:
                hint = self.location.damage_check_hint
                raise ArchiveError(f"{self.location}/{self.path} is damaged: it {found}{hint}")
            yield parquet

    def mismatch(self, parquet: pq.ParquetFile) -> str | None:
        """Return how the open file differs from what the table says of it; None if it does not."""
        schema = parquet.schema_arrow
        if "id" not in schema.names or not is_text(schema.field("id").type):
            return "has no column of IDs"
        if EXACT_COLUMN in schema.names and not is_list_of_pairs(schema.field(EXACT_COLUMN).type):
            return f"has a column {EXACT_COLUMN} of the type {schema.field(EXACT_COLUMN).type}"
        rows = parquet.metadata.num_rows
        if self.logged_rows is not None and rows != self.logged_rows:
            return f"has {rows:,} entries; the table says {self.logged_rows:,}"
        return None


@dataclass(frozen=True)
class Archive:
    """An archive at one moment.

    Attributes:
        location: Where it is.
        files: Its files, by stream, day and first entry.
        archived_through: For each stream, the ID up to which it is archived.
        positions: The archived position of each stream, if the log has it.
        highest_ids: The highest ID in the files of each stream: the same as archived_through, unless the
            stream was recreated and now has lower IDs.
        columns: The columns of the table, without those of its partitions.
        zone: The time zone of its days.
        vacuumed_ms: When it was last vacuumed, in milliseconds; None if no commit says.
        was_set_back: Whether another program has restored an older version, or replaced all entries, since
            the last commit of Headrace; or no commit has positions any more. Then the archive ends where its
            files end.
        table_id: The ID of the table, which it keeps wherever it is moved.
    """

    location: ArchiveLocation
    files: tuple[ArchivedFile, ...]
    archived_through: dict[str, str]
    positions: Positions = field(default_factory=dict)
    highest_ids: dict[str, str] = field(default_factory=dict)
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    zone: str = "UTC"
    vacuumed_ms: int | None = None
    was_set_back: bool = False
    table_id: str = ""


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a string type."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list_of_pairs(kind: pa.DataType) -> bool:
    """Return whether a type is a list of pairs: the names and values of fields."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2)


def new_digest_hash() -> hashlib.blake2b:
    """Return a new hash object, for the digest of a file's bytes."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def read_archive(location: ArchiveLocation) -> Archive:
    """Read the state of an archive, which may be growing.

    Raises:
        UsageError: if there is no archive.
        HeadraceError: if the store fails.
    """
    with explain_table_errors(location):
        return archive_of_table(location, open_table(location))


def read_file_list(location: ArchiveLocation) -> tuple[ArchivedFile, ...]:
    """Read which files an archive has, without opening any of them.

    Raises:
        UsageError: if there is no archive.
        HeadraceError: if the store fails.
    """
    with explain_table_errors(location):
        return tuple(archived_files(location, open_table(location)))


def archive_of_table(location: ArchiveLocation, table: DeltaTable) -> Archive:
    """Return the state of an archive whose table is open."""
    files = archived_files(location, table)
    commit = newest_position_commit(table)
    recorded = recorded_positions(location, commit)
    positions = {s: each for s, each in recorded.items() if each.id != START or each.generation}
    unknown = [file for file in files if file.stream not in positions]
    known = {stream: each.id for stream, each in positions.items() if each.id != START}
    through = known | highest_ids(unknown)
    recreated = [file for file in files if file.stream in positions and positions[file.stream].generation]
    highest = advance_offsets(sorted_offsets(through), highest_ids(recreated))
    schema = arrow_schema(table.schema().to_json())
    columns = pa.schema([column for column in schema if column.name not in PARTITION_COLUMNS])
    metadata = table.metadata()
    zone = metadata.configuration.get(ZONE_KEY) or "UTC"
    vacuumed_text = str(commit.get(LAST_VACUUM_KEY, ""))
    vacuumed = int(vacuumed_text) if vacuumed_text.isdecimal() else None
    was_set_back = POSITIONS_KEY not in commit and bool(commit or files)
    return Archive(
        location, tuple(files), through, positions, highest, columns, zone, vacuumed, was_set_back,
        str(metadata.id),
    )  # fmt: skip


def open_table(location: ArchiveLocation) -> DeltaTable:
    """Open the table of an archive.

    Raises:
        UsageError: if there is none, or it is not an archive.
        HeadraceError: if its log is damaged.
    """
    table = existing_table(location)
    if table is None:
        if location.is_local and (location.path / LOG_DIRECTORY).is_dir():
            raise UsageError(
                f"{location}: {LOG_DIRECTORY} has no commit; restore it from a copy of the archive"
            )
        raise UsageError(f"{location}: there is no archive")
    return table


def existing_table(location: ArchiveLocation) -> DeltaTable | None:
    """Open the table of an archive; None if there is none.

    Raises:
        UsageError: if it is not an archive that this version can read, or deltalake is not installed.
        HeadraceError: if its log is damaged.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ModuleNotFoundError as error:
        raise UsageError(LIBRARY_MISSING_MESSAGE) from error

    check_not_old_layout(location)
    raise_if_commit_empty(location)
    try:
        table = DeltaTable(location.deltalake_uri, storage_options=location.storage_options())
    except TableNotFoundError:
        if damages := read_log(location).damages:
            raise damage_error(location, damages) from None
        return None
    if tuple(table.metadata().partition_columns) != PARTITION_COLUMNS:
        raise UsageError(f"{location} is a Delta table, but not an archive of streams")
    check_features(location, table)
    return table


def check_features(location: ArchiveLocation, table: DeltaTable) -> None:
    """Raise UsageError if the table has deletion vectors or column mapping, which Headrace cannot read."""
    used = UNREADABLE_FEATURES.intersection(table.protocol().reader_features or ())
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        used.add("columnMapping")
    if used:
        raise UsageError(
            f"{location}: another program gave the table the Delta feature {sorted(used)[0]}, with which "
            "headrace cannot read it; remove the feature with ALTER TABLE … DROP FEATURE"
        )


def check_not_old_layout(location: ArchiveLocation) -> None:
    """Raise UsageError if a directory has an archive of an earlier version."""
    if location.is_local and any((location.path / name).is_dir() for name in OLD_LAYOUT_FOLDERS):
        raise UsageError(
            f"{location} is an archive of an earlier version, which is no Delta table and cannot be read; "
            "archive the streams to a new directory"
        )


def archived_through(location: ArchiveLocation) -> dict[str, str]:
    """Return the ID up to which each stream is archived."""
    return read_archive(location).archived_through


def newest_position_commit(table: DeltaTable) -> dict[str, Any]:
    """Return the newest commit that has positions, or the commit that has set the table back since.

    Returns:
        The commit; an empty one if there is neither, because Delta deletes commits after a month.
    """
    return next((each for each in commits(table) if POSITIONS_KEY in each or restores_or_replaces(each)), {})


def recorded_streams(location: ArchiveLocation, table: DeltaTable) -> set[str]:
    """Return the streams that any commit has a position of, also if the table was set back since."""
    return {stream for each in commits(table) for stream in recorded_positions(location, each)}


def recorded_positions(location: ArchiveLocation, commit: Mapping[str, Any]) -> Positions:
    """Return the positions in a commit; {} if it has none. Raises HeadraceError if they are damaged."""
    try:
        return parse_positions(json.loads(commit.get(POSITIONS_KEY, "{}")))
    except (ValueError, TypeError, AttributeError) as error:
        raise HeadraceError(
            f"{location}: the commit of version {commit.get('version')} in {LOG_DIRECTORY} is damaged: it "
            "does not say how far the streams are archived; restore it from a copy of the archive"
        ) from error


def commits(table: DeltaTable) -> Iterator[dict[str, Any]]:
    """Yield the commits of a table, the newest first. Reads the log in steps, as the caller iterates."""
    seen = 0
    for limit in HISTORY_STEPS:
        history: list[dict[str, Any]] = table.history(limit)
        yield from history[seen:]
        seen = len(history)
        if limit is None or seen < limit:
            return


def restores_or_replaces(commit: Mapping[str, Any]) -> bool:
    """Return whether a commit of another program restores a version, or replaces all entries."""
    operation = str(commit.get("operation"))
    mode = dict(commit.get("operationParameters") or {}).get("mode")
    return operation == "RESTORE" or "REPLACE TABLE" in operation or mode == "Overwrite"


def archived_files(location: ArchiveLocation, table: DeltaTable) -> list[ArchivedFile]:
    """Return the files of the table, sorted by stream, day and first entry."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = ("path", "partition.stream", "partition.date", "num_records", "size_bytes")
    columns = [actions.column(name).to_pylist() for name in names]
    bounds = [
        actions.column(name).to_pylist() if name in actions.column_names else [None] * actions.num_rows
        for name in ("min.timestamp", "max.timestamp")
    ]
    files = []
    for path, stream, date, rows, size, first, last in zip(*columns, *bounds, strict=True):
        files.append(
            ArchivedFile(
                unquote(path),
                stream or "",
                as_date(date),
                rows,
                size,
                as_ms(first),
                as_ms(last),
                location,
            )
        )
    return sorted(files, key=sort_key)


def sort_key(file: ArchivedFile) -> tuple[str, bool, datetime.date, int, str]:
    """Return the key by which files are sorted: stream, day, time of the first entry, path."""
    return file.stream, file.date is None, file.date or datetime.date.max, file.first_ms or 0, file.path


def as_date(value: datetime.date | str | None) -> datetime.date | None:
    """Return the day of a partition, given as a date or an ISO 8601 text; None if it has none."""
    return datetime.date.fromisoformat(value) if isinstance(value, str) else value


def as_ms(value: datetime.datetime | None) -> int | None:
    """Return a time of the log in milliseconds; None if the log has none."""
    return None if value is None else round(value.timestamp() * 1000)


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
    since -= min(datetime.timedelta(TIME_ZONE_DAYS_MAX), since - datetime.date.min)
    latest = parse_id(START)
    for file in files:
        # Files without a date have times after all dates.
        may_be_higher = file.last_ms is None or file.last_ms >= latest[0]
        if may_be_higher and (file.date is None or file.date >= since):
            with file.open() as parquet:
                latest = max(latest, highest_id_in_column(parquet.read(["id"]).column("id")))
    return latest


def split_ids(ids: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the two numbers of each ID: milliseconds and sequence, as UINT64.

    Raises:
        pa.ArrowInvalid: if an ID is missing, or is not a pair of numbers.
    """
    if ids.null_count:
        raise pa.ArrowInvalid("an entry has no ID")
    parts = pc.split_pattern(ids, "-")
    return pc.list_element(parts, 0).cast(pa.uint64()), pc.list_element(parts, 1).cast(pa.uint64())


def highest_id_in_column(ids: pa.ChunkedArray) -> EntryId:
    """Return the highest of some IDs; 0-0 if there is none."""
    if len(ids) == 0:
        return parse_id(START)
    ms, seq = split_ids(ids)
    highest = pc.max(ms)
    return highest.as_py(), pc.max(pc.filter(seq, pc.equal(ms, highest))).as_py()
