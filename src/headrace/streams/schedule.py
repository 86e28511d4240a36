"""Scheduled entries: in which order the entries of a schedule stream are due.

    stream {orders}:scheduled   5-0 customer ann headrace:due 9000 | 6-0 customer bob headrace:due 7000 | ...

    buckets, by tenth of a second      70 -> [ 7000 6 0 ]      90 -> [ 9000 5 0 | 9031 8 0 ]
    opened: the buckets that have begun, as a heap of (due, ID)

An entry takes 24 bytes here. All of it follows from the stream, so nothing of it is stored. An entry that was
deleted from the stream (cancelled) is found to be missing when it is due.
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush

import cython

from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.visibility import Public

DUE_FIELD = b"headrace:due"  # the name of an entry's last field; its value: Unix milliseconds
BUCKET_MS = cython.declare(cython.longlong, 100)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
DUE_MAX = cython.declare(cython.longlong, 1 << 60)
ITEM = cython.declare(cython.Py_ssize_t, 3)  # numbers of an entry in a bucket


@cython.ccall
def due_of(words: list[bytes]) -> cython.longlong:
    """Return when the entry with these fields and values is due; -1 if it is no scheduled entry."""
    if len(words) < 2 or words[len(words) - 2] != DUE_FIELD:
        return -1
    text: bytes = words[len(words) - 1]
    if not text.isdigit() or len(text) > 18:
        return -1
    due: cython.longlong = int(text)
    return due if due < DUE_MAX else -1


@cython.final
@cython.cclass
class Schedule:
    """The due times of the entries of one schedule stream."""

    stream: Stream
    ms: cython.ulonglong  # the last entry read from the stream
    seq: cython.ulonglong
    buckets: dict[int, array[int]]
    numbers: list[int]  # a heap of the keys of buckets
    opened: list[tuple[int, int, int]]
    count: Public[cython.longlong]  # entries in buckets and opened, deleted ones included
    retry_ms: Public[cython.longlong]  # nothing is delivered before: the stream of the entries is full

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.ms = 0
        self.seq = 0
        self.buckets = {}
        self.numbers = []
        self.opened = []
        self.count = 0
        self.retry_ms = 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_read(self) -> cython.bint:
        """Return whether all entries of the stream were read."""
        return not stream_id.before(self.ms, self.seq, self.stream.last_ms, self.stream.last_seq)

    @cython.ccall
    def read_new(self, limit: cython.Py_ssize_t) -> cython.void:
        """Read at most `limit` entries that were added to the stream."""
        if self.is_read():
            return
        ms: cython.ulonglong = self.ms
        seq: cython.ulonglong = self.seq
        if seq == U64_MAX:
            ms += 1
            seq = 0
        else:
            seq += 1
        entry: StreamIterator = StreamIterator(self.stream, ms, seq, U64_MAX, U64_MAX, False)
        while limit > 0 and entry.next():
            due: cython.longlong = due_of(entry.entry())
            self.ms = entry.ms
            self.seq = entry.seq
            limit -= 1
            if due >= 0:
                self._add(due, entry.ms, entry.seq)
        if limit > 0:  # nothing is left; the last entries may be deleted
            self.ms = self.stream.last_ms
            self.seq = self.stream.last_seq

    @cython.cfunc
    def _add(self, due: cython.longlong, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        number: cython.longlong = due // BUCKET_MS
        bucket = self.buckets.get(number)
        if bucket is None:
            bucket = self.buckets[number] = array("Q")
            heappush(self.numbers, number)
        bucket.extend((due, ms, seq))
        self.count += 1

    @cython.ccall
    def next_due(self) -> cython.longlong:
        """Return a time at which pop_due() may find an entry, not after its due time; -1 for none."""
        if not self.opened and not self.numbers:
            return -1
        due: cython.longlong = self.opened[0][0] if self.opened else DUE_MAX
        if self.numbers:
            due = min(due, self.numbers[0] * BUCKET_MS)
        return max(due, self.retry_ms)

    def pop_due(self, now: int) -> tuple[int, int, int] | None:
        """Remove and return the first (due, ms, seq) that is due, by due time, then ID; None for none."""
        while self.numbers and self.numbers[0] * BUCKET_MS <= now:
            bucket = self.buckets.pop(heappop(self.numbers))
            for at in range(0, len(bucket), ITEM):
                self.opened.append((bucket[at], bucket[at + 1], bucket[at + 2]))
            heapify(self.opened)
        if not self.opened or self.opened[0][0] > now:
            return None
        self.count -= 1
        return heappop(self.opened)

    def put_back(self, item: tuple[int, int, int], retry_ms: int) -> None:
        """Put the entry of pop_due() back; it and the others are tried again at that time."""
        heappush(self.opened, item)
        self.count += 1
        self.retry_ms = retry_ms
