"""Trims: the oldest entries go, whole nodes first; only an exact trim looks inside one node.

A limit above 0 bounds the work: the trim stops before a node whose live entries would bring what it
removed above the limit. Trims leave max-deleted alone.
"""

from __future__ import annotations

import cython

from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures import streamid


@cython.ccall
def trim_by_length(
    stream: Stream,
    maxlen: cython.ulonglong,
    approximate: cython.bint,
    limit: cython.longlong,
    policy: cython.int = 0,
) -> cython.longlong:
    """Remove the oldest entries down to maxlen, or, approximate, the nodes that are not needed for that.

    Returns how many entries went.
    """
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
                removed += _bury_oldest(stream, node, excess)
            break
        removed += node.live
        stream.drop(node)
    if removed > 0:
        stream.find_first()
    return removed


@cython.ccall
def trim_by_id(
    stream: Stream,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    approximate: cython.bint,
    limit: cython.longlong,
    policy: cython.int = 0,
) -> cython.longlong:
    """Remove the entries before ms-seq, or, approximate, the nodes that hold none but such.

    A tombstone counts as an entry here: a node whose last one is not before ms-seq stays, even if all
    before it goes. Returns how many entries went.
    """
    removed: cython.longlong = 0
    walk: EntryWalk
    node: Node | None
    while True:
        node = stream.first_node()
        if node is None or (limit > 0 and removed + node.live > limit):
            break
        walk = EntryWalk(node)
        walk.enter_end(node)
        if walk.previous() and not streamid.before(walk.ms, walk.seq, ms, seq):
            if not approximate:
                removed += _bury_before(stream, node, ms, seq)
            break
        removed += node.live
        stream.drop(node)
    if removed > 0:
        stream.find_first()
    return removed


@cython.cfunc
def _bury_oldest(stream: Stream, node: Node, n: cython.longlong) -> cython.longlong:
    """Make the first n live entries of node tombstones."""
    left: cython.longlong = n
    walk: EntryWalk = EntryWalk(node)
    while left > 0 and walk.next():
        if not walk.deleted:
            node.bury(walk.at)
            left -= 1
    return _buried(stream, node, n - left)


@cython.cfunc
def _bury_before(stream: Stream, node: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.longlong:
    """Make the live entries of node before ms-seq tombstones."""
    n: cython.longlong = 0
    walk: EntryWalk = EntryWalk(node)
    while walk.next() and streamid.before(walk.ms, walk.seq, ms, seq):
        if not walk.deleted:
            node.bury(walk.at)
            n += 1
    return _buried(stream, node, n)


@cython.cfunc
def _buried(stream: Stream, node: Node, n: cython.longlong) -> cython.longlong:
    """Count n entries of node as tombstones from now on."""
    gone: cython.ulonglong = n
    stream.length -= gone
    if n > 0:
        node.count(node.live - n, node.deleted + n)
    return n
