"""The stream reader, which decides how far each micro-batch goes. All its state is in Spark's checkpoint.

Spark calls one long-lived instance, in a process of its own:

    initialOffset              only if the query has no checkpoint; again when its first batch is planned
    latestOffset(start)        all before start is processed; called again at once if nothing is new
    reportLatestOffset         after that, for the progress report
    partitions(start, end)     the tasks of a batch; after a restart first those of the unfinished batch
    commit(end)                when the next batch is planned
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.positions.entry_ids import START
from headrace.positions.offsets import Offsets, advance_offsets, cap_offsets, sorted_offsets
from headrace.positions.position import (
    Position,
    Positions,
    ids_by_stream,
    parse_positions,
    reached_ids_by_stream,
)
from headrace.positions.recreation import RecreationDetector
from headrace.positions.stream_state import StreamState
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.errors import brief_errors
from headrace.spark.options import Options
from headrace.spark.source.batch_reader import BaseReader
from headrace.spark.source.data_loss import report_loss
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.group_progress import GroupProgress
from headrace.spark.source.start_offsets import resolve_offsets, start_offsets
from headrace.spark.source.trigger_limits import AdmissionControl, default_limit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# An idle query polls 5 times a second instead of Spark's 80; q.stop() still returns at once.
IDLE_BLOCK_MS = 200

log = logging.getLogger(__name__)


@brief_errors
class HeadraceStreamReader(BaseReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of spark.readStream.format("headrace")."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, ColumnLayout(schema, options.timestamp_format))
        self._initial_offset: Offsets | None = None
        self._available_now_target: Offsets | None = None
        self._planned_end: Offsets = {}  # the end IDs of the batch that was planned last
        self._has_planned = False
        self._recreation_detector = RecreationDetector(
            self._servers, fail_on_data_loss=options.fail_on_data_loss
        )
        self._numbers = EntryNumbers()
        self._admission_control = AdmissionControl(self._servers, options, self._numbers)
        self._group_progress = GroupProgress(options, self._numbers)

    def initialOffset(self) -> dict[str, str]:
        """Return where a new query starts: the same result each time, although the streams grow."""
        if self._initial_offset is None:
            found, _ = self._observe({})
            self._subscription.check_assigned(found)
            self._initial_offset = resolve_offsets(
                self._start_offsets(), {s: str(each.end_position) for s, each in found.items()}
            )
        return dict(self._initial_offset)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit for the triggers that respect limits."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only the entries that exist now."""
        self._available_now_target = self._last_ids()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """Return the end of the next micro-batch; start itself if there are no new entries, or too few.

        A recreated stream begins a new generation, and is read from its beginning.
        """
        start = sorted_offsets(start)
        self._servers.wait_for_replica(reached_ids_by_stream(parse_positions(start)))
        states, begin = self._observe(parse_positions(start))
        after = ids_by_stream(begin)
        self._group_progress.set_start(after)
        self._group_progress.publish(after)
        self._planned_end = after
        if self._must_checkpoint_start(start):
            return start
        end = self._available_end(after, states)
        if end == after and self._available_now_target is None:
            if not self._servers.wait_for_entries(
                {s: after.get(s, START) for s in self._streams()}, IDLE_BLOCK_MS
            ):
                return self._checkpoint_offsets(begin, after)
            states, begin = self._observe(begin)
            after = ids_by_stream(begin)
            end = self._available_end(after, states)
        if end != after:
            self._planned_end = self._admission_control.limit_batch(
                after, end, states, limit, wait=self._available_now_target is None
            )
            if self._planned_end == after and self._available_now_target is None:
                time.sleep(IDLE_BLOCK_MS / 1000)
        return self._checkpoint_offsets(begin, self._planned_end)

    def _checkpoint_offsets(self, begin: Positions, end: Offsets) -> dict[str, str]:
        """Convert the IDs in end to positions, which identify the streams, in the checkpoint's form."""
        numbers = {
            s: n for s, i in end.items() if (n := self._numbers.proven_number_or_minimum(s, i)) is not None
        }
        positions = self._recreation_detector.positions_at(begin, end, numbers)
        return {stream: str(positions[stream]) for stream in sorted(positions)}

    def _start_offsets(self) -> dict[str, str]:
        return start_offsets(self._options, self._streams(), "latest")

    def _must_checkpoint_start(self, start: Offsets) -> bool:
        """Return whether to begin with an empty batch, which writes the start into the checkpoint.

        Otherwise a query that fails in its first batch would resolve its start again after a restart:
        "latest" would be later, and the entries in between would be lost without notice.
        """
        first = not self._has_planned
        self._has_planned = True
        streams = [*self._streams(), ""]  # not empty, even if no stream matches the pattern yet
        earliest = set(start_offsets(self._options, streams, "latest").values()) <= {"earliest", START}
        return first and not earliest and self._initial_offset is not None and start == self._initial_offset

    def _observe(self, start: Positions) -> tuple[dict[str, StreamState], Positions]:
        """Return the current states, and the start with recreated streams set back to their beginning.

        Raises:
            DataLoss: if a stream was deleted with unread entries, or recreated, and failOnDataLoss is true.
        """
        states, begin, losses = self._recreation_detector.observe_and_report_losses(
            self._streams(), start, self._start_offsets()
        )
        for loss in losses:
            report_loss(self._options, loss)
        for stream in (s for s in begin if begin[s] != start[s]):
            self._reset_stream(stream, states[stream])
        self._numbers.load_positions(begin)
        self._numbers.drop_before(ids_by_stream(begin))
        self._numbers.record_last_numbers(states)
        return states, begin

    def _reset_stream(self, stream: str, state: StreamState) -> None:
        """Forget everything about a stream that was recreated."""
        log.info("The stream %r is read from its beginning.", stream)
        self._numbers.forget(stream)
        self._group_progress.reset_stream(stream)
        if self._available_now_target is not None:
            self._available_now_target = sorted_offsets(self._available_now_target | {stream: state.last_id})

    def _available_end(self, start: Offsets, states: dict[str, StreamState]) -> Offsets:
        """Return start, advanced to the end of each stream, or to the target of an AvailableNow run."""
        last = {stream: each.last_id for stream, each in states.items()}
        return advance_offsets(
            start,
            last if self._available_now_target is None else cap_offsets(last, self._available_now_target),
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the streams and the lag, for the progress report. Makes no request.

        Returns:
            For each stream: id, its last ID; lag, the number of entries after the micro-batch that was
            planned last, or None; lagBytes, about how many bytes these take, or None.
        """
        if self._recreation_detector.states is None:
            return None
        report = {}
        for stream, state in sorted(self._recreation_detector.states.items()):
            lag = self._numbers.lag(stream, self._planned_end.get(stream, START), state)
            entry_bytes = self._admission_control.entry_sizes.cached_bytes_per_entry(stream)
            lag_bytes = None if lag is None or entry_bytes is None else round(lag * entry_bytes)
            report[stream] = {"id": state.last_id, "lag": lag, "lagBytes": lag_bytes}
        return report

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """Return the tasks of one micro-batch: the same ones when it is run again.

        A stream that was recreated since the end was chosen is omitted: the next micro-batch reads it from
        its beginning.

        Raises:
            DataLoss: if a stream was recreated since the end was chosen, and failOnDataLoss is true.
        """
        begin, goal = parse_positions(start), parse_positions(end)
        good, losses = self._recreation_detector.drop_recreated_streams(begin, goal, self._start_offsets())
        for loss in losses:
            report_loss(self._options, loss)
        begin = {s: each for s, each in begin.items() if is_same_generation(each, goal.get(s))}
        after = ids_by_stream(begin)
        self._group_progress.set_start(after)
        numbers = {
            s: each.entry_number
            for s, each in begin.items()
            if each.entry_number is not None and each.entry_number_is_exact
        }
        ranges = self._plan(after, ids_by_stream(good), self._start_offsets(), numbers, good)
        return [InputPartition(part) for part in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Spark makes one task without a value if there is nothing to read."""
        if partition.value is not None:
            yield from self._read_range(partition.value)

    def positions_of(self, reached: Offsets, end: Positions) -> Positions:
        """Return the positions that belong to the IDs at which a part of a batch ends.

        Args:
            reached: The last ID of the part in each stream.
            end: The positions at the end of the batch.
        """
        inner = {s: Position(i, generation=end[s].generation) for s, i in reached.items() if end[s].id != i}
        return {s: end[s] for s in reached if s not in inner} | self._recreation_detector.with_fingerprints(
            inner
        )

    def lengths(self) -> dict[str, int]:
        """Return how many entries each stream had when the last batch was planned."""
        return {stream: state.length for stream, state in (self._recreation_detector.states or {}).items()}

    def commit(self, end: dict[str, str]) -> None:
        """Publish that all entries before end are processed, unless this was published before."""
        self._group_progress.publish(ids_by_stream(parse_positions(end)), create=False)

    def stop(self) -> None:
        """Close the connections. Spark does not always call this."""
        self._servers.close()
        self._group_progress.close()


def is_same_generation(position: Position, other: Position | None) -> bool:
    """Return whether the stream was not recreated between two positions."""
    return other is None or position.generation == other.generation
