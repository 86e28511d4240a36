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
from headrace.streams import cold_reads, cold_run, references
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun
from headrace.streams.deletions import Deletions
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
ID_MAX = cython.declare(StreamId, StreamId(U64_MAX, U64_MAX))


@cython.ccall
def trim_by_length(
    stream: Stream,
    maxlen: cython.ulonglong,
    approximate: cython.bint,
    limit: cython.longlong,
    policy: cython.int = 0,
    log: Deletions | None = None,
) -> cython.longlong:
    """Remove the oldest entries until maxlen are left; return how many were removed.

    An approximate trim removes only whole nodes, so it may leave more entries than maxlen, never fewer. If
    `log` is given, it records what a trim with another policy than KEEPREF removes. Raises DamagedColdRun if
    no entry was removed before a run that cannot be read.
    """
    if policy != references.KEEPREF:
        return PolicyTrim(stream, policy, False, maxlen, 0, 0, log).run(limit)
    removed: cython.longlong = 0
    excess: cython.longlong
    node: Node | None
    while stream.length > maxlen:
        node = stream.first_node()
        excess = stream.length - maxlen
        if node is not None and (
            node.live_count > excess or _exceeds_limit(limit, removed + node.live_count)
        ):
            node = _first_inner_node(node, removed)
        if node is None or _exceeds_limit(limit, removed + node.live_count):
            break
        if node.live_count > excess:
            if not approximate:
                removed += _delete_oldest(stream, node, excess)
            break
        removed += node.live_count
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
    """Remove the entries before ms-seq; return how many were removed.

    An approximate trim removes only nodes that have no other entries. `log` and DamagedColdRun: see
    trim_by_length(). A tombstone counts as an entry here: a node whose last stored entry is not
    before ms-seq stays, even if all its live entries are before ms-seq.
    """
    if policy != references.KEEPREF:
        return PolicyTrim(stream, policy, True, 0, ms, seq, log).run(limit)
    removed: cython.longlong = 0
    node: Node | None
    while True:
        node = stream.first_node()
        if node is not None and not stream_id.is_before(node.ms, node.seq, ms, seq):
            break
        if node is not None and (
            not _ends_before(node, ms, seq) or _exceeds_limit(limit, removed + node.live_count)
        ):
            node = _first_inner_node(node, removed)
        if node is None or _exceeds_limit(limit, removed + node.live_count):
            break
        if not _ends_before(node, ms, seq):
            if not approximate:
                removed += _delete_before(stream, node, ms, seq)
            break
        removed += node.live_count
        stream.drop_node(node)
    if removed > 0:
        stream.update_first_id()
    return removed


@cython.ccall
@cython.exceptval(-1, check=False)
def reached_entry_count(
    stream: Stream,
    by_id: cython.bint,
    maxlen: cython.ulonglong,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    approximate: cython.bint,
    limit: cython.longlong,
    added: cython.ulonglong,
) -> cython.longlong:
    """Return how many of the oldest entries a trim reaches: without a policy, how many it would remove.

    added: how many entries will be added before the trim. They are not in the nodes yet, so an approximate
    trim may remove fewer.
    """
    found: cython.longlong = 0
    live: cython.longlong
    whole: cython.bint
    node: Node
    inner: Node
    nodes: list[Node]
    excess: cython.longlong = mem.as_signed(stream.length + added - maxlen)
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^")
    while more and (by_id or excess > found):
        node = node_module.node_of_cursor(cursor)
        if by_id and not stream_id.is_before(node.ms, node.seq, ms, seq):
            break
        nodes = [node]
        if node.run is not None:
            whole = _ends_before(node, ms, seq) if by_id else node.live_count <= excess - found
            if not whole or _exceeds_limit(limit, found + node.live_count):  # the trim may end in the run
                nodes = cold_run.inner_nodes_or_self(node)
        for inner in nodes:
            live = inner.live_count
            if _exceeds_limit(limit, found + live) or not (by_id or excess > found):
                return found
            if not by_id:
                live = min(live, excess - found)
            elif not _ends_before(inner, ms, seq):
                live = _count_before(inner, ms, seq)
            if live < inner.live_count:
                return found if approximate else found + live
            found += live
        more = cursor.next()
    return found


