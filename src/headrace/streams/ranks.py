"""How many entries lie between two IDs, exactly, in time that grows with the logarithm of the stream.

The nodes before are summed by counting.py; only the node an ID falls into is walked.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams.group import Group
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures import stream_id

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.ccall
def rank(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.ulonglong:
    """How many live entries have an ID up to and with ms-seq. It need not exist."""
    if not stream_id.before(ms, seq, stream.last_ms, stream.last_seq):
        return stream.length
    node: Node | None = stream.node_for(ms, seq)
    if node is None:
        return 0
    total: cython.ulonglong = stream.entries_before(node)
    walk: EntryWalk = EntryWalk(node)
    while walk.next():
        if walk.deleted:
            continue
        if stream_id.before(ms, seq, walk.ms, walk.seq):
            break
        total += 1
    return total


@cython.ccall
def count(
    stream: Stream,
    from_ms: cython.ulonglong,
    from_seq: cython.ulonglong,
    to_ms: cython.ulonglong,
    to_seq: cython.ulonglong,
) -> cython.ulonglong:
    """How many live entries have an ID from the first to the second, both included."""
    if stream_id.before(to_ms, to_seq, from_ms, from_seq):
        return 0
    total: cython.ulonglong = rank(stream, to_ms, to_seq)
    if total == 0 or (from_ms == 0 and from_seq == 0):
        return total
    if from_seq > 0:
        return mem.sub_u64(total, rank(stream, from_ms, from_seq - 1))
    return mem.sub_u64(total, rank(stream, from_ms - 1, U64_MAX))


@cython.ccall
def lag(stream: Stream, group: Group) -> cython.ulonglong:
    """How many entries the group has still to be given. Unlike Redis's lag it is always known."""
    return mem.sub_u64(stream.length, rank(stream, group.last_ms, group.last_seq))
