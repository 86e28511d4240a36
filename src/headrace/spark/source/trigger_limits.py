"""Limit a micro-batch to a maximum of entries or bytes, and delay it until a minimum of entries exists.

The streams share the limit in proportion to their backlogs; each gets at least one entry if the limit
allows it. The n-th entry is found by receiving all entries up to it, which are skipped, not decoded.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping

import redis
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.errors import UsageError
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.offsets import Offsets, sorted_offsets
from headrace.positions.stream_state import StreamState, stream_states
from headrace.spark.options import Options
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.planner import nth_id, range_estimate_steps, run_in_rounds

BACKLOG_PROBES = 8
SIZES_TTL_S = 10.0  # how long the reply to MEMORY USAGE is used


def default_limit(options: Options) -> ReadLimit:
    """Return the limit for Spark, which supports only one kind; latestOffset applies the others."""
    if options.max_offsets_per_trigger:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_offsets_per_trigger:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()


class AdmissionControl:
    """Applies the limits of one query to its micro-batches."""

    def __init__(self, servers: Servers, options: Options, numbers: EntryNumbers) -> None:
        self._servers = servers
        self._options = options
        self._numbers = numbers
        self.entry_sizes = EntrySizes(servers)
        self._last_batch_time = time.monotonic()
        self._last_served = ""  # the last stream that got an entry when there were fewer than streams

    def limit_batch(
        self,
        start: Offsets,
        end: Offsets,
        states: Mapping[str, StreamState],
        limit: ReadLimit,
        wait: bool = True,
    ) -> Offsets:
        """Return the end of the batch, from start towards end.

        Args:
            wait: whether to return start itself while the minimum is not reached.
        """
        last = end
        unread = [s for s in end if parse_id(end[s]) > parse_id(start.get(s, START))]
        self._estimate_starts(start, states, unread)
        self.entry_sizes.bytes_per_entry({s: states[s] for s in unread})
        if not isinstance(limit, ReadAllAvailable):
            # The estimate may need requests, and not every limit needs it.
            backlogs = functools.cache(lambda: self._backlogs(start, last, states, unread))
            if wait and self._must_delay_batch(backlogs):
                return start
            max_entries = self._max_entries(limit, states, unread, backlogs)
            if max_entries is not None:
                end = self._end_of_first_entries(max_entries, start, end, states, unread, backlogs)
        self._last_batch_time = time.monotonic()
        return end

    def _must_delay_batch(self, backlogs: Callable[[], dict[str, float]]) -> bool:
        """Return whether the backlog is below the minimum, and the maximum delay has not passed."""
        minimum = self._options.min_offsets_per_trigger
        if not minimum or time.monotonic() - self._last_batch_time >= self._options.max_trigger_delay:
            return False
        return sum(backlogs().values()) < minimum

    def _max_entries(
        self,
        limit: ReadLimit,
        states: Mapping[str, StreamState],
        unread: list[str],
        backlogs: Callable[[], dict[str, float]],
    ) -> int | None:
        """Return all limits as one number of entries; None for no limit."""
        options = self._options
        limits = [options.max_offsets_per_trigger] if options.max_offsets_per_trigger else []
        if isinstance(limit, ReadMaxRows):
            limits.append(limit.max_rows)
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.max_bytes_per_trigger
        if max_bytes:
            sizes = self.entry_sizes.bytes_per_entry({s: states[s] for s in unread}, required=True)
            # The streams share a batch in proportion to their backlogs.
            weights = backlogs() if len(unread) > 1 else dict.fromkeys(unread, 1.0)
            known = {s: size for s, size in sizes.items() if states[s].length}
            total = sum(weights[s] for s in known)
            average = sum(weights[s] * size for s, size in known.items()) / total if total else 1.0
            limits.append(max(1, int(max_bytes / max(average, 1.0))))
        return min(limits) if limits else None

    def _end_of_first_entries(
        self,
        max_entries: int,
        start: Offsets,
        end: Offsets,
        states: Mapping[str, StreamState],
        unread: list[str],
        backlogs: Callable[[], dict[str, float]],
    ) -> Offsets:
        """Return the end of the first max_entries entries."""
        if sum(self._max_backlog(s, start, states[s]) for s in unread) <= max_entries:
            return end
        shares = dict.fromkeys(unread, max_entries)
        if len(unread) > 1:
            shares = self._shares(max_entries, backlogs())
        cut_down = dict(end)
        for stream, share in shares.items():
            after, last = start.get(stream, START), end[stream]
            cut_down[stream] = nth_id(self._servers, stream, after, last, share)
        counted = [s for s, share in shares.items() if share and cut_down[s] != end[s]]
        later = stream_states(self._servers, counted)  # entries may have been deleted during the count
        for s in counted:
            self._numbers.record_number_after(
                s, start.get(s, START), cut_down[s], shares[s], states[s], later.get(s)
            )
        return sorted_offsets({s: i for s, i in cut_down.items() if s in start or i != START})

    def _shares(self, max_entries: int, backlogs: dict[str, float]) -> dict[str, int]:
        """Share in proportion, but give each stream an entry: a short one must not wait for a long one.

        With fewer entries than streams, the streams take turns.
        """
        if max_entries < len(backlogs):
            streams = sorted(backlogs, key=lambda s: (s <= self._last_served, s))[:max_entries]
            self._last_served = streams[-1]
            return {s: int(s in streams) for s in backlogs}
        rest = proportional_shares(backlogs, max_entries - len(backlogs))
        return {s: n + 1 for s, n in rest.items()}

    def _max_backlog(self, stream: str, start: Offsets, state: StreamState) -> int:
        """Return the maximum number of entries after start."""
        position = self._numbers.number_at(stream, start.get(stream, START), state)
        if state.entries_added is None or position is None or not position.exact:
            return state.length
        return min(state.length, state.entries_added - position.value)

    def _backlogs(
        self, start: Offsets, end: Offsets, states: Mapping[str, StreamState], unread: list[str]
    ) -> dict[str, float]:
        """Estimate the unread entries of each stream, by their numbers, or by a few probes."""
        found: dict[str, float] = {}
        for stream in unread:
            lag = self._numbers.lag(stream, start.get(stream, START), states[stream])
            if lag is not None and end[stream] == states[stream].last_id:
                found[stream] = min(lag, states[stream].length)
        found |= self._probed_counts(start, {s: end[s] for s in unread if s not in found})
        return {s: max(1.0, count) for s, count in found.items()}  # even an empty range has to be passed

    def _estimate_starts(self, start: Offsets, states: Mapping[str, StreamState], unread: list[str]) -> None:
        """Estimate the numbers of the starts, for a query that was restarted in the middle."""
        ends = {}
        for stream in unread:
            state = states[stream]
            # No estimate, or one that was too high: there are entries, or deleted ones, after the start.
            lag = self._numbers.lag(stream, start.get(stream, START), state)
            if not lag and state.entries_added is not None:
                ends[stream] = state.last_id
        for stream, backlog in self._probed_counts(start, ends).items():
            self._numbers.record_estimate(
                stream, start.get(stream, START), (states[stream].entries_added or 0) - backlog
            )

    def _probed_counts(self, start: Offsets, end: Offsets) -> dict[str, float]:
        estimates = run_in_rounds(
            self._servers,
            {s: range_estimate_steps(s, start.get(s, START), end[s], BACKLOG_PROBES) for s in end},
        )
        return {s: sum(each.entry_count for each in found) for s, found in estimates.items()}


def proportional_shares(backlogs: dict[str, float], max_entries: int) -> dict[str, int]:
    """Share max_entries in proportion to the backlogs; the largest remainders are rounded up."""
    total = sum(backlogs.values())
    if not total:
        return dict.fromkeys(backlogs, 0)
    exact = {s: max_entries * backlog / total for s, backlog in backlogs.items()}
    shares = {s: int(part) for s, part in exact.items()}
    left = max_entries - sum(shares.values())
    by_remainder: Iterable[str] = sorted(exact, key=lambda s: (shares[s] - exact[s], s))
    for stream in list(by_remainder)[:left]:
        shares[stream] += 1
    return shares


class EntrySizes:
    """Estimates the bytes of an entry of a stream: MEMORY USAGE divided by the number of entries."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._sizes: dict[str, float | None] = {}  # None: MEMORY USAGE failed
        self._errors: dict[str, redis.ResponseError] = {}  # its errors
        self._requested_at = 0.0

    def bytes_per_entry(self, states: Mapping[str, StreamState], required: bool = False) -> dict[str, float]:
        """Return the sizes of the streams that exist, cached for a few seconds.

        Args:
            required: whether to raise UsageError if MEMORY USAGE fails.
        """
        now = time.monotonic()
        if now - self._requested_at >= SIZES_TTL_S or any(s not in self._sizes for s in states):
            self._requested_at = now
            for stream, reply in self._servers.request_each(
                states, lambda pipe, s: pipe.memory_usage(stream_key(s))
            ).items():
                self._errors.pop(stream, None)
                if isinstance(reply, redis.ResponseError):
                    self._errors[stream] = reply
                is_known = isinstance(reply, int)
                self._sizes[stream] = reply / max(states[stream].length, 1) if is_known else None
        for stream in states:
            if required and stream in self._errors:
                raise UsageError(
                    f"maxBytesPerTrigger needs MEMORY USAGE, which fails: {self._errors[stream]}. "
                    "Allow it, or use maxOffsetsPerTrigger."
                )
        return {s: size for s in states if (size := self._sizes.get(s)) is not None}

    def cached_bytes_per_entry(self, stream: str) -> float | None:
        """Return the cached size; None if unknown."""
        return self._sizes.get(stream)
