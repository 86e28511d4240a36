"""The pending entries of a group: delivered and not yet acknowledged. A slot numbers one; -1 is none."""

from __future__ import annotations

import bisect
from typing import Any

import cython

from headrace.streams.consumer import Consumer


@cython.final
@cython.cclass
class Pending:
    """By ID, by consumer, and in delivery order: first the unowned ones as they came, then by time.

    A slot stays good until its entry is removed.
    """

    __slots__ = ("count", "entries", "next_slot", "order", "owners", "sorted_ids", "unowned")

    count: cython.Py_ssize_t
    unowned: cython.Py_ssize_t
    owners: list[Any]
    entries: dict[int, list[Any]]
    sorted_ids: list[Any]
    order: list[Any]
    next_slot: cython.Py_ssize_t

    def __init__(self) -> None:
        self.count = self.unowned = self.next_slot = 0
        self.owners = [None]
        self.entries = {}
        self.sorted_ids = []
        self.order = []

    @cython.ccall
    def enroll(self, consumer: Consumer) -> cython.void:
        """Let consumer own entries; gives it its number."""
        consumer.number = len(self.owners)
        self.owners.append(consumer)

    @cython.ccall
    def dismiss(self, consumer: Consumer) -> cython.Py_ssize_t:
        """Remove all that consumer owns, and forget it; returns how many entries that were."""
        n: cython.Py_ssize_t = 0
        slot: cython.Py_ssize_t = self.of_consumer_from(consumer, 0, 0)
        while slot >= 0:
            self.remove(slot)
            n += 1
            slot = self.of_consumer_from(consumer, 0, 0)
        self.owners[consumer.number] = None
        return n

    @cython.ccall
    def enrolled(self) -> list[Consumer]:
        """The consumers, by number."""
        return [c for c in self.owners if c is not None]

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """The slot of ms-seq; -1 when it is not pending."""
        at: cython.Py_ssize_t = bisect.bisect_left(self.sorted_ids, (ms, seq))
        if at < len(self.sorted_ids) and self.sorted_ids[at][:2] == (ms, seq):
            slot: cython.Py_ssize_t = self.sorted_ids[at][2]
            return slot
        return -1

    @cython.ccall
    def add(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        owner: Consumer | None,
        time_ms: cython.longlong,
        deliveries: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Add ms-seq, which must not be pending yet."""
        slot: cython.Py_ssize_t = self.next_slot
        self.next_slot += 1
        self.entries[slot] = [ms, seq, time_ms, deliveries, owner]
        bisect.insort(self.sorted_ids, (ms, seq, slot))
        self.count += 1
        self._link(slot)
        return slot

    @cython.cfunc
    def _link(self, slot: cython.Py_ssize_t) -> cython.void:
        owner: Consumer | None = self.entries[slot][4]
        at: cython.Py_ssize_t = self.unowned
        if owner is None:
            self.unowned += 1
        else:
            owner.pending_count += 1
            at = len(self.order)
            while at > self.unowned and self.entries[self.order[at - 1]][2] > self.entries[slot][2]:
                at -= 1
        self.order.insert(at, slot)

    @cython.cfunc
    def _unlink(self, slot: cython.Py_ssize_t) -> cython.void:
        owner: Consumer | None = self.entries[slot][4]
        self.order.remove(slot)
        if owner is None:
            self.unowned -= 1
        else:
            owner.pending_count -= 1

    @cython.ccall
    def remove(self, slot: cython.Py_ssize_t) -> cython.void:
        """Take the entry out."""
        self._unlink(slot)
        entry = self.entries.pop(slot)
        self.sorted_ids.remove((entry[0], entry[1], slot))
        self.count -= 1

    @cython.ccall
    def assign(
        self,
        slot: cython.Py_ssize_t,
        owner: Consumer | None,
        time_ms: cython.longlong,
        deliveries: cython.longlong,
    ) -> cython.void:
        """Give the entry to owner; None: to nobody, at the end of the unowned ones, its time being 0."""
        self._unlink(slot)
        entry = self.entries[slot]
        entry[2:] = [time_ms if owner is not None else 0, deliveries, owner]
        self._link(slot)

    @cython.ccall
    def touch(
        self, slot: cython.Py_ssize_t, time_ms: cython.longlong, deliveries: cython.longlong
    ) -> cython.void:
        """Deliver the entry again to whom it belongs."""
        self.assign(slot, self.owner_of(slot), time_ms, deliveries)

    @cython.ccall
    def ms_of(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """The first half of its ID."""
        v: cython.ulonglong = self.entries[slot][0]
        return v

    @cython.ccall
    def seq_of(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """The second half of its ID."""
        v: cython.ulonglong = self.entries[slot][1]
        return v

    @cython.ccall
    def time_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """When it was last delivered, in Unix milliseconds; 0 when it is unowned."""
        v: cython.longlong = self.entries[slot][2]
        return v

    @cython.ccall
    def deliveries_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """How often it was delivered."""
        v: cython.longlong = self.entries[slot][3]
        return v

    @cython.ccall
    def owner_of(self, slot: cython.Py_ssize_t) -> Consumer | None:
        """Whose it is; None when it is unowned."""
        owner: Consumer | None = self.entries[slot][4]
        return owner

    @cython.ccall
    def from_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """The first entry, by ID, that is not before ms-seq."""
        at: cython.Py_ssize_t = bisect.bisect_left(self.sorted_ids, (ms, seq))
        slot: cython.Py_ssize_t = self.sorted_ids[at][2] if at < len(self.sorted_ids) else -1
        return slot

    @cython.ccall
    def after(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The next entry by ID."""
        at: cython.Py_ssize_t = bisect.bisect_left(self.sorted_ids, (*self.entries[slot][:2], slot)) + 1
        follower: cython.Py_ssize_t = self.sorted_ids[at][2] if at < len(self.sorted_ids) else -1
        return follower

    @cython.ccall
    def last(self) -> cython.Py_ssize_t:
        """The entry with the highest ID."""
        slot: cython.Py_ssize_t = self.sorted_ids[-1][2] if self.sorted_ids else -1
        return slot

    @cython.ccall
    def of_consumer_from(
        self, consumer: Consumer, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.Py_ssize_t:
        """The first entry, by ID, of consumer that is not before ms-seq."""
        slot: cython.Py_ssize_t = self.from_id(ms, seq)
        while slot >= 0 and self.owner_of(slot) is not consumer:
            slot = self.after(slot)
        return slot

    @cython.ccall
    def of_consumer_after(self, consumer: Consumer, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The next entry, by ID, of consumer, whose slot is."""
        slot = self.after(slot)
        while slot >= 0 and self.owner_of(slot) is not consumer:
            slot = self.after(slot)
        return slot

    @cython.ccall
    def oldest(self) -> cython.Py_ssize_t:
        """The first entry in delivery order: an unowned one if there is any."""
        slot: cython.Py_ssize_t = self.order[0] if self.order else -1
        return slot

    @cython.ccall
    def newest(self) -> cython.Py_ssize_t:
        """The last entry in delivery order."""
        slot: cython.Py_ssize_t = self.order[-1] if self.order else -1
        return slot

    @cython.ccall
    def newer(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The next entry in delivery order."""
        at: cython.Py_ssize_t = self.order.index(slot) + 1
        follower: cython.Py_ssize_t = self.order[at] if at < len(self.order) else -1
        return follower

    @cython.ccall
    def copy(self) -> Pending:
        """Another list with the same entries, owned by copies of the consumers (`enrolled`)."""
        other: Pending = Pending()
        consumer: Consumer | None
        twin: Consumer
        for consumer in self.owners[1:]:
            if consumer is None:
                other.owners.append(None)
                continue
            twin = Consumer(consumer.name, consumer.seen_ms)
            twin.active_ms = consumer.active_ms
            other.enroll(twin)
        for slot in self.order:
            ms, seq, time_ms, deliveries, owner = self.entries[slot]
            other.add(ms, seq, None if owner is None else other.owners[owner.number], time_ms, deliveries)
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """How many bytes of memory the entries take, all indexes included."""
        return self.count * 40

    @cython.ccall
    def check(self) -> cython.void:
        """Assert all that must hold."""
        assert len(self.order) == len(self.sorted_ids) == self.count
