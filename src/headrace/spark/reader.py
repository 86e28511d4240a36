"""The batch and the stream reader: offsets and tasks on the driver, ranges on the executors.

Spark pickles a reader to its workers, and asks another instance for offsets than the one that reads: what a
task needs travels in its Range. Nothing here connects before it has to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.spark.arrow_path import range_reader
from headrace.spark.offsets import START, Offsets, at_most, in_order, parse_id, raised
from headrace.spark.options import Options
from headrace.spark.planner import limited, plan
from headrace.spark.range_reader import report_loss
from headrace.spark.schema import Layout
from headrace.spark.shards import Servers
from headrace.spark.tails import tail

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TAIL_BLOCK_MS = (
    200  # an idle query asks 5 times a second instead of Spark's 80; q.stop() still returns at once
)


class _Reader:
    """What both readers share: the options, the layout, the servers, and read()."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._layout = Layout(schema, options.timestamp_format)
        self._servers = Servers(options.url)

    def _tails(self) -> Offsets:
        """Where each stream ends now; streams that do not exist are left out."""
        return in_order(tail(self._servers, self._options.streams))

    def _resolve(self, wanted: str | dict[str, str], default: str) -> Offsets:
        """An offset option as IDs, of all subscribed streams."""
        by_stream = {
            s: wanted if isinstance(wanted, str) else wanted.get(s, default) for s in self._options.streams
        }
        tails = self._tails() if "latest" in by_stream.values() else {}
        words = {"earliest": START}
        return in_order(
            {s: tails.get(s, START) if w == "latest" else words.get(w, w) for s, w in by_stream.items()}
        )

    def _partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        return [InputPartition(part) for part in plan(self._servers, start, end, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Spark makes one task without a value when there is nothing to read."""
        if partition.value is not None:
            yield from range_reader(partition.value, self._layout, self._options).batches()


class HeadraceReader(_Reader, DataSourceReader):
    """spark.read.format("headrace"): from startingOffsets to endingOffsets."""

    def partitions(self) -> list[InputPartition]:
        """The tasks. Spark plans anew for every action, so each sees the streams as they then are."""
        start = self._resolve(self._options.starting_offsets or "earliest", "earliest")
        wanted = self._options.ending_offsets or "latest"
        end = self._resolve(wanted, "latest")
        return self._partitions(start, at_most(end, self._tails()))


class HeadraceStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """spark.readStream.format("headrace"): the checkpoint's offsets are the only truth."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._asked_before = False

    def initialOffset(self) -> dict[str, str]:
        """Where a new query starts. Spark asks twice, and the stream may grow meanwhile: the same answer."""
        if self._initial is None:
            self._initial = self._resolve(self._options.starting_offsets or "latest", "earliest")
        return dict(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, for the triggers that respect a limit."""
        most = self._options.max_offsets_per_trigger
        return ReadMaxRows(most) if most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and nothing that comes later."""
        self._target = self._tails()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """How far the next micro-batch goes; start itself when there is nothing new."""
        start = in_order(start)
        if self._must_pin(start):
            return start
        end = self._news(start)
        if end == start and self._target is None:
            self._servers.wait({s: start.get(s, START) for s in self._options.streams}, TAIL_BLOCK_MS)
            end = self._news(start)
        if end != start and isinstance(limit, ReadMaxRows):
            return limited(self._servers, start, end, limit.max_rows)
        return end

    def _must_pin(self, start: Offsets) -> bool:
        """Whether to begin with an empty batch, which writes "latest" into the checkpoint as IDs.

        Without it a query that fails in its first batch would resolve "latest" anew when it is restarted, and
        never see what came in between.
        """
        first = not self._asked_before
        self._asked_before = True
        wanted = self._options.starting_offsets or "latest"
        moving = wanted == "latest" or (isinstance(wanted, dict) and "latest" in wanted.values())
        return first and moving and self._initial is not None and start == self._initial

    def _news(self, start: Offsets) -> Offsets:
        """start, moved on to the end of each stream, or to the target of an AvailableNow run."""
        tails = self._tails()
        self._latest = tails
        for stream, last in tails.items():
            if parse_id(last) < parse_id(start.get(stream, START)):
                report_loss(
                    self._options,
                    f"the stream {stream!r} was deleted and made anew: it ends at {last}, and the query has "
                    f"read it up to {start[stream]}.",
                )
        if self._target is not None:
            tails = at_most(tails, self._target)
        return raised(start, tails)

    def reportLatestOffset(self) -> dict[str, str] | None:
        """The ends of the streams when they were last looked at, for the progress report."""
        return self._latest

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """The tasks of one micro-batch; the same again when it is run again."""
        return self._partitions(in_order(start), in_order(end))

    def commit(self, end: dict[str, str]) -> None:
        """Nothing to do: the checkpoint holds the offsets, and ranges leave nothing pending."""

    def stop(self) -> None:
        """Close the connection. Spark does not always call this."""
        self._servers.close()
