"""References of groups to entries, for the commands that delete by a policy.

KEEPREF   delete, and keep the pending entries, which then refer to a deleted entry
DELREF    delete, and remove the entry from the pending entries of all groups
ACKED     delete only entries without references: all groups have read them, none has them pending

There is no index from entries to the groups that have them pending: every group is searched. That takes
60 to 250 ns per group and entry (with a thousand or more pending in each), only for deletions by policy.
An index would cost about 20 bytes per delivery, and each delivery and acknowledgement an update of a tree
(estimated, not built). The lowest last ID of the groups is not cached either: it takes about 9 ns per group
to find, and a trim finds it once.
"""

from __future__ import annotations

import cython

from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

KEEPREF = cython.declare(cython.int, 0)
DELREF = cython.declare(cython.int, 1)
ACKED = cython.declare(cython.int, 2)


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
    return stream_id.before(read.ms, read.seq, ms, seq) or is_pending(stream, ms, seq, acking)


@cython.ccall
def lowest_last_id(stream: Stream) -> StreamId | None:
    """Return the lowest last ID of all groups: entries after it are referenced. None without groups."""
    groups: dict[bytes, Group] | None = stream.groups_by_name
    group: Group
    lowest: Group | None = None
    if groups is None:
        return None
    for group in groups.values():
        if lowest is None or stream_id.before(group.last_ms, group.last_seq, lowest.last_ms, lowest.last_seq):
            lowest = group
    return None if lowest is None else StreamId(lowest.last_ms, lowest.last_seq)


@cython.ccall
@cython.exceptval(-1, check=False)
def is_pending(
    stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, acking: Group | None = None
) -> cython.bint:
    """Return whether a group, other than `acking`, has ms-seq pending, owned or unowned."""
    groups: dict[bytes, Group] | None = stream.groups_by_name
    group: Group
    slot: cython.Py_ssize_t = -1
    if groups is None:
        return False
    for group in groups.values():
        slot = -1 if group is acking else group.pending.find(ms, seq)
        if slot >= 0:
            break
    return slot >= 0


@cython.ccall
def drop_references(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.Py_ssize_t:
    """Remove ms-seq from the pending entries of all groups; return from how many."""
    groups: dict[bytes, Group] | None = stream.groups_by_name
    dropped: cython.Py_ssize_t = 0
    group: Group
    pending: PendingEntries
    slot: cython.Py_ssize_t
    if groups is None:
        return 0
    for group in groups.values():
        pending = group.pending
        slot = pending.find(ms, seq)
        if slot >= 0:
            pending.remove(slot)
            group.lost_pending += 1
            dropped += 1
    return dropped
