"""Exact numbers of entries in ranges of IDs, in time that grows with the logarithm of the stream's length.

live_counts.py sums the nodes before an ID; only the node that contains the ID is walked.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams.group import Group
from headrace.streams.stream import Stream
from headrace.structures import stream_id

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.ccall
def count_up_to(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.ulonglong:
    """Return the number of live entries up to and including ms-seq, which need not exist."""
    return stream.count_up_to(ms, seq)


@cython.ccall
def count_between(
    stream: Stream,
    from_ms: cython.ulonglong,
    from_seq: cython.ulonglong,
    to_ms: cython.ulonglong,
    to_seq: cython.ulonglong,
) -> cython.ulonglong:
    """Return the number of live entries between two IDs, both included."""
    if stream_id.is_before(to_ms, to_seq, from_ms, from_seq):
        return 0
    total: cython.ulonglong = count_up_to(stream, to_ms, to_seq)
    if total == 0 or (from_ms == 0 and from_seq == 0):
        return total
    if from_seq > 0:
        return mem.sub_u64(total, count_up_to(stream, from_ms, from_seq - 1))
    return mem.sub_u64(total, count_up_to(stream, from_ms - 1, U64_MAX))


@cython.ccall
def undelivered_count(stream: Stream, group: Group) -> cython.ulonglong:
    """Return the number of live entries after the last ID of the group; unlike the lag, always known."""
    return stream.undelivered_count(group)
