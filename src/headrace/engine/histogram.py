"""How often what took how long: counts of durations, near each other the short ones, far apart the long.

    nanoseconds   0 1 2 ... 255   256 258 ... 510   512 516 ... 1020   1024 1032 ...
    one counter for each    1                  2                   4              8 ...

A duration is rounded by less than a 128th of itself, whatever its size. The counters are u64 in one block
that grows by octaves, 1 KiB each: a command that never took a millisecond keeps 14 KiB at most.
"""

from __future__ import annotations

import cython

from headrace import mem

STEPS = cython.declare(cython.Py_ssize_t, 128)  # counters in an octave
STEP_BITS = cython.declare(cython.int, 8)  # a number of so many bits has a counter of its own
LONGEST = cython.declare(cython.longlong, (1 << 40) - 1)  # 18 minutes; what takes longer counts as that
OCTAVE_BYTES = cython.declare(cython.Py_ssize_t, 128 * 8)

SHORTEST_SHOWN_NS = 1024  # the first bucket of a distribution by octaves ends about here


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _counter_of(ns: cython.longlong) -> cython.Py_ssize_t:
    """The counter that a duration belongs to, which is not negative."""
    if ns < STEPS:
        return ns
    shift: cython.int = mem.bit_length(ns) - STEP_BITS
    return (shift + 1) * STEPS + (ns >> shift) - STEPS


@cython.cfunc
@cython.exceptval(check=False)
def longest_of(counter: cython.Py_ssize_t) -> cython.longlong:
    """The longest duration that the counter stands for."""
    if counter < STEPS:
        return counter
    shift: cython.longlong = counter // STEPS - 1
    end: cython.longlong = counter % STEPS + STEPS + 1
    return (end << shift) - 1


@cython.final
@cython.cclass
class Histogram:
    """Durations in nanoseconds, counted."""

    counters: cython.Py_ssize_t  # that the block has room for
    buf: bytearray
    p: cython.p_uchar

    def __init__(self) -> None:
        self.counters = 0
        self.buf = bytearray()
        self.p = self.buf

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def add(self, ns: cython.longlong) -> cython.int:
        """Count one duration, which is not negative."""
        counter: cython.Py_ssize_t = _counter_of(ns)
        if counter >= self.counters:
            counter = min(counter, _counter_of(LONGEST))
            self._grow(counter)
        mem.put_u64le(self.p, 8 * counter, mem.u64le(self.p, 8 * counter) + 1)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _grow(self, counter: cython.Py_ssize_t) -> cython.int:
        """Make room for that counter and the rest of its octave."""
        octaves: cython.Py_ssize_t = counter // STEPS + 1
        if octaves * STEPS <= self.counters:
            return 0
        self.buf = self.buf + bytearray(octaves * OCTAVE_BYTES - len(self.buf))
        self.p = self.buf
        self.counters = octaves * STEPS
        return 0

    def total(self) -> int:
        """Durations in all."""
        return sum(count for _, count in self._counted())

    def percentile(self, percent: float) -> int:
        """The duration in nanoseconds that so many percent of all do not exceed; 0 when there are none."""
        wanted = max(1, int(percent / 100 * self.total() + 0.5))
        found = 0
        for counter, count in self._counted():
            found += count
            if found >= wanted:
                return longest_of(counter)
        return 0

    def octaves(self) -> list[tuple[int, int]]:
        """Microseconds, and how many durations were no longer: doubling, where the number grows."""
        shown: list[tuple[int, int]] = []
        end = SHORTEST_SHOWN_NS
        found = 0
        for counter, count in self._counted():
            while counter > _counter_of(end):
                end *= 2
            found += count
            microseconds = longest_of(_counter_of(end)) // 1000
            if shown and shown[-1][0] == microseconds:
                shown.pop()
            shown.append((microseconds, found))
        return shown

    def _counted(self) -> list[tuple[int, int]]:
        """Counters that are not zero, with what they hold, in order."""
        counts = memoryview(self.buf).cast("Q")
        return [(counter, count) for counter, count in enumerate(counts) if count]
