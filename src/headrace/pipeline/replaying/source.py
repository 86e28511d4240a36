"""The source of a replay: the entries of one stream in order, from its archive, then from the live stream.

The batches have a column `id` and a map `fields`. Batches from an archive with typed columns have a column
for each field instead, and `_fields`: a map of all fields of an entry that the columns cannot represent.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.archive.files import EXACT_COLUMN, Archive, ArchivedFile, read_archive
from headrace.archive.location import ArchiveLocation, archive_location
from headrace.archive.ordered_reader import entries_in_order
from headrace.archive.rows import exact_as_map, exact_fields, has_fields_map
from headrace.client.servers import Servers
from headrace.client.url import without_password
from headrace.errors import HeadraceError, UsageError
from headrace.pipeline.replaying.position import SourceIdentity
from headrace.pipeline.shared.similar_streams import similar_stream_suffix
from headrace.positions.entry_ids import START, U64_MAX, EntryId, format_id, parse_id, previous_id
from headrace.positions.recreation import identity_mismatch_reason, observe_streams
from headrace.positions.stream_state import last_ids, stream_states
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.arrow_reader import make_range_reader
from headrace.spark.source.data_loss import DataLoss
from headrace.spark.source.planner import OffsetRange

ID_PATTERN = re.compile(r"\d+(-\d+)?")
MAX_ID = format_id((U64_MAX, U64_MAX))

RESTART_HINT = (
    "--restart replays its present entries from the beginning, into an empty stream or with --new-ids."
)

# Fields are copied as bytes: they need not be text.
ENTRY_SCHEMA = pa.schema([("_id", pa.string()), ("_fields", pa.map_(pa.binary(), pa.binary()))])


@dataclass(frozen=True)
class ReplaySource:
    """One stream: archived entries if an archive is given, then live entries if a URL is given."""

    stream: str
    url: str | None
    archive: str | os.PathLike[str] | ArchiveLocation | None = None

    @property
    def location(self) -> ArchiveLocation | None:
        """The location of the archive; None without one."""
        return None if self.archive is None else archive_location(self.archive)

    def last_id(self) -> str:
        """Return the current last ID; 0-0 for an empty stream. UsageError if the stream does not exist."""
        archive = self._read_archive()
        files = files_of_stream(archive, self.stream)
        last = archive.highest_ids.get(self.stream, START) if archive else START
        live, hint = None, ""
        if self.url is not None:
            with Servers(self.url) as servers:
                live = last_ids(servers, [self.stream]).get(self.stream)
                if live is None and not files:
                    hint = similar_stream_suffix(servers, self.stream)
        if live is None and not files:
            url = None if self.url is None else without_password(self.url)
            where = " and ".join(str(place) for place in (self.location, url) if place)
            raise UsageError(f"there is no stream {self.stream!r} in {where}{hint}")
        return max(live or START, last, key=parse_id)

    def identity(self) -> SourceIdentity:
        """Return the identity of the source as it is now."""
        archive, live = self._read_archive(), None
        if self.url is not None:
            with Servers(self.url) as servers:
                state = stream_states(servers, [self.stream]).get(self.stream)
            live = None if state is None else state.end_position
        return SourceIdentity(live, archive.table_id if archive else "")

    def check_identity(self, before: SourceIdentity | None) -> None:
        """Check that the source is the one of an earlier run, if there was one.

        Raises:
            DataLoss: if the stream was deleted and recreated, or the archive was replaced.
        """
        if before is None:
            return
        archive = self._read_archive()
        if archive is not None and before.table_id not in ("", archive.table_id):
            raise DataLoss(
                f"another archive is in {self.location} now than when this replay began. {RESTART_HINT}"
            )
        if before.live_end is None or self.url is None:
            return
        with Servers(self.url) as servers:
            observed = observe_streams(servers, [self.stream], {self.stream: before.live_end}).get(
                self.stream
            )
        reason = None if observed is None else identity_mismatch_reason(before.live_end, observed)
        if reason is not None:
            raise DataLoss(
                f"the stream {self.stream!r} was deleted and recreated, or lost entries in a failover, since "
                f"this replay began: it had entries up to {before.live_end.id}, and {reason}. {RESTART_HINT}"
            )

    def batches(self, after: str, upto: str, resumed: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the entries after the ID `after`, up to and including `upto`.

        Args:
            after: The ID after which to begin.
            upto: The last ID.
            resumed: Whether `after` is the ID of an entry, whose presence is then checked.

        Raises:
            DataLoss: if live entries were trimmed before they were read, as during a slow or resumed replay,
                or the stream was recreated since it was archived.
            HeadraceError: if an archived entry has no fields (restore_fields).
        """
        archive = self._read_archive()
        through = archive.archived_through.get(self.stream, START) if archive else START
        last = archive.highest_ids.get(self.stream, START) if archive else START
        if after != upto:
            self._check_not_recreated(archive)
        anchored = resumed and parse_id(after) >= parse_id(through)
        if archive is not None and parse_id(after) < parse_id(last):
            files = files_of_stream(archive, self.stream)
            end = min(upto, last, key=parse_id)
            for batch in entries_in_order(files, archive.columns, after, end):
                yield from restore_fields(batch)
        after = max(after, through, key=parse_id)
        if self.url is not None and parse_id(after) < parse_id(upto):
            options = parse_options({"url": self.url, "assign": json.dumps([self.stream])}, "batch")
            part = OffsetRange(self.stream, after, upto, anchored)
            try:
                for batch in make_range_reader(
                    part, ColumnLayout.of_arrow(ENTRY_SCHEMA, "epoch_ms"), options
                ).batches():
                    yield batch.rename_columns(["id", "fields"])
            except DataLoss as loss:
                message = str(loss).partition(" Set failOnDataLoss")[0]
                raise DataLoss(f"{message} To replay the remaining entries, use --from.") from None

    def _read_archive(self) -> Archive | None:
        """Return the state of the archive; None without one."""
        return None if self.location is None else read_archive(self.location)

    def _check_not_recreated(self, archive: Archive | None) -> None:
        """Check that the stream on the server is the archived one.

        Raises:
            DataLoss: if the stream was deleted and recreated.
        """
        position = archive.positions.get(self.stream) if archive else None
        if position is None or self.url is None:
            return
        with Servers(self.url) as servers:
            observed = observe_streams(servers, [self.stream], {self.stream: position}).get(self.stream)
        reason = None if observed is None else identity_mismatch_reason(position, observed)
        if reason is not None:
            raise DataLoss(
                f"the stream {self.stream!r} was deleted and recreated, or lost entries in a failover: it "
                f"is archived up to {position.id}, and {reason}. Replay the archive with --archive-only, and "
                "the live stream without --archive."
            )


