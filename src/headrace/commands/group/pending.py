"""XPENDING: the entries that a group has delivered and that were not acknowledged.

XPENDING key group
XPENDING key group [IDLE min-idle-time] start end count [consumer]
"""

from __future__ import annotations

import cython

from headrace.commands import arguments
from headrace.commands.call import Call
from headrace.commands.group import acknowledge
from headrace.commands.group.members import NoSuchKeyOrGroup
from headrace.commands.spec import Command
from headrace.errors import InvalidSyntax
from headrace.resp.writer import ReplyWriter
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

IdleEntry = tuple[int, int, int]  # ID as (ms, seq), slot
# Idle entries that are sorted instead of a search by ID.
IDLE_SORTED_MAX = cython.declare(cython.Py_ssize_t, 1000)


def run(call: Call) -> None:
    """XPENDING: reply with a summary or a list of the pending entries."""
    argv: list[bytes] = call.argv
    if len(argv) == 3:
        write_summary(call.reply, group_of(call))
    elif 6 <= len(argv) <= 9:
        write_list(call)
    else:
        raise InvalidSyntax()


@cython.cfunc
def group_of(call: Call) -> Group:
    """Return the group argv[2] of the stream argv[1]. Raises WrongType or NoSuchKeyOrGroup."""
    group: Group | None = acknowledge.group_or_none(call)
    if group is None:
        raise NoSuchKeyOrGroup(call.argv[1], call.argv[2])
    return group


@cython.cfunc
def write_summary(reply: ReplyWriter, group: Group) -> cython.void:
    """Write the number of pending entries, the first and last ID, and the number for each consumer."""
    pending: PendingEntries = group.pending
    reply.array(4)
    reply.integer(pending.count)
    if pending.count == 0:
        reply.null()
        reply.null()
        reply.null_array()
        return
    first: cython.Py_ssize_t = pending.first_by_id_from(0, 0)
    last: cython.Py_ssize_t = pending.last_by_id()
    reply.stream_id(pending.ms_of(first), pending.seq_of(first))
    reply.stream_id(pending.ms_of(last), pending.seq_of(last))
    mark: cython.Py_ssize_t = reply.open_array()
    shown: cython.Py_ssize_t = 0
    consumer: Consumer
    for consumer in group.consumers():
        if consumer.pending_count > 0:
            reply.array(2)
            reply.bulk(consumer.name)
            reply.bulk(b"%d" % consumer.pending_count)
            shown += 1
    reply.close_array(mark, shown)


@cython.cfunc
def write_list(call: Call) -> cython.void:
    """Write the pending entries between two IDs, of one consumer or of all."""
    argv: list[bytes] = call.argv
    at: cython.Py_ssize_t = 3
    min_idle: cython.longlong = 0
    if arguments.is_keyword(argv[3], b"IDLE"):
        min_idle = arguments.parse_i64(argv[4])
        if len(argv) < 8:
            raise InvalidSyntax()
        at = 5
    count: cython.longlong = arguments.parse_i64(argv[at + 2])
    first: StreamId = stream_id.parse_start(argv[at])
    last: StreamId = stream_id.parse_end(argv[at + 1])
    group: Group = group_of(call)
    consumer: Consumer | None = None
    slot: cython.Py_ssize_t = -1
    if at + 3 < len(argv):
        consumer = group.consumer(argv[at + 3])
        if consumer is not None:
            slot = group.pending.first_of_consumer_from(consumer, first.ms, first.seq)
    else:
        slot = group.pending.first_by_id_from(first.ms, first.seq)
    if slot >= 0 and min_idle > 0 and group.pending.count > IDLE_SORTED_MAX:
        idle = idle_entries_or_none(group.pending, call.now - min_idle)
        if idle is not None:
            write_idle(call, group.pending, idle, consumer, first, last, count)
            return
    write_entries_from_slot(call, group.pending, slot, consumer, last, min_idle, count)


