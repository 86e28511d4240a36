"""Compute how many of the oldest entries the limits of a stream's rules remove, as a MAXLEN for XTRIM.

              removable                 kept by KEEP-UNACKED or KEEP-UNARCHIVED
    | 1-0  2-0 | 3-0  4-0 | 5-0  6-0 | 7-0 ...
                          ^ first kept ID       nodes before it are dropped while a limit is exceeded

Without EXACT only whole nodes are removed, so at most one node more than the limit stays.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.streams import cold_run, entry_counts, memory_account, references, trim
from headrace.streams import node as node_module
from headrace.streams.cold_part import ColdPart
from headrace.streams.cold_run import ColdRun
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.memory_account import MemoryAccount
from headrace.streams.node import Node
from headrace.streams.node_walk import EntryWalk
from headrace.streams.pending import PendingEntries
from headrace.streams.reference_tree import ReferenceTree
from headrace.streams.rules import StreamRules
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId

ORPHANS_SKIPPED_MAX = cython.declare(cython.int, 16)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
TIME_MAX = cython.declare(cython.ulonglong, 1 << 60)  # ms


@cython.ccall
def first_unacked_id(stream: Stream) -> StreamId | None:
    """Return a lower bound of the IDs that some group has not read or has pending; None without groups.

    The stream need not have an entry with the returned ID.
    """
    lowest: StreamId | None = references.lowest_last_id(stream)
    candidate: StreamId | None
    group: Group
    if lowest is None:
        return None
    lowest = _id_after(lowest.ms, lowest.seq)
    for group in references.unindexed_groups(stream):
        candidate = _first_pending(stream, group)
        if candidate is not None and candidate.precedes(lowest):
            lowest = candidate
    if stream.reference_index is not None:
        candidate = _first_pending_of_indexed(stream, stream.reference_index.tree)
        if candidate is not None and candidate.precedes(lowest):
            lowest = candidate
    return lowest


@cython.cfunc
def _first_pending(stream: Stream, group: Group) -> StreamId | None:
    """Return the group's first pending entry that is still in the stream; None if there is none.

    After ORPHANS_SKIPPED_MAX entries that were deleted from the stream, return the next one without a check.
    """
    pending: PendingEntries = group.pending
    skipped: cython.int = 0
    slot: cython.Py_ssize_t = -1
    if pending.count > 0:
        slot = pending.first_by_id_from(stream.first_ms, stream.first_seq)
    while (
        slot >= 0
        and skipped < ORPHANS_SKIPPED_MAX
        and not stream.contains(pending.ms_of(slot), pending.seq_of(slot))
    ):
        skipped += 1
        slot = pending.next_by_id(slot)
    return None if slot < 0 else StreamId(pending.ms_of(slot), pending.seq_of(slot))


@cython.cfunc
def _first_pending_of_indexed(stream: Stream, tree: ReferenceTree) -> StreamId | None:
    """Return the same ID as _first_pending(), but for all groups in the index together."""
    skipped: cython.int = 0
    found: StreamId | None = tree.first_entry_from(stream.first_id())
    while found is not None and skipped < ORPHANS_SKIPPED_MAX and not stream.contains(found.ms, found.seq):
        skipped += 1
        found = tree.first_entry_from(_id_after(found.ms, found.seq))
    return found


@cython.ccall
def first_kept_id(stream: Stream, rules: StreamRules, archived: StreamId | None) -> StreamId:
    """Return the lowest ID that the rules KEEP-UNACKED and KEEP-UNARCHIVED keep; the highest ID if none.

    archived: the last archived ID; None if nothing is archived.
    """
    kept: StreamId = StreamId(U64_MAX, U64_MAX)
    unacked: StreamId | None = first_unacked_id(stream) if rules.keep_unacked else None
    unarchived: StreamId
    if unacked is not None:
        kept = unacked
    if rules.keep_unarchived:
        unarchived = first_unarchived_id(archived)
        if unarchived.precedes(kept):
            kept = unarchived
    return kept


@cython.ccall
def first_unarchived_id(archived: StreamId | None) -> StreamId:
    """Return the lowest ID after the last archived one; 0-0 for None (nothing is archived)."""
    return StreamId(0, 0) if archived is None else _id_after(archived.ms, archived.seq)


@cython.ccall
@cython.exceptval(-1, check=True)
def count_before(stream: Stream, entry: StreamId) -> cython.longlong:
    """Return the number of live entries before an existing one."""
    return mem.as_signed(entry_counts.count_up_to(stream, entry.ms, entry.seq)) - 1


@cython.ccall
@cython.exceptval(-1, check=False)
def is_first_node_removable(stream: Stream, rules: StreamRules, archived: StreamId | None) -> cython.bint:
    """Return whether there is a first node of which KEEP-UNACKED and KEEP-UNARCHIVED keep no entry."""
    head: Node | None = stream.first_node()
    if head is None:
        return False
    return _is_before(head, first_kept_id(stream, rules, archived))


@cython.cfunc
@cython.exceptval(-1, check=False)
def _is_before(node: Node, kept: StreamId) -> cython.bint:
    """Return whether all entries of the node, or of the first inner node, are before the ID."""
    node = cold_run.first_inner(node)
    walk: EntryWalk = EntryWalk(node)
    walk.enter_end(node)
    return walk.previous() and stream_id.is_before(walk.ms, walk.seq, kept.ms, kept.seq)


@cython.ccall
def total_node_bytes(stream: Stream) -> cython.longlong:
    """Return the bytes of the nodes in memory, plus those that the nodes in cold runs would take there."""
    cold: ColdPart | None = stream.cold
    groups: MemoryAccount | None = stream.group_memory
    idempotency: IdempotencyStore | None = stream.idempotency
    total: cython.longlong = stream.memory.total - memory_account.STREAM_BYTES
    if groups is not None:
        total -= groups.total
    if idempotency is not None:
        total -= idempotency.memory.total
    if cold is not None:
        total += cold.totals.bytes_if_loaded
    return total


@cython.ccall
def count_removable(
    stream: Stream,
    rules: StreamRules,
    now: cython.longlong,
    archived: StreamId | None,
    nodes_max: cython.Py_ssize_t,
) -> cython.longlong:
    """Return how many of the oldest entries the limits remove now, at most those of nodes_max nodes.

    archived: the last archived ID; None if nothing is, so KEEP-UNARCHIVED keeps all. Raises DamagedColdRun.
    """
    kept: StreamId = first_kept_id(stream, rules, archived)
    discard_new: cython.bint = rules.discard_new
    maxlen: cython.longlong = 0 if discard_new else rules.max_len
    max_bytes: cython.longlong = 0 if discard_new else rules.max_bytes
    oldest_ms: cython.ulonglong = mem.as_unsigned(max(now - rules.max_age_ms, 0)) if rules.max_age_ms else 0
    length: cython.longlong = mem.as_signed(stream.length)
    size: cython.longlong = total_node_bytes(stream) if max_bytes else 0
    removed: cython.longlong = 0
    node: Node
    run: ColdRun
    walk: EntryWalk
    whole: cython.bint
    nodes: list[Node]
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("^")
    while more:
        node = node_module.node_of_cursor(cursor)
        if nodes_max <= 0:
            return removed
        if (
            node.run is not None and cold_run.run_of(node).cached_nodes is None
        ):  # it need not be read to be dropped
            run = node.run
            whole = (
                (maxlen > 0 and length - removed - node.live_count >= maxlen)
                or (max_bytes > 0 and size - run.bytes_if_loaded > max_bytes)
                or run.last_ms < oldest_ms
            )
            if whole and stream_id.is_before(run.last_ms, run.last_seq, kept.ms, kept.seq):
                removed += node.live_count
                size -= run.bytes_if_loaded
                nodes_max -= run.inner_count()
                more = cursor.next()
                continue
        nodes = trim.inner_nodes_for_trim(node, removed)
        if not nodes:
            return removed
        for node in nodes:
            walk = EntryWalk(node)
            walk.enter_end(node)
            if nodes_max <= 0 or not walk.previous():
                return removed
            whole = (
                (maxlen > 0 and length - removed - node.live_count >= maxlen)
                or (max_bytes > 0 and size > max_bytes and node is not stream.tail)
                or walk.ms < oldest_ms
            )
            if not whole or not stream_id.is_before(walk.ms, walk.seq, kept.ms, kept.seq):
                if rules.exact:
                    excess: cython.longlong = length - removed - maxlen if maxlen > 0 else 0
                    if max_bytes > 0 and size > max_bytes and node is not stream.tail:
                        excess = node.live_count
                    removed += _count_in_node(node, excess, oldest_ms, kept)
                return removed
            removed += node.live_count
            size -= memory_account.NODE_BYTES + node.pack.cap
            nodes_max -= 1
        more = cursor.next()
    return removed


@cython.cfunc
def _count_in_node(
    node: Node, excess: cython.longlong, oldest_ms: cython.ulonglong, kept: StreamId
) -> cython.longlong:
    """Count the first live entries of the node that are before `kept`, and too many or too old."""
    found: cython.longlong = 0
    walk: EntryWalk = EntryWalk(node)
    while walk.next() and stream_id.is_before(walk.ms, walk.seq, kept.ms, kept.seq):
        if walk.deleted:
            continue
        if found >= excess and walk.ms >= oldest_ms:
            break
        found += 1
    return found


@cython.ccall
def reached_limit_name(stream: Stream, rules: StreamRules, archived: StreamId | None) -> str:
    """Return the limit at which XADD must be rejected now: MAX-LEN or MAX-BYTES; empty if there is room."""
    length: cython.longlong = mem.as_signed(stream.length)
    head: Node | None
    kept: StreamId
    if rules.discard_new:
        if rules.max_len and length >= rules.max_len:
            return "MAX-LEN"
        return "MAX-BYTES" if rules.max_bytes and total_node_bytes(stream) >= rules.max_bytes else ""
    if not (rules.keep_unacked or rules.keep_unarchived):
        return ""
    if rules.max_len and length >= rules.max_len:
        kept = first_kept_id(stream, rules, archived)
        if mem.as_signed(entry_counts.count_between(stream, kept.ms, kept.seq, U64_MAX, U64_MAX)) >= (
            rules.max_len
        ):
            return "MAX-LEN"
    if rules.max_bytes and total_node_bytes(stream) >= rules.max_bytes:
        kept = first_kept_id(stream, rules, archived)
        head = stream.first_node()
        if head is None or head is stream.tail:
            return ""
        if not _is_before(head, kept):
            return "MAX-BYTES"
    return ""


@cython.ccall
@cython.exceptval(-1, check=False)
def is_over_limit(stream: Stream, rules: StreamRules) -> cython.bint:
    """Return whether the stream has more entries or bytes than it may have."""
    length: cython.longlong = mem.as_signed(stream.length)
    if rules.max_len and length > rules.max_len:
        return True
    return bool(rules.max_bytes) and total_node_bytes(stream) > rules.max_bytes


@cython.ccall
def next_age_due_ms(stream: Stream, rules: StreamRules) -> cython.longlong:
    """Return when MAX-AGE next removes entries, in Unix milliseconds; -1 for never.

    Rules that keep entries are ignored here.
    """
    head: Node | None = stream.first_node()
    age: cython.longlong = rules.max_age_ms
    if age == 0 or head is None:
        return -1
    if rules.exact and stream.length > 0:
        return _age_due_ms(stream.first_ms, age)
    head = cold_run.first_inner(head)
    walk: EntryWalk = EntryWalk(head)
    walk.enter_end(head)
    return _age_due_ms(walk.ms, age) if walk.previous() else -1


@cython.cfunc
@cython.exceptval(check=False)
def _age_due_ms(ms: cython.ulonglong, age: cython.longlong) -> cython.longlong:
    """Return when an entry of this time is older than `age`; -1 if that is beyond any clock."""
    return mem.as_signed(ms) + age + 1 if ms < TIME_MAX else -1


@cython.cfunc
def _id_after(ms: cython.ulonglong, seq: cython.ulonglong) -> StreamId:
    """Return the next higher ID, or the same ID if it is the highest."""
    last: StreamId = StreamId(ms, seq)
    return last if ms == U64_MAX and seq == U64_MAX else last.successor()
