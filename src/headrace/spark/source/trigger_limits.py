"""How much of the news goes into a micro-batch: at most so many entries or bytes, and not before so many.

The limit is shared by the streams in proportion to their backlogs, but every stream gets something. Where the
n-th entry lies is found by reading on to it; its bytes are skipped, not decoded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import redis
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from headrace.errors import UsageError
from headrace.spark.options import Options
from headrace.spark.servers import Servers
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.offsets import START, Offsets, in_order, parse_id
from headrace.spark.source.planner import nth_id, survey, together
from headrace.spark.source.stream_state import Tail
from headrace.spark.stream_names import key

FEW_PROBES = 8
SIZES_S = 10.0  # for so long what MEMORY USAGE said is good enough


def default_limit(options: Options) -> ReadLimit:
    """What Spark is told. It knows limits of one kind; for the others latestOffset sees the options."""
    if options.max_offsets_per_trigger:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_offsets_per_trigger:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


class Admission:
    """The limits of one query."""

    def __init__(self, servers: Servers, options: Options, numbers: EntryNumbers) -> None:
        self._servers = servers
        self._options = options
        self._numbers = numbers
        self.sizes = EntrySizes(servers)
        self._last_batch = time.monotonic()

    def cut(
        self,
        start: Offsets,
        end: Offsets,
        tails: Mapping[str, Tail],
        limit: ReadLimit,
        wait: bool = True,
    ) -> Offsets:
        """How far the batch goes, from start towards end.

        wait: answer start itself while the least is not there yet.
        """
        news = [s for s in end if parse_id(end[s]) > parse_id(start.get(s, START))]
        self._estimate(start, tails, news)
        self.sizes.of({s: tails[s] for s in news})
        if not isinstance(limit, ReadAllAvailable):
            if wait and self._is_too_little(start, end, tails, news):
                return start
            most = self._most(limit, tails, news)
            if most is not None:
                end = self._first(most, start, end, tails, news)
        self._last_batch = time.monotonic()
        return end

    def _is_too_little(
        self, start: Offsets, end: Offsets, tails: Mapping[str, Tail], news: list[str]
    ) -> bool:
        least = self._options.min_offsets_per_trigger
        if not least or time.monotonic() - self._last_batch >= self._options.max_trigger_delay:
            return False
        return sum(self._backlogs(start, end, tails, news).values()) < least

    def _most(self, limit: ReadLimit, tails: Mapping[str, Tail], news: list[str]) -> int | None:
        """The limits as one of entries; None for no limit."""
        options = self._options
        limits = [options.max_offsets_per_trigger] if options.max_offsets_per_trigger else []
        if isinstance(limit, ReadMaxRows):
            limits.append(limit.max_rows)
        most_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.max_bytes_per_trigger
        if most_bytes:
            sizes = self.sizes.of({s: tails[s] for s in news}, needed=True)
            largest = max(sizes.values(), default=1.0)
            limits.append(max(1, int(most_bytes / max(largest, 1.0))))
        return min(limits) if limits else None

    def _first(
        self, most: int, start: Offsets, end: Offsets, tails: Mapping[str, Tail], news: list[str]
    ) -> Offsets:
        """The first `most` entries."""
        if sum(self._at_most(s, start, tails[s]) for s in news) <= most:
            return end
        shares = dict.fromkeys(news, most)
        if len(news) > 1:
            shares = self._shares(most, self._backlogs(start, end, tails, news))
        cut_down = dict(end)
        for stream, share in shares.items():
            after, last = start.get(stream, START), end[stream]
            cut_down[stream] = nth_id(self._servers, stream, after, last, share)
            if share and cut_down[stream] != last:
                self._numbers.count_on(stream, after, cut_down[stream], share, tails[stream])
        return in_order({s: i for s, i in cut_down.items() if s in start or i != START})

    def _shares(self, most: int, backlogs: dict[str, float]) -> dict[str, int]:
        """In proportion, but a short stream is not to wait until a long one has been read."""
        least = 1 if most >= len(backlogs) else 0
        return {s: n + least for s, n in quotas(backlogs, most - least * len(backlogs)).items()}

    def _at_most(self, stream: str, start: Offsets, tail: Tail) -> int:
        """As many entries there cannot be more of after start."""
        position = self._numbers.position(stream, start.get(stream, START), tail)
        if tail.added is None or position is None or not position.exact:
            return tail.length
        return min(tail.length, tail.added - position.value)

    def _backlogs(
        self, start: Offsets, end: Offsets, tails: Mapping[str, Tail], news: list[str]
    ) -> dict[str, float]:
        """About how many entries there are to read, of each stream. The numbers tell, or a few probes."""
        found: dict[str, float] = {}
        for stream in news:
            lag = self._numbers.lag(stream, start.get(stream, START), tails[stream])
            if lag is not None and end[stream] == tails[stream].last:
                found[stream] = min(lag, tails[stream].length)
        return found | self._probed(start, {s: end[s] for s in news if s not in found})

    def _estimate(self, start: Offsets, tails: Mapping[str, Tail], news: list[str]) -> None:
        """Learn about which numbers the starts have, of a query that was restarted in the middle."""
        ends = {}
        for stream in news:
            tail = tails[stream]
            position = self._numbers.position(stream, start.get(stream, START), tail)
            if position is None and tail.added is not None:
                ends[stream] = tail.last
        for stream, backlog in self._probed(start, ends).items():
            self._numbers.estimate(stream, start.get(stream, START), (tails[stream].added or 0) - backlog)

    def _probed(self, start: Offsets, end: Offsets) -> dict[str, float]:
        surveys = together(
            self._servers, {s: survey(s, start.get(s, START), end[s], FEW_PROBES) for s in end}
        )
        return {s: sum(stretch.mass for stretch in stretches) for s, stretches in surveys.items()}


def quotas(backlog: dict[str, float], most: int) -> dict[str, int]:
    """most entries shared in proportion to the backlogs; the largest remainders get what is left over."""
    total = sum(backlog.values())
    if not total:
        return dict.fromkeys(backlog, 0)
    exact = {s: most * mass / total for s, mass in backlog.items()}
    shares = {s: int(part) for s, part in exact.items()}
    left = most - sum(shares.values())
    by_remainder: Iterable[str] = sorted(exact, key=lambda s: (shares[s] - exact[s], s))
    for stream in list(by_remainder)[:left]:
        shares[stream] += 1
    return shares


class EntrySizes:
    """About how many bytes an entry of a stream takes: what MEMORY USAGE says, by the number of entries."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._sizes: dict[str, float | None] = {}  # None: the server does not tell
        self._refused: dict[str, redis.ResponseError] = {}  # and why
        self._asked = 0.0

    def of(self, tails: Mapping[str, Tail], needed: bool = False) -> dict[str, float]:
        """The sizes for those streams that have entries; asked again now and then.

        needed: raise UsageError if the server does not tell.
        """
        now = time.monotonic()
        if now - self._asked >= SIZES_S or any(s not in self._sizes for s in tails):
            self._asked = now
            for stream, answer in self._servers.ask(tails, lambda pipe, s: pipe.memory_usage(key(s))).items():
                self._refused.pop(stream, None)
                if isinstance(answer, redis.ResponseError):
                    self._refused[stream] = answer
                told = isinstance(answer, int)
                self._sizes[stream] = answer / max(tails[stream].length, 1) if told else None
        for stream in tails:
            if needed and stream in self._refused:
                raise UsageError(
                    f"maxBytesPerTrigger needs MEMORY USAGE, which fails: {self._refused[stream]}"
                )
        return {s: size for s in tails if (size := self._sizes.get(s)) is not None}

    def known(self, stream: str) -> float | None:
        """The size, if the server told it lately."""
        return self._sizes.get(stream)
