"""The pending entries of a group: delivered and not acknowledged, or released by XNACK.

    arena                   one record per entry: ID, owner, delivery time, delivery count, links
    by_id                   the slots of all records, sorted by ID
    consumer.owned_entries  the slots of the entries of one consumer, sorted by ID
    delivery order          the links of the records:

    first -> [ unowned ] <-> [ unowned ] <-> [ owned, 1000 ms ] <-> [ owned, 1742 ms ] <- end
                             last_unowned

Unowned entries, released by XNACK, come first, in order of release. The others follow by delivery time, those
of equal times in order of delivery. An entry takes about 37 bytes.

A frozen copy (frozen_copy) shares the blocks of arena and indexes, and at first all consumers. Before a
consumer changes, preserve_consumer() replaces it in the frozen copy by a copy of its own.

An entry is identified by its slot, a number from 0 on that is valid until the entry is removed; -1 is none.
Iteration (`after`, `next_of_consumer`, `next_by_delivery`) can start from any valid slot. A loop that moves
or removes entries must get the next slot first.
"""

from __future__ import annotations

import cython

from headrace.streams import memory_account
from headrace.streams.consumer import Consumer
from headrace.streams.due_heap import DueHeap
from headrace.streams.key_order import KeyOrder
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.pending_arena import PendingArena
from headrace.streams.pending_index import PendingIndex
from headrace.streams.reference_tree import ReferenceTree
from headrace.structures import footprint
from headrace.visibility import Public

NO_SLOT = cython.declare(cython.Py_ssize_t, -1)
UNOWNED = cython.declare(cython.Py_ssize_t, 0)  # the owner of unowned records


