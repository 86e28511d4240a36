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
from headrace.spark.archive.files import OURS
from headrace.spark.archive.names import NAMES, encoded_names, recorded_names


@dataclass(frozen=True)
class Home:
    """An archive's directory, its fields; alone: its one stream, if that does not stand in its paths."""

    directory: Path
    fields: str | None
    alone: str | None = None

    @property
    def checkpoint(self) -> Path:
        """Spark's: how far the archive has got."""
        return self.directory / OURS / "checkpoint"

    @property
    def partitions(self) -> list[str]:
        """The columns that are directories."""
        return ["stream", "date"] if self.alone is None else ["date"]


def claim(directory: Path, streams: Sequence[str], fields: str | None, zone: str) -> Home:
    """Makes the directory an archive, or finds that it is one that may be continued so.

    UsageError if it is another's, or holds other files.
    """
    alone = directory / OURS / "stream.json"
    mark = directory / OURS / "streams.json"
    if alone.is_file():
        theirs = json.loads(alone.read_text())
        if [theirs["stream"]] != list(streams):
            raise UsageError(
                f"{directory} is the archive of stream {theirs['stream']!r} alone; give another --to"
            )
        same_fields(directory, theirs["fields"], fields)
        return Home(directory, fields, theirs["stream"])
    if mark.is_file():
        theirs = json.loads(mark.read_text())
        same_fields(directory, theirs["fields"], fields)
        if theirs["zone"] != zone:
            raise UsageError(
                f"{directory} has days of time zone {theirs['zone']}, not {zone}; say --time-zone"
            )
        return Home(directory, fields)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty and not an archive; give another --to")
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        write_whole(mark, json.dumps({"fields": fields, "zone": zone}) + "\n")
    except OSError as error:
        raise UsageError(f"{directory}: cannot write there: {error.strerror}") from error
    return Home(directory, fields)


def same_fields(directory: Path, theirs: str | None, ours: str | None) -> None:
    """UsageError if an archive was written with other fields."""
    if theirs != ours:
        raise UsageError(
            f"{directory} was written with other fields ({theirs or 'all in one map'}); give another --to"
        )


def record_names(directory: Path, streams: Sequence[str], ascii_only: bool = False) -> dict[str, str]:
    """Note the streams whose directories are not called like them.

    ascii_only: whether the writer can only write ASCII into paths.

    Returns:
        The names of their directories, by stream.
    """
    wanted = encoded_names(streams, ascii_only)
    known = recorded_names(directory / OURS)
    if wanted.keys() - known.keys():
        both = dict(sorted((known | wanted).items()))
        write_whole(directory / OURS / NAMES, json.dumps(both, ensure_ascii=False, indent=1) + "\n")
    return {stream: name for name, stream in wanted.items()}


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is there whole or not at all."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Within, nobody else archives to the directory or compacts it. HeadraceError if somebody does."""
    with (directory / OURS / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HeadraceError(
                f"{directory} is being archived to, or compacted, by another process"
            ) from error
        yield
