"""The metadata of an archive, in its directory, and its lock.

DIR/_headrace/streams.json     its columns (typed fields or one map), and the time zone of its days
DIR/_headrace/stream.json      the same for an archive of one stream, whose paths have no stream name
DIR/_headrace/names.json       the streams with encoded directory names (spark.archive.names)
DIR/_headrace/lock             locked by the process that archives or compacts
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
        only_stream: Its only stream, if its paths have no stream name; else None.
    """

    directory: Path
    fields: str | None
    only_stream: str | None = None

    @property
    def checkpoint(self) -> Path:
        """The directory of Spark's checkpoint."""
        return self.directory / HEADRACE_DIRECTORY / "checkpoint"

    @property
    def partitions(self) -> list[str]:
        """The partition columns."""
        return ["stream", "date"] if self.only_stream is None else ["date"]


def create_or_open(directory: Path, streams: Sequence[str], fields: str | None, zone: str) -> ArchiveMetadata:
    """Create an archive in the directory, or open the existing one.

    Args:
        directory: The directory; created if it does not exist.
        streams: The streams to archive.
        fields: Typed columns as a schema string; None for one map of all fields.
        zone: The time zone of its days.

    Raises:
        UsageError: if the archive has other fields, streams or another time zone, or the directory holds
            other files.
    """
    one_stream_file = directory / HEADRACE_DIRECTORY / "stream.json"
    streams_file = directory / HEADRACE_DIRECTORY / "streams.json"
    if one_stream_file.is_file():
        existing = json.loads(one_stream_file.read_text())
        if [existing["stream"]] != list(streams):
            raise UsageError(
                f"{directory} is an archive of stream {existing['stream']!r} only; give another --to"
            )
        check_same_fields(directory, existing["fields"], fields)
        return ArchiveMetadata(directory, fields, existing["stream"])
    if streams_file.is_file():
        existing = json.loads(streams_file.read_text())
        check_same_fields(directory, existing["fields"], fields)
        if existing["zone"] != zone:
            raise UsageError(
                f"{directory} has days of time zone {existing['zone']}, not {zone}; set --time-zone"
            )
        return ArchiveMetadata(directory, fields)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty and not an archive; give another --to")
    try:
        streams_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(streams_file, json.dumps({"fields": fields, "zone": zone}) + "\n")
    except OSError as error:
        raise UsageError(f"{directory}: cannot create an archive: {error.strerror}") from error
    return ArchiveMetadata(directory, fields)


def check_same_fields(directory: Path, existing: str | None, wanted: str | None) -> None:
    """Raise UsageError if an archive was written with other fields."""
    if existing != wanted:
        raise UsageError(
            f"{directory} was written with other fields ({existing or 'all in one map'}); give another --to"
        )


def record_directory_names(
    directory: Path, streams: Sequence[str], ascii_only: bool = False
) -> dict[str, str]:
    """Record the streams whose directories have encoded names.

    Args:
        directory: The archive.
        streams: The streams to archive.
        ascii_only: Whether the writer can write only ASCII into paths.

    Returns:
        The encoded directory names, by stream; other streams are left out.
    """
    needed = encoded_names(streams, ascii_only)
    recorded = recorded_names(directory / HEADRACE_DIRECTORY)
    if needed.keys() - recorded.keys():
        both = dict(sorted((recorded | needed).items()))
        write_atomically(
            directory / HEADRACE_DIRECTORY / NAMES_FILE, json.dumps(both, ensure_ascii=False, indent=1) + "\n"
        )
    return {stream: name for name, stream in needed.items()}


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
