"""A histogram of durations: exact for short ones, within 1 % for long ones.

    nanoseconds   0 1 2 ... 255   256 258 ... 510   512 516 ... 1020   1024 1032 ...
    one counter for each    1                  2                   4              8 ...

The rounding error is less than a 128th of the duration. The counters are u64 in one block, which grows by
octaves. An octave is the 128 counters (1 KiB) for one doubling of the duration. A command that never took a
millisecond needs 14 KiB at most.
"""

from __future__ import annotations

import cython

from headrace import mem

COUNTERS_PER_OCTAVE = cython.declare(cython.Py_ssize_t, 128)  # counters in an octave
EXACT_BITS = cython.declare(cython.int, 8)  # a number of at most so many bits has a counter of its own
# 18 minutes; longer durations are counted as this.
LONGEST_NS = cython.declare(cython.longlong, (1 << 40) - 1)
OCTAVE_BYTES = cython.declare(cython.Py_ssize_t, 128 * 8)

SHORTEST_SHOWN_NS = 1024  # the upper end of the first bucket of octaves


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _counter_of(ns: cython.longlong) -> cython.Py_ssize_t:
    """Return the index of the counter for a non-negative duration."""
    if ns < COUNTERS_PER_OCTAVE:
        return ns
    shift: cython.int = mem.bit_length(ns) - EXACT_BITS
    return (shift + 1) * COUNTERS_PER_OCTAVE + (ns >> shift) - COUNTERS_PER_OCTAVE


@cython.cfunc
@cython.exceptval(check=False)
def longest_ns_of_counter(counter: cython.Py_ssize_t) -> cython.longlong:
    """Return the longest duration, in nanoseconds, that the counter with this index covers."""
    if counter < COUNTERS_PER_OCTAVE:
        return counter
    shift: cython.longlong = counter // COUNTERS_PER_OCTAVE - 1
    end: cython.longlong = counter % COUNTERS_PER_OCTAVE + COUNTERS_PER_OCTAVE + 1
    return (end << shift) - 1


@cython.final
@cython.cclass
class Histogram:
    """Counts of durations in nanoseconds."""

    counter_capacity: cython.Py_ssize_t  # capacity of the block
    buf: bytearray
    p: cython.p_uchar

    def __init__(self) -> None:
        self.counter_capacity = 0
        self.buf = bytearray()
        self.p = self.buf

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def add(self, ns: cython.longlong) -> cython.int:
        """Count a duration in nanoseconds, not negative; one above LONGEST_NS counts as LONGEST_NS."""
        counter: cython.Py_ssize_t = _counter_of(ns)
        if counter >= self.counter_capacity:
            counter = min(counter, _counter_of(LONGEST_NS))
            self._grow(counter)
        mem.put_u64le(self.p, 8 * counter, mem.u64le(self.p, 8 * counter) + 1)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _grow(self, counter: cython.Py_ssize_t) -> cython.int:
        """Grow the block to the octave of that counter."""
        octaves: cython.Py_ssize_t = counter // COUNTERS_PER_OCTAVE + 1
        if octaves * COUNTERS_PER_OCTAVE <= self.counter_capacity:
            return 0
        self.buf = self.buf + bytearray(octaves * OCTAVE_BYTES - len(self.buf))
        self.p = self.buf
        self.counter_capacity = octaves * COUNTERS_PER_OCTAVE
        return 0

    def total_count(self) -> int:
        """Return how many durations were counted."""
        return sum(count for _, count in self._nonzero_counters())

    def percentile(self, percent: float) -> int:
        """Return the duration in nanoseconds that `percent` % of all do not exceed; 0 if there are none."""
        wanted = max(1, int(percent / 100 * self.total_count() + 0.5))
        found = 0
        for counter, count in self._nonzero_counters():
            found += count
            if found >= wanted:
                return longest_ns_of_counter(counter)
        return 0

    def cumulative_buckets(self) -> list[tuple[int, int]]:
        """Return (upper bound in microseconds, cumulative count) of buckets whose bounds double.

        A bucket into which no duration falls is left out.
        """
        shown: list[tuple[int, int]] = []
        end = SHORTEST_SHOWN_NS
        found = 0
        for counter, count in self._nonzero_counters():
            while counter > _counter_of(end):
                end *= 2
            found += count
            microseconds = longest_ns_of_counter(_counter_of(end)) // 1000
            if shown and shown[-1][0] == microseconds:
                shown.pop()
            shown.append((microseconds, found))
        return shown

    def _nonzero_counters(self) -> list[tuple[int, int]]:
        """Return (index, count) of the counters that are not zero, in order."""
        counts = memoryview(self.buf).cast("Q")
        return [(counter, count) for counter, count in enumerate(counts) if count]
