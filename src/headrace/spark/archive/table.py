"""An archive and what is live of its streams, as one table.

    archive   |=================|            the files that count, up to the seam
    stream         xxxxxxxxx|===|=======>    after it what the server has
              start ----------- ^ seam ---- end

The seam of a stream is the ID up to which it is archived. Up to it only the archive is read, after it only
the stream: no entry comes twice, whether the stream still has what was archived or not, and none is missed
as long as nothing was trimmed that was not archived. An entry that was deleted from the stream after it was
archived is still in the table.

The seam is looked at before the stream. An archive that grows meanwhile, and a stream trimmed up to the new
seam, would leave a gap; the ranges behind the seam are anchored, so their tasks see it and fail.
"""

from __future__ import annotations

import datetime
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from headrace.client.stream_names import stream_key
from headrace.errors import HeadraceError
from headrace.spark.archive.files import DAYS_APART_MAX, Archive, ArchivedFile, archived_files, read_archive
from headrace.spark.archive.partition_reader import (
    ArchivePartition,
    ArchivePartitionReader,
    FileRowGroups,
    check_columns,
)
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.errors import StreamReadError, brief_errors
from headrace.spark.options import Options
from headrace.spark.source.arrow_reader import make_range_reader
from headrace.spark.source.data_loss import log, report_loss
from headrace.spark.source.history import identity_mismatch, observe_streams
from headrace.spark.source.offsets import START, Offsets, advance_offsets, parse_id, sorted_offsets
from headrace.spark.source.planner import OffsetRange, plan_ranges
from headrace.spark.source.positions import Position
from headrace.spark.source.pushdown import PushdownReader
from headrace.spark.source.reader import HeadraceReader
from headrace.spark.source.stream_state import stream_states

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROWS_PER_TASK = 1_000_000  # of archived entries, at most, unless a row group has more
PLAN_ATTEMPTS_MAX = 5  # at an archive that grows while it is planned
DAY_MS = 24 * 3600 * 1000
EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True)
class LivePartition:
    """A task: ranges of one stream, one after the other.

    witness: the end of the first range, an entry, which must still be there when that has been read.
    """

    ranges: tuple[OffsetRange, ...]
    anchor_id: str | None = None


