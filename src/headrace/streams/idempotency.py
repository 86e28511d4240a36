"""Idempotent adding: a stream remembers, for a while, which entry each request of a producer became.

    pid "orders-7"   iid "a17" -> 1700000000000-0      oldest
                     iid "a18" -> 1700000000005-0
                     iid "a19" -> 1700000000005-1      newest; at most idmp-maxsize of them
    pid "orders-8"   iid ...

A request that says the same pid (producer) and iid (request) again is a duplicate, whether its entry is
still there or not. An iid is forgotten idmp-duration seconds after the time in its entry's ID. That is done
by a sweep, about once a second, not when the iid is asked for: both may lag a little.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from typing import Any

import cython

from headrace import mem
from headrace.streams.memory_account import MemoryAccount
from headrace.structures.stream_id import StreamId
from headrace.structures.xxh3 import Digest
from headrace.visibility import Public

SWEEP_INTERVAL_MS = cython.declare(cython.longlong, 1000)
SWEEP_AGAIN_MS = cython.declare(cython.longlong, 100)  # when the last sweep did not see them all
SWEEP_STEPS_MAX = cython.declare(cython.Py_ssize_t, 10_000)  # producers looked at and iids forgotten, a sweep
# What the objects take beside the bytes of pids and iids, as the 64-bit interpreter lays them out.
PRODUCER_BYTES = cython.declare(cython.Py_ssize_t, 500)
IID_BYTES = cython.declare(cython.Py_ssize_t, 250)


@cython.final
@cython.cclass
class IdempotencyStore:
    """The requests that one stream remembers. While it holds any, the keyspace's sweeper visits it."""

    duration_s: Public[cython.longlong]
    added: Public[cython.ulonglong]  # iids ever recorded
    duplicates: Public[cython.ulonglong]  # repeated requests; the command that replies to one counts it
    by_producer: Any  # OrderedDict: pid -> OrderedDict: iid -> StreamId, oldest first
    sweeper: IdempotencySweeper
    queued: cython.bint  # the IdempotencySweeper knows of this one
    memory: MemoryAccount
    __weakref__: object

    def __init__(self, duration_s: cython.longlong, sweeper: IdempotencySweeper) -> None:
        self.duration_s = duration_s
        self.added = 0
        self.duplicates = 0
        self.by_producer = OrderedDict()
        self.sweeper = sweeper
        self.queued = False
        self.memory = MemoryAccount(PRODUCER_BYTES)

    @cython.ccall
    def lookup(self, pid: bytes, iid: bytes) -> StreamId | None:
        """The ID of the entry that the producer's request became; None when it is not remembered."""
        iids: Any = self.by_producer.get(pid)
        if iids is None:
            return None
        found: StreamId | None = iids.get(iid)
        return found

    @cython.ccall
    def record(
        self, pid: bytes, iid: bytes, ms: cython.ulonglong, seq: cython.ulonglong, maxsize: cython.longlong
    ) -> cython.void:
        """Remember it as the producer's newest request; the oldest beyond maxsize goes."""
        iids: Any = self.by_producer.get(pid)
        if iids is None:
            iids = OrderedDict()
            self.by_producer[pid] = iids
            self.memory.add(PRODUCER_BYTES + len(pid))
        elif iids.pop(iid, None) is not None:
            self.memory.add(-IID_BYTES - len(iid))
        iids[iid] = StreamId(ms, seq)
        self.memory.add(IID_BYTES + len(iid))
        self.added += 1
        if len(iids) > maxsize:
            self._forget_oldest(iids)
        self._queue()

    @cython.cfunc
    def _forget_oldest(self, iids: Any) -> cython.void:
        iid: bytes
        iid, _ = iids.popitem(last=False)
        self.memory.add(-IID_BYTES - len(iid))

    @cython.ccall
    def clear(self) -> cython.void:
        """Delete all producers; keep the two counters."""
        self.by_producer.clear()
        self.memory.add(PRODUCER_BYTES - self.memory.total)

    @cython.ccall
    def expire(self, now_ms: cython.longlong, steps: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Forget what is too old, in at most about `steps` steps; returns how many it took.

        Each producer's iids go from the oldest up to the first that is young enough.
        """
        limit: cython.longlong = now_ms - 1000 * self.duration_s
        taken: cython.Py_ssize_t = 0
        pid: bytes
        oldest: StreamId
        _: cython.Py_ssize_t
        for _ in range(min(steps, len(self.by_producer))):
            pid = next(iter(self.by_producer))
            iids: Any = self.by_producer[pid]
            taken += 1
            while iids:
                oldest = next(iter(iids.values()))
                if limit < 0 or oldest.ms > mem.as_unsigned(limit):
                    break
                self._forget_oldest(iids)
                taken += 1
            if iids:
                self.by_producer.move_to_end(pid)  # its turn comes again after all others
            else:
                del self.by_producer[pid]
                self.memory.add(-PRODUCER_BYTES - len(pid))
            if taken >= steps:
                break
        return taken

    @cython.ccall
    def producer_count(self) -> cython.Py_ssize_t:
        """Return the number of producers."""
        return len(self.by_producer)

    @cython.ccall
    def iid_count(self) -> cython.Py_ssize_t:
        """Return the number of iids of all producers."""
        total: cython.Py_ssize_t = 0
        for iids in self.by_producer.values():
            total += len(iids)
        return total

    def items(self) -> list[tuple[bytes, bytes, StreamId]]:
        """Every (pid, iid, ID); each producer's oldest first."""
        return [(pid, iid, entry) for pid, iids in self.by_producer.items() for iid, entry in iids.items()]

    @cython.ccall
    def copy(self) -> IdempotencyStore:
        """Another that remembers the same, in the same keyspace."""
        other: IdempotencyStore = IdempotencyStore(self.duration_s, self.sweeper)
        other.added = self.added
        other.duplicates = self.duplicates
        for pid, iids in self.by_producer.items():
            other.by_producer[pid] = iids.copy()
        other.memory.add(self.memory.total - other.memory.total)
        if other.by_producer:
            other._queue()
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """About how many bytes of memory it takes."""
        return self.memory.total

    @cython.cfunc
    def _queue(self) -> cython.void:
        if not self.queued:
            self.queued = True
            self.sweeper.enqueue(self)


@cython.final
@cython.cclass
class IdempotencySweeper:
    """Expires the requests of every IdempotencyStore of a keyspace. Holds only weak references to them."""

    queue: Any  # deque of weak references
    due_ms: cython.longlong

    def __init__(self) -> None:
        self.queue = deque()
        self.due_ms = 0

    @cython.ccall
    def enqueue(self, store: IdempotencyStore) -> cython.void:
        """One remembers something from now on, and leaves by itself when it does not any more."""
        _: cython.int
        for _ in range(2):  # streams that come and go between two sweeps must not pile up
            if self.queue:
                first = self.queue.popleft()
                if first() is not None:
                    self.queue.append(first)
        self.queue.append(weakref.ref(store))

    def __len__(self) -> int:
        """How many it knows of, those included that are gone and not yet noticed."""
        return len(self.queue)

    @cython.ccall
    def next_sweep_ms(self) -> cython.longlong:
        """When sweep() has work, in milliseconds since 1970; -1 for never."""
        return self.due_ms if self.queue else -1

    @cython.ccall
    def sweep(self, now_ms: cython.longlong) -> cython.void:
        """Let all forget what is too old, or as many as one sweep may take; at most once a second."""
        if 0 < self.due_ms - now_ms <= SWEEP_INTERVAL_MS:  # farther off: the clock was set back
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
            if store.by_producer:
                self.queue.append(reference)
            else:
                store.queued = False
        self.due_ms = now_ms + (SWEEP_INTERVAL_MS if steps > 0 else SWEEP_AGAIN_MS)


@cython.ccall
def iid_of(words: list[bytes], start: cython.Py_ssize_t) -> bytes:
    """The iid of the pairs words[start:] = field, value, ...: 16 bytes, the same in whatever order they come.

    Each pair is hashed by itself: field, its length in eight bytes, value. Sums and exclusive ors over the
    pairs make the order vanish, but not how often a pair stands there.
    """
    digest: Digest = Digest()
    low_sum: cython.ulonglong = 0
    high_sum: cython.ulonglong = 0
    low_xor: cython.ulonglong = 0
    high_xor: cython.ulonglong = 0
    field: bytes
    at: cython.Py_ssize_t = start
    while at + 1 < len(words):
        field = words[at]
        digest.compute(field + len(field).to_bytes(8, "little") + words[at + 1])
        low_sum = mem.add_u64(low_sum, digest.low)
        high_sum = mem.add_u64(high_sum, digest.high)
        low_xor ^= digest.low
        high_xor ^= digest.high
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
