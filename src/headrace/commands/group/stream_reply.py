"""Write the reply to XREADGROUP for one stream: the entries that one consumer of one group receives."""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.group import loss_log, members
from headrace.commands.group.claim_effects import ClaimEffects
from headrace.commands.stream import entries
from headrace.commands.stream.entry_lookup import EntryLookup
from headrace.commands.stream.read_options import ReplyBudget
from headrace.errors import DamagedColdRun
from headrace.resp.writer import ReplyWriter
from headrace.streams import delivery
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.key_order import KeyOrder
from headrace.streams.pending import PendingEntries
from headrace.streams.redelivery import DueEntries, DueWalk
from headrace.streams.rules import GroupRules
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)

ENTRY_REDELIVERED = cython.declare(cython.int, 0)
ENTRY_REMOVED = cython.declare(cython.int, 1)
ENTRY_GIVEN_UP = cython.declare(cython.int, 2)
ENTRY_LEFT_PENDING = cython.declare(cython.int, 3)
SEARCH_COST = cython.declare(cython.Py_ssize_t, 8)  # see skip_cost()
NOT_DELIVERED_MAX = cython.declare(cython.int, 100)  # entries that one read removes or gives up


@cython.cfunc
@cython.exceptval(-1, check=False)
def is_trimmed(stream: Stream, pending: PendingEntries, slot: cython.Py_ssize_t) -> cython.bint:
    """Return whether the entry is before the first one of the stream."""
    return stream.length == 0 or stream_id.is_before(
        pending.ms_of(slot), pending.seq_of(slot), stream.first_ms, stream.first_seq
    )


