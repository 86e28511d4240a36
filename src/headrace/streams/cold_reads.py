"""Which cold runs a request will read, found without reading them.

Only runs that are not in the cache are named, and of a range only as many as are certain to be needed, or as
the cache can hold.
"""

from __future__ import annotations

import cython

from headrace.streams import cold_run
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor


@cython.ccall
def missing_after(
    stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, count: cython.longlong
) -> list[ColdRun]:
    """Return the runs that a read of `count` entries after ms-seq needs; 0: of all entries."""
    found: list[ColdRun] = []
    room: cython.longlong = 0
    left: cython.longlong = count if count > 0 else cold_run.NO_LIMIT
    run: ColdRun
    node: Node
    cursor: RaxCursor
    more: cython.bint
    if stream.run_count() == 0:
        return found
    cursor = RaxCursor(stream.nodes)
    more = cursor.seek("<=", stream_id.key_of(ms, seq)) or cursor.seek("^")
    while more and left > 0:
        node = node_module.node_at(cursor)
        if node.run is None:
            break
        run = node.run
        if stream_id.before(ms, seq, run.last_ms, run.last_seq):
            if run.nodes is None:
                if room == 0:
                    room = run.cache.limit // 2
                room -= run.weight
                found.append(run)
                if room <= 0:
                    break
            left -= _live_after(run, node, ms, seq)
        more = cursor.next()
    return found


@cython.ccall
def missing_of(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> ColdRun | None:
    """Return the run that may have the entry ms-seq; None if there is none, or it is in the cache."""
    run: ColdRun
    node: Node
    cursor: RaxCursor
    if stream.run_count() == 0:
        return None
    cursor = RaxCursor(stream.nodes)
    if not cursor.seek("<=", stream_id.key_of(ms, seq)):
        return None
    node = node_module.node_at(cursor)
    if node.run is None:
        return None
    run = node.run
    return run if run.nodes is None and not stream_id.before(run.last_ms, run.last_seq, ms, seq) else None


@cython.cfunc
@cython.exceptval(check=False)
def _live_after(run: ColdRun, outer: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.longlong:
    """Return how many live entries of a run are certainly after ms-seq."""
    found: cython.longlong = 0
    node: Node
    if stream_id.before(ms, seq, outer.ms, outer.seq):
        return outer.live
    if run.nodes is not None:
        for node in run.nodes:
            if stream_id.before(ms, seq, node.ms, node.seq):
                found += node.live
    return found
