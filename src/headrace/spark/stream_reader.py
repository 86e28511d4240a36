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

from headrace.spark.admission import Admission, default_limit
from headrace.spark.entry_numbers import EntryNumbers
from headrace.spark.errors import brief_errors
from headrace.spark.groups import GroupProgress
from headrace.spark.offsets import START, Offsets, at_most, in_order, is_time, parse_id, raised
from headrace.spark.options import Options
from headrace.spark.range_reader import report_loss
from headrace.spark.reader import Reader
from headrace.spark.starts import resolved, starts
from headrace.spark.tails import Tail, tails

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
        self._tails_seen: dict[str, Tail] | None = None
        self._given: Offsets = {}  # where the batch that was planned last ends
        self._asked_before = False
        self._made_anew: set[tuple[str, str]] = set()  # streams that end before an ID, as was told
        self._numbers = EntryNumbers()
        self._admission = Admission(self._servers, options, self._numbers)
        self._group = GroupProgress(options, self._numbers)

    def initialOffset(self) -> dict[str, str]:
        """Where a new query starts. Spark asks twice, and the stream may grow meanwhile: the same answer."""
        if self._initial is None:
            found = self._look({})
            self._subscription.check(found)
            self._initial = resolved(self._starts(), {s: each.last for s, each in found.items()})
        return dict(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit for the triggers that respect one."""
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and nothing that comes later."""
        self._target = self._tails()

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """How far the next micro-batch goes; start itself when there is nothing new, or not enough."""
        start = in_order(start)
        found = self._look(start)
        self._group.begin(start)
        self._group.follow(start)
        self._given = start
        if self._must_pin(start):
            return start
        end = self._news(start, found)
        if end == start and self._target is None:
            if not self._servers.wait({s: start.get(s, START) for s in self._streams()}, TAIL_BLOCK_MS):
                return start
            found = self._look(start)
            end = self._news(start, found)
        if end == start:
            return start
        self._given = self._admission.cut(start, end, found, limit, wait=self._target is None)
        if self._given == start and self._target is None:
            time.sleep(TAIL_BLOCK_MS / 1000)
        return self._given

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

    def _look(self, start: Offsets) -> dict[str, Tail]:
        """How the streams are now. A stream that went back, or away with entries unread, is a loss."""
        found = tails(self._servers, self._streams())
        chosen = self._starts()
        for stream, now in found.items():
            after = start.get(stream, START)
            is_read = after != chosen.get(stream) and not is_time(after)
            if is_read and parse_id(now.last) < parse_id(after) and (stream, after) not in self._made_anew:
                self._made_anew.add((stream, after))
                report_loss(
                    self._options,
                    f"the stream {stream!r} was deleted and made anew: it ends at {now.last}, and the query "
                    f"has read it up to {after}. Entries up to that ID will not be read.",
                )
        before = self._tails_seen or {}
        for stream in before.keys() - found.keys():
            if start and parse_id(before[stream].last) > parse_id(start.get(stream, START)):
                report_loss(
                    self._options,
                    f"the stream {stream!r} was deleted: it had entries up to {before[stream].last}, and the "
                    f"query has read it up to {start.get(stream, START)}.",
                )
            elif start:
                log.warning("The stream %r is gone; the query had read all of it that it knew.", stream)
        self._tails_seen = found
        self._numbers.forget_before(start)
        self._numbers.learn(found)
        return found

    def _news(self, start: Offsets, found: dict[str, Tail]) -> Offsets:
        """start, moved on to the end of each stream, or to the target of an AvailableNow run."""
        last = {stream: each.last for stream, each in found.items()}
        return raised(start, last if self._target is None else at_most(last, self._target))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the streams and what the query has yet to read, for the progress report.

        By stream: id, the last there was; lag, how many entries there are behind the micro-batch that was
        planned last, or null; lagBytes, about how many bytes those take, or null. No server is asked.
        """
        if self._tails_seen is None:
            return None
        report = {}
        for stream, now in sorted(self._tails_seen.items()):
            lag = self._numbers.lag(stream, self._given.get(stream, START), now)
            size = self._admission.sizes.known(stream)
            many = None if lag is None or size is None else round(lag * size)
            report[stream] = {"id": now.last, "lag": lag, "lagBytes": many}
        return report

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """The tasks of one micro-batch; the same again when it is run again."""
        start = in_order(start)
        self._group.begin(start)
        numbers = {s: n for s, i in start.items() if (n := self._numbers.exact(s, i)) is not None}
        return self._plan(start, in_order(end), self._starts(), numbers)

    def commit(self, end: dict[str, str]) -> None:
        """Show that all before end is done with, if that has not been shown yet."""
        self._group.follow(in_order(end))

    def stop(self) -> None:
        """Close the connections. Spark does not always call this."""
        self._servers.close()
        self._group.close()