@brief_errors
class ArchiveReader(HeadraceReader):
    """spark.read.format("headrace").option("archive", path)

    Reads the streams that the options name; if they name none, those that are in the archive.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._directory = Path(options.archive or "")
        if not (options.subscribe or options.subscribe_pattern or options.assign):
            options = replace(options, subscribe=tuple({f.stream for f in archived_files(self._directory)}))
        super().__init__(options, schema)
        self._archive = Archive((), {})
        self._live_ends: Offsets = {}  # where the streams of the server end
        self._first_after_gap: dict[
            str, str | None
        ] = {}  # of streams without the entry of their seam: the next one

    def partitions(self) -> list[InputPartition]:
        """The tasks: those of the archive, and those of the streams."""
        now = read_archive(self._directory)
        for _ in range(PLAN_ATTEMPTS_MAX):
            self._archive, self._first_after_gap = now, {}
            parts = super().partitions()
            if not self._first_after_gap:
                return parts
            # Trimmed up to the seam, or up to a newer one that the archive has by now?
            now = read_archive(self._directory)
            if now.archived_through == self._archive.archived_through:
                self._warn_of_gaps()
                return parts
        raise HeadraceError(
            f"the archive {self._directory} grows, and its streams are trimmed, faster than both can be "
            "looked at. Run the query again."
        )

    def _last_ids(self) -> Offsets:
        """Where each stream ends: live, or in the archive if it is not there or was recreated."""
        self._live_ends = super()._last_ids()
        archived = {s: end for s, end in self._archive.highest_ids.items() if self._subscription.matches(s)}
        return sorted_offsets(advance_offsets(self._live_ends, archived))

    def _partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        seams = {s: seam for s, seam in self._archive.archived_through.items() if s in end}
        lasts = {s: last for s, last in self._archive.highest_ids.items() if s in end}
        ranges = {s: (start.get(s, START), min(end[s], last, key=parse_id)) for s, last in lasts.items()}
        parts: list[ArchivePartition | LivePartition] = []
        parts += plan_archive(self._archive, ranges, self._layout, self._options)
        recreated_since = self._report_recreated(seams)
        live_end = {s: min(i, self._live_ends.get(s, START), key=parse_id) for s, i in end.items()}
        parts += self._plan_live(
            start, live_end, {s: seam for s, seam in seams.items() if s not in recreated_since}
        )
        return [InputPartition(part) for part in parts]

    def _plan_live(self, start: Offsets, end: Offsets, seams: Offsets) -> list[LivePartition]:
        """What lies behind the seams; all of a stream that has none."""
        after = {s: max(start.get(s, START), seams.get(s, START), key=parse_id) for s in end}
        at_seam = {s for s in seams if after[s] == seams[s] and after[s] != start.get(s)}
        first = self._first_from(at_seam, after)
        parts = []
        for part in plan_ranges(self._servers, after, end, self._options, None, start, self._end_positions):
            if part.stream in at_seam and part.after == seams[part.stream] != first[part.stream]:
                self._first_after_gap[part.stream] = first[part.stream]
                parts.append(after_trimmed_anchor(part, first[part.stream]))
            else:
                parts.append(LivePartition((part,)))
        return parts

    def _report_recreated(self, seams: Offsets) -> set[str]:
        """The streams that were recreated since they were archived; that is reported.

        Nothing that such a stream has now is in the archive, so it is read from its beginning.
        """
        positions = {s: self._archive.positions.get(s, Position(seam)) for s, seam in seams.items()}
        found = set()
        for stream, sight in observe_streams(self._servers, seams, positions).items():
            why = identity_mismatch(positions[stream], sight)
            if why is not None:
                found.add(stream)
                report_loss(
                    self._options,
                    f"the stream {stream!r} was deleted and recreated, or a failover took entries back: it "
                    f"is archived up to {seams[stream]}, and {why}. Entries that are in both come twice.",
                )
        return found

    def _warn_of_gaps(self) -> None:
        """Streams that begin behind their seams: more may be trimmed than is archived. It cannot be known."""
        for stream, now in stream_states(self._servers, self._first_after_gap).items():
            seam = self._archive.archived_through[stream]
            is_there = now.first_id is not None and parse_id(now.first_id) < parse_id(
                seam
            )  # the seam was deleted
            if not is_there and now.first_number != 1:  # nor was anything trimmed since it was made
                log.warning(
                    "The archive of the stream %r ends at %s, and the first entry that the server has after "
                    "that is %s: whatever lay between was trimmed before it was archived.",
                    stream,
                    seam,
                    self._first_after_gap[stream] or "none",
                )

    def _first_from(self, streams: Iterable[str], seams: Offsets) -> dict[str, str | None]:
        """The first entry that each stream has from its seam on: the seam's own, if that is still there."""
        answers = self._servers.request(
            streams, lambda pipe, s: pipe.xrange(stream_key(s), min=seams[s], count=1)
        )
        for stream, answer in answers.items():
            if isinstance(answer, Exception):
                raise StreamReadError(stream, answer)
        return {s: entries[0][0].decode() if entries else None for s, entries in answers.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        part = partition.value
        if isinstance(part, ArchivePartition):
            yield from ArchivePartitionReader(part, self._layout, self._options).batches()
        elif isinstance(part, LivePartition):
            for each in part.ranges:
                yield from make_range_reader(each, self._layout, self._options).batches()
                if each.upto == part.anchor_id:
                    self._check_anchor_kept(each)

    def _check_anchor_kept(self, part: OffsetRange) -> None:
        """Streams are trimmed from the front: what is still there was there when it was read."""
        first = self._first_from([part.stream], {part.stream: part.upto})
        if first[part.stream] != part.upto:
            report_loss(
                self._options,
                f"the stream {part.stream!r} was trimmed behind the end of its archive, {part.after}, while "
                "it was read. If that was archived meanwhile, run the query again.",
            )


def after_trimmed_anchor(part: OffsetRange, first: str | None) -> LivePartition:
    """The range that begins at a seam whose entry the stream no longer has; first is the first it has.

    That cannot begin at its anchor. So its first entry is read by itself, and is the anchor of the rest.
    """
    part = replace(part, anchored=False)
    if first is None or parse_id(first) > parse_id(part.upto):
        return LivePartition((part,))
    ranges = [replace(part, upto=first)]
    if first != part.upto:
        ranges.append(replace(part, after=first, anchored=True, start_number=None))
    return LivePartition(tuple(ranges), first)


def plan_archive(
    archive: Archive,
    ranges: Mapping[str, tuple[str, str]],
    layout: ColumnLayout,
    options: Options,
) -> list[ArchivePartition]:
    """The tasks that read of each stream in ranges what lies after one ID and up to another.

    UsageError if the files lack a column.
    """
    groups: dict[str, list[tuple[Path, int, int]]] = defaultdict(list)
    for file in archive.files:
        if file.stream in ranges and may_hold(file, *ranges[file.stream]):
            groups[file.stream] += list_row_groups(file.path, layout)
    rows = sum(group[2] for theirs in groups.values() for group in theirs)
    share = min(rows // (options.min_partitions or os.cpu_count() or 1) + 1, ROWS_PER_TASK)
    if options.max_records_per_partition:
        share = min(share, options.max_records_per_partition)
    parts = []
    for stream, theirs in groups.items():
        after, upto = ranges[stream]
        whole = after == START and upto == archive.highest_ids[stream]
        for pieces in group_row_groups(theirs, share):
            parts.append(ArchivePartition(stream, pieces, after, upto, whole))
    return parts


def may_hold(file: ArchivedFile, after: str, upto: str) -> bool:
    """Whether a file can hold an entry after one ID and up to another, by the day it is of."""
    if parse_id(after) >= parse_id(upto):
        return False
    if file.date is None:
        return True
    days = (file.date - EPOCH).days
    first, last = (parse_id(each)[0] // DAY_MS for each in (after, upto))
    return first - DAYS_APART_MAX <= days <= last + DAYS_APART_MAX


def list_row_groups(path: Path, layout: ColumnLayout) -> list[tuple[Path, int, int]]:
    """The row groups of a file: path, number, rows."""
    with pq.ParquetFile(path) as file:
        check_columns(layout.specs, file.schema_arrow, path)
        metadata = file.metadata
        return [(path, n, metadata.row_group(n).num_rows) for n in range(metadata.num_row_groups)]


def group_row_groups(
    groups: Iterable[tuple[Path, int, int]], share: int
) -> Iterator[tuple[FileRowGroups, ...]]:
    """Row groups in order, so many together that they have about `share` rows; at least one."""
    pieces: dict[Path, list[int]] = {}
    rows = 0
    for path, number, count in groups:
        if pieces and rows + count > share:
            yield tuple(FileRowGroups(path, tuple(numbers)) for path, numbers in pieces.items())
            pieces, rows = {}, 0
        pieces.setdefault(path, []).append(number)
        rows += count
    if pieces:
        yield tuple(FileRowGroups(path, tuple(numbers)) for path, numbers in pieces.items())


class PushdownArchiveReader(PushdownReader, ArchiveReader):
    """The same where Spark pushes filters down: they narrow both parts."""