def files_of_stream(archive: Archive | None, stream: str) -> list[ArchivedFile]:
    """Return the files of a stream; none without an archive."""
    return [file for file in archive.files if file.stream == stream] if archive else []


def restore_fields(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows with their original fields, also those that the columns could not represent.

    Raises:
        HeadraceError: if the archive lacks the fields of an entry, because an earlier version wrote it.
    """
    if EXACT_COLUMN in batch.schema.names:
        batch = apply_exact_fields(batch)
    if has_fields_map(batch.schema) and batch.column("fields").null_count:
        missing = batch.column("id").filter(batch.column("fields").is_null())
        raise HeadraceError(
            f"entry {missing[0]} has no fields in the archive: they were not UTF-8, and the version that "
            "archived them kept only text. Replay the stream, or exclude the entry with --from and --to"
        )
    yield batch


def apply_exact_fields(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without the column `_exact`; its fields replace all other columns of an entry."""
    ids = batch.column("id")
    if has_fields_map(batch.schema):
        return pa.RecordBatch.from_arrays([ids, exact_fields(batch)], ["id", "fields"])
    exact = batch.column(EXACT_COLUMN)
    rest = batch.drop_columns([EXACT_COLUMN])
    if exact.null_count == len(exact):
        return rest
    columns = [
        column if name == "id" else pc.if_else(exact.is_valid(), pa.scalar(None, column.type), column)
        for name, column in zip(rest.schema.names, rest.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays([*columns, exact_as_map(exact)], [*rest.schema.names, "_fields"])


def id_before(text: str) -> str:
    """Return the ID before the first ID of a range that begins at `text`.

    Args:
        text: An ID, a time in milliseconds, or an ISO 8601 time (UTC if without a zone).

    Raises:
        UsageError: if it is none of them, or is before 1970.
    """
    first = first_id_at(text)
    return START if first == (0, 0) else format_id(previous_id(first))


def last_included_id(text: str) -> str:
    """Return the last ID of a range that ends at `text`.

    Args:
        text: An ID, which is included; a time in milliseconds, whose IDs are included; or an ISO 8601 time
            (UTC if without a zone), whose IDs are not.

    Raises:
        UsageError: if it is none of them, or is before 1970.
    """
    if ID_PATTERN.fullmatch(text):
        return format_id(checked_id(text)) if "-" in text else format_id((checked_id(text)[0], U64_MAX))
    return id_before(text)


def first_id_at(text: str) -> EntryId:
    """Return an ID as numbers, or the first ID at a time. UsageError if it is neither, or before 1970."""
    if ID_PATTERN.fullmatch(text):
        return checked_id(text)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"neither an ID nor a time: {text!r}; expected one such as 1357081200000-0 or 2013-01-01T23:00"
        ) from error
    ms = time.replace(tzinfo=time.tzinfo or datetime.UTC).timestamp() * 1000
    if ms < 0:
        raise UsageError(f"time {text} is before 1970, which no ID can represent")
    return round(ms), 0


def checked_id(text: str) -> EntryId:
    """Return an ID as numbers. UsageError if it is not valid."""
    try:
        return parse_id(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