@cython.cfunc
def write_entries_from_slot(
    call: Call,
    pending: PendingEntries,
    slot: cython.Py_ssize_t,
    consumer: Consumer | None,
    last: StreamId,
    min_idle: cython.longlong,
    count: cython.longlong,
) -> cython.void:
    """Write at most `count` entries from slot to the last ID, of the consumer, or of all if it is None."""
    reply: ReplyWriter = call.reply
    mark: cython.Py_ssize_t = reply.open_array()
    found: cython.longlong = 0
    owner: Consumer | None
    idle: cython.longlong
    while slot >= 0 and found < count:
        if stream_id.is_before(last.ms, last.seq, pending.ms_of(slot), pending.seq_of(slot)):
            break
        owner = pending.owner_of(slot)
        idle = max(0, call.now - pending.delivery_time_of(slot))
        if owner is None or idle >= min_idle:
            write_entry(call, pending, slot)
            found += 1
        slot = pending.next_by_id(slot) if consumer is None else pending.next_of_consumer(consumer, slot)
    reply.close_array(mark, found)


@cython.cfunc
def idle_entries_or_none(pending: PendingEntries, until_ms: cython.longlong) -> list[IdleEntry] | None:
    """Return the entries that are unowned or were delivered by `until_ms` (milliseconds since 1970), by ID.

    Returns None if there are more than IDLE_SORTED_MAX. The entries are found in delivery order, where
    they come first. A search by ID would examine all pending entries.
    """
    found: list[IdleEntry] = []
    slot: cython.Py_ssize_t = pending.first_by_delivery()
    while slot >= 0 and (pending.delivery_time_of(slot) <= until_ms or pending.owner_of(slot) is None):
        if len(found) == IDLE_SORTED_MAX:
            return None
        found.append((pending.ms_of(slot), pending.seq_of(slot), slot))
        slot = pending.next_by_delivery(slot)
    found.sort()
    return found


@cython.cfunc
def write_idle(
    call: Call,
    pending: PendingEntries,
    idle: list[IdleEntry],
    consumer: Consumer | None,
    first: StreamId,
    last: StreamId,
    count: cython.longlong,
) -> cython.void:
    """Write at most `count` of the idle entries in the range, of the consumer, or of all if it is None."""
    mark: cython.Py_ssize_t = call.reply.open_array()
    found: cython.longlong = 0
    slot: cython.Py_ssize_t
    for ms, seq, slot in idle:
        if found >= count:
            break
        if consumer is not None and pending.owner_of(slot) is not consumer:
            continue
        if (first.ms, first.seq) <= (ms, seq) <= (last.ms, last.seq):
            write_entry(call, pending, slot)
            found += 1
    call.reply.close_array(mark, found)


@cython.cfunc
def write_entry(call: Call, pending: PendingEntries, slot: cython.Py_ssize_t) -> cython.void:
    """Write ID, consumer, idle time in milliseconds and delivery count of one entry.

    An unowned entry has an empty consumer and the idle time -1.
    """
    reply: ReplyWriter = call.reply
    owner: Consumer | None = pending.owner_of(slot)
    reply.array(4)
    reply.stream_id(pending.ms_of(slot), pending.seq_of(slot))
    reply.bulk(b"" if owner is None else owner.name)
    reply.integer(-1 if owner is None else max(0, call.now - pending.delivery_time_of(slot)))
    reply.integer(pending.delivery_count_of(slot))


COMMANDS = [
    Command(
        "xpending",
        -3,
        run,
        "readonly",
        keys="1: RO access",
        tips="nondeterministic_output",
        group="stream",
        since="5.0.0",
        summary="Returns a group's pending entries: delivered, but not acknowledged.",
        complexity="O(n) for the n entries examined; O(c) for c consumers in the short form",
        syntax="key group [[IDLE min-idle-time] start end count [consumer]]",
    ),
]