@cython.final
@cython.no_gc
@cython.cclass
class PendingEntries:
    """Pending entries by ID, by consumer, and in delivery order.

    Lookup, insertion and removal cost O(log n), at the end O(1). An entry with an earlier delivery time than
    others is linked in by a linear search from the last such entry. Times are Unix milliseconds.
    """

    count: cython.Py_ssize_t
    unowned_count: cython.Py_ssize_t  # how many of them are unowned
    arena: PendingArena
    memory: MemoryAccount  # of entries and consumers
    by_id: PendingIndex
    consumers_by_number: list[Consumer | None]  # by number; 0 is None, for unowned entries
    free_numbers: list[int] | None  # numbers of deleted consumers; None: there are none
    head: cython.Py_ssize_t
    last_unowned: cython.Py_ssize_t
    tail: cython.Py_ssize_t
    key_order: Public[KeyOrder | None]  # receives each change; None: the group has none
    due_heap: Public[DueHeap | None]  # likewise
    references: Public[ReferenceTree | None]  # has a key for each entry; None: the group has no number
    group_number: Public[cython.Py_ssize_t]  # of the group in `references`
    last_frozen_copy: PendingEntries | None  # the last frozen copy of these entries
    insertion_hint: cython.Py_ssize_t  # the owned entry last linked out of order, or one beside it; -1: none
    deleted_through: cython.Py_ssize_t  # see first_existing_by_delivery(); -1: none

    def __init__(self) -> None:
        self.count = self.unowned_count = 0
        self.key_order = None
        self.due_heap = None
        self.references = None
        self.last_frozen_copy = None
        self.group_number = NO_SLOT
        self.arena = PendingArena()
        self.memory = self.arena.memory
        self.by_id = PendingIndex(self.arena)
        self.consumers_by_number = [None]
        self.free_numbers = None
        self.head = self.last_unowned = self.tail = self.insertion_hint = self.deleted_through = NO_SLOT

    # ---- consumers

    @cython.ccall
    def add_consumer(self, name: bytes, now_ms: cython.longlong) -> Consumer:
        """Add a consumer that may own entries, seen now and never active."""
        number: cython.Py_ssize_t = (
            self.free_numbers.pop() if self.free_numbers else len(self.consumers_by_number)
        )
        consumer: Consumer = Consumer(name, number, now_ms, self.arena)
        if number == len(self.consumers_by_number):
            self.consumers_by_number.append(consumer)
        else:
            self.consumers_by_number[number] = consumer
        self.memory.add(memory_account.CONSUMER_BYTES + len(name))
        return consumer

    @cython.ccall
    def remove_consumer(self, consumer: Consumer) -> cython.Py_ssize_t:
        """Remove consumer and all entries it owns; return how many."""
        slot: cython.Py_ssize_t
        dropped: cython.Py_ssize_t = consumer.pending_count
        if self.last_frozen_copy is not None:
            self.preserve_consumer(consumer)
        for slot in consumer.owned_entries.slots():
            if self.key_order is not None:
                self.key_order.before_removal(slot)
            if self.due_heap is not None:
                self.due_heap.remove(slot)
            self._unlink(slot, True)
            if self.references is not None:
                self.references.remove(self.arena.ms_of(slot), self.arena.seq_of(slot), self.group_number)
            self.by_id.remove(slot)
            self.arena.release(slot)
        consumer.owned_entries = PendingIndex(self.arena)
        consumer.pending_count = 0
        self.count -= dropped
        self.consumers_by_number[consumer.number] = None
        self.memory.add(-memory_account.CONSUMER_BYTES - len(consumer.name))
        if self.free_numbers is None:
            self.free_numbers = []
        self.free_numbers.append(consumer.number)
        return dropped

    @cython.ccall
    def consumers(self) -> list[Consumer]:
        """Return the consumers, unordered."""
        return [consumer for consumer in self.consumers_by_number if consumer is not None]

    @cython.ccall
    @cython.exceptval(check=False)
    def consumer_count(self) -> cython.Py_ssize_t:
        """Return the number of consumers."""
        free: cython.Py_ssize_t = 0 if self.free_numbers is None else len(self.free_numbers)
        return len(self.consumers_by_number) - 1 - free

    # ---- adding, changing, removing

    @cython.ccall
    def add(
        self,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        owner: Consumer | None,
        time_ms: cython.longlong,
        deliveries: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Add an entry; return its slot. Raises ValueError if ms-seq is pending already.

        owner None: the entry is unowned, and its time is 0.
        """
        number: cython.Py_ssize_t = UNOWNED if owner is None else owner.number
        if owner is None:
            time_ms = 0
        slot: cython.Py_ssize_t = self.arena.allocate(ms, seq, number, time_ms, deliveries)
        try:
            self.by_id.insert(slot, ms, seq)
        except ValueError:
            self.arena.release(slot)
            raise
        self.count += 1
        if self.references is not None:
            self.references.add(ms, seq, self.group_number)
        if owner is not None:
            if self.last_frozen_copy is not None:
                self.preserve_consumer(owner)
            owner.owned_entries.insert(slot, ms, seq)
            owner.pending_count += 1
        self._link_in_order(slot, owner is not None, time_ms)
        if self.key_order is not None:
            self.key_order.on_added(slot)
        if self.due_heap is not None:
            self.due_heap.update(slot)
        return slot

    @cython.ccall
    def remove(self, slot: cython.Py_ssize_t) -> cython.void:
        """Remove the entry; its slot may be reused."""
        if self.references is not None:
            self.references.remove(self.arena.ms_of(slot), self.arena.seq_of(slot), self.group_number)
        self.remove_without_reference(slot)

    @cython.ccall
    def remove_without_reference(self, slot: cython.Py_ssize_t) -> cython.void:
        """Remove an entry whose key in `references` was removed before."""
        owner: Consumer | None = self.owner_of(slot)
        if self.key_order is not None:
            self.key_order.before_removal(slot)
        if self.due_heap is not None:
            self.due_heap.remove(slot)
        self._unlink(slot, owner is not None)
        self.by_id.remove(slot)
        if owner is not None:
            if self.last_frozen_copy is not None:
                self.preserve_consumer(owner)
            owner.owned_entries.remove(slot)
            owner.pending_count -= 1
        self.arena.release(slot)
        self.count -= 1

    @cython.ccall
    def assign(
        self,
        slot: cython.Py_ssize_t,
        owner: Consumer | None,
        time_ms: cython.longlong,
        deliveries: cython.longlong,
    ) -> cython.void:
        """Set the owner, the delivery time and the delivery count of an entry.

        owner None releases it: it becomes the last unowned entry, and its time 0.
        """
        was: Consumer | None = self.owner_of(slot)
        number: cython.Py_ssize_t = UNOWNED if owner is None else owner.number
        if owner is None:
            time_ms = 0
        if self.key_order is not None:
            self.key_order.before_change(slot)
        self._unlink(slot, was is not None)
        if owner is not was:
            if was is not None:
                if self.last_frozen_copy is not None:
                    self.preserve_consumer(was)
                was.owned_entries.remove(slot)
                was.pending_count -= 1
            if owner is not None:
                if self.last_frozen_copy is not None:
                    self.preserve_consumer(owner)
                owner.owned_entries.insert(slot, self.arena.ms_of(slot), self.arena.seq_of(slot))
                owner.pending_count += 1
        self.arena.set_delivery(slot, number, time_ms, deliveries)
        self._link_in_order(slot, owner is not None, time_ms)
        if self.key_order is not None:
            self.key_order.after_change(slot)
        if self.due_heap is not None:
            self.due_heap.update(slot)

    @cython.ccall
    def record_redelivery(
        self, slot: cython.Py_ssize_t, time_ms: cython.longlong, deliveries: cython.longlong
    ) -> cython.void:
        """Record that the entry was delivered again to its owner."""
        self.assign(slot, self.owner_of(slot), time_ms, deliveries)

    # ---- fields of an entry

    @cython.ccall
    def ms_of(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the milliseconds of the ID."""
        return self.arena.ms_of(slot)

    @cython.ccall
    def seq_of(self, slot: cython.Py_ssize_t) -> cython.ulonglong:
        """Return the sequence number of the ID."""
        return self.arena.seq_of(slot)

    @cython.ccall
    def delivery_time_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return the time of the last delivery; 0 if the entry is unowned."""
        return self.arena.delivery_time_of(slot)

    @cython.ccall
    def delivery_count_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return the delivery count."""
        return self.arena.delivery_count_of(slot)

    @cython.ccall
    def owner_of(self, slot: cython.Py_ssize_t) -> Consumer | None:
        """Return the owner of the entry; None if it is unowned."""
        return self._consumer(self.arena.owner_of(slot))

    @cython.ccall
    def consumer_of_number(self, number: cython.Py_ssize_t) -> Consumer | None:
        """Return the consumer of this number; None if there is none."""
        return self.consumers_by_number[number] if 0 < number < len(self.consumers_by_number) else None

    # ---- by ID

    @cython.ccall
    def find(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the slot of ms-seq; -1 if it is not pending."""
        return self.by_id.find(ms, seq)

    @cython.ccall
    def first_by_id_from(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the slot of the first entry that is not before ms-seq; -1 if there is none."""
        return self.by_id.first_from(ms, seq)

    @cython.ccall
    def next_by_id(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot of the next entry by ID; -1 if there is none."""
        return self.by_id.after(slot)

    @cython.ccall
    def last_by_id(self) -> cython.Py_ssize_t:
        """Return the slot of the entry with the highest ID; -1 if there is none."""
        return self.by_id.last()

    @cython.ccall
    def first_of_consumer_from(
        self, consumer: Consumer, ms: cython.ulonglong, seq: cython.ulonglong
    ) -> cython.Py_ssize_t:
        """Return the slot of the consumer's first entry that is not before ms-seq; -1 if there is none."""
        return consumer.owned_entries.first_from(ms, seq)

    @cython.ccall
    def next_of_consumer(self, consumer: Consumer, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot of the consumer's next entry by ID; -1 if there is none.

        Raises KeyError if the given slot is not one of its entries.
        """
        return consumer.owned_entries.after(slot)

    # ---- in delivery order

    @cython.ccall
    def first_by_delivery(self) -> cython.Py_ssize_t:
        """Return the first slot in delivery order, which begins with unowned entries; -1 for none."""
        return self.head

    @cython.ccall
    def first_existing_by_delivery(self) -> cython.Py_ssize_t:
        """Return the first slot in delivery order after the entries recorded as deleted; -1 for none.

        Later entries may be deleted, too: a search that finds some records them by note_deleted_through().
        """
        return self.head if self.deleted_through < 0 else self.arena.next_of(self.deleted_through)

    @cython.ccall
    def note_deleted_through(self, slot: cython.Py_ssize_t) -> cython.void:
        """Record that this entry, and all before it in delivery order, are deleted from the stream; -1: none.

        This does not include entries that are linked before it later.
        """
        self.deleted_through = slot

    @cython.ccall
    def last_by_delivery(self) -> cython.Py_ssize_t:
        """Return the slot of the last entry in delivery order; -1 if there is none."""
        return self.tail

    @cython.ccall
    def next_by_delivery(self, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the slot of the next entry in delivery order; -1 if there is none."""
        return self.arena.next_of(slot)

    # ---- snapshots

    @cython.ccall
    def frozen_copy(self) -> PendingEntries:
        """Return a copy that must not be changed. It shares memory with these entries, which may change.

        An earlier frozen copy must be freed first. The cost grows with the blocks of memory, not with the
        entries; a consumer costs one item of a list now, and a copy before its first change.
        """
        other: PendingEntries = self._copy_with(self.arena.frozen_copy())
        other.by_id = self.by_id.frozen_copy(other.arena)
        other.consumers_by_number = self.consumers_by_number.copy()
        self.last_frozen_copy = other
        return other

    @cython.ccall
    def preserve_consumer(self, consumer: Consumer) -> cython.void:
        """Give the frozen copy a copy of a consumer.

        If `last_frozen_copy` is set, call this before the consumer changes. A command that names a
        consumer calls Group.touch() before it changes anything else of the consumer.
        """
        frozen: PendingEntries | None = self.last_frozen_copy
        if frozen is None or len(frozen.consumers_by_number) == 1:
            self.last_frozen_copy = None  # released, or without consumers
        elif (
            consumer.number < len(frozen.consumers_by_number)
            and frozen.consumers_by_number[consumer.number] is consumer
        ):
            frozen.consumers_by_number[consumer.number] = consumer.frozen_copy(frozen.arena)

    @cython.ccall
    def preserved_consumer(self, number: cython.Py_ssize_t) -> Consumer | None:
        """Return the consumer of this number; None if there is none.

        In a frozen copy, the consumer is copied first, so that it does not change any more.
        """
        consumer: Consumer | None = self.consumers_by_number[number]
        if consumer is not None and consumer.owned_entries.arena is not self.arena:
            consumer = self.consumers_by_number[number] = consumer.frozen_copy(self.arena)
        return consumer

    @cython.ccall
    def free_memory(self) -> cython.void:
        """Free the memory of a frozen copy."""
        self.consumers_by_number = [None]
        self.arena = PendingArena()
        self.by_id = PendingIndex(self.arena)
        self.free_numbers = None
        self.head = self.last_unowned = self.tail = self.insertion_hint = NO_SLOT
        self.count = self.unowned_count = 0

    # ---- all entries

    @cython.ccall
    def copy(self) -> PendingEntries:
        """Return a copy with the same entries at the same slots, owned by copies of the consumers."""
        other: PendingEntries = self._copy_with(self.arena.copy())
        consumer: Consumer | None
        other.by_id = self.by_id.copy(other.arena)
        for consumer in self.consumers_by_number[1:]:
            if consumer is not None:
                consumer = consumer.copy(other.arena)
                other.memory.add(memory_account.CONSUMER_BYTES + len(consumer.name))
            other.consumers_by_number.append(consumer)
        return other

    @cython.cfunc
    def _copy_with(self, arena: PendingArena) -> PendingEntries:
        """Return a copy of the entries with this copy of the arena, without the index and the consumers."""
        other: PendingEntries = PendingEntries()
        other.arena = arena
        other.memory = arena.memory
        other.count = self.count
        other.unowned_count = self.unowned_count
        other.head = self.head
        other.last_unowned = self.last_unowned
        other.tail = self.tail
        other.insertion_hint = self.insertion_hint
        other.free_numbers = self.free_numbers.copy() if self.free_numbers is not None else None
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that entries and consumers take; visits blocks, not entries."""
        total: cython.Py_ssize_t = footprint.instance_bytes(PendingEntries) + footprint.object_bytes(
            self.consumers_by_number
        )
        each: cython.Py_ssize_t = footprint.instance_bytes(Consumer)
        consumer: Consumer | None
        total += self.arena.memory_bytes() + self.by_id.memory_bytes()
        if self.free_numbers is not None:
            total += footprint.object_bytes(self.free_numbers)
        for consumer in self.consumers_by_number:
            if consumer is not None:
                total += each + footprint.object_bytes(consumer.name) + consumer.owned_entries.memory_bytes()
        return total

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        owned: cython.Py_ssize_t = 0
        number: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        consumer: Consumer | None
        self.arena.check()
        self.by_id.check()
        if self.key_order is not None:
            self.key_order.check()
        if self.due_heap is not None:
            self.due_heap.check()
            assert self.due_heap.timers.count == self.count - self.unowned_count
        assert self.count == self.by_id.count == self.arena.live_count
        assert self.consumers_by_number[0] is None
        unused: list[int] = [i for i, c in enumerate(self.consumers_by_number) if i > 0 and c is None]
        assert sorted(self.free_numbers or []) == unused
        for number in range(len(self.consumers_by_number)):
            consumer = self.consumers_by_number[number]
            if consumer is None:
                continue
            assert consumer.number == number
            assert consumer.pending_count == consumer.owned_entries.count
            consumer.owned_entries.check()
            for slot in consumer.owned_entries.slots():
                assert self.owner_of(slot) is consumer, f"slot {slot} is not {consumer.name!r}'s"
                assert self.find(self.ms_of(slot), self.seq_of(slot)) == slot
            owned += consumer.pending_count
        assert owned + self.unowned_count == self.count
        self._check_order()

    # ---- inside

    @cython.cfunc
    def _consumer(self, number: cython.Py_ssize_t) -> Consumer | None:
        return self.consumers_by_number[number]

    @cython.cfunc
    def _link_in_order(
        self, slot: cython.Py_ssize_t, owned: cython.bint, time_ms: cython.longlong
    ) -> cython.void:
        """Link the entry into the delivery order."""
        arena: PendingArena = self.arena
        before: cython.Py_ssize_t = self.tail if owned else self.last_unowned
        if not owned:
            self.last_unowned = slot
            self.unowned_count += 1
        elif before != self.last_unowned and arena.delivery_time_of(before) > time_ms:
            before = self._last_delivered_until(time_ms)
            self.insertion_hint = slot
        follower: cython.Py_ssize_t = NO_SLOT
        if before != self.tail:
            follower = self.head if before < 0 else arena.next_of(before)
            if self.deleted_through >= 0:
                self._cap_deleted_through(before, owned, time_ms)
        arena.link(before, slot)
        arena.link(slot, follower)
        if before < 0:
            self.head = slot
        if follower < 0:
            self.tail = slot

    @cython.cfunc
    def _cap_deleted_through(
        self, before: cython.Py_ssize_t, owned: cython.bint, time_ms: cython.longlong
    ) -> cython.void:
        """Let `deleted_through` be at most the entry `before`, after which another one is linked."""
        through: cython.Py_ssize_t = self.deleted_through
        if self.arena.owner_of(through) == UNOWNED:
            return  # unowned entries are linked after all others, owned ones further on
        if not owned or self.arena.delivery_time_of(through) > time_ms:
            self.deleted_through = before

    @cython.cfunc
    def _last_delivered_until(self, time_ms: cython.longlong) -> cython.Py_ssize_t:
        """Return the last entry that is unowned or was delivered at time_ms or before; -1 if there is none.

        Searches from the last result: entries that are out of order often come one after another.
        """
        arena: PendingArena = self.arena
        here: cython.Py_ssize_t = self.tail if self.insertion_hint < 0 else self.insertion_hint
        follower: cython.Py_ssize_t
        while here != self.last_unowned and arena.delivery_time_of(here) > time_ms:
            here = arena.previous_of(here)
        follower = self.head if here < 0 else arena.next_of(here)
        while follower >= 0 and arena.delivery_time_of(follower) <= time_ms:
            here = follower
            follower = arena.next_of(here)
        return here

    @cython.cfunc
    def _unlink(self, slot: cython.Py_ssize_t, owned: cython.bint) -> cython.void:
        """Unlink the entry from the delivery order."""
        before: cython.Py_ssize_t = self.arena.previous_of(slot)
        follower: cython.Py_ssize_t = self.arena.next_of(slot)
        if not owned:
            self.unowned_count -= 1
            if slot == self.last_unowned:
                self.last_unowned = before
        elif slot == self.insertion_hint:
            self.insertion_hint = follower if before == self.last_unowned else before
        if slot == self.deleted_through:
            self.deleted_through = before
        self.arena.link(before, follower)
        if before < 0:
            self.head = follower
        if follower < 0:
            self.tail = before

    @cython.cfunc
    def _check_order(self) -> cython.void:
        """Assert the invariants of the delivery order."""
        n: cython.Py_ssize_t = 0
        before: cython.Py_ssize_t = NO_SLOT
        slot: cython.Py_ssize_t = self.head
        while slot >= 0:
            n += 1
            assert n <= self.count, "the delivery order has a cycle"
            assert self.arena.previous_of(slot) == before
            assert (self.owner_of(slot) is None) == (n <= self.unowned_count), "owned before unowned"
            assert n != self.unowned_count or slot == self.last_unowned
            if n <= self.unowned_count:
                assert self.delivery_time_of(slot) == 0
            elif n > self.unowned_count + 1:
                assert self.delivery_time_of(before) <= self.delivery_time_of(slot), "out of order by time"
            before = slot
            slot = self.arena.next_of(slot)
        assert n == self.count
        assert before == self.tail
        assert self.unowned_count > 0 or self.last_unowned == NO_SLOT
        assert self.insertion_hint == NO_SLOT or self.owner_of(self.insertion_hint) is not None
        assert self.deleted_through == NO_SLOT or self.find(
            self.ms_of(self.deleted_through), self.seq_of(self.deleted_through)
        ) == (self.deleted_through), "deleted_through is not pending"
