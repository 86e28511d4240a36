"""Check that an archive's files exist and are complete, and that its store rejects conflicting commits.

files   another program may delete files that are not committed yet, as a vacuum without retention does
store   a commit is an object that is created only if it does not exist. A store that ignores this
        condition lets two jobs overwrite each other's commits
"""

from __future__ import annotations

import datetime
import itertools
import math
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headrace.archive.files import ArchivedFile, new_digest_hash
from headrace.archive.location import ArchiveLocation, explain_store_errors, one_line
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from deltalake import DeltaTable

LISTINGS_AT_ONCE = 16
FILES_AT_ONCE = 4
PIECE_BYTES = 1 << 20

# The probe of a store: writers that commit the same version at the same time, several times.
PROBE_FOLDER = "_headrace_probe"  # programs that vacuum a table leave names with _ alone
PROBE_APPLICATION = "headrace probe"
PROBE_WRITERS = 8
# Rounds with the same outcome that decide: a store may check the condition and write in two steps.
PROBE_MAJORITY = 3


class StoredFile(Protocol):
    """A file of an archive: its path within the archive, and its size in bytes."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...


def lost_files(location: ArchiveLocation, files: Iterable[StoredFile]) -> list[str]:
    """Return the paths of the files that are missing, or that have another size than they should.

    Raises:
        HeadraceError: if the store fails.
    """
    by_folder: dict[str, list[StoredFile]] = defaultdict(list)
    for file in files:
        by_folder[file.path.rpartition("/")[0]].append(file)
    with ThreadPoolExecutor(LISTINGS_AT_ONCE) as pool:
        sizes = dict(
            zip(by_folder, pool.map(lambda folder: file_sizes(location, folder), by_folder), strict=True)
        )
    return sorted(
        file.path
        for folder, theirs in by_folder.items()
        for file in theirs
        if sizes[folder].get(file.path.rpartition("/")[2]) != file.size
    )


def file_sizes(location: ArchiveLocation, folder: str) -> dict[str, int]:
    """Return the sizes of the files in a folder of an archive by name; {} if the folder does not exist."""
    if location.is_local:
        try:
            return {path.name: path.stat().st_size for path in (location.path / folder).iterdir()}
        except OSError:
            return {}
    with explain_store_errors(location):
        found = location.filesystem(folder).get_file_info(pafs.FileSelector("", allow_not_found=True))
    return {each.base_name: each.size for each in found if each.is_file}


@dataclass(frozen=True)
class FileCheck:
    """The result of checking one file of an archive.

    Attributes:
        damage: What is wrong with it; None if nothing is.
        rows: The number of its entries. If it cannot be read, or its bytes have changed, the number in the
            Delta table, or 0 if that has none.
        has_logged_count: Whether the table says how many entries it has; always True if there is damage.
    """

    damage: str | None
    rows: int
    has_logged_count: bool = True


def check_files(files: Sequence[ArchivedFile]) -> Iterator[tuple[ArchivedFile, FileCheck]]:
    """Read files of an archive, and yield each with the result.

    Raises:
        HeadraceError: if the store fails.
    """
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        yield from zip(files, pool.map(check_archived_file, files), strict=True)


def check_archived_file(file: ArchivedFile) -> FileCheck:
    """Compare a file with its digest, and with what the table says of it."""
    logged = file.logged_rows
    if (damage := describe_byte_difference(file)) is not None:
        return FileCheck(damage, logged or 0)
    try:
        with file.location.open_parquet(file.path) as parquet:
            mismatch = file.mismatch(parquet)
            covers = covers_times(file, parquet.metadata)
            rows = parquet.metadata.num_rows
            if file.digest is None:
                rows = sum(len(batch) for batch in parquet.iter_batches())
    except HeadraceError as error:
        return FileCheck(f"cannot be read: {one_line(error.__cause__ or error)}", logged or 0)
    if mismatch is not None:
        return FileCheck(mismatch, rows)
    if logged is None and file.digest is not None:
        return FileCheck(
            f"has {rows:,} entries; the table does not say how many, but was written with it", rows
        )
    if not covers:
        return FileCheck("has entries of other times than the table says", rows)
    return FileCheck(None, rows, logged is not None)


def describe_byte_difference(file: ArchivedFile) -> str | None:
    """Return how the bytes of a file differ from what it was written with; None if they do not."""
    folder, _, name = file.path.rpartition("/")
    digest, size = new_digest_hash(), 0
    with explain_store_errors(file.location):
        try:
            with file.location.filesystem(folder).open_input_stream(name) as stream:
                while piece := stream.read(PIECE_BYTES):
                    digest.update(piece)
                    size += len(piece)
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            if not file.location.is_local:
                raise
            return f"cannot be read: {one_line(error)}"
    if size != file.size:
        return f"has {size:,} bytes; it was written with {file.size:,}"
    if file.digest not in (None, digest.hexdigest()):
        return "has other bytes than it was written with"
    return None


def file_time_bounds(metadata: pq.FileMetaData) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Return the first and the last time in a file by its statistics; None if it has none.

    Raises:
        OverflowError: if a time is after the year 9999.
    """
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = (group.column(each) for each in range(group.num_columns))
        statistics = next((each.statistics for each in chunks if each.path_in_schema == "timestamp"), None)
        if statistics is None or not statistics.has_min_max or not hasattr(statistics.min, "timestamp"):
            return None
        found.append((statistics.min, statistics.max))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def covers_times(file: ArchivedFile, metadata: pq.FileMetaData) -> bool:
    """Return whether the table's time bounds for a file include the times of all its entries.

    Readers use these bounds to skip files.
    """
    if file.first_ms is None or file.last_ms is None:
        return True
    try:
        bounds = file_time_bounds(metadata)
    except OverflowError:  # the table has no bounds of files with such times
        return False
    if bounds is None:
        return True
    low, high = (each.replace(tzinfo=each.tzinfo or datetime.UTC).timestamp() * 1000 for each in bounds)
    return file.first_ms <= math.ceil(low) and math.floor(high) <= file.last_ms


