"""Entries of a stream in replies: [id, [field, value, …]], in both protocols.

Fields and values go from the listpack straight into the session's reply, without a Python object.
"""

from __future__ import annotations

import cython

from headrace.commands.stream.read_options import ReplyBudget
from headrace.resp.writer import ReplyWriter
from headrace.streams.iterator import StreamIterator
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures.stream_id import StreamId

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.cfunc
@cython.exceptval(-1, check=False)
def write_entry(reply: ReplyWriter, entry: StreamIterator) -> cython.int:
    """Write the iterator's present entry. Returns 0: an int is cheaper to check for errors than void."""
    reply.array(2)
    return write_id_and_fields(reply, entry)


@cython.cfunc
@cython.exceptval(-1, check=False)
def write_id_and_fields(reply: ReplyWriter, entry: StreamIterator) -> cython.int:
    """Write the ID and the fields of the iterator's present entry, without the array around them."""
    walk: EntryWalk | None = entry.walk
    assert walk is not None
    reply.stream_id(entry.ms, entry.seq)
    reply.array(2 * entry.field_count)
    while walk.next_field_or_value():
        reply.bulk_from(walk.text_pointer, walk.text_at, walk.text_size)
    return 0


@cython.cfunc
def write_entries(reply: ReplyWriter, entries: StreamIterator, count: cython.longlong) -> cython.longlong:
    """Write an array of the iterator's next entries, at most `count` (0: all); return how many."""
    found: cython.longlong = 0
    mark: cython.Py_ssize_t = reply.open_array()
    while (count == 0 or found < count) and entries.next():
        write_entry(reply, entries)
        found += 1
    reply.close_array(mark, found)
    return found


@cython.cfunc
def write_entries_after(
    reply: ReplyWriter, stream: Stream, after: StreamId, budget: ReplyBudget
) -> cython.longlong:
    """Write an array of the entries above the ID that fit the budget; return how many.

    after: any ID but the greatest.
    """
    first: StreamId = after.successor()
    entries: StreamIterator = StreamIterator(stream, first.ms, first.seq, U64_MAX, U64_MAX, False)
    found: cython.longlong = 0
    most: cython.longlong = budget.stream_limit()
    mark: cython.Py_ssize_t = reply.open_array()
    while found < most and not budget.is_full() and entries.next():
        write_entry(reply, entries)
        budget.count_entry()
        found += 1
    reply.close_array(mark, found)
    return found


@cython.cfunc
def write_first_or_last(reply: ReplyWriter, stream: Stream, reverse: cython.bint) -> cython.void:
    """Write the first entry, or with `reverse` the last; null if there is none."""
    entries: StreamIterator = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX, reverse)
    if entries.next():
        write_entry(reply, entries)
    else:
        reply.null()