@cython.ccall
def ensure_last_run_loaded(
    stream: Stream,
    policy: cython.int,
    by_id: cython.bint,
    maxlen: cython.ulonglong,
    ms: cython.ulonglong,
    seq: cython.ulonglong,
    limit: cython.longlong,
    added: cython.ulonglong,
) -> cython.void:
    """Require the run in which a trim of a stream with cold runs ends, before anything is changed.

    If this run cannot be read, the trim removes only whole runs before it; without such runs it fails.
    With DELREF and ACKED, the runs up to the first entry that is removed are required instead.
    added: as in reached_entry_count(). Raises DamagedColdRun, RunNeeded.
    """
    found: cython.longlong = 0
    whole: cython.bint
    node: Node
    excess: cython.longlong = mem.as_signed(stream.length + added - maxlen)
    if policy != references.KEEPREF:
        if by_id or excess > 0:
            PolicyTrim(stream, policy, by_id, maxlen, ms, seq, None).ensure_first_runs_loaded()
        return
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^")
    while more and (by_id or excess > found):
        node = node_module.node_of_cursor(cursor)
        if node.run is None or (by_id and not stream_id.is_before(node.ms, node.seq, ms, seq)):
            break
        whole = _ends_before(node, ms, seq) if by_id else node.live_count <= excess - found
        if not whole or _exceeds_limit(limit, found + node.live_count):
            cold_reads.ensure_run_loaded(cold_run.run_of(node), found == 0)
            break
        found += node.live_count
        more = cursor.next()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _exceeds_limit(limit: cython.longlong, n: cython.longlong) -> cython.bint:
    """Return whether n exceeds the limit; 0 is no limit."""
    return limit > 0 and n > limit


@cython.cfunc
def inner_nodes_for_trim(node: Node, removed: cython.longlong) -> list[Node]:
    """Return the inner nodes of a cold node, or only the node itself if it is in memory.

    If the run cannot be read, return an empty list if entries before it were removed: the trim then ends
    here, and those entries stay removed. Raises DamagedColdRun if none were removed.
    """
    try:
        return cold_run.inner_nodes_or_self(node)
    except DamagedColdRun:
        if removed == 0:
            raise
        return []


@cython.cfunc
def _first_inner_node(node: Node, removed: cython.longlong) -> Node | None:
    """Return the first of inner_nodes_for_trim(); None if there are none."""
    if node.run is None:
        return node
    nodes: list[Node] = inner_nodes_for_trim(node, removed)
    return nodes[0] if nodes else None


