"""Delivery of entries to a group: its position, its pending entries, and its lag.

As in Redis, entries_read and the lag are exact or unknown. They are unknown if it cannot be told whether a
deleted entry was counted. Trims do not matter: they remove only the oldest entries, as the first ID shows.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.errors import DamagedColdRun
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
UNKNOWN = cython.declare(cython.longlong, -1)


@cython.ccall
def entries_read_at(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.longlong:
    """Return how many entries were ever added up to and including ms-seq; -1 if unknown."""
    added: cython.longlong = mem.as_signed(stream.entries_added)
    length: cython.longlong = mem.as_signed(stream.length)
    after_last: cython.bint = stream_id.is_before(stream.last_ms, stream.last_seq, ms, seq)
    if added == 0:
        return 0
    if added < 0:  # XSETID has set it to 2^63 - 1, and entries were added
        return UNKNOWN
    if length == 0 and not after_last:
        return added
    if (ms > 0 or seq > 0) and stream_id.is_before(ms, seq, stream.max_deleted_ms, stream.max_deleted_seq):
        return UNKNOWN
    if after_last:
        return UNKNOWN
    if ms == stream.last_ms and seq == stream.last_seq:
        return added
    if stream_id.is_before(stream.max_deleted_ms, stream.max_deleted_seq, stream.first_ms, stream.first_seq):
        if stream_id.is_before(ms, seq, stream.first_ms, stream.first_seq):
            return added - length
        if ms == stream.first_ms and seq == stream.first_seq:
            return added - length + 1
    return UNKNOWN


@cython.ccall
def lag_or_unknown(stream: Stream, group: Group) -> cython.longlong:
    """Return how many entries the group has still to read; -1 if unknown (the reply is then nil)."""
    passed: cython.longlong
    added: cython.longlong = mem.as_signed(stream.entries_added)
    if stream.length == 0:
        return 0
    if added < 0:
        return UNKNOWN
    first_ms: cython.ulonglong = stream.first_ms
    first_seq: cython.ulonglong = stream.first_seq
    if stream_id.is_before(group.last_ms, group.last_seq, first_ms, first_seq) and stream_id.is_before(
        stream.max_deleted_ms, stream.max_deleted_seq, first_ms, first_seq
    ):
        return mem.as_signed(stream.length)
    if group.entries_read > added:  # given by a file or XGROUP SETID
        return stream.undelivered_count_or_unknown(group)
    if group.entries_read != UNKNOWN and not _may_have_tombstone_from(stream, group.last_ms, group.last_seq):
        return added - group.entries_read
    passed = entries_read_at(stream, group.last_ms, group.last_seq)
    return UNKNOWN if passed == UNKNOWN else added - passed


@cython.ccall
@cython.exceptval(-1, check=False)
def lag_is_known(stream: Stream, group: Group) -> cython.bint:
    """Return whether the lag of the group is known."""
    return lag_or_unknown(stream, group) != UNKNOWN


@cython.ccall
def advance(stream: Stream, group: Group, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
    """Move the position of the group to ms-seq, the next entry after its last ID, and count that entry."""
    if (
        0 <= group.entries_read < I64_MAX
        and not stream_id.is_before(group.last_ms, group.last_seq, stream.first_ms, stream.first_seq)
        and not _may_have_tombstone_from(stream, group.last_ms, group.last_seq)
    ):
        group.entries_read += 1
    else:
        group.entries_read = entries_read_at(stream, ms, seq)
    group.last_ms = ms
    group.last_seq = seq
    if group.passed_count >= 0:
        group.passed_count += 1
    else:
        stream.start_counting_losses(group)


@cython.ccall
def set_position(stream: Stream, group: Group, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.void:
    """Set the position of the group to any ID, unlike advance(); the caller sets entries_read.

    The number of lost entries stays the same: entries between the positions were delivered, or are skipped or
    read again on purpose. If a cold run that is needed to count them cannot be read, the count starts again.
    """
    if ms == group.last_ms and seq == group.last_seq:
        return
    passed: cython.longlong = UNKNOWN
    if group.passed_count >= 0:
        if not stream_id.is_before(stream.last_ms, stream.last_seq, ms, seq):
            passed = _passed_count_at(stream, group, ms, seq)
        if passed == UNKNOWN:
            group.lost_unread_base = stream.lost_unread_count(group)
    is_lower: cython.bint = stream_id.is_before(ms, seq, group.last_ms, group.last_seq)
    group.last_ms = ms
    group.last_seq = seq
    if is_lower and stream.reference_index is not None:
        stream.reference_index.note_lower_position(group)
    if passed == UNKNOWN:
        stream.start_counting_losses(group)
    else:
        group.passed_count = passed


@cython.cfunc
@cython.exceptval(-2, check=True)
def _passed_count_at(
    stream: Stream, group: Group, ms: cython.ulonglong, seq: cython.ulonglong
) -> cython.longlong:
    """Return the group's passed_count after a move to ms-seq; -1 if a run that it needs cannot be read."""
    try:
        between: cython.ulonglong = mem.sub_u64(
            stream.count_up_to(ms, seq), stream.count_up_to(group.last_ms, group.last_seq)
        )
    except DamagedColdRun:
        return UNKNOWN
    return group.passed_count + mem.as_signed(between)


