"""Read the log of an archive file by file: which files are damaged or missing, and what the log refers to.

    _delta_log/00000000000000000007.json                  a commit: one action per line, each a JSON object
    _delta_log/00000000000000000100.checkpoint.parquet    all actions up to a version; commits before it may
                                                          be deleted after a month
    _delta_log/_last_checkpoint                           the version of the newest checkpoint
    _delta_log/_headrace_newest                           the newest version that a job of Headrace has seen

The library deltalake reads the table, but its errors name no file. So this module finds the damaged file. It
also finds damage that the library does not notice: an empty commit, and a newest commit that was deleted.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headrace.archive.location import ArchiveLocation, explain_store_errors, one_line
from headrace.errors import HeadraceError

LOG_DIRECTORY = "_delta_log"
LAST_CHECKPOINT_FILE = "_last_checkpoint"
NEWEST_VERSION_FILE = "_headrace_newest"
ADDED_COUNTS_KEY = "headrace.added"  # in a commit of Headrace: how many files and entries it adds

COMMIT_NAME_PATTERN = re.compile(r"(\d{20})\.json")
CHECKPOINT_NAME_PATTERN = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)"
)
# What the library says of a store that fails, but not of a table that is damaged.
STORE_FAILURE_PATTERN = re.compile(
    r"Generic \w+ error|error sending request|timed out|denied|credential", re.IGNORECASE
)
FILES_AT_ONCE = 16

# Of a checkpoint that is damaged although all commits are there, which the library then reads instead.
DELETE_REMEDY = "all commits are there, so delete it"
DELETE_BOTH_REMEDY = f"{DELETE_REMEDY} and {LAST_CHECKPOINT_FILE}"


@dataclass(frozen=True)
class LogDamage:
    """A file of the log that is damaged or missing.

    Attributes:
        name: Its name within `_delta_log`.
        problem: What is wrong with it.
        remedy: What to do.
    """

    name: str
    problem: str
    remedy: str = "restore it from a copy of the archive"

    def __str__(self) -> str:
        return f"{LOG_DIRECTORY}/{self.name} {self.problem}"


@dataclass(frozen=True)
class DeltaLog:
    """What the files of a log say.

    Attributes:
        damages: The files that are damaged or missing, the oldest version first.
        referenced_paths: The paths of all files that any commit or checkpoint adds or removes.
    """

    damages: tuple[LogDamage, ...]
    referenced_paths: frozenset[str]


@dataclass
class LogFile:
    """A commit or a checkpoint.

    Attributes:
        name: Its name.
        version: The version of the table that it leads to.
        is_commit: Whether it is a commit.
        damage: What is wrong with it; None if nothing is.
        paths: The paths of the files that it adds or removes.
        action_count: The number of its actions.
        part_count: Of a checkpoint, the number of files that it consists of.
    """

    name: str
    version: int
    is_commit: bool
    damage: str | None = None
    paths: set[str] = field(default_factory=set)
    action_count: int = 0
    part_count: int = 1


def read_log(location: ArchiveLocation) -> DeltaLog:
    """Read all files of the log of an archive.

    Raises:
        HeadraceError: if the store fails.
    """
    store = location.filesystem(LOG_DIRECTORY)
    with explain_store_errors(location):
        found = store.get_file_info(pafs.FileSelector("", allow_not_found=True))
        names = sorted(each.base_name for each in found if each.is_file)
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            files = [each for each in pool.map(lambda name: read_log_file(store, name), names) if each]
        damages = [LogDamage(each.name, each.damage) for each in files if each.damage is not None]
        commits = {each.version for each in files if each.is_commit}
        checkpoints = action_counts_by_checkpoint(files)
        newest = max([-1, *commits, *checkpoints])
        damages += missing_commit_damages(commits, set(checkpoints), newest)
        damages += pointer_damages(store, names, checkpoints, newest)
    is_whole = commits.issuperset(range(newest + 1)) and not any(
        COMMIT_NAME_PATTERN.fullmatch(d.name) for d in damages
    )
    if is_whole:  # the library reads the table from its commits, if nothing names the checkpoint
        damages = [
            replace(each, remedy=DELETE_REMEDY if each.name == LAST_CHECKPOINT_FILE else DELETE_BOTH_REMEDY)
            for each in damages
        ]
    damages.sort(key=lambda each: each.name)
    return DeltaLog(tuple(damages), frozenset(path for each in files for path in each.paths))


def read_log_file(store: pafs.FileSystem, name: str) -> LogFile | None:
    """Read a commit or a checkpoint; None for any other file."""
    if match := COMMIT_NAME_PATTERN.fullmatch(name):
        file = LogFile(name, int(match[1]), is_commit=True)
        read_commit_into(file, read_bytes(store, name))
    elif match := CHECKPOINT_NAME_PATTERN.fullmatch(name):
        file = LogFile(name, int(match[1]), is_commit=False, part_count=int(match[3] or 1))
        if match[4] == "json":
            read_commit_into(file, read_bytes(store, name))
        else:
            read_checkpoint_into(file, store)
    else:
        return None
    return file


def read_bytes(store: pafs.FileSystem, name: str) -> bytes:
    """Return the bytes of a file."""
    with store.open_input_stream(name) as stream:
        data: bytes = stream.read()
        return data


def read_commit_into(file: LogFile, data: bytes) -> None:
    """Record the paths and actions of a commit in `file`, or its damage."""
    if not data.strip():
        file.damage = "is empty"
        return
    added: list[Mapping[str, Any]] = []
    info: Mapping[str, Any] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
            kind, content = next(iter(action.items()))
            if kind in ("add", "remove"):
                file.paths.add(unquote(content["path"]))
            if kind == "add":
                added.append(content)
            elif kind == "commitInfo":
                info = content
        except (ValueError, AttributeError, KeyError, TypeError, StopIteration):
            file.damage = f"is damaged in line {number}"
            return
        file.action_count += 1
    file.damage = describe_count_mismatch(info, added)


def describe_count_mismatch(info: Mapping[str, Any], added: Iterable[Mapping[str, Any]]) -> str | None:
    """Return how the files that a commit adds differ from its recorded counts; None if they do not."""
    try:
        recorded = json.loads(info[ADDED_COUNTS_KEY])
        counts = [json.loads(each.get("stats") or "{}").get("numRecords") for each in added]
    except KeyError:
        return None  # of another program, or an earlier version
    except (ValueError, TypeError):
        return "is damaged: the counts of its entries cannot be read"
    if None in counts:
        return "is damaged: a file that it adds has no count of entries"
    found = {"files": len(counts), "entries": sum(counts)}
    if found == recorded:
        return None
    return (
        f"is damaged: it adds {found['files']:,} files with {found['entries']:,} entries; it was written "
        f"with {recorded.get('files'):,} files and {recorded.get('entries'):,} entries"
    )


def read_checkpoint_into(file: LogFile, store: pafs.FileSystem) -> None:
    """Record the paths and actions of a checkpoint in `file`, or its damage."""
    try:
        with pq.ParquetFile(file.name, filesystem=store) as parquet:
            for batch in parquet.iter_batches():
                file.action_count += len(batch)
                for kind in ("add", "remove"):
                    if kind in batch.schema.names:
                        paths = batch.column(kind).field("path").drop_null()
                        file.paths |= {unquote(path) for path in paths.to_pylist()}
    except (pa.ArrowException, OSError, KeyError) as error:
        file.damage = f"cannot be read: {one_line(error).rstrip('.')}"


def action_counts_by_checkpoint(files: Iterable[LogFile]) -> dict[int, int]:
    """Return the versions of the checkpoints that can be read, each with the number of its actions."""
    parts: dict[int, list[LogFile]] = {}
    for file in files:
        if not file.is_commit and file.damage is None:
            parts.setdefault(file.version, []).append(file)
    return {
        version: sum(each.action_count for each in theirs)
        for version, theirs in parts.items()
        if len(theirs) >= theirs[0].part_count
    }


def missing_commit_damages(commits: set[int], checkpoints: set[int], newest: int) -> Iterator[LogDamage]:
    """Yield the missing commits: between two others, or between the newest checkpoint and the newest commit.

    Commits before a checkpoint may have been deleted, so the first ones are reported only if no checkpoint
    replaces them.
    """
    first = min(commits or checkpoints, default=0)
    # Commits before a checkpoint may be deleted, the oldest ones first.
    if not any(version >= first - 1 for version in checkpoints):
        first = max(checkpoints, default=-1) + 1
    elif not commits:
        first += 1
    yield from missing_run_damages([first - 1, *sorted(v for v in commits if v >= first), newest + 1], "")


def missing_run_damages(present: Sequence[int], note: str) -> Iterator[LogDamage]:
    """Yield the runs of missing commits between versions that are present, in ascending order."""
    for before, after in itertools.pairwise(present):
        first, last = before + 1, after - 1
        if first == last:
            yield LogDamage(commit_name(first), f"is missing{note}")
        elif first < last:
            yield LogDamage(commit_name(first), f"and all others up to {commit_name(last)} are missing{note}")


def commit_name(version: int) -> str:
    """Return the name of the commit that leads to a version."""
    return f"{version:020}.json"


def pointer_damages(
    store: pafs.FileSystem, names: list[str], checkpoints: Mapping[int, int], newest: int
) -> Iterator[LogDamage]:
    """Yield what is wrong with the files that name the newest checkpoint and the newest version."""
    if LAST_CHECKPOINT_FILE in names:
        last = parse_pointer(read_bytes(store, LAST_CHECKPOINT_FILE))
        if last is None:
            yield LogDamage(LAST_CHECKPOINT_FILE, "is damaged")
        elif last["version"] not in checkpoints:
            yield LogDamage(
                LAST_CHECKPOINT_FILE,
                f"names the checkpoint of version {last['version']}, which is missing or damaged",
            )
        elif last.get("size", checkpoints[last["version"]]) != checkpoints[last["version"]]:
            yield LogDamage(
                f"{last['version']:020}.checkpoint.parquet",
                f"has {checkpoints[last['version']]:,} actions; it was written with {last['size']:,}",
            )
    recorded = parse_pointer(read_bytes(store, NEWEST_VERSION_FILE)) if NEWEST_VERSION_FILE in names else None
    if recorded is not None:
        yield from missing_run_damages([newest, recorded["version"] + 1], ": the newest version was deleted")


def parse_pointer(data: bytes) -> dict[str, Any] | None:
    """Parse a JSON object with a version; None if it is not one."""
    try:
        found = json.loads(data)
        return found if isinstance(found["version"], int) else None
    except (ValueError, KeyError, TypeError):
        return None


def record_newest_version(location: ArchiveLocation, version: int) -> None:
    """Record the newest version of a table, so that a check notices if its commit is deleted later.

    That commit must be on disk already.

    Raises:
        HeadraceError: if the store fails.
    """
    data = json.dumps({"version": version}).encode()
    with explain_store_errors(location):
        if not location.is_local:
            # Not through pyarrow: its file object does not give the library the type it takes.
            output: Any = location.folder_store(LOG_DIRECTORY)._handler.open_output_stream(
                NEWEST_VERSION_FILE, None
            )
            output.write(data)
            output.close()
            return
        path = location.path / LOG_DIRECTORY / NEWEST_VERSION_FILE
        temporary = path.with_name(f"{NEWEST_VERSION_FILE}-{uuid.uuid4()}.tmp")
        temporary.write_bytes(data)
        temporary.replace(path)


@contextmanager
def explain_table_errors(location: ArchiveLocation) -> Iterator[None]:
    """Raise the errors of a store as one line, and those of a damaged log with the file that is damaged.

    Raises:
        HeadraceError: in place of OSError and the errors of deltalake. See explain_store_errors().
    """
    try:
        with explain_store_errors(location):
            yield
    except HeadraceError as error:
        if (damaged := log_damage_error(location, error.__cause__)) is None:
            raise
        raise damaged from error.__cause__


def log_damage_error(location: ArchiveLocation, error: BaseException | None) -> HeadraceError | None:
    """Return the error to raise if a damaged log made the library fail; otherwise None."""
    is_library = error is not None and type(error).__module__.startswith(("deltalake", "_internal"))
    if error is None or not is_library or type(error).__name__ == "CommitFailedError":
        return None
    if STORE_FAILURE_PATTERN.search(str(error)):
        return None
    try:
        damages = read_log(location).damages
    except (HeadraceError, OSError):
        return None
    if not damages:
        return None
    return damage_error(location, damages)


def damage_error(location: ArchiveLocation, damages: tuple[LogDamage, ...]) -> HeadraceError:
    """Return the error for a log whose damage keeps the table from being read."""
    more = f", and {len(damages) - 1:,} more" if len(damages) > 1 else ""
    return HeadraceError(
        f"{location}: {damages[0]}{more}, so the archive cannot be read; {damages[0].remedy} "
        f"(headrace check {location} lists all damage)"
    )


def raise_if_commit_empty(location: ArchiveLocation) -> None:
    """Raise HeadraceError if the file of a commit is empty: the library would ignore that commit.

    A crash of the machine leaves such a file if a program did not sync it. An object is written as a whole.
    """
    log = location.path / LOG_DIRECTORY if location.is_local else None
    if log is None or not log.is_dir():
        return
    with os.scandir(log) as entries:
        empty = sorted(
            each.name
            for each in entries
            if COMMIT_NAME_PATTERN.fullmatch(each.name) and each.stat().st_size == 0
        )
    if empty:
        raise damage_error(location, tuple(LogDamage(name, "is empty") for name in empty))
