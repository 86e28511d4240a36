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
from headrace.errors import DamagedColdRun
from headrace.streams import cold_run, references
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun
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
    inner: Node | None
    while stream.length > maxlen:
        node = stream.first_node()
        if node is None:
            break
        excess = stream.length - maxlen
        if node.run is not None and (node.live > excess or (limit > 0 and removed + node.live > limit)):
            inner = _first_inner(node, removed)
            if inner is None:
                break
            node = inner
        if limit > 0 and removed + node.live > limit:
            break
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
    inner: Node | None
    while True:
        node = stream.first_node()
        if node is None:
            break
        if node.run is not None:
            if _ends_before(node, ms, seq) and (limit <= 0 or removed + node.live <= limit):
                removed += node.live
                stream.drop_node(node)
                continue
            inner = _first_inner(node, removed)
            if inner is None:
                break
            node = inner
        if limit > 0 and removed + node.live > limit:
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
    nodes: list[Node]
    excess: cython.longlong = mem.as_signed(stream.length + added - maxlen)
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^")
    while more and (by_id or excess > found):
        node = node_module.node_at(cursor)
        live = node.live
        more = cursor.next()
        if (
            node.run is not None
            and (limit <= 0 or found + live <= limit)
            and (_ends_before(node, ms, seq) if by_id else live <= excess - found)
        ):
            found += live
            continue
        nodes = cold_run.unfolded(node)
        for node in nodes:
            if not (by_id or excess > found):
                return found
            live = node.live
            if limit > 0 and found + live > limit:
                return found
            if by_id:
                walk = EntryWalk(node)
                walk.enter_end(node)
                if walk.previous() and not stream_id.before(walk.ms, walk.seq, ms, seq):
                    live = _count_before(node, ms, seq)
            else:
                live = min(live, excess - found)
            if live < node.live:
                return found if approximate else found + live
            found += live
    return found


@cython.cfunc
def _first_inner(node: Node, removed: cython.longlong) -> Node | None:
    """Return the first inner node of a cold node.

    None if it cannot be read, and entries before it were removed: the trim ends here, and is recorded.
    Raises DamagedColdRun if none were.
    """
    try:
        return cold_run.first_inner(node)
    except DamagedColdRun:
        if removed == 0:
            raise
        return None


@cython.cfunc
@cython.exceptval(-1, check=False)
def _ends_before(node: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Return whether the last stored entry of a cold node is before ms-seq."""
    run: ColdRun = node.run
    return stream_id.before(run.last_ms, run.last_seq, ms, seq)


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
    whole: cython.bint = True
    node: Node
    inner: Node
    read: StreamId | None = references.lowest_last_id(stream) if policy == references.ACKED else None
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^")
    while more and whole:
        node = node_module.node_at(cursor)
        for inner in cold_run.unfolded(node):
            whole = stream.length > maxlen and (limit <= 0 or removed + inner.live <= limit)
            if not whole:
                break
            gone: cython.longlong = _delete_permitted(
                stream, inner, policy, read, by_id, maxlen, ms, seq, log
            )
            whole = gone >= 0
            removed += gone if whole else ~gone
            if inner.live == 0:
                stream.drop_node(inner)
            if not whole:
                break
        more = cursor.next()
    if removed > 0:
        stream.update_first_id()
    return removed


@cython.cfunc
@cython.exceptval(-1, check=True)
def _delete_permitted(
    stream: Stream,
    node: Node,
    policy: cython.int,
    read: StreamId | None,
    by_id: cython.bint,
    maxlen: cython.ulonglong,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    log: Deletions | None,
) -> cython.longlong:
    """Delete the entries of node that policy permits; return how many.

    If the trim ends in this node, it is ~n: below zero, also for no entries.

    read: entries after it have not been read by all groups; None: that does not matter.
    """
    gone: cython.longlong = 0
    whole: cython.bint = mem.as_signed(stream.length - maxlen) >= node.live
    walk: EntryWalk = EntryWalk(node)
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
            stream.mark_deleted(walk)
            gone += 1
    _record_deletions(stream, node, gone)
    return gone if whole else ~gone


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
            stream.mark_deleted(walk)
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
            stream.mark_deleted(walk)
            n += 1
    return _record_deletions(stream, node, n)


@cython.cfunc
def _record_deletions(stream: Stream, node: Node, n: cython.longlong) -> cython.longlong:
    """Update the counts of the stream after n entries of node were deleted; return n."""
    if n > 0:
        stream.record_deletions(node, n)
    return n
