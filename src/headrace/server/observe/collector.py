"""Run a full garbage collection only when memory that is not accounted for has grown.

    resident memory - at the start - data = unaccounted: buffers of clients, free parts of the heap, garbage

A full collection visits all objects but those of the data: with 100,000 streams and groups it takes 70 ms.
The server drops no reference cycles (tests/server/test_census.py), so the collector looks at young objects
only. If it does miss cycles, unaccounted memory grows. When it has grown by GROWTH_BYTES_MIN and by a half of
the data since the last full collection, there is another one, but they take at most a thousandth of the time.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable

from headrace.server.observe import memory_limit
from headrace.server.observe.heap import release_free_memory

GROWTH_BYTES_MIN = 64 << 20
GROWTH_DIVISOR = 2  # one in so many bytes of data
CHECK_S = 1.0
COLLECTION_PAUSE_FACTOR = 1000  # a collection that took 1 ms is not repeated within a second


class FullGcTrigger:
    """Decides when old objects are collected. Call collect_if_grown() between turns of the event loop."""

    def __init__(
        self,
        resident_bytes: Callable[[], int] = memory_limit.resident_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a measurement: the first call of collect_if_grown() makes one.

        Args:
            resident_bytes: returns the resident memory of the process.
            clock: returns a monotonic time in seconds.
        """
        self.collections = 0
        self.found_object_count = 0  # objects in cycles
        self._resident_bytes = resident_bytes
        self._clock = clock
        self._lowest: int | None = None  # unaccounted bytes: the least since the last collection
        self._next_check_s = 0.0
        self._next_collection_s = 0.0

    def collect_if_grown(self, accounted_bytes: int, data_bytes: int) -> None:
        """Collect old objects if unaccounted memory has grown, at most once a second."""
        seconds = self._clock()
        if seconds < self._next_check_s:
            return
        self._next_check_s = seconds + CHECK_S
        unaccounted = self._resident_bytes() - accounted_bytes
        if self._lowest is None or unaccounted < self._lowest:
            self._lowest = unaccounted
        growth = max(GROWTH_BYTES_MIN, data_bytes // GROWTH_DIVISOR)
        if unaccounted - self._lowest >= growth and seconds >= self._next_collection_s:
            self._collect(seconds, accounted_bytes)

    def _collect(self, started_s: float, accounted_bytes: int) -> None:
        before = self._resident_bytes() - accounted_bytes
        found = gc.collect()
        took_s = self._clock() - started_s
        self._next_collection_s = started_s + COLLECTION_PAUSE_FACTOR * took_s
        release_free_memory()
        self._lowest = self._resident_bytes() - accounted_bytes
        self.collections += 1
        self.found_object_count += found
        log = logging.getLogger("headrace")
        log.log(
            logging.WARNING if found else logging.INFO,
            "%d bytes of memory are not accounted: a full garbage collection found %d objects in %.0f ms",
            before,
            found,
            1000 * took_s,
        )
