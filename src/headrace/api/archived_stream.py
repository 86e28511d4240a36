"""Join a stream and its archive to one table for db.sql().

    archive   |=================|            the committed files, up to archived_through
    stream         xxxxxxxxx|===|=======>    then the entries of the database
                                ^ the anchor

Up to archived_through only the archive is read, after it only the stream. So each entry is read once, and the
archived part of the stream is not read, even in cold files. If the archive grows after its state was
read, and the stream is trimmed up to the archive's new end, entries would be missing. So the anchor, the last
archived entry, must still be there after the stream was read. Trimming keeps the last archived entry.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.api.arrow_batches import describe_misfits
from headrace.api.backend import Backend
from headrace.api.codecs.arguments import encode_name
from headrace.api.info import dict_from_reply
from headrace.archive.files import Archive, ArchivedFile, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.rows import has_fields_map, typed_columns
from headrace.archive.sampling import sample_and_unread_count
from headrace.archive.typed_reader import TypedArchiveReader
from headrace.arrow.malformed import MalformedEntry
from headrace.errors import CodecError, CommandError, HeadraceError
from headrace.fingerprint import entry_fingerprint
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.position import Position
from headrace.positions.recreation import StreamObservation, identity_mismatch_reason
from headrace.positions.stream_state import parse_stream_state

log = logging.getLogger("headrace.stream")

ATTEMPTS_MAX = 5  # for an archive that grows while its end is looked up


@dataclass(frozen=True)
class ArchivedStream:
    """One stream of an archive, at one moment.

    Attributes:
        backend: the database of the stream; not a replica, which may be behind the archive.
        stream: the stream.
        archive: the archive.
        anchor: the ID of an entry that must still exist after the stream was read; None: nothing to check.
    """

    backend: Backend
    stream: str
    archive: Archive
    anchor: bytes | None = None

    @property
    def files(self) -> list[ArchivedFile]:
        """The files of the stream."""
        return [file for file in self.archive.files if file.stream == self.stream]

    @property
    def archived_through(self) -> str:
        """The ID up to which the stream is archived; 0-0 if it is not."""
        return self.archive.archived_through.get(self.stream, START)

    @property
    def live_start(self) -> bytes:
        """The argument of XRANGE where reading the stream starts: `-`, or `(` and the last archived ID."""
        return b"-" if self.archived_through == START else b"(" + self.archived_through.encode()

    def columns(self) -> list[pa.Field]:
        """Return the typed columns of fields; none if all fields are one map, or the stream has no files."""
        schema = self.archive.columns
        if has_fields_map(schema) or not self.files:
            return []
        return typed_columns(schema)

    def sample(self) -> list[Mapping[bytes, bytes]]:
        """Return the fields of some archived entries, from which columns are inferred."""
        return sample_and_unread_count(self.files)[0]

    def batches(self, schema: pa.Schema, after: str, upto: str | None) -> Iterator[pa.RecordBatch]:
        """Yield the archived entries after an ID, up to and including `upto`; None: to the last one.

        Raises:
            CodecError: if a value of a column that is not nullable is missing or does not fit.
        """
        last = self.archive.highest_ids.get(self.stream, START)
        end = last if upto is None else min(last, upto, key=parse_id)
        if parse_id(after) >= parse_id(end):
            return
        reader = TypedArchiveReader(self.stream, schema)
        counts = [0] * len(reader.decoded_fields)
        try:
            for batch, misfits in reader.batches(self.files, after, end):
                for position, count in enumerate(misfits):
                    counts[position] += count
                yield batch
        except MalformedEntry as malformed:
            raise CodecError(str(malformed)) from None
        finally:
            for field, count in zip(reader.decoded_fields, counts, strict=True):
                if count:
                    log.warning("%s", describe_misfits(self.stream, field.name, count))

    def check_anchor(self) -> None:
        """Raise HeadraceError if the anchor was removed, because the stream was trimmed while it was read."""
        if self.anchor is not None and not has_entry(self.backend, self.stream, self.anchor):
            raise HeadraceError(
                f"the stream {self.stream!r} was trimmed after the end of its archive, "
                f"{self.archived_through}, while it was read; run the query again"
            )


def locate_and_read_archive(
    archive: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[ArchiveLocation, Archive]:
    """Read the state of the archive that a user names.

    Raises:
        UsageError: if there is none, or the package deltalake is not installed.
        HeadraceError: if its store fails.
    """
    location = archive_location(archive, storage_options)
    return location, read_archive(location)


def find_archived_stream(
    backend: Backend, location: ArchiveLocation, archive: Archive, stream: str
) -> ArchivedStream:
    """Return the archived part of a stream, with the anchor that detects a later trim.

    Raises:
        HeadraceError: if the stream was recreated since it was archived, or the archive grows too fast.
    """
    for _ in range(ATTEMPTS_MAX):
        found = ArchivedStream(backend, stream, archive)
        if found.archived_through == START or not has_stream(backend, stream):
            return found
        check_same_stream(found)
        through = found.archived_through.encode()
        if has_entry(backend, stream, through):
            return ArchivedStream(backend, stream, archive, through)
        first = backend.request(b"XRANGE", encode_name(stream), b"(" + through, b"+", b"COUNT", b"1")
        archive = read_archive(location)
        if archive.archived_through.get(stream, START) == found.archived_through:
            # The entry was deleted, or trimmed although nothing after it was archived.
            return ArchivedStream(backend, stream, archive, first[0][0] if first else None)
    raise HeadraceError(
        f"the archive {location} grew, and the stream {stream!r} was trimmed, {ATTEMPTS_MAX} times while the "
        "query began; run it again"
    )


def check_same_stream(found: ArchivedStream) -> None:
    """Raise HeadraceError if the stream was recreated: its entries do not continue the archive."""
    position = found.archive.positions.get(found.stream) or Position(found.archived_through)
    key = encode_name(found.stream)
    entries = found.backend.request(b"XRANGE", key, position.id.encode(), position.id.encode())
    named = dict_from_reply(found.backend.request(b"XINFO", b"STREAM", key))
    for name in ("first-entry", "last-entry"):
        if named[name]:
            named[name] = (named[name][0], fields_as_dict(named[name][1]))
    fingerprint = entry_fingerprint(fields_as_dict(entries[0][1])) if entries else None
    mismatch = identity_mismatch_reason(position, StreamObservation(parse_stream_state(named), fingerprint))
    if mismatch is not None:
        raise HeadraceError(
            f"the stream {found.stream!r} was deleted and recreated, or a failover took entries back: it is "
            f"archived up to {found.archived_through}, and {mismatch}. Query the stream without archive="
        )


def fields_as_dict(words: list[Any]) -> dict[bytes, Any]:
    """Return the fields and values of an entry as a dict."""
    return dict(zip(words[::2], words[1::2], strict=True))


def has_stream(backend: Backend, stream: str) -> bool:
    """Return whether the database has the stream."""
    kind: object = backend.request(b"TYPE", encode_name(stream))
    return kind in (b"stream", "stream")


def has_entry(backend: Backend, stream: str, entry_id: bytes) -> bool:
    """Return whether a stream has an entry."""
    try:
        return bool(backend.request(b"XRANGE", encode_name(stream), entry_id, entry_id, b"COUNT", b"1"))
    except CommandError as error:
        raise HeadraceError(f"the stream {stream!r} cannot be read: {error}") from error