@cython.ccall
@cython.exceptval(-1, check=False)
def may_have_lost(stream: Stream, group: Group) -> cython.bint:
    """Return whether an entry after the group's position may have been removed, in constant time."""
    return (
        stream.length == 0
        or stream_id.is_before(group.last_ms, group.last_seq, stream.first_ms, stream.first_seq)
        or stream_id.is_before(group.last_ms, group.last_seq, stream.max_deleted_ms, stream.max_deleted_seq)
    )


@cython.ccall
def count_as_redis_7(
    stream: Stream, group: Group, ms: cython.ulonglong, seq: cython.ulonglong
) -> cython.void:
    """Count the delivery of ms-seq, by which the group's last ID was moved, as Redis 7.0 counts it.

    Redis 7.0 sends the new position to its replicas, but not the count. Unlike advance(), it looks for
    deleted entries from ms-seq on, and counts one more even after a trim of unread entries.
    """
    deleted: cython.bint = (
        stream.length > 0
        and not stream_id.is_before(
            stream.max_deleted_ms, stream.max_deleted_seq, stream.first_ms, stream.first_seq
        )
        and _may_have_tombstone_from(stream, ms, seq)
    )
    if group.entries_read != UNKNOWN and not deleted:
        group.entries_read += 1
    elif stream.entries_added > 0:
        group.entries_read = entries_read_at(stream, ms, seq)


@cython.ccall
def deliver(
    stream: Stream,
    group: Group,
    consumer: Consumer,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    now_ms: cython.longlong,
    pending: cython.bint,
) -> cython.Py_ssize_t:
    """Deliver the new entry ms-seq to the consumer; return its pending slot, or -1 if not `pending` (NOACK).

    An entry that is pending already, for any consumer, is assigned to this one with a delivery count of 1.
    """
    entries: PendingEntries = group.pending
    slot: cython.Py_ssize_t
    advance(stream, group, ms, seq)
    consumer.active_ms = now_ms
    if not pending:
        return -1
    slot = entries.find(ms, seq)
    if slot < 0:
        return entries.add(ms, seq, consumer, now_ms, 1)
    entries.assign(slot, consumer, now_ms, 1)
    return slot


@cython.cfunc
@cython.exceptval(check=False)
def _may_have_tombstone_from(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Return whether an entry at or after ms-seq may have been deleted other than by trims."""
    if stream.length == 0 or (stream.max_deleted_ms == 0 and stream.max_deleted_seq == 0):
        return False
    return not stream_id.is_before(stream.max_deleted_ms, stream.max_deleted_seq, ms, seq)
