"""XREADGROUP on a group with ORDERED-BY: decide which entries a consumer receives, and which wait.

    1. queues that are due: all their entries, from the first one on
    2. waiting entries of the queues that the consumer holds: a queue has the entries with one value
    3. new entries; those of a value that another consumer holds become pending, and wait

A new entry that waits is pending with delivery count 0. One that was delivered before, and waits because its
queue has moved to another consumer, keeps its count and has the delivery time 0.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.group import loss_log, members, stream_reply
from headrace.commands.group.stream_reply import StreamReply
from headrace.commands.stream.entry_lookup import EntryLookup
from headrace.errors import DamagedColdRun
from headrace.streams import delivery
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.key_order import KeyOrder
from headrace.streams.key_queue import KeyQueue
from headrace.streams.node_walk import EntryWalk
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
PENDING_READ_MAX = cython.declare(cython.int, 1000)  # pending entries whose values one read looks up
NEW_WAITING_MAX = cython.declare(cython.int, 300)  # new entries that one read lets wait: about a millisecond
RETRY_MS = cython.declare(cython.longlong, 1000)


@cython.ccall
@cython.exceptval(-1, check=False)
def load_pending_values(order: KeyOrder, pending: PendingEntries, stream: Stream) -> cython.int:
    """Look up the values of pending entries that `order` does not know yet; return how many were visited.

    At most PENDING_READ_MAX entries are visited. order.are_values_read becomes True if none is left.
    """
    lookup: EntryLookup = EntryLookup(stream)
    entry: StreamIterator | None
    slot: cython.Py_ssize_t = pending.first_by_id_from(order.first_unread_ms, order.first_unread_seq)
    visits: cython.int = 0
    while slot >= 0 and visits < PENDING_READ_MAX:
        if order.queue_of_slot(slot) is None:
            entry = lookup.find(pending.ms_of(slot), pending.seq_of(slot))
            order.put(slot, None if entry is None else _value(entry, order.field))
        else:
            order.reschedule_check(slot)
        slot = pending.next_by_id(slot)
        visits += 1
    order.are_values_read = slot < 0
    if slot >= 0:
        order.first_unread_ms = pending.ms_of(slot)
        order.first_unread_seq = pending.seq_of(slot)
    return visits


@cython.cfunc
def _value(entry: StreamIterator, field: bytes) -> bytes | None:
    """Return the value of the field in the iterator's entry; None if the entry does not have it."""
    walk: EntryWalk | None = entry.walk
    value: bytes | None = None
    found: cython.bint = False
    assert walk is not None
    while not found and walk.next_field_or_value():
        found = walk.text_size == len(field) and walk.piece() == field
        walk.next_field_or_value()
    if found:
        value = walk.piece()
    walk.rewind_entry()
    return value


@cython.cfunc
def deliver_in_order(reply: StreamReply, order: KeyOrder) -> cython.void:
    """Write the entries that the consumer receives, and make them its own."""
    now: cython.longlong = reply.call.now
    pending: PendingEntries = reply.group.pending
    queue: KeyQueue | None
    order.last_read_was_incomplete = order.has_newly_available = False
    if not order.are_values_read:
        load_pending_values(order, pending, reply.stream)
    if not order.are_values_read:
        order.last_read_was_incomplete = True
    else:
        rest: cython.int = stream_reply.NOT_DELIVERED_MAX
        lookup: EntryLookup = EntryLookup(reply.stream)
        while rest > 0 and reply.may_write_more():
            queue = order.pop_free_queue(now)
            if queue is None:
                break
            rest -= _deliver_due_queue(reply, order, queue, lookup)
        while rest > 0 and reply.may_write_more():
            queue = order.next_held_queue(reply.consumer.number, now)
            if queue is None:
                break
            rest -= _write_waiting(reply, order, queue, lookup, rest)
        if rest <= 0:
            order.last_read_was_incomplete = True
        elif reply.may_write_more():
            _write_new(reply, order)
    if order.last_read_was_incomplete:
        reply.call.keyspace.rule_registry.add_to_backlog(reply.stream)


@cython.cfunc
def _deliver_due_queue(
    reply: StreamReply, order: KeyOrder, queue: KeyQueue, lookup: EntryLookup
) -> cython.int:
    """Write the entries of a queue that is due; return how many entries could not be delivered."""
    slots: list[int] = order.take_delivered(queue)
    given_up: list[int] = []
    pending: PendingEntries = reply.group.pending
    slot: cython.Py_ssize_t
    waiting: cython.Py_ssize_t
    outcome: cython.int
    lost: cython.int = 0
    done: cython.Py_ssize_t = 0
    damage: DamagedColdRun | None = None
    before: cython.longlong = reply.delivered_count
    while lost < stream_reply.NOT_DELIVERED_MAX and reply.may_write_more():
        slot = waiting = order.first_waiting_slot(queue)
        if done < len(slots) and (waiting < 0 or _is_before(pending, slots[done], waiting)):
            slot = slots[done]
            done += 1
        if slot < 0:
            break
        try:
            outcome = reply.redeliver(slot, lookup)
        except DamagedColdRun as error:
            damage = error
            done -= 0 if slot == waiting else 1
            break
        if outcome == stream_reply.ENTRY_GIVEN_UP or outcome == stream_reply.ENTRY_LEFT_PENDING:
            if slot == waiting:
                order.skip_first_waiting(queue, reply.call.now + RETRY_MS)
            else:
                given_up.append(slot)
        if outcome != stream_reply.ENTRY_REDELIVERED:
            lost += 1
    if damage is not None and reply.delivered_count == before:  # the queue does not move
        given_up += slots[done:]
        done = len(slots)
    for slot in reversed(slots[done:]):  # they move with the queue, and wait
        pending.assign(slot, reply.consumer, 0, pending.delivery_count_of(slot))
        reply.call.keyspace.changes += 1
        if reply.call.effects.recording:
            reply.record_redelivery(slot)
    order.give_back(queue, given_up, reply.call.now + RETRY_MS)
    if damage is not None:
        raise damage
    return lost


