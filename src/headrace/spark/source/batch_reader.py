"""The batch reader, and the base class of the stream reader: they plan tasks, and read them. Without PySpark.

Spark plans on the driver and pickles a reader to its workers, so the instance that returns offsets is not the
one that reads. So everything that a task needs is in its OffsetRange. Connections are made only when they are
needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.positions.offsets import Offsets, cap_offsets, sorted_offsets
from headrace.positions.position import Position, Positions
from headrace.positions.stream_state import stream_states
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.errors import brief_errors
from headrace.spark.options import Options
from headrace.spark.source.arrow_reader import make_range_reader
from headrace.spark.source.planner import OffsetRange, plan_ranges
from headrace.spark.source.read_bounds import ReadBounds
from headrace.spark.source.start_offsets import (
    check_offset_names,
    end_offsets,
    resolve_offsets,
    start_offsets,
    without_identity,
)
from headrace.spark.source.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class BaseReader:
    """Base class of the readers: options, layout, servers, and subscription."""

    def __init__(self, options: Options, layout: ColumnLayout) -> None:
        self._options = options
        self._layout = layout
        self._servers = options.servers()
        self._subscription = Subscription(self._servers, options)
        self._end_positions: Positions = {}  # of the streams, at the last call of _last_ids()

    def _streams(self) -> tuple[str, ...]:
        """Return the streams to read now. Raises UsageError if an option has an offset of another stream."""
        streams = self._subscription.streams()
        if self._subscription.is_explicit:
            check_offset_names(self._options, streams)
        return streams

    def last_ids(self) -> Offsets:
        """Return the last ID of each stream that exists: the end of a batch read that begins now."""
        return self._last_ids()

    def _last_ids(self) -> Offsets:
        """Return the last ID of each stream that exists."""
        found = stream_states(self._servers, self._streams())
        self._end_positions = {stream: each.end_position for stream, each in found.items()}
        return sorted_offsets({stream: each.last_id for stream, each in found.items()})

    def _plan(
        self,
        start: Offsets,
        end: Offsets,
        chosen_starts: Mapping[str, str],
        numbers: Mapping[str, int] | None = None,
        expected_positions: Mapping[str, Position] | None = None,
    ) -> list[OffsetRange]:
        return plan_ranges(
            self._servers, start, end, self._options, numbers, chosen_starts, expected_positions
        )

    def _read_range(self, part: OffsetRange) -> Iterator[pa.RecordBatch]:
        return make_range_reader(part, self._layout, self._options).batches()


@brief_errors
class BatchReader(BaseReader):
    """Reads streams from one offset up to another.

    Attributes:
        bounds: the streams and IDs to which filters limit the read; None without filters.
    """

    bounds: ReadBounds | None = None

    @property
    def layout(self) -> ColumnLayout:
        """The columns."""
        return self._layout

    def partitions(self) -> Sequence[Any]:
        """Return the tasks for the entries that exist now, each an argument for read()."""
        last_ids = self._last_ids()
        self._subscription.check_assigned(last_ids)
        streams = {*self._streams(), *last_ids}
        for stream in sorted(streams - last_ids.keys()):
            log.warning("There is no stream %r: a batch read of it has no rows.", stream)
        chosen = without_identity(start_offsets(self._options, streams, "earliest"))
        start = resolve_offsets(chosen, last_ids)
        end = resolve_offsets(end_offsets(self._options, streams), last_ids)
        end = cap_offsets(end, last_ids)
        return self._plan_tasks(*(self.bounds.narrow_offsets(start, end) if self.bounds else (start, end)))

    def _plan_tasks(self, start: Offsets, end: Offsets) -> Sequence[Any]:
        return self._plan(start, end, chosen_starts=start, expected_positions=self._end_positions)

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        yield from self._read_range(task)
