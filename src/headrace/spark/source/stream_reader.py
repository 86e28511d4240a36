"""The stream reader: how far each micro-batch goes. The checkpoint's offsets are the only truth.

Spark asks one long-lived instance for offsets, in a process of its own:

    initialOffset              only of a query that has no checkpoint; again when its first batch is planned
    latestOffset(start)        all before start is done with; again at once when there is nothing new
    reportLatestOffset         after that, for the progress report
    partitions(start, end)     the tasks of the batch; also, before anything else, of one to be done again
    commit(end)                when the next batch is planned
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.spark.errors import brief_errors
from headrace.spark.options import Options
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.group_progress import GroupProgress
from headrace.spark.source.history import StreamHistories
from headrace.spark.source.offsets import START, Offsets, at_most, in_order, raised
from headrace.spark.source.positions import Position, Positions, ids_of, parse_positions
from headrace.spark.source.range_reader import report_loss
from headrace.spark.source.reader import Reader
from headrace.spark.source.start_offsets import resolved, starts
from headrace.spark.source.stream_state import Tail
from headrace.spark.source.trigger_limits import Admission, default_limit

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# An idle query asks 5 times a second instead of Spark's 80; q.stop() still returns at once.
TAIL_BLOCK_MS = 200

log = logging.getLogger(__name__)


@brief_errors
class HeadraceStreamReader(Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """spark.readStream.format("headrace")"""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._given: Offsets = {}  # the IDs where the batch that was planned last ends
        self._asked_before = False
        self._histories = StreamHistories(self._servers, options)
        self._numbers = EntryNumbers()
        self._admission = Admission(self._servers, options, self._numbers)
        self._group = GroupProgress(options, self._numbers)

    def initialOffset(self) -> dict[str, str]:
        """Where a new query starts. Spark asks twice, and the stream may grow meanwhile: the same answer."""
        if self._initial is None:
            found, _ = self._look({})
            self._subscription.check(found)
            self._initial = resolved(self._starts(), {s: str(each.position) for s, each in found.items()})
        return dict(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit for the triggers that respect one."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and nothing that comes later."""
        self._target = self._tails()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """How far the next micro-batch goes; start itself when there is nothing new, or not enough.

        A stream that was recreated begins a new generation, in which it is read from its beginning.
        """
        start = in_order(start)
        found, begin = self._look(parse_positions(start))
        after = ids_of(begin)
        self._group.begin(after)
        self._group.follow(after)
        self._given = after
        if self._must_pin(start):
            return start
        end = self._news(after, found)
        if end == after and self._target is None:
            if not self._servers.wait({s: after.get(s, START) for s in self._streams()}, TAIL_BLOCK_MS):
                return self._offsets(begin, after)
            found, begin = self._look(begin)
            after = ids_of(begin)
            end = self._news(after, found)
        if end != after:
            self._given = self._admission.cut(after, end, found, limit, wait=self._target is None)
            if self._given == after and self._target is None:
                time.sleep(TAIL_BLOCK_MS / 1000)
        return self._offsets(begin, self._given)

    def _offsets(self, begin: Positions, end: Offsets) -> dict[str, str]:
        """The IDs in end as offsets that tell what identifies the streams."""
        numbers = {s: n for s, i in end.items() if (n := self._numbers.proven(s, i)) is not None}
        marked = self._histories.marked(begin, end, numbers)
        return {stream: str(marked[stream]) for stream in sorted(marked)}

    def _starts(self) -> dict[str, str]:
        return starts(self._options, self._streams(), "latest")

    def _must_pin(self, start: Offsets) -> bool:
        """Whether to begin with an empty batch, which writes its start into the checkpoint.

        Without it a query that fails in its first batch would look for the start anew when it is restarted:
        "latest" would be later, a time perhaps another, and nobody would see what came in between.
        """
        first = not self._asked_before
        self._asked_before = True
        some = [*self._streams(), ""]  # also if there is none yet that a pattern matches
        earliest = set(starts(self._options, some, "latest").values()) <= {"earliest", START}
        return first and not earliest and self._initial is not None and start == self._initial

    def _look(self, start: Positions) -> tuple[dict[str, Tail], Positions]:
        """How the streams are now, and the start, in which recreated streams are set back to their beginning.

        Raises:
            DataLoss: if a stream went away with entries unread, or was recreated, and failOnDataLoss is true.
        """
        found, begin, losses = self._histories.look(self._streams(), start, self._starts())
        for loss in losses:
            report_loss(self._options, loss)
        for stream in (s for s in begin if begin[s] != start[s]):
            self._restart(stream, found[stream])
        self._numbers.recall(begin)
        self._numbers.forget_before(ids_of(begin))
        self._numbers.learn(found)
        return found, begin

    def _restart(self, stream: str, now: Tail) -> None:
        """A recreated stream is read from its beginning: nothing that was known of it holds any more."""
        log.info("The stream %r is read from its beginning.", stream)
        self._numbers.forget(stream)
        self._group.restart(stream)
        if self._target is not None:
            self._target = in_order(self._target | {stream: now.last})

    def _news(self, start: Offsets, found: dict[str, Tail]) -> Offsets:
        """start, moved on to the end of each stream, or to the target of an AvailableNow run."""
        last = {stream: each.last for stream, each in found.items()}
        return raised(start, last if self._target is None else at_most(last, self._target))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the streams and what the query has yet to read, for the progress report.

        By stream: id, the last there was; lag, how many entries there are behind the micro-batch that was
        planned last, or null; lagBytes, about how many bytes those take, or null. No server is asked.
        """
        if self._histories.tails is None:
            return None
        report = {}
        for stream, now in sorted(self._histories.tails.items()):
            lag = self._numbers.lag(stream, self._given.get(stream, START), now)
            size = self._admission.sizes.known(stream)
            many = None if lag is None or size is None else round(lag * size)
            report[stream] = {"id": now.last, "lag": lag, "lagBytes": many}
        return report

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """The tasks of one micro-batch; the same again when it is run again.

        Raises:
            DataLoss: if a stream was recreated since the end was chosen, and failOnDataLoss is true. Else it
                is left out here: the next micro-batch reads it from its beginning.
        """
        begin, goal = parse_positions(start), parse_positions(end)
        good, losses = self._histories.check_batch(begin, goal, self._starts())
        for loss in losses:
            report_loss(self._options, loss)
        begin = {s: each for s, each in begin.items() if is_same_generation(each, goal.get(s))}
        after = ids_of(begin)
        self._group.begin(after)
        numbers = {s: each.number for s, each in begin.items() if each.number is not None and each.exact}
        return self._plan(after, ids_of(good), self._starts(), numbers, good)

    def commit(self, end: dict[str, str]) -> None:
        """Show that all before end is done with, if that has not been shown yet."""
        self._group.follow(ids_of(parse_positions(end)), create=False)

    def stop(self) -> None:
        """Close the connections. Spark does not always call this."""
        self._servers.close()
        self._group.close()


def is_same_generation(position: Position, other: Position | None) -> bool:
    """Whether two positions of a stream are of the same stream under its name."""
    return other is None or position.generation == other.generation
