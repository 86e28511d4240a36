"""The batch reader, and what it shares with the stream reader: tasks on the driver, ranges on the executors.

Spark pickles a reader to its workers, and asks another instance for offsets than the one that reads: what a
task needs travels in its Range. Nothing here connects before it has to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.decode.schema import Layout
from headrace.spark.errors import brief_errors
from headrace.spark.options import Options
from headrace.spark.servers import Servers
from headrace.spark.source.arrow_reader import range_reader
from headrace.spark.source.offsets import Offsets, at_most, in_order
from headrace.spark.source.planner import plan
from headrace.spark.source.positions import Position, Positions
from headrace.spark.source.start_offsets import check_names, ends, resolved, starts
from headrace.spark.source.stream_state import tails
from headrace.spark.source.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


@brief_errors
class Reader:
    """What both readers share: the options, the layout, the servers, which streams there are, and read()."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._layout = Layout(schema, options.timestamp_format)
        self._servers = Servers(options.url)
        self._subscription = Subscription(self._servers, options)
        self._ends: Positions = {}  # of the streams, when they were looked at last

    def _streams(self) -> tuple[str, ...]:
        """The streams to read now. UsageError if an option speaks of one that is not among them."""
        streams = self._subscription.streams()
        if self._subscription.named:
            check_names(self._options, streams)
        return streams

    def _tails(self) -> Offsets:
        """Where each stream ends now; streams that do not exist are left out."""
        found = tails(self._servers, self._streams())
        self._ends = {stream: each.position for stream, each in found.items()}
        return in_order({stream: each.last for stream, each in found.items()})

    def _plan(
        self,
        start: Offsets,
        end: Offsets,
        chosen: Mapping[str, str],
        numbers: Mapping[str, int] | None = None,
        seen: Mapping[str, Position] | None = None,
    ) -> list[InputPartition]:
        parts = plan(self._servers, start, end, self._options, numbers, chosen, seen)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Spark makes one task without a value when there is nothing to read."""
        if partition.value is not None:
            yield from range_reader(partition.value, self._layout, self._options).batches()


@brief_errors
class HeadraceReader(Reader, DataSourceReader):
    """spark.read.format("headrace"): from where the options say it starts to where they say it ends."""

    def partitions(self) -> list[InputPartition]:
        """The tasks. Spark plans anew for every action, so each sees the streams as they then are."""
        tails = self._tails()
        self._subscription.check(tails)
        streams = {*self._streams(), *tails}
        for stream in sorted(streams - tails.keys()):
            log.warning("There is no stream %r: a batch read of it has no rows.", stream)
        start = resolved(starts(self._options, streams, "earliest"), tails)
        end = resolved(ends(self._options, streams), tails)
        return self._partitions(start, at_most(end, tails))

    def _partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        return self._plan(start, end, chosen=start, seen=self._ends)
