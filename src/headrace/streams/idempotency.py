"""Remember, for a while, which entry each request of an idempotent producer has added to a stream.

    pid "orders-7"   iid "a17" -> 1700000000000-0      oldest
                     iid "a18" -> 1700000000005-0
                     iid "a19" -> 1700000000005-1      newest; at most idmp-maxsize of them
    pid "orders-8"   iid ...

A request that repeats a pid (producer) and iid (request) is a duplicate, even if its entry was deleted. An
iid expires idmp-duration seconds after the time in the ID of its entry. A sweep removes expired iids about
once a second; a lookup does not check the time.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque

import cython
from xxhash import xxh3_128_digest

from headrace import mem
from headrace.streams.memory_account import MemoryAccount
from headrace.structures.stream_id import StreamId
from headrace.visibility import Public

SWEEP_INTERVAL_MS = cython.declare(cython.longlong, 1000)
SWEEP_CONTINUE_MS = cython.declare(cython.longlong, 100)  # after a sweep that did not finish
SWEEP_STEPS_MAX = cython.declare(cython.Py_ssize_t, 10_000)  # producers visited and iids removed per sweep
# The bytes of the objects beside those of pids and iids, in 64-bit CPython.
PRODUCER_OVERHEAD_BYTES = cython.declare(cython.Py_ssize_t, 500)
IID_OVERHEAD_BYTES = cython.declare(cython.Py_ssize_t, 250)


@cython.final
@cython.no_gc
@cython.cclass
class IdempotencyStore:
    """The requests that one stream remembers. While it holds any, the keyspace's sweeper visits it."""

    duration_s: Public[cython.longlong]
    added_count: Public[cython.ulonglong]  # iids ever recorded
    duplicate_count: Public[cython.ulonglong]  # repeated requests, counted by the command
    iids_by_producer: OrderedDict[bytes, OrderedDict[bytes, StreamId]]  # by pid and iid, oldest first
    sweeper: IdempotencySweeper
    is_in_queue: cython.bint  # this is in the queue of the sweeper
    shared_pids: set[bytes]  # pids whose iids a frozen copy has, too: they are copied before they change
    memory: MemoryAccount
    __weakref__: object

    def __init__(self, duration_s: cython.longlong, sweeper: IdempotencySweeper) -> None:
        self.duration_s = duration_s
        self.added_count = 0
        self.duplicate_count = 0
        self.iids_by_producer = OrderedDict()
        self.sweeper = sweeper
        self.is_in_queue = False
        self.shared_pids = set()
        self.memory = MemoryAccount(PRODUCER_OVERHEAD_BYTES)

    @cython.ccall
    def lookup(self, pid: bytes, iid: bytes) -> StreamId | None:
        """Return the ID of the entry that the request has added; None if it is not remembered."""
        iids: OrderedDict[bytes, StreamId] | None = self.iids_by_producer.get(pid)
        if iids is None:
            return None
        found: StreamId | None = iids.get(iid)
        return found

    @cython.ccall
    def record(
        self, pid: bytes, iid: bytes, ms: cython.ulonglong, seq: cython.ulonglong, maxsize: cython.longlong
    ) -> cython.void:
        """Remember the request as the newest of its producer; forget the oldest one beyond maxsize."""
        iids: OrderedDict[bytes, StreamId] | None = self._writable_iids(pid)
        if iids is None:
            iids = OrderedDict()
            self.iids_by_producer[pid] = iids
            self.memory.add(PRODUCER_OVERHEAD_BYTES + len(pid))
        elif iids.pop(iid, None) is not None:
            self.memory.add(-IID_OVERHEAD_BYTES - len(iid))
        iids[iid] = StreamId(ms, seq)
        self.memory.add(IID_OVERHEAD_BYTES + len(iid))
        self.added_count += 1
        if len(iids) > maxsize:
            self._forget_oldest(iids)
        self._enqueue_for_sweep()

    @cython.cfunc
    def _writable_iids(self, pid: bytes) -> OrderedDict[bytes, StreamId] | None:
        """Return the iids of a producer, which the caller may change; None if the producer is unknown.

        Iids that a frozen copy shares are replaced by a copy first.
        """
        iids: OrderedDict[bytes, StreamId] | None = self.iids_by_producer.get(pid)
        if iids is not None and self.shared_pids and pid in self.shared_pids:
            self.shared_pids.discard(pid)
            iids = iids.copy()
            self.iids_by_producer[pid] = iids
        return iids

    @cython.cfunc
    def _forget_oldest(self, iids: OrderedDict[bytes, StreamId]) -> cython.void:
        iid: bytes
        iid, _ = iids.popitem(last=False)
        self.memory.add(-IID_OVERHEAD_BYTES - len(iid))

    @cython.ccall
    def clear(self) -> cython.void:
        """Delete all producers; keep the two counters."""
        self.iids_by_producer.clear()
        self.memory.add(PRODUCER_OVERHEAD_BYTES - self.memory.total)

    @cython.ccall
    def expire(self, now_ms: cython.longlong, steps: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Remove expired iids, in at most about `steps` steps; return the number of steps.

        A step is a visited producer or a removed iid. Of each producer the oldest iids are removed, up to the
        first one that has not expired.
        """
        limit: cython.longlong = now_ms - 1000 * self.duration_s
        taken: cython.Py_ssize_t = 0
        pid: bytes
        oldest: StreamId
        _: cython.Py_ssize_t
        for _ in range(min(steps, len(self.iids_by_producer))):
            pid = next(iter(self.iids_by_producer))
            iids: OrderedDict[bytes, StreamId] = self._writable_iids(pid)  # type: ignore[assignment]
            taken += 1
            while iids:
                oldest = next(iter(iids.values()))
                if limit < 0 or oldest.ms > mem.as_unsigned(limit):
                    break
                self._forget_oldest(iids)
                taken += 1
            if iids:
                self.iids_by_producer.move_to_end(pid)  # visited again after all others
            else:
                del self.iids_by_producer[pid]
                self.memory.add(-PRODUCER_OVERHEAD_BYTES - len(pid))
            if taken >= steps:
                break
        return taken

    @cython.ccall
    def producer_count(self) -> cython.Py_ssize_t:
        """Return the number of producers."""
        return len(self.iids_by_producer)

    @cython.ccall
    def iid_count(self) -> cython.Py_ssize_t:
        """Return the number of iids of all producers."""
        total: cython.Py_ssize_t = 0
        for iids in self.iids_by_producer.values():
            total += len(iids)
        return total

    def items(self) -> list[tuple[bytes, bytes, StreamId]]:
        """Return every (pid, iid, ID); the oldest of each producer first."""
        return [
            (pid, iid, entry) for pid, iids in self.iids_by_producer.items() for iid, entry in iids.items()
        ]

    @cython.ccall
    def copy(self) -> IdempotencyStore:
        """Return a copy in the same keyspace."""
        other: IdempotencyStore = IdempotencyStore(self.duration_s, self.sweeper)
        other.added_count = self.added_count
        other.duplicate_count = self.duplicate_count
        for pid, iids in self.iids_by_producer.items():
            other.iids_by_producer[pid] = iids.copy()
        other.memory.add(self.memory.total - other.memory.total)
        if other.iids_by_producer:
            other._enqueue_for_sweep()
        return other

    @cython.ccall
    def frozen_copy(self) -> IdempotencyStore:
        """Return a copy that must not be changed. It shares iids with this store, which may change."""
        other: IdempotencyStore = IdempotencyStore(self.duration_s, self.sweeper)
        other.added_count = self.added_count
        other.duplicate_count = self.duplicate_count
        other.iids_by_producer = self.iids_by_producer.copy()
        self.shared_pids = set(self.iids_by_producer)
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes of memory, approximately."""
        return self.memory.total

    @cython.cfunc
    def _enqueue_for_sweep(self) -> cython.void:
        """Enter the queue of the sweeper, unless the store is in it."""
        if not self.is_in_queue:
            self.is_in_queue = True
            self.sweeper.enqueue(self)


@cython.final
@cython.cclass
class IdempotencySweeper:
    """Expires the requests of every IdempotencyStore of a keyspace. Holds only weak references to them."""

    queue: deque[weakref.ref[IdempotencyStore]]
    due_ms: cython.longlong
    paused: Public[cython.bint]  # a snapshot is being written, which must have the records of its start

    def __init__(self) -> None:
        self.queue = deque()
        self.due_ms = 0
        self.paused = False

    @cython.ccall
    def enqueue(self, store: IdempotencyStore) -> cython.void:
        """Queue a store that is not empty; a sweep removes it once it is empty."""
        _: cython.int
        for _ in range(2):  # stores of streams deleted between two sweeps must not pile up
            if self.queue:
                first = self.queue.popleft()
                if first() is not None:
                    self.queue.append(first)
        self.queue.append(weakref.ref(store))

    def __len__(self) -> int:
        """Return the number of queued stores, including those that were freed since the last sweep."""
        return len(self.queue)

    @cython.ccall
    def next_sweep_ms(self) -> cython.longlong:
        """Return when sweep() has work, in Unix milliseconds; -1 for never."""
        return self.due_ms if self.queue and not self.paused else -1

    @cython.ccall
    def sweep(self, now_ms: cython.longlong) -> cython.void:
        """Expire iids of all stores, or as many as fit into one sweep.

        Does nothing within a second of the last sweep, or a tenth of that if the last one did not finish.
        """
        if (
            self.paused or 0 < self.due_ms - now_ms <= SWEEP_INTERVAL_MS
        ):  # farther in the future: the clock was set back
            return
        steps: cython.Py_ssize_t = SWEEP_STEPS_MAX
        left: cython.Py_ssize_t = len(self.queue)
        store: IdempotencyStore | None
        while left > 0 and steps > 0:
            left -= 1
            steps -= 1
            reference = self.queue.popleft()
            store = reference()
            if store is None:
                continue
            steps -= store.expire(now_ms, steps)
            if store.iids_by_producer:
                self.queue.append(reference)
            else:
                store.is_in_queue = False
        self.due_ms = now_ms + (SWEEP_INTERVAL_MS if steps > 0 else SWEEP_CONTINUE_MS)


@cython.ccall
def iid_from_content(words: list[bytes], start: cython.Py_ssize_t) -> bytes:
    """Compute the iid (16 bytes) of the pairs words[start:] = field, value, ...; their order does not matter.

    XXH3 (128 bits) hashes each pair alone: field, its length in eight bytes, value. Sums and exclusive
    ors over the pairs do not depend on their order, but on how often a pair occurs.
    """
    low: cython.ulonglong
    high: cython.ulonglong
    low_sum: cython.ulonglong = 0
    high_sum: cython.ulonglong = 0
    low_xor: cython.ulonglong = 0
    high_xor: cython.ulonglong = 0
    field: bytes
    digest: bytes
    q: cython.p_const_uchar
    at: cython.Py_ssize_t = start
    while at + 1 < len(words):
        field = words[at]
        digest = xxh3_128_digest(field + len(field).to_bytes(8, "little") + words[at + 1])
        q = digest
        high = mem.u64be(q, 0)
        low = mem.u64be(q, 8)
        low_sum = mem.add_u64(low_sum, low)
        high_sum = mem.add_u64(high_sum, high)
        low_xor ^= low
        high_xor ^= high
        at += 2
    out: bytearray = bytearray(16)
    p: cython.p_uchar = out
    mem.put_u64le(p, 0, low_sum ^ _rotate_left(high_xor))
    mem.put_u64le(p, 8, high_sum ^ _rotate_left(low_xor))
    return mem.to_bytes(p, 0, 16)


@cython.cfunc
@cython.exceptval(check=False)
def _rotate_left(v: cython.ulonglong) -> cython.ulonglong:
    """Rotate v left by one bit."""
    return mem.add_u64(v, v) | v >> 63