@cython.cfunc
@cython.exceptval(check=False)
def _is_before(pending: PendingEntries, slot: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
    """Return whether the ID of one pending entry is lower than that of another."""
    return stream_id.is_before(
        pending.ms_of(slot), pending.seq_of(slot), pending.ms_of(other), pending.seq_of(other)
    )


@cython.cfunc
def _write_waiting(
    reply: StreamReply, order: KeyOrder, queue: KeyQueue, lookup: EntryLookup, rest: cython.int
) -> cython.int:
    """Write waiting entries of a queue; return how many could not be delivered, at most `rest`."""
    slot: cython.Py_ssize_t
    outcome: cython.int
    lost: cython.int = 0
    while lost < rest and reply.may_write_more():
        slot = order.first_waiting_slot(queue)
        if slot < 0:
            break
        outcome = reply.redeliver(slot, lookup)
        if outcome == stream_reply.ENTRY_GIVEN_UP or outcome == stream_reply.ENTRY_LEFT_PENDING:
            order.skip_first_waiting(queue, reply.call.now + RETRY_MS)
        if outcome != stream_reply.ENTRY_REDELIVERED:
            lost += 1
    return lost


@cython.cfunc
def _write_new(reply: StreamReply, order: KeyOrder) -> cython.void:
    """Write and deliver new entries; those with a value that another consumer holds wait."""
    call: Call = reply.call
    group: Group = reply.group
    stream: Stream = reply.stream
    ms: cython.ulonglong = group.last_ms
    seq: cython.ulonglong = group.last_seq
    if group.has_unlogged_losses:
        loss_log.log_new_losses(call, reply.key, stream, group)
    if not stream_id.is_before(ms, seq, stream.last_ms, stream.last_seq):
        return
    if delivery.may_have_lost(stream, group):
        loss_log.log_new_losses(call, reply.key, stream, group)
    if seq == U64_MAX:
        ms += 1
        seq = 0
    else:
        seq += 1
    entry: StreamIterator = StreamIterator(stream, ms, seq, U64_MAX, U64_MAX, False)
    waiting: cython.int = 0
    passed: cython.bint = False
    try:
        while reply.may_write_more():
            if waiting == NEW_WAITING_MAX:
                order.last_read_was_incomplete = True
                break
            if not entry.next():
                break
            passed = True
            if not _deliver_new(reply, order, entry):
                waiting += 1
    finally:  # see StreamReply.deliver_and_write_new()
        if waiting > 0:
            call.keyspace.changes += 1
            order.has_newly_available = True  # the holders may be blocked
            call.keyspace.rule_registry.add_to_backlog(stream)
        if passed and call.effects.recording:
            reply.flush_claims()
            members.record_last_id(call, reply.key, group)


@cython.cfunc
def _deliver_new(reply: StreamReply, order: KeyOrder, entry: StreamIterator) -> cython.bint:
    """Deliver the new entry to the consumer, or let it wait and return False."""
    group: Group = reply.group
    pending: PendingEntries = group.pending
    slot: cython.Py_ssize_t = pending.find(entry.ms, entry.seq)  # pending already, if XGROUP SETID went back
    value: bytes | None = _value(entry, order.field)
    queue: KeyQueue | None = order.queue_of_slot(slot) if slot >= 0 else order.queue_of_value(value)
    owner: Consumer | None
    if slot < 0:
        order.set_next_value(value)
    if queue is None or order.may_receive_next(queue, reply.consumer.number, reply.call.now):
        reply.write_entry(entry, 0, 0)
        slot = delivery.deliver(
            reply.stream, group, reply.consumer, entry.ms, entry.seq, reply.call.now, True
        )
        reply.delivered_count += 1
    else:
        delivery.advance(reply.stream, group, entry.ms, entry.seq)
        if slot >= 0:
            return False
        owner = pending.consumer_of_number(queue.holder)
        slot = pending.add(entry.ms, entry.seq, owner or reply.consumer, reply.call.now, 0)
    if reply.call.effects.recording:
        reply.record_redelivery(slot)
    return not group.entry_awaits_delivery(slot)