@cython.cfunc
@cython.exceptval(-1, check=False)
def _ends_before(node: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
    """Return whether the last stored entry of a node, live or deleted, is before ms-seq, or there is none."""
    run: ColdRun
    walk: EntryWalk
    if node.run is not None:
        run = node.run
        return stream_id.is_before(run.last_ms, run.last_seq, ms, seq)
    walk = EntryWalk(node)
    walk.enter_end(node)
    return not walk.previous() or stream_id.is_before(walk.ms, walk.seq, ms, seq)


@cython.cfunc
def _count_before(node: Node, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.longlong:
    """Return the number of live entries of node before ms-seq."""
    found: cython.longlong = 0
    walk: EntryWalk = EntryWalk(node)
    while walk.next() and stream_id.is_before(walk.ms, walk.seq, ms, seq):
        if not walk.deleted:
            found += 1
    return found


@cython.final
@cython.cclass
class PolicyTrim:
    """A trim that removes only entries that a policy permits to remove.

    It removes the oldest entries until maxlen are left or, if by_id is set, all entries before ms-seq.
    """

    stream: Stream
    policy: cython.int
    by_id: cython.bint
    maxlen: cython.ulonglong
    minid_ms: cython.ulonglong
    minid_seq: cython.ulonglong
    deletions: Deletions | None
    # Before it run() removed all that it may; None: that is so up to its threshold.
    trimmed_before: StreamId | None
    # Entries after it have not been read by all groups; None: that does not matter.
    lowest_last_id: StreamId | None
    damage: DamagedColdRun | None  # why run() ended before a run

    def __init__(
        self,
        stream: Stream,
        policy: cython.int,
        by_id: cython.bint,
        maxlen: cython.ulonglong,
        ms: cython.ulonglong,
        seq: cython.ulonglong,
        log: Deletions | None,
    ) -> None:
        self.stream = stream
        self.policy = policy
        self.by_id = by_id
        self.maxlen = maxlen
        self.minid_ms = ms
        self.minid_seq = seq
        self.deletions = log
        self.trimmed_before = None
        self.damage = None
        self.lowest_last_id = references.lowest_last_id(stream) if policy == references.ACKED else None

    @cython.cfunc
    def ensure_first_runs_loaded(self) -> cython.void:
        """Require the runs up to the first entry that run() removes. Raises DamagedColdRun and RunNeeded."""
        node: Node
        inner: Node
        cursor: RaxCursor = RaxCursor(self.stream.nodes)
        more: cython.bint = cursor.seek("^")
        while more:
            node = node_module.node_of_cursor(cursor)
            if self._is_beyond(node):
                return
            if node.run is not None:
                cold_reads.ensure_run_loaded(cold_run.run_of(node), True)
            for inner in cold_run.inner_nodes_or_self(node):
                if self._removes_from(inner):
                    return
            more = cursor.next()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_beyond(self, node: Node) -> cython.bint:
        """Return whether no entry of node or of a later node may be removed. Does not read a cold node."""
        if self.by_id and not stream_id.is_before(node.ms, node.seq, self.minid_ms, self.minid_seq):
            return True
        return self._is_unread(node.ms, node.seq)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _is_unread(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Return whether ACKED keeps ms-seq and all later entries, because a group has not read ms-seq."""
        return self.lowest_last_id is not None and stream_id.is_before(
            self.lowest_last_id.ms, self.lowest_last_id.seq, ms, seq
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _removes_from(self, node: Node) -> cython.bint:
        """Return whether node has an entry that run() removes, if MAXLEN and LIMIT permit it."""
        walk: EntryWalk = EntryWalk(node)
        while walk.next():
            if self._is_unread(walk.ms, walk.seq):
                return False
            if self.by_id and not stream_id.is_before(walk.ms, walk.seq, self.minid_ms, self.minid_seq):
                return False
            if not walk.deleted and not (
                self.policy == references.ACKED and references.is_pending(self.stream, walk.ms, walk.seq)
            ):
                return True
        return False

    @cython.cfunc
    def run(self, limit: cython.longlong) -> cython.longlong:
        """Remove entries; return how many. limit: see the top of this file.

        Raises DamagedColdRun if no entry was removed before a run that cannot be read.
        """
        stream: Stream = self.stream
        length: cython.ulonglong = stream.length
        removed: cython.longlong = 0
        nodes: list[Node]
        node: Node
        cursor: RaxCursor = RaxCursor(stream.nodes)
        more: cython.bint = cursor.seek("^")
        while more:
            node = node_module.node_of_cursor(cursor)
            if self._is_beyond(node):
                break
            self.trimmed_before = StreamId(node.ms, node.seq)
            if stream.length <= self.maxlen:
                break
            try:
                nodes = cold_run.inner_nodes_or_self(node)
            except DamagedColdRun as damage:
                if removed == 0:
                    raise
                self.damage = damage
                break
            self.trimmed_before = None
            for node in nodes:
                more = stream.length > self.maxlen and not _exceeds_limit(limit, removed + node.live_count)
                if not more:
                    self.trimmed_before = StreamId(node.ms, node.seq)
                    break
                more = self._delete_from(node)
                if node.live_count == 0:
                    stream.drop_node(node)
                removed = mem.as_signed(length - stream.length)
                if not more:
                    break
            more = more and cursor.next()
        if removed > 0:
            stream.update_first_id()
        return removed

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _delete_from(self, node: Node) -> cython.bint:
        """Delete the entries of node that the policy permits; return False if the trim ends in it.

        Set `trimmed_before` if that is not because of the threshold or of the groups.
        """
        gone: cython.longlong = 0
        excess: cython.longlong = mem.as_signed(self.stream.length - self.maxlen)
        whole: cython.bint = excess >= node.live_count
        is_decided: cython.bint = False  # whether the trim ends at the entry of `walk`
        last: StreamId | None = None  # the last live entry so far; IDs of tombstones need not rise
        walk: EntryWalk = EntryWalk(node)
        while walk.next():
            if self._is_unread(walk.ms, walk.seq):
                whole = False
                is_decided = True
                break
            if self.by_id:
                whole = stream_id.is_before(walk.ms, walk.seq, self.minid_ms, self.minid_seq)
                if not whole:
                    is_decided = True
                    break
            elif excess == gone and not walk.deleted:
                is_decided = True
                self.trimmed_before = StreamId(walk.ms, walk.seq)
                break
            if walk.deleted:
                continue
            last = StreamId(walk.ms, walk.seq)
            if self._prepare_deletion(walk):
                if self.deletions is not None:
                    self.deletions.add_entry(walk.ms, walk.seq)
                self.stream.mark_deleted(walk)
                gone += 1
        if not whole and not is_decided and last is not None and last.precedes(ID_MAX):
            self.trimmed_before = last.successor()
        _record_deletions(self.stream, node, gone)
        return whole

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _prepare_deletion(self, walk: EntryWalk) -> cython.bint:
        """Return whether the policy permits deleting the entry of walk; with DELREF, drop its references.

        With ACKED, the caller must have checked that all groups have read the entry.
        """
        if self.policy == references.ACKED:
            return not references.is_pending(self.stream, walk.ms, walk.seq)
        if self.deletions is not None:
            self.deletions.add_references(self.stream, walk.ms, walk.seq)
        references.drop_references(self.stream, walk.ms, walk.seq)
        return True


@cython.cfunc
def _delete_oldest(stream: Stream, node: Node, n: cython.longlong) -> cython.longlong:
    """Delete the first n live entries of node; return how many were deleted."""
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
    """Delete the live entries of node before ms-seq; return how many were deleted."""
    n: cython.longlong = 0
    walk: EntryWalk = EntryWalk(node)
    while walk.next() and stream_id.is_before(walk.ms, walk.seq, ms, seq):
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
