"""Trims: remove the oldest entries, by whole nodes; only an exact trim deletes entries of a node.

A limit above 0 bounds the work: the trim stops before a node whose live entries would bring the number of
removed entries above the limit. Trims do not change max-deleted.

The policies DELREF and ACKED (references.py) must visit every entry. So with these an approximate trim also
deletes entries of a node; only the limit distinguishes it. ACKED skips entries that are still referenced, so
some of the remaining entries may be older than removed ones.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams import node as node_module
from headrace.streams import references
from headrace.streams.deletions import Deletions
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId


@cython.ccall
def trim_by_length(
    stream: Stream,
    maxlen: cython.ulonglong,
    approximate: cython.bint,
    limit: cython.longlong,
    policy: cython.int = 0,
    log: Deletions | None = None,
) -> cython.longlong:
    """Remove the oldest entries down to maxlen; approximate: only whole nodes. Return how many.

    An approximate trim may leave more entries than maxlen, never fewer. What a trim with another policy than
    KEEPREF removes is noted in `log`, if that is given.
    """
    if policy != references.KEEPREF:
        return _trim_by_policy(stream, policy, limit, False, maxlen, 0, 0, log)
    removed: cython.longlong = 0
    excess: cython.longlong
    node: Node | None
    while stream.length > maxlen:
        node = stream.first_node()
        if node is None or (limit > 0 and removed + node.live > limit):
            break
        excess = stream.length - maxlen
        if node.live > excess:
            if not approximate:
                removed += _delete_oldest(stream, node, excess)
            break
        removed += node.live
        stream.drop_node(node)
    if removed > 0:
        stream.update_first_id()
    return removed


@cython.ccall
def trim_by_id(
    stream: Stream,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    approximate: cython.bint,
    limit: cython.longlong,
    policy: cython.int = 0,
    log: Deletions | None = None,
) -> cython.longlong:
    """Remove the entries before ms-seq; approximate: only nodes that have no others. Return how many.

    A tombstone counts as an entry here: a node whose last stored entry is not before ms-seq stays, even if
    all its live entries are.
    """
    if policy != references.KEEPREF:
        return _trim_by_policy(stream, policy, limit, True, 0, ms, seq, log)
    removed: cython.longlong = 0
    walk: EntryWalk
    node: Node | None
    while True:
        node = stream.first_node()
        if node is None or (limit > 0 and removed + node.live > limit):
            break
        walk = EntryWalk(node)
        walk.enter_end(node)
        if walk.previous() and not stream_id.before(walk.ms, walk.seq, ms, seq):
            if not approximate:
                removed += _delete_before(stream, node, ms, seq)
            break
        removed += node.live
        stream.drop_node(node)
    if removed > 0:
        stream.update_first_id()
    return removed


@cython.ccall
@cython.exceptval(-1, check=False)
def count_reached(
    stream: Stream,
    by_id: cython.bint,
    maxlen: cython.ulonglong,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    approximate: cython.bint,
    limit: cython.longlong,
    added: cython.ulonglong,
) -> cython.longlong:
    """Return how many of the oldest entries a trim reaches, and would remove unless a policy keeps some.

    added: entries that are added before. They are not counted, so an approximate trim may remove fewer.
    """
    found: cython.longlong = 0
    live: cython.longlong
    walk: EntryWalk
    node: Node
    excess: cython.longlong = mem.as_signed(stream.length + added - maxlen)
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^")
    while more and (by_id or excess > found):
        node = node_module.node_at(cursor)
        live = node.live
        if limit > 0 and found + live > limit:
            break
        walk = EntryWalk(node)
        if by_id:
            walk.enter_end(node)
            if walk.previous() and not stream_id.before(walk.ms, walk.seq, ms, seq):
                live = _count_before(node, ms, seq)
        else:
            live = min(live, excess - found)
        if live < node.live:
            return found if approximate else found + live
        found += live
        more = cursor.next()
    return found


@cython.cfunc
def _count_before(node: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.longlong:
    """Return the number of live entries of node before ms-seq."""
    found: cython.longlong = 0
    walk: EntryWalk = EntryWalk(node)
    while walk.next() and stream_id.before(walk.ms, walk.seq, ms, seq):
        if not walk.deleted:
            found += 1
    return found


@cython.cfunc
def _trim_by_policy(
    stream: Stream,
    policy: cython.int,
    limit: cython.longlong,
    by_id: cython.bint,
    maxlen: cython.ulonglong,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    log: Deletions | None,
) -> cython.longlong:
    """Remove the oldest entries that policy permits: down to maxlen; by_id: all those before ms-seq."""
    removed: cython.longlong = 0
    gone: cython.longlong
    whole: cython.bint
    node: Node
    read: StreamId | None = references.lowest_last_id(stream) if policy == references.ACKED else None
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^")
    while more and stream.length > maxlen:
        node = node_module.node_at(cursor)
        if limit > 0 and removed + node.live > limit:
            break
        whole = mem.as_signed(stream.length - maxlen) >= node.live
        walk: EntryWalk = EntryWalk(node)
        gone = 0
        while walk.next():
            if read is not None and stream_id.before(read.ms, read.seq, walk.ms, walk.seq):
                whole = False  # referenced, and so is all that follows
                break
            if by_id:
                whole = stream_id.before(walk.ms, walk.seq, ms, seq)
                if not whole:
                    break
            elif mem.as_signed(stream.length - maxlen) == gone:
                break
            if not walk.deleted and _release(stream, walk.ms, walk.seq, policy, log):
                if log is not None:
                    log.add_entry(walk.ms, walk.seq)
                stream.preserve(node)
                node.mark_deleted(walk.at)
                gone += 1
        removed += _record_deletions(stream, node, gone)
        if node.live == 0:
            stream.drop_node(node)
        if not whole:
            break
        more = cursor.next()
    if removed > 0:
        stream.update_first_id()
    return removed


@cython.cfunc
@cython.exceptval(-1, check=False)
def _release(
    stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, policy: cython.int, log: Deletions | None
) -> cython.bint:
    """Return whether policy permits to delete ms-seq, which all groups have read; DELREF drops references."""
    if policy == references.ACKED:
        return not references.is_pending(stream, ms, seq)
    if log is not None:
        log.add_references(stream, ms, seq)
    references.drop_references(stream, ms, seq)
    return True


@cython.cfunc
def _delete_oldest(stream: Stream, node: Node, n: cython.longlong) -> cython.longlong:
    """Mark the first n live entries of node as deleted."""
    left: cython.longlong = n
    walk: EntryWalk = EntryWalk(node)
    while left > 0 and walk.next():
        if not walk.deleted:
            stream.preserve(node)
            node.mark_deleted(walk.at)
            left -= 1
    return _record_deletions(stream, node, n - left)


@cython.cfunc
def _delete_before(
    stream: Stream, node: Node, ms: cython.ulonglong, seq: cython.ulonglong
) -> cython.longlong:
    """Mark the live entries of node before ms-seq as deleted."""
    n: cython.longlong = 0
    walk: EntryWalk = EntryWalk(node)
    while walk.next() and stream_id.before(walk.ms, walk.seq, ms, seq):
        if not walk.deleted:
            stream.preserve(node)
            node.mark_deleted(walk.at)
            n += 1
    return _record_deletions(stream, node, n)


@cython.cfunc
def _record_deletions(stream: Stream, node: Node, n: cython.longlong) -> cython.longlong:
    """Update the counts of the stream after n entries of node were deleted; return n."""
    if n > 0:
        stream.record_deletions(node, n)
    return n
