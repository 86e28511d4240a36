"""A consumer group of a stream: its position, its pending entries, and its consumers.

last          the last delivered ID, or the one that XGROUP SETID has set
entries_read  how many entries were ever added up to it; -1: unknown
pending       the entries that are delivered and not acknowledged
passed_count  how many of the entries ever added were delivered, or were before its first position

Unlike entries_read, passed_count does not count an entry that was removed before the group read it. So the
lost entries are counted without any work when entries are added or removed:

    entries added - passed - entries after the last ID  =  entries lost unread
          8       -   2    -            1               =           5            3-0 to 7-0 were trimmed
"""

from __future__ import annotations

from collections.abc import Iterator

import cython

from headrace.streams import memory_account
from headrace.streams.consumer import Consumer
from headrace.streams.key_order import KeyOrder
from headrace.streams.lease import Lease
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.pending import PendingEntries
from headrace.streams.redelivery import DueEntries
from headrace.streams.rules import GroupRules
from headrace.structures import footprint
from headrace.visibility import Public


@cython.final
@cython.no_gc  # no cycle can contain it, and there may be millions
@cython.cclass
class Group:
    """A group, created by Stream.make_group; delivery.py moves its position."""

    name: bytes
    last_ms: Public[cython.ulonglong]
    last_seq: Public[cython.ulonglong]
    entries_read: Public[cython.longlong]
    pending: PendingEntries
    memory: MemoryAccount
    consumers_by_name: dict[bytes, Consumer]  # of a frozen copy: empty
    passed_count: Public[cython.longlong]  # -1: not known before the next delivery
    lost_unread_base: Public[cython.longlong]  # those that passed_count does not show any more
    lost_pending_count: Public[cython.longlong]  # removed from the pending entries, because they were deleted
    logged_lost_unread_count: Public[cython.longlong]  # of the lost entries, those named in the log
    logged_lost_pending_count: Public[cython.longlong]
    losses_logged_ms: Public[cython.longlong]  # when; -1: never
    has_unlogged_losses: Public[cython.bint]  # some are to be logged later
    rules: Public[GroupRules | None]  # None: there are none
    lease: Lease | None
    due_entries: Public[DueEntries | None]  # with a LEASE and without ORDERED-BY

    def __init__(
        self, name: bytes, ms: cython.ulonglong, seq: cython.ulonglong, entries_read: cython.longlong
    ) -> None:
        self.name = name
        self.last_ms = ms
        self.last_seq = seq
        self.entries_read = entries_read
        self.passed_count = -1
        self.lost_unread_base = self.lost_pending_count = 0
        self.logged_lost_unread_count = self.logged_lost_pending_count = 0
        self.losses_logged_ms = -1
        self.has_unlogged_losses = False
        self._attach_pending(PendingEntries())
        self.consumers_by_name = {}
        self.rules = None
        self.lease = None
        self.due_entries = None

    @cython.cfunc
    def _attach_pending(self, pending: PendingEntries) -> cython.void:
        self.pending = pending
        self.memory = pending.memory
        self.memory.add(memory_account.GROUP_BYTES + len(self.name))

    @cython.ccall
    def set_rules(self, rules: GroupRules | None) -> cython.void:
        """Replace the rules; None removes all."""
        self.rules = rules
        self.lease = Lease(rules) if rules is not None and rules.lease_ms else None
        self.due_entries = None
        if self.pending.due_heap is not None:
            self.pending.due_heap.free_memory()
            self.pending.due_heap = None
        order: KeyOrder | None = self.pending.key_order
        if order is not None:
            if self.lease is not None and rules is not None and order.field == rules.ordered_by:
                order.set_lease(self.lease)
            else:
                order.subtract_from_account()
                self.pending.key_order = None  # made when it is needed
        if self.lease is not None and not self.is_ordered():
            self.due_entries = DueEntries(self.pending, self.lease)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_ordered(self) -> cython.bint:
        """Return whether the rule ORDERED-BY is set."""
        return self.rules is not None and len(self.rules.ordered_by) > 0

    @cython.ccall
    def ensure_key_order(self) -> KeyOrder:
        """Return the order of the pending entries; create it at first use.

        The rules ORDERED-BY and LEASE must be set.
        """
        pending: PendingEntries = self.pending
        assert self.lease is not None and self.rules is not None
        if pending.key_order is None:
            pending.key_order = KeyOrder(pending.arena, pending.by_id, self.lease, self.rules.ordered_by)
        return pending.key_order

    @cython.ccall
    def due_of(self, slot: cython.Py_ssize_t) -> cython.longlong:
        """Return when a pending entry is due, in Unix milliseconds; 0: at once; -1: never, without LEASE."""
        if self.lease is None:
            return -1
        if self.entry_awaits_delivery(slot):
            return 0
        return self.lease.end_ms(self.pending.delivery_time_of(slot), self.pending.delivery_count_of(slot))

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def entry_awaits_delivery(self, slot: cython.Py_ssize_t) -> cython.bint:
        """Return whether a pending entry waits for delivery, so that no consumer works on it."""
        pending: PendingEntries = self.pending
        if pending.owner_of(slot) is None or pending.delivery_time_of(slot) == 0:
            return True
        return self.is_ordered() and pending.delivery_count_of(slot) == 0

    @cython.ccall
    def consumer(self, name: bytes) -> Consumer | None:
        """Return the consumer of this name; None if there is none."""
        return self.consumers_by_name.get(name)

    @cython.ccall
    def make_consumer(self, name: bytes, now_ms: cython.longlong) -> Consumer:
        """Create a consumer, seen now and never active. No consumer may have this name."""
        made: Consumer = self.pending.add_consumer(name, now_ms)
        self.consumers_by_name[name] = made
        return made

    @cython.ccall
    def touch(self, consumer: Consumer, now_ms: cython.longlong) -> cython.void:
        """Record that a command named the consumer. Call this before changing anything else in it."""
        if self.pending.last_frozen_copy is not None:
            self.pending.preserve_consumer(consumer)
        consumer.seen_ms = now_ms

    @cython.ccall
    def drop_consumer(self, consumer: Consumer) -> cython.Py_ssize_t:
        """Delete a consumer with its pending entries; return how many these were."""
        del self.consumers_by_name[consumer.name]
        return self.pending.remove_consumer(consumer)

    @cython.ccall
    def consumer_names(self) -> list[bytes]:
        """Return the names of all consumers, unsorted. The group must not be frozen."""
        return list(self.consumers_by_name)

    @cython.ccall
    def consumers(self) -> list[Consumer]:
        """Return all consumers, in byte order of their names.

        Those of a frozen group are valid only until the next change of the group; see preserved_consumers().
        """
        by_name: dict[bytes, Consumer] = self.consumers_by_name
        if not by_name:
            by_name = {consumer.name: consumer for consumer in self.pending.consumers()}
        return [by_name[name] for name in sorted(by_name)]

    def preserved_consumers(self) -> Iterator[Consumer]:
        """Yield all consumers, in byte order of their names. Those of a frozen group do not change later."""
        consumer: Consumer
        kept: Consumer | None
        for consumer in self.consumers():
            kept = self.pending.preserved_consumer(consumer.number)
            assert kept is not None
            yield kept

    @cython.ccall
    def consumer_count(self) -> cython.Py_ssize_t:
        """Return the number of consumers."""
        return self.pending.consumer_count()

    @cython.ccall
    def copy(self) -> Group:
        """Return a copy with the same position, consumers and pending entries."""
        other: Group = self._copy_with(self.pending.copy())
        consumer: Consumer
        for consumer in other.pending.consumers():
            other.consumers_by_name[consumer.name] = consumer
        return other

    @cython.ccall
    def frozen_copy(self) -> Group:
        """Return a copy that must not be changed. It shares memory with this group, which may change.

        Its consumers are not found by name.
        """
        return self._copy_with(self.pending.frozen_copy())

    @cython.cfunc
    def _copy_with(self, pending: PendingEntries) -> Group:
        other: Group = Group(self.name, self.last_ms, self.last_seq, self.entries_read)
        other.passed_count = self.passed_count
        other.lost_unread_base = self.lost_unread_base
        other.lost_pending_count = self.lost_pending_count
        other.logged_lost_unread_count = self.logged_lost_unread_count
        other.logged_lost_pending_count = self.logged_lost_pending_count
        other._attach_pending(pending)
        other.set_rules(self.rules)
        return other

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes that the group takes."""
        own: cython.Py_ssize_t = footprint.instance_bytes(Group) + footprint.object_bytes(
            self.consumers_by_name
        )
        return own + footprint.object_bytes(self.name) + self.pending.memory_bytes()

    @cython.ccall
    def check(self) -> cython.void:
        """Assert every invariant."""
        self.pending.check()
        consumer: Consumer
        for consumer in self.pending.consumers():
            assert self.consumers_by_name.get(consumer.name) is consumer, (
                f"{consumer.name!r} is not in the group"
            )
        assert len(self.pending.consumers()) == len(self.consumers_by_name)
