"""Read an archive and the live part of its streams as one table.

    archive   |=================|            the committed files, up to archived_through
    stream         xxxxxxxxx|===|=======>    then the entries of the server
              start ----------- ^ ---------- end

archived_through is the ID up to which a stream is archived. Up to it only the archive is read, after it only
the stream. So no entry is read twice, and none is missing unless it was trimmed before it was archived. An
entry that was deleted from the stream after it was archived is in the table.

With the option archiveOnly only the files are read, without a connection to a server.

archived_through is read before the stream. If the archive grows meanwhile, and the stream is trimmed up to
the new ID, entries would be missing. The live ranges are anchored, so their tasks detect this and fail.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.archive.files import Archive, ArchivedFile, read_archive
from headrace.archive.location import archive_location
from headrace.archive.rows import FileRowGroups, may_contain
from headrace.client.stream_names import stream_key
from headrace.errors import HeadraceError
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.offsets import Offsets, advance_offsets, sorted_offsets
from headrace.positions.position import Position
from headrace.positions.recreation import identity_mismatch_reason, observe_streams
from headrace.positions.stream_state import StreamReadError, stream_states
from headrace.spark.archive_partitions import ArchivePartition, ArchivePartitionReader, check_columns
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.errors import brief_errors
from headrace.spark.options import Options
from headrace.spark.source.batch_reader import BatchReader
from headrace.spark.source.data_loss import log, report_loss
from headrace.spark.source.planner import OffsetRange, plan_ranges

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_TASK = 1_000_000  # maximum archived entries of a task, unless a row group has more
PLAN_ATTEMPTS_MAX = 5  # for an archive that grows during planning


@dataclass(frozen=True)
class LivePartition:
    """A task: consecutive ranges of one stream.

    anchor_id: the entry at the end of the first range, which must still exist after that range was read.
    """

    ranges: tuple[OffsetRange, ...]
    anchor_id: str | None = None


@brief_errors
class ArchiveReader(BatchReader):
    """Reads the archive that the option archive names, and the live part of its streams.

    Reads the streams that the options name; if they name none, the streams of the archive.
    """

    def __init__(self, options: Options, layout: ColumnLayout) -> None:
        self._location = archive_location(options.archive or "", options.archive_options)
        self._archive = read_archive(self._location)
        if not (options.subscribe or options.subscribe_pattern or options.assign):
            options = replace(options, subscribe=tuple({f.stream for f in self._archive.files}))
        super().__init__(options, layout)
        self._live_ends: Offsets = {}  # the last IDs on the server
        # Streams on the server without their last archived entry: the first entry after it.
        self._first_after_gap: dict[str, str | None] = {}

    def partitions(self) -> Sequence[Any]:
        """Return the tasks of the archive and of the streams."""
        now = read_archive(self._location)
        for _ in range(PLAN_ATTEMPTS_MAX):
            self._archive, self._first_after_gap = now, {}
            parts = super().partitions()
            if not self._first_after_gap:
                return parts
            # The stream was trimmed. If the archive has grown since, plan again with its new end.
            now = read_archive(self._location)
            if now.archived_through == self._archive.archived_through:
                self._warn_of_gaps()
                return parts
        raise HeadraceError(
            f"the archive {self._location} grew, and its streams were trimmed, {PLAN_ATTEMPTS_MAX} times "
            "during planning. Run the query again."
        )

    def _streams(self) -> tuple[str, ...]:
        """Return the streams to read now; of the archive only, if a pattern selects them without a server."""
        if self._options.archive_only and not self._subscription.is_explicit:
            return tuple(s for s in self._archive.highest_ids if self._subscription.matches(s))
        return super()._streams()

    def _last_ids(self) -> Offsets:
        """Return the end of each stream: the higher one of the server's and the archive's."""
        self._live_ends = {} if self._options.archive_only else super()._last_ids()
        archived = {s: end for s, end in self._archive.highest_ids.items() if self._subscription.matches(s)}
        return sorted_offsets(advance_offsets(self._live_ends, archived))

    def _plan_tasks(self, start: Offsets, end: Offsets) -> Sequence[Any]:
        through = {s: i for s, i in self._archive.archived_through.items() if s in end}
        lasts = {s: last for s, last in self._archive.highest_ids.items() if s in end}
        ranges = {s: (start.get(s, START), min(end[s], last, key=parse_id)) for s, last in lasts.items()}
        parts: list[ArchivePartition | LivePartition] = []
        parts += plan_archive(self._archive, ranges, self._layout, self._options)
        if self._options.archive_only:
            return parts
        recreated = self._report_recreated(through)
        live_end = {s: min(i, self._live_ends.get(s, START), key=parse_id) for s, i in end.items()}
        parts += self._plan_live(start, live_end, {s: i for s, i in through.items() if s not in recreated})
        return parts

    def _plan_live(self, start: Offsets, end: Offsets, through: Offsets) -> list[LivePartition]:
        """Return the tasks after the archived IDs; of streams that are not archived, all tasks."""
        after = {s: max(start.get(s, START), through.get(s, START), key=parse_id) for s in end}
        continued = {s for s in through if after[s] == through[s] and after[s] != start.get(s)}
        first = self._first_ids(continued, after)
        parts = []
        for part in plan_ranges(self._servers, after, end, self._options, None, start, self._end_positions):
            if part.stream in continued and part.after == through[part.stream] != first[part.stream]:
                self._first_after_gap[part.stream] = first[part.stream]
                parts.append(task_after_trimmed_anchor(part, first[part.stream]))
            else:
                parts.append(LivePartition((part,)))
        return parts

    def _report_recreated(self, through: Offsets) -> set[str]:
        """Report the streams that were recreated since they were archived, and return them.

        They are read from their beginning, because none of their entries is in the archive.
        """
        positions = {s: self._archive.positions.get(s, Position(i)) for s, i in through.items()}
        found = set()
        for stream, observation in observe_streams(self._servers, through, positions).items():
            mismatch = identity_mismatch_reason(positions[stream], observation)
            if mismatch is not None:
                found.add(stream)
                report_loss(
                    self._options,
                    f"the stream {stream!r} was deleted and recreated, or a failover took entries back: it "
                    f"is archived up to {through[stream]}, and {mismatch}. Entries that are in both are "
                    "read twice.",
                )
        return found

    def _warn_of_gaps(self) -> None:
        """Warn about streams that begin after their archives: entries between may have been trimmed."""
        for stream, state in stream_states(self._servers, self._first_after_gap).items():
            end = self._archive.archived_through[stream]
            has_earlier = state.first_id is not None and parse_id(state.first_id) < parse_id(end)
            # With an earlier entry, only the entry `end` was deleted. With number 1, nothing was trimmed.
            if not has_earlier and state.first_number != 1:
                log.warning(
                    "The archive of the stream %r ends at %s, and the first entry on the server after that "
                    "is %s: any entries between them were trimmed before they were archived.",
                    stream,
                    end,
                    self._first_after_gap[stream] or "none",
                )

    def _first_ids(self, streams: Iterable[str], start: Offsets) -> dict[str, str | None]:
        """Return the first entry of each stream from its start on, which may be the start itself."""
        replies = self._servers.request_each(
            streams, lambda pipe, s: pipe.xrange(stream_key(s), min=start[s], count=1)
        )
        for stream, reply in replies.items():
            if isinstance(reply, Exception):
                raise StreamReadError(stream, reply)
        return {s: entries[0][0].decode() if entries else None for s, entries in replies.items()}

    def read(self, task: ArchivePartition | LivePartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if isinstance(task, ArchivePartition):
            yield from ArchivePartitionReader(task, self._layout, self._options).batches()
            return
        for part in task.ranges:
            yield from self._read_range(part)
            if part.upto == task.anchor_id:
                self._check_anchor_kept(part)

    def _check_anchor_kept(self, part: OffsetRange) -> None:
        """Report a loss if the end of the range was trimmed: then entries before it may be missing, too."""
        first = self._first_ids([part.stream], {part.stream: part.upto})
        if first[part.stream] != part.upto:
            report_loss(
                self._options,
                f"the stream {part.stream!r} was trimmed after the end of its archive, {part.after}, while "
                "it was read. If those entries were archived meanwhile, run the query again.",
            )


def task_after_trimmed_anchor(part: OffsetRange, first: str | None) -> LivePartition:
    """Return the task for a range whose anchor no longer exists; `first` is the first entry after it.

    That entry is read as a range of its own, and becomes the anchor of the rest.
    """
    part = replace(part, anchored=False)
    if first is None or parse_id(first) > parse_id(part.upto):
        return LivePartition((part,))
    ranges = [replace(part, upto=first)]
    if first != part.upto:
        ranges.append(replace(part, after=first, anchored=True, after_number=None))
    return LivePartition(tuple(ranges), first)


def plan_archive(
    archive: Archive,
    ranges: Mapping[str, tuple[str, str]],
    layout: ColumnLayout,
    options: Options,
) -> list[ArchivePartition]:
    """Return the tasks for the archived entries of each stream after one ID and up to another.

    Raises:
        UsageError: if the files lack a column.
    """
    groups: dict[str, list[tuple[ArchivedFile, int, int]]] = defaultdict(list)
    if archive.files:
        check_columns(layout.specs, archive)
    for file in archive.files:
        if file.stream in ranges and may_contain(file, *ranges[file.stream]):
            groups[file.stream] += list_row_groups(file)
    rows = sum(group[2] for stream_groups in groups.values() for group in stream_groups)
    share = min(rows // (options.min_partitions or os.cpu_count() or 1) + 1, ROWS_PER_TASK)
    if options.max_records_per_partition:
        share = min(share, options.max_records_per_partition)
    parts = []
    for stream, stream_groups in groups.items():
        after, upto = ranges[stream]
        whole = after == START and upto == archive.highest_ids[stream]
        for pieces in group_row_groups(stream_groups, share):
            parts.append(ArchivePartition(stream, pieces, after, upto, whole))
    return parts


def list_row_groups(file: ArchivedFile) -> list[tuple[ArchivedFile, int, int]]:
    """Return (file, index of the row group, number of its rows) for each row group of a file."""
    with file.open() as parquet:
        metadata = parquet.metadata
        return [(file, n, metadata.row_group(n).num_rows) for n in range(metadata.num_row_groups)]


def group_row_groups(
    groups: Iterable[tuple[ArchivedFile, int, int]], share: int
) -> Iterator[tuple[FileRowGroups, ...]]:
    """Group row groups in order, so that each group has about `share` rows, and at least one row group."""
    pieces: dict[ArchivedFile, list[int]] = {}
    rows = 0
    for file, number, count in groups:
        if pieces and rows + count > share:
            yield tuple(FileRowGroups(each, tuple(numbers)) for each, numbers in pieces.items())
            pieces, rows = {}, 0
        pieces.setdefault(file, []).append(number)
        rows += count
    if pieces:
        yield tuple(FileRowGroups(each, tuple(numbers)) for each, numbers in pieces.items())