def check_exclusive_commits(location: ArchiveLocation) -> None:
    """Raise an error unless the object store creates a commit only if it does not exist.

    Several writers commit the same version of a table of their own at the same time: one of them may succeed.

    Raises:
        UsageError: if several writers succeed in most rounds.
        HeadraceError: if none succeeds, or the store fails.
    """
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    folder = f"{PROBE_FOLDER}/{uuid.uuid4().hex}"
    uri, schema = f"{location.deltalake_uri}/{folder}", Schema([Field("n", PrimitiveType("long"))])
    with explain_store_errors(location):
        DeltaTable.create(uri, schema, storage_options=location.storage_options())
        try:
            rounds = (count_probe_winners(location, uri, number) for number in itertools.count(1))
            outcomes: Counter[bool] = Counter()
            while outcomes.total() == 0 or max(outcomes.values()) < PROBE_MAJORITY:
                outcomes[next(rounds) > 1] += 1
        finally:
            location.filesystem(PROBE_FOLDER).delete_dir(folder.rpartition("/")[2])
    if outcomes[True] == PROBE_MAJORITY:
        raise UsageError(
            f"{location}: the object store ignores the condition If-None-Match, so two jobs would overwrite "
            "each other's commits; use a store with conditional writes"
        )


def count_probe_winners(location: ArchiveLocation, uri: str, number: int) -> int:
    """Let several writers commit the same version at once; return how many succeed.

    If more than one succeeds, the store ignores the condition.

    Raises:
        HeadraceError: if none succeeds.
    """
    from deltalake import DeltaTable

    tables = [DeltaTable(uri, storage_options=location.storage_options()) for _ in range(PROBE_WRITERS)]
    errors = commit_concurrently(tables, number)
    if len(errors) == len(tables):
        raise HeadraceError(
            f"{location}: the object store rejects conditional writes (If-None-Match), which commits need: "
            f"{one_line(errors[0])}"
        ) from errors[0]
    return len(tables) - len(errors)


def commit_concurrently(tables: list[DeltaTable], number: int) -> list[Exception]:
    """Commit the same transaction to a table by several writers at once; return the errors of the losers."""
    from deltalake import CommitProperties, Transaction

    properties = CommitProperties(app_transactions=[Transaction(PROBE_APPLICATION, number)])
    start = threading.Barrier(len(tables))
    errors: list[Exception] = []

    def commit(table: DeltaTable) -> None:
        start.wait()
        try:
            table.create_write_transaction(
                [], mode="append", schema=table.schema(), commit_properties=properties
            )
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=commit, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors
