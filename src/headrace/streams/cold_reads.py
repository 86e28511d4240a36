"""Load the cold runs (nodes stored in files) that a request needs, before it changes anything.

A command must not find a run unreadable after it has changed a part of the data. So it requires its runs
first: they are loaded, or the request waits for them (RunCache.defer_mode). Of a range, only runs that are
certainly needed are required, and only about as many as fit into half of the cache. Commands that only read a
range require its runs, too: several are then loaded at once, and the next one before a sequential reader
needs it.
"""

from __future__ import annotations

import cython

from headrace.streams import cold_run
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun, RunNeeded
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.pending_index import PendingIndex
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
PENDING_LOADED_MAX = cython.declare(cython.longlong, 1000)


@cython.ccall
def ensure_loaded_after(
    stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong, count: cython.longlong
) -> cython.void:
    """Require the runs of `count` entries after ms-seq; 0: of all. Raises DamagedColdRun and RunNeeded."""
    if stream.run_count() > 0:
        _ensure_runs_loaded(_missing_after(stream, ms, seq, count, U64_MAX))


@cython.ccall
def raise_unless_range_loaded(
    stream: Stream,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    last_ms: cython.ulonglong,
    count: cython.longlong,
) -> cython.void:
    """Raise RunNeeded if the request can wait and a part of a range of entries is not loaded.

    The range: `count` entries after ms-seq, up to last_ms; count 0: all of them.
    """
    if stream.run_count() > 0:
        _raise_if_deferrable(_missing_after(stream, ms, seq, count, last_ms))


@cython.ccall
def ensure_entries_loaded(stream: Stream, ids: list[StreamId]) -> cython.void:
    """Require the runs of the entries with these IDs, as far as they exist.

    Raises DamagedColdRun and RunNeeded.
    """
    if stream.run_count() > 0:
        _ensure_runs_loaded(_missing_of_all(stream, ids))


@cython.ccall
def ensure_deletion_runs_loaded(stream: Stream, ids: list[StreamId]) -> cython.void:
    """Require the runs that the deletion of these entries needs. Raises DamagedColdRun and RunNeeded.

    The last node of a stream must be in memory. So if the deletion leaves no entry after a run, the nodes of
    the run are restored to memory. If it leaves no entry in them either, the run before is restored, too.
    """
    node: Node
    cursor: RaxCursor
    more: cython.bint
    left: list[bytes]
    tail: Node | None
    if stream.run_count() == 0:
        return
    tail = stream.tail
    _ensure_runs_loaded(_missing_of_all(stream, ids))
    if tail is None or tail.live_count > len(ids):
        return
    left = sorted({stream_id.key_of(entry.ms, entry.seq) for entry in ids})
    cursor = RaxCursor(stream.nodes)
    more = cursor.seek("$")
    while more:
        node = node_module.node_of_cursor(cursor)
        if node.run is not None:
            ensure_run_loaded(cold_run.run_of(node), True)
        if (
            node.live_count == 0
            or _pop_and_count_existing(cold_run.inner_nodes_or_self(node), left) < node.live_count
        ):
            break
        more = cursor.previous()


@cython.cfunc
@cython.exceptval(-1, check=False)
def _pop_and_count_existing(nodes: list[Node], left: list[bytes]) -> cython.longlong:
    """Remove the keys not below the first node from the end of `left`; return how many are entries."""
    found: cython.longlong = 0
    entry: StreamId
    at: cython.Py_ssize_t
    walk: EntryWalk
    first: Node = nodes[0]
    start: bytes = first.key()
    while left and left[-1] >= start:
        entry = stream_id.from_key(left.pop())
        at = cold_run.last_index_up_to(nodes, entry.ms, entry.seq)
        walk = EntryWalk(nodes[at])
        if walk.seek(entry.ms, entry.seq) and walk.ms == entry.ms and walk.seq == entry.seq:
            found += 1
    return found


@cython.ccall
def raise_unless_entries_loaded(stream: Stream, ids: list[StreamId]) -> cython.void:
    """Raise RunNeeded if the request can wait and a run that may have one of these IDs is not loaded."""
    if stream.run_count() > 0:
        _raise_if_deferrable(_missing_of_all(stream, ids))


@cython.ccall
def ensure_pending_loaded(
    stream: Stream, index: PendingIndex, ms: cython.ulonglong, seq: cython.ulonglong, count: cython.longlong
) -> cython.void:
    """Require the runs of the first `count` pending entries of an index from ms-seq on.

    A count of 0 or above PENDING_LOADED_MAX means PENDING_LOADED_MAX. Raises DamagedColdRun and RunNeeded.
    """
    ids: list[StreamId] = []
    slot: cython.Py_ssize_t
    if stream.run_count() > 0:
        count = min(count, PENDING_LOADED_MAX) if count > 0 else PENDING_LOADED_MAX
        slot = index.first_from(ms, seq)
        while slot >= 0 and len(ids) < count:
            ids.append(StreamId(index.arena.ms_of(slot), index.arena.seq_of(slot)))
            slot = index.after(slot)
        ensure_entries_loaded(stream, ids)


@cython.ccall
def ensure_run_loaded(run: ColdRun, must_be_read: cython.bint) -> cython.void:
    """Require one run. Raises RunNeeded if the request can wait for it.

    Raises DamagedColdRun if must_be_read is true and the run cannot be read.
    """
    if run.cached_nodes is None:
        _raise_if_deferrable([run])
        if must_be_read:
            run.load_inner_nodes()


@cython.cfunc
def _ensure_runs_loaded(runs: list[ColdRun]) -> cython.void:
    """Load the runs into the cache. Raises DamagedColdRun, and RunNeeded if the request can wait."""
    run: ColdRun
    _raise_if_deferrable(runs)
    for run in runs:
        run.load_inner_nodes()


@cython.cfunc
def _raise_if_deferrable(runs: list[ColdRun]) -> cython.void:
    """Raise RunNeeded if there are runs and the request can wait for them."""
    run: ColdRun
    if runs:
        run = runs[0]
        if run.cache.defer_mode != cold_run.DEFER_NEVER:
            raise RunNeeded(runs)


@cython.cfunc
def _missing_after(
    stream: Stream,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    count: cython.longlong,
    last_ms: cython.ulonglong,
) -> list[ColdRun]:
    """Return the runs that the read needs and that are not in the cache.

    If the read continues from one run into another, start to load the run after it: a sequential reader is
    likely.
    """
    found: list[ColdRun] = []
    room: cython.longlong = 0
    left: cython.longlong = count if count > 0 else cold_run.NO_LIMIT
    run: ColdRun
    node: Node
    cursor: RaxCursor
    more: cython.bint
    is_sequential: cython.bint = False
    cursor = RaxCursor(stream.nodes)
    more = cursor.seek("<=", stream_id.key_of(ms, seq)) or cursor.seek("^")
    while more:
        node = node_module.node_of_cursor(cursor)
        if node.run is None or node.ms > last_ms:
            break
        run = node.run
        if left <= 0:
            if is_sequential and run.cached_nodes is None and run.cache.defer_mode != cold_run.DEFER_NEVER:
                run.cache.source.read_ahead(run)
            break
        is_sequential = stream_id.is_before(ms, seq, node.ms, node.seq)
        if stream_id.is_before(ms, seq, run.last_ms, run.last_seq):
            if run.cached_nodes is None:
                if room == 0:
                    room = run.cache.limit // 2
                room -= run.bytes_if_loaded
                found.append(run)
                if room <= 0 or not stream_id.is_before(ms, seq, node.ms, node.seq):
                    break  # how much of this run is needed will be known when it is loaded
            left -= _live_count_after(run, node, ms, seq)
        more = cursor.next()
    return found


@cython.cfunc
def _missing_of_all(stream: Stream, ids: list[StreamId]) -> list[ColdRun]:
    """Return the runs that may have entries with these IDs and are not in the cache."""
    entry: StreamId
    run: ColdRun | None
    found: dict[ColdRun, None] = {}
    for entry in ids:
        run = _missing_of(stream, entry.ms, entry.seq)
        if run is not None:
            found[run] = None
    return list(found)


@cython.cfunc
def _missing_of(stream: Stream, ms: cython.ulonglong, seq: cython.ulonglong) -> ColdRun | None:
    """Return the run that may have the entry ms-seq; None if there is none, or it is in the cache."""
    run: ColdRun
    node: Node
    cursor: RaxCursor
    cursor = RaxCursor(stream.nodes)
    if not cursor.seek("<=", stream_id.key_of(ms, seq)):
        return None
    node = node_module.node_of_cursor(cursor)
    if node.run is None:
        return None
    run = node.run
    return run if run.cached_nodes is None and run.may_contain(ms, seq) else None


@cython.cfunc
@cython.exceptval(-1, check=False)
def _live_count_after(
    run: ColdRun, outer: Node, ms: cython.ulonglong, seq: cython.ulonglong
) -> cython.longlong:
    """Return how many live entries of a run are after ms-seq.

    Returns 0 if ms-seq is not before the run, and the run is not loaded.
    """
    found: cython.longlong = 0
    nodes: list[Node] | None = run.cached_nodes
    node: Node
    walk: EntryWalk
    at: cython.Py_ssize_t
    i: cython.Py_ssize_t
    if stream_id.is_before(ms, seq, outer.ms, outer.seq):
        return outer.live_count
    if nodes is None:
        return 0
    at = cold_run.last_index_up_to(nodes, ms, seq)
    for i in range(at + 1, len(nodes)):
        node = nodes[i]
        found += node.live_count
    if at >= 0:
        walk = EntryWalk(nodes[at])
        while walk.next():
            if not walk.deleted and stream_id.is_before(ms, seq, walk.ms, walk.seq):
                found += 1
    return found
