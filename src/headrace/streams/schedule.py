"""Order the entries of a schedule stream by the time when they are due.

    stream {orders}:scheduled   5-0 customer ann headrace:due 9000 | 6-0 customer bob headrace:due 7000 | ...

    buckets, by tenth of a second      70 -> [ 7000 6 0 ]      90 -> [ 9000 5 0 | 9031 8 0 ]
    opening: a bucket that has begun, while its entries are distributed, some at a time
    queues, by millisecond: their entries in order of IDs      9000 -> [ 5 0 ]      9031 -> [ 8 0 ]

An entry takes 24 bytes here. No entry is delivered while a bucket is open: an earlier one may follow. All of
it follows from the stream, so nothing of it is stored. An entry that was deleted from the stream (cancelled)
is found to be missing when it is due.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush

import cython

from headrace.streams.iterator import StreamIterator
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.visibility import Public

DUE_FIELD = b"headrace:due"  # the name of an entry's last field; its value: Unix milliseconds
BUCKET_MS = cython.declare(cython.longlong, 100)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
DUE_MAX = cython.declare(cython.longlong, 1 << 60)
NUMBERS_PER_ENTRY = cython.declare(cython.Py_ssize_t, 3)  # numbers of an entry in a bucket
# Entries of a bucket that a call distributes.
DISTRIBUTED_ENTRIES_MAX = cython.declare(cython.Py_ssize_t, 1000)


@cython.ccall
def parse_due_ms(words: list[bytes]) -> cython.longlong:
    """Return when the entry with these fields and values is due, in Unix milliseconds.

    Returns -1 if it is not a scheduled entry.
    """
    if len(words) < 2 or words[len(words) - 2] != DUE_FIELD:
        return -1
    text: bytes = words[len(words) - 1]
    if not text.isdigit() or len(text) > 18:
        return -1
    due: cython.longlong = int(text)
    return due if due < DUE_MAX else -1


@cython.final
@cython.cclass
class DueQueue:
    """The entries of one due time: milliseconds and sequence numbers of their IDs, in order."""

    due_ms: cython.longlong
    id_parts: array[int]
    next_index: cython.Py_ssize_t

    def __init__(self, due_ms: cython.longlong) -> None:
        self.due_ms = due_ms
        self.id_parts = array("Q")
        self.next_index = 0


@cython.final
@cython.cclass
class Schedule:
    """The due times of the entries of one schedule stream."""

    stream: Stream
    last_read_id_ms: cython.ulonglong  # the ID of the last entry read from the stream
    last_read_id_seq: cython.ulonglong
    buckets: dict[int, array[int]]
    bucket_heap: list[int]  # a heap of the keys of buckets
    open_bucket: array[int] | None
    open_bucket_at: cython.Py_ssize_t
    queues: dict[int, DueQueue]
    due_time_heap: list[int]  # a heap of the keys of queues
    last_popped_queue: DueQueue | None  # of the entry that was popped last
    count: Public[cython.longlong]  # entries in buckets and queues, deleted ones included
    retry_at_ms: Public[
        cython.longlong
    ]  # nothing is delivered before this time: the stream of the entries is full

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.last_read_id_ms = 0
        self.last_read_id_seq = 0
        self.buckets = {}
        self.bucket_heap = []
        self.open_bucket = None
        self.open_bucket_at = 0
        self.queues = {}
        self.due_time_heap = []
        self.last_popped_queue = None
        self.count = 0
        self.retry_at_ms = 0

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def has_read_all(self) -> cython.bint:
        """Return whether all entries of the stream were read."""
        return not stream_id.is_before(
            self.last_read_id_ms, self.last_read_id_seq, self.stream.last_ms, self.stream.last_seq
        )

    @cython.ccall
    def read_new(self, limit: cython.Py_ssize_t) -> cython.void:
        """Read at most `limit` of the entries that were added to the stream since the last call."""
        if self.has_read_all():
            return
        ms: cython.ulonglong = self.last_read_id_ms
        seq: cython.ulonglong = self.last_read_id_seq
        if seq == U64_MAX:
            ms += 1
            seq = 0
        else:
            seq += 1
        entry: StreamIterator = StreamIterator(self.stream, ms, seq, U64_MAX, U64_MAX, False)
        while limit > 0 and entry.next():
            due: cython.longlong = parse_due_ms(entry.remaining_pieces())
            self.last_read_id_ms = entry.ms
            self.last_read_id_seq = entry.seq
            limit -= 1
            if due >= 0:
                self._add(due, entry.ms, entry.seq)
        if limit > 0:  # nothing is left; the last entries may be deleted
            self.last_read_id_ms = self.stream.last_ms
            self.last_read_id_seq = self.stream.last_seq

    @cython.cfunc
    def _add(self, due: cython.longlong, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
        number: cython.longlong = due // BUCKET_MS
        bucket = self.buckets.get(number)
        if bucket is None:
            bucket = self.buckets[number] = array("Q")
            heappush(self.bucket_heap, number)
        bucket.extend((due, ms, seq))
        self.count += 1

    @cython.ccall
    def next_due_ms(self) -> cython.longlong:
        """Return when pop_due() must be called next, in Unix milliseconds; -1 if no entry is scheduled."""
        if self.open_bucket is not None:
            return self.retry_at_ms
        due: cython.longlong = DUE_MAX
        if self.due_time_heap:
            due = self.due_time_heap[0]
        if self.bucket_heap:
            due = min(due, self.bucket_heap[0] * BUCKET_MS)
        return max(due, self.retry_at_ms) if due < DUE_MAX else -1

    def pop_due(self, now: int) -> tuple[int, int, int] | None:
        """Remove and return the first (due, ms, seq) that is due, by due time, then ID.

        Returns None if none is due, or if a bucket must be distributed further first. In the second case
        next_due_ms() is not later than now: call again.
        """
        self._forget_empty()
        if self.open_bucket is not None or (self.bucket_heap and self.bucket_heap[0] * BUCKET_MS <= now):
            self._fill_queues(now)
            if self.open_bucket is not None or (self.bucket_heap and self.bucket_heap[0] * BUCKET_MS <= now):
                return None
        if not self.due_time_heap or self.due_time_heap[0] > now:
            return None
        queue: DueQueue = self.queues[self.due_time_heap[0]]
        queue.next_index += 2
        self.last_popped_queue = queue
        self.count -= 1
        return queue.due_ms, queue.id_parts[queue.next_index - 2], queue.id_parts[queue.next_index - 1]

    def put_back(self, retry_at_ms: int) -> None:
        """Put back the entry of the last pop_due(). next_due_ms() is then not before retry_at_ms."""
        assert self.last_popped_queue is not None
        self.last_popped_queue.next_index -= 2
        self.last_popped_queue = None
        self.count += 1
        self.retry_at_ms = retry_at_ms

    @cython.cfunc
    def _forget_empty(self) -> cython.void:
        """Remove the queue of the entry popped last, if it has no more entries."""
        queue: DueQueue | None = self.last_popped_queue
        self.last_popped_queue = None
        if queue is not None and queue.next_index == len(queue.id_parts):
            heappop(self.due_time_heap)
            del self.queues[queue.due_ms]

    @cython.cfunc
    def _fill_queues(self, now: cython.longlong) -> cython.void:
        """Move at most DISTRIBUTED_ENTRIES_MAX entries of buckets that have begun to their queues."""
        left: cython.Py_ssize_t = DISTRIBUTED_ENTRIES_MAX
        while left > 0:
            if self.open_bucket is None:
                if not self.bucket_heap or self.bucket_heap[0] * BUCKET_MS > now:
                    return
                self.open_bucket = self.buckets.pop(heappop(self.bucket_heap))
                self.open_bucket_at = 0
            bucket = self.open_bucket
            due: cython.longlong = bucket[self.open_bucket_at]
            queue: DueQueue | None = self.queues.get(due)
            if queue is None:
                queue = self.queues[due] = DueQueue(due)
                heappush(self.due_time_heap, due)
            queue.id_parts.append(bucket[self.open_bucket_at + 1])
            queue.id_parts.append(bucket[self.open_bucket_at + 2])
            self.open_bucket_at += NUMBERS_PER_ENTRY
            left -= 1
            if self.open_bucket_at == len(bucket):
                self.open_bucket = None
