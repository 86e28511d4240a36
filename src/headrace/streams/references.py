"""Find and remove references of groups to entries, for the commands that delete by a policy.

KEEPREF   delete, and keep the pending entries, which then refer to a deleted entry
DELREF    delete, and remove the entry from the pending entries of all groups
ACKED     delete only entries without references: all groups have read them, none has them pending

A stream with more than eight groups has an index from entries to groups (reference_index.py), so that this
takes no longer with more groups.
"""

from __future__ import annotations

import cython

from headrace.streams.group import Group
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

KEEPREF = cython.declare(cython.int, 0)
DELREF = cython.declare(cython.int, 1)
ACKED = cython.declare(cython.int, 2)

NO_GROUP_LIMIT = cython.declare(cython.Py_ssize_t, 1 << 32)


@cython.ccall
@cython.exceptval(-1, check=False)
def is_referenced(
    stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, acking: Group | None = None
) -> cython.bint:
    """Return whether a group has not yet read ms-seq or has it pending. The entry need not exist.

    acking: a group whose pending entry does not count.
    """
    read: StreamId | None = lowest_last_id(stream)
    if read is None:
        return False
    return stream_id.is_before(read.ms, read.seq, ms, seq) or is_pending(stream, ms, seq, acking)


@cython.ccall
def lowest_last_id(stream: Stream) -> StreamId | None:
    """Return the lowest last ID of all groups: entries after it are referenced. None without groups."""
    group: Group
    lowest: StreamId | None = (
        None if stream.reference_index is None else stream.reference_index.lowest_position()
    )
    for group in unindexed_groups(stream):
        if lowest is None or stream_id.is_before(group.last_ms, group.last_seq, lowest.ms, lowest.seq):
            lowest = StreamId(group.last_ms, group.last_seq)
    return lowest


@cython.ccall
def unindexed_groups(stream: Stream) -> list[Group]:
    """Return the groups that the index does not contain."""
    if stream.reference_index is not None:
        return stream.reference_index.unindexed_groups
    return stream.unsorted_groups()


@cython.ccall
def groups_with_pending(
    stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, at_most: cython.Py_ssize_t = NO_GROUP_LIMIT
) -> list[Group]:
    """Return the groups that have ms-seq pending, owned or unowned. The search may stop at at_most groups."""
    group: Group
    found: list[Group] = []
    for group in unindexed_groups(stream):
        if group.pending.find(ms, seq) >= 0:
            found.append(group)
    if stream.reference_index is not None and len(found) < at_most:
        found += stream.reference_index.groups_with_pending(ms, seq, at_most)
    return found


@cython.ccall
@cython.exceptval(-1, check=False)
def is_pending(
    stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, acking: Group | None = None
) -> cython.bint:
    """Return whether a group, other than `acking`, has ms-seq pending, owned or unowned."""
    found: list[Group] = groups_with_pending(stream, ms, seq, 2)
    return len(found) > 1 or (len(found) == 1 and found[0] is not acking)


@cython.ccall
def drop_references(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
    """Remove ms-seq from the pending entries of all groups and count it as lost; return how many had it."""
    group: Group
    slot: cython.Py_ssize_t
    removed: cython.Py_ssize_t = 0
    for group in unindexed_groups(stream):
        slot = group.pending.find(ms, seq)
        if slot >= 0:
            group.pending.remove(slot)
            group.lost_pending_count += 1
            removed += 1
    if stream.reference_index is not None:
        for group in stream.reference_index.pop_groups_with_pending(ms, seq):
            group.pending.remove_without_reference(group.pending.find(ms, seq))
            group.lost_pending_count += 1
            removed += 1
    return removed
