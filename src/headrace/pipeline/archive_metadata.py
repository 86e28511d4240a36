"""An archive's directory: whose it is, what its columns are, who may write there now.

DIR/_headrace/streams.json     what its rows look like: typed fields or one map, and where a day begins
DIR/_headrace/stream.json      the same of an archive of one stream, without a directory for it
DIR/_headrace/names.json       the streams whose directories are not called like them (spark.archive.names)
DIR/_headrace/lock             held by who archives or compacts
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError, UsageError
from headrace.spark.archive.files import HEADRACE_DIRECTORY
from headrace.spark.archive.names import NAMES_FILE, encoded_names, recorded_names


@dataclass(frozen=True)
class ArchiveMetadata:
    """The metadata of an archive.

    Attributes:
        directory: The archive's directory.
        fields: Its typed columns as a schema string; None for one map of all fields.
        alone: Its only stream, if its paths have no stream name; else None.
    """

    directory: Path
    fields: str | None
    alone: str | None = None

    @property
    def checkpoint(self) -> Path:
        """The directory of Spark's checkpoint."""
        return self.directory / HEADRACE_DIRECTORY / "checkpoint"

    @property
    def partitions(self) -> list[str]:
        """The partition columns."""
        return ["stream", "date"] if self.alone is None else ["date"]


def create_or_open(directory: Path, streams: Sequence[str], fields: str | None, zone: str) -> ArchiveMetadata:
    """Create an archive in the directory, or open the one that is there.

    Raises:
        UsageError: if the archive has other fields, streams or another time zone, or the directory holds
            other files.
    """
    alone = directory / HEADRACE_DIRECTORY / "stream.json"
    mark = directory / HEADRACE_DIRECTORY / "streams.json"
    if alone.is_file():
        theirs = json.loads(alone.read_text())
        if [theirs["stream"]] != list(streams):
            raise UsageError(
                f"{directory} is the archive of stream {theirs['stream']!r} alone; give another --to"
            )
        check_same_fields(directory, theirs["fields"], fields)
        return ArchiveMetadata(directory, fields, theirs["stream"])
    if mark.is_file():
        theirs = json.loads(mark.read_text())
        check_same_fields(directory, theirs["fields"], fields)
        if theirs["zone"] != zone:
            raise UsageError(
                f"{directory} has days of time zone {theirs['zone']}, not {zone}; say --time-zone"
            )
        return ArchiveMetadata(directory, fields)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty and not an archive; give another --to")
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(mark, json.dumps({"fields": fields, "zone": zone}) + "\n")
    except OSError as error:
        raise UsageError(f"{directory}: cannot write there: {error.strerror}") from error
    return ArchiveMetadata(directory, fields)


def check_same_fields(directory: Path, theirs: str | None, ours: str | None) -> None:
    """UsageError if an archive was written with other fields."""
    if theirs != ours:
        raise UsageError(
            f"{directory} was written with other fields ({theirs or 'all in one map'}); give another --to"
        )


def record_directory_names(
    directory: Path, streams: Sequence[str], ascii_only: bool = False
) -> dict[str, str]:
    """Record the streams whose directories have encoded names.

    ascii_only: whether the writer can only write ASCII into paths.

    Returns:
        The names of their directories, by stream.
    """
    wanted = encoded_names(streams, ascii_only)
    known = recorded_names(directory / HEADRACE_DIRECTORY)
    if wanted.keys() - known.keys():
        both = dict(sorted((known | wanted).items()))
        write_atomically(
            directory / HEADRACE_DIRECTORY / NAMES_FILE, json.dumps(both, ensure_ascii=False, indent=1) + "\n"
        )
    return {stream: name for name, stream in wanted.items()}


def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically: a crash leaves the old file or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def archive_lock(directory: Path) -> Iterator[None]:
    """Hold the archive's lock in the block. HeadraceError if another process holds it."""
    with (directory / HEADRACE_DIRECTORY / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HeadraceError(
                f"{directory} is being archived to, or compacted, by another process"
            ) from error
        yield