@cython.cfunc
@cython.exceptval(-1, check=False)
def skip_cost(stream: Stream, pending: PendingEntries, slot: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return what it costs to find that an entry is deleted, in units of about 50 ns."""
    return 1 if is_trimmed(stream, pending, slot) else SEARCH_COST


@cython.cfunc
@cython.exceptval(-1, check=False)
def may_be_added_again(stream: Stream, pending: PendingEntries, slot: cython.Py_ssize_t) -> cython.bint:
    """Return whether a deleted entry has an ID above the stream's last one, which XSETID has lowered."""
    return stream_id.is_before(stream.last_ms, stream.last_seq, pending.ms_of(slot), pending.seq_of(slot))


@cython.final
@cython.freelist(8)
@cython.cclass
class StreamReply:
    """Writes one stream's part of the reply: the entries that one consumer of one group gets."""

    call: Call
    key: bytes
    stream: Stream
    group: Group
    consumer: Consumer
    budget: ReplyBudget
    entry_limit: cython.longlong  # maximum number of entries
    pending_max: cython.longlong  # of the consumer, by the rule MAX-PENDING
    key_order: KeyOrder | None  # with the rule ORDERED-BY
    claim_effects: ClaimEffects | None  # effects; None unless some are recorded
    has_claim_option: cython.bint  # the request has the option CLAIM
    skip_budget: cython.Py_ssize_t  # what passing deleted entries may still cost
    written_count: cython.longlong  # entries written
    delivered_count: cython.longlong  # entries that became the consumer's

    def __init__(
        self, call: Call, key: bytes, stream: Stream, group: Group, consumer: Consumer, budget: ReplyBudget
    ) -> None:
        self.call = call
        self.key = key
        self.stream = stream
        self.group = group
        self.consumer = consumer
        self.budget = budget
        self.entry_limit = budget.stream_limit()
        self.pending_max = I64_MAX
        self.key_order = None
        self.claim_effects = None
        self.has_claim_option = False
        self.skip_budget = 0
        self.written_count = 0
        self.delivered_count = 0

    @cython.cfunc
    def record_claim(self, slot: cython.Py_ssize_t, last: bytes) -> cython.void:
        """Add the state of a pending entry to the effects: see ClaimEffects.add()."""
        if self.claim_effects is None:
            self.claim_effects = ClaimEffects(self.call, self.key, self.group)
        self.claim_effects.add(slot, last)

    @cython.cfunc
    def flush_claims(self) -> cython.void:
        """Record the claims so far; call it before recording an effect that must follow them."""
        if self.claim_effects is not None:
            self.claim_effects.flush()

    @cython.cfunc
    def write_history(self, after: StreamId) -> cython.void:
        """Write the consumer's pending entries above the ID; an entry no longer in the stream as null.

        With ORDERED-BY, entries that wait for others of the same value are left out.
        """
        reply: ReplyWriter = self.call.reply
        pending: PendingEntries = self.group.pending
        first: StreamId = after.successor()
        slot: cython.Py_ssize_t = pending.first_of_consumer_from(self.consumer, first.ms, first.seq)
        following: cython.Py_ssize_t
        lookup: EntryLookup = EntryLookup(self.stream)
        entry: StreamIterator | None
        ordered: cython.bint = self.group.is_ordered()
        while slot >= 0 and self.written_count < self.entry_limit and not self.budget.is_full():
            following = pending.next_of_consumer(self.consumer, slot)
            if ordered and self.group.entry_awaits_delivery(slot):
                slot = following
                continue
            entry = lookup.find(pending.ms_of(slot), pending.seq_of(slot))
            if entry is not None:
                entries.write_entry(reply, entry)
                pending.record_redelivery(
                    slot, self.call.now, members.saturating_increment(pending.delivery_count_of(slot))
                )
                if self.call.effects.recording:
                    self.record_claim(slot, b"")
            else:
                reply.array(2)
                reply.stream_id(pending.ms_of(slot), pending.seq_of(slot))
                reply.null_array()
            self.count_entry()
            slot = following

    @cython.cfunc
    def claim_and_write_idle(self, min_idle: cython.longlong) -> cython.void:
        """Write and claim entries that were idle for min_idle milliseconds, oldest first.

        Deleted entries stay pending. Because they may be many, the group stores how far they were skipped,
        and the next search continues there.
        """
        if self.stream.length == 0:
            return
        call: Call = self.call
        pending: PendingEntries = self.group.pending
        slot: cython.Py_ssize_t = pending.first_existing_by_delivery()
        following: cython.Py_ssize_t
        rest: cython.Py_ssize_t = pending.count
        # Claimed entries move behind it, and are not met again.
        last: cython.Py_ssize_t = pending.last_by_delivery()
        only_deleted: cython.bint = True  # and claimed ones: none before `slot` may be claimed
        idle: cython.longlong
        lookup: EntryLookup = EntryLookup(self.stream)
        entry: StreamIterator | None
        position: bytes = (
            stream_id.text_of(self.group.last_ms, self.group.last_seq) if call.effects.recording else b""
        )
        ordered: cython.bint = self.group.is_ordered()
        while rest > 0 and slot >= 0 and self.written_count < self.entry_limit and not self.budget.is_full():
            idle = max(0, call.now - pending.delivery_time_of(slot))
            if idle < min_idle:
                break
            following = pending.next_by_delivery(slot)
            if ordered and self.group.entry_awaits_delivery(slot):
                only_deleted = False
                if slot == last:
                    break
                slot = following
                continue
            entry = lookup.find(pending.ms_of(slot), pending.seq_of(slot))
            if entry is None:
                if self.skip_budget <= 0:
                    break
                self.skip_budget -= skip_cost(self.stream, pending, slot)
                if only_deleted and not may_be_added_again(self.stream, pending, slot):
                    pending.note_deleted_through(slot)
                else:
                    only_deleted = False
            else:
                self.write_entry(entry, idle, pending.delivery_count_of(slot))
                pending.assign(
                    slot,
                    self.consumer,
                    call.now,
                    members.saturating_increment(pending.delivery_count_of(slot)),
                )
                self.consumer.active_ms = call.now
                if call.effects.recording:
                    self.record_claim(slot, position)
                self.delivered_count += 1
                if following >= 0 and pending.delivery_time_of(following) > call.now:
                    only_deleted = False  # the clock was set back: the claimed entry is before that one
            if slot == last:
                break
            slot = following
            rest -= 1

    @cython.cfunc
    def apply_rules(self, rules: GroupRules, noack: cython.bint) -> cython.void:
        """Apply the rules of the group that limit or order what the consumer gets.

        MAX-PENDING sets `pending_max`, the limit of the consumer's pending entries. ORDERED-BY sets
        `key_order`, unless the request has NOACK.
        """
        if rules.max_pending:
            self.pending_max = rules.max_pending
        if rules.ordered_by and not noack:
            self.key_order = self.group.ensure_key_order()

    @cython.cfunc
    @cython.exceptval(check=False)
    def may_write_more(self) -> cython.bint:
        """Return whether the limits of the request, and MAX-PENDING, permit another entry."""
        held: cython.longlong = self.consumer.pending_count
        if self.key_order is not None:
            held = self.key_order.delivered_count_of(self.consumer.number)
        return self.written_count < self.entry_limit and held < self.pending_max and not self.budget.is_full()

    @cython.cfunc
    def claim_and_write_due(self, due: DueEntries) -> cython.void:
        """Write and claim the entries whose lease has ended, the earliest first."""
        lookup: EntryLookup = EntryLookup(self.stream)
        walk: DueWalk = DueWalk(due, self.call.now)
        rest: cython.int = NOT_DELIVERED_MAX
        left: list[int] = []
        slot: cython.Py_ssize_t = -1
        try:
            while rest > 0 and self.may_write_more():
                slot = walk.next()
                if slot < 0:
                    break
                outcome: cython.int = self.redeliver(slot, lookup)
                if outcome in (ENTRY_LEFT_PENDING, ENTRY_GIVEN_UP):
                    left.append(slot)
                if outcome in (ENTRY_REMOVED, ENTRY_GIVEN_UP):
                    rest -= 1
        except DamagedColdRun:
            left.append(slot)
            raise
        finally:
            walk.put_back(left)
        if rest == 0:
            self.call.keyspace.rule_registry.add_to_backlog(self.stream)

    @cython.cfunc
    def redeliver(self, slot: cython.Py_ssize_t, lookup: EntryLookup) -> cython.int:
        """Write a pending entry and make it the consumer's, if it may be delivered again.

        Returns ENTRY_REDELIVERED; ENTRY_REMOVED, if the stream has lost the entry: it is no longer pending;
        ENTRY_GIVEN_UP, if it was delivered often enough: the engine will move it to the dead letters; or
        ENTRY_LEFT_PENDING, if that move has just failed and will be tried again later.
        """
        call: Call = self.call
        group: Group = self.group
        pending: PendingEntries = group.pending
        ms: cython.ulonglong = pending.ms_of(slot)
        seq: cython.ulonglong = pending.seq_of(slot)
        entry: StreamIterator | None = lookup.find(ms, seq)
        if entry is None:
            pending.remove(slot)
            group.lost_pending_count += 1
            loss_log.log_new_losses(call, self.key, self.stream, group)
            call.keyspace.changes += 1
            if call.effects.recording:
                members.record_lost_entry(call, self.key, group, self.consumer, stream_id.text_of(ms, seq))
            return ENTRY_REMOVED
        deliveries: cython.longlong = pending.delivery_count_of(slot)
        rules: GroupRules | None = group.rules
        if rules is not None and rules.max_deliveries and deliveries >= rules.max_deliveries:
            given_up: cython.bint = call.keyspace.rule_registry.add_exhausted(
                self.stream, group.name, ms, seq, call.now
            )
            return ENTRY_GIVEN_UP if given_up else ENTRY_LEFT_PENDING
        self.write_entry(entry, max(0, call.now - pending.delivery_time_of(slot)), deliveries)
        pending.assign(slot, self.consumer, call.now, members.saturating_increment(deliveries))
        self.consumer.active_ms = call.now
        if call.effects.recording:
            self.record_redelivery(slot)
        self.delivered_count += 1
        return ENTRY_REDELIVERED

    @cython.cfunc
    def record_redelivery(self, slot: cython.Py_ssize_t) -> cython.void:
        """Record the state of a pending entry, and the group's last ID."""
        self.record_claim(slot, stream_id.text_of(self.group.last_ms, self.group.last_seq))

    @cython.cfunc
    def deliver_and_write_new(self, noack: cython.bint) -> cython.void:
        """Write and deliver the entries above the group's last ID; with `noack` none becomes pending."""
        call: Call = self.call
        group: Group = self.group
        stream: Stream = self.stream
        before: cython.longlong = self.written_count
        ms: cython.ulonglong = group.last_ms
        seq: cython.ulonglong = group.last_seq
        slot: cython.Py_ssize_t
        if group.has_unlogged_losses:
            loss_log.log_new_losses(call, self.key, stream, group)
        if not stream_id.is_before(ms, seq, stream.last_ms, stream.last_seq):
            return  # the usual case of a client that polls
        if delivery.may_have_lost(stream, group):
            loss_log.log_new_losses(call, self.key, stream, group)
        last: bytes = stream_id.text_of(ms, seq) if call.effects.recording else b""
        if seq == U64_MAX:
            ms += 1
            seq = 0
        else:
            seq += 1
        entry: StreamIterator = StreamIterator(stream, ms, seq, U64_MAX, U64_MAX, False)
        most: cython.longlong = self.entry_limit
        if self.pending_max < I64_MAX and not noack:
            most = min(most, before + max(self.pending_max - self.consumer.pending_count, 0))
        try:
            while self.written_count < most and not self.budget.is_full() and entry.next():
                self.write_entry(entry, 0, 0)
                slot = delivery.deliver(
                    stream, group, self.consumer, entry.ms, entry.seq, call.now, not noack
                )
                if call.effects.recording and not noack:
                    self.record_claim(slot, last)
                self.delivered_count += 1
        finally:  # an entry that cannot be read ends the loop: what was delivered before must be in the log
            if call.effects.recording and self.written_count > before:
                self.flush_claims()
                members.record_last_id(call, self.key, group)

    @cython.cfunc
    def write_entry(
        self, entry: StreamIterator, idle: cython.longlong, deliveries: cython.longlong
    ) -> cython.void:
        """Write an entry; with CLAIM also its idle time and its delivery count before this delivery."""
        reply: ReplyWriter = self.call.reply
        if self.has_claim_option:
            reply.array(4)
            entries.write_id_and_fields(reply, entry)
            reply.integer(idle)
            reply.integer(deliveries)
        else:
            entries.write_entry(reply, entry)
        self.count_entry()

    @cython.cfunc
    @cython.exceptval(check=False)
    def count_entry(self) -> cython.void:
        """Count an entry that was written."""
        self.written_count += 1
        self.budget.count_entry()
