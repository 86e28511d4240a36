"""Write the stream object of RDB files and DUMP payloads, types 19 to 27; stream_reader.py shows its bytes.

Nodes are written as they are in memory. The stream is not changed, so a forked child may write it. Such a
child touches only the objects around the packed bytes, so the pages of these bytes stay shared.

Types below 27 cannot store that a pending entry is unowned. There it is written with a placeholder consumer
as its owner, so that it stays pending in other servers; stream_extras.py stores which consumer that is.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import TYPE_ACTIVE_TIMES, TYPE_IDEMPOTENCY, TYPE_UNOWNED
from headrace.streams import node as node_module
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.node import Node
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId

WITH_ACTIVE_TIMES = cython.declare(cython.int, TYPE_ACTIVE_TIMES)
WITH_PRODUCERS = cython.declare(cython.int, TYPE_IDEMPOTENCY)
WITH_UNOWNED = cython.declare(cython.int, TYPE_UNOWNED)
NODE_KEY_BYTES = cython.declare(cython.uchar, 16)
NEVER = cython.declare(cython.longlong, -1)


@cython.ccall
def write_stream(
    out: RdbOutput, stream: Stream, stream_type: cython.int, now_ms: cython.longlong
) -> cython.void:
    """Write the stream as this type (19 or above), without the iids that have expired at now_ms."""
    group: Group
    groups: list[Group] = stream.groups()
    _write_nodes(out, stream)
    out.length(stream.length)
    out.id(stream.last_ms, stream.last_seq)
    out.id(stream.first_ms, stream.first_seq)
    out.id(stream.max_deleted_ms, stream.max_deleted_seq)
    out.length(stream.entries_added)
    out.length(len(groups))
    for group in groups:
        _write_group(out, group, stream_type, now_ms)
    if stream_type >= WITH_PRODUCERS:
        write_producers(out, stream, now_ms)


@cython.ccall
def write_producers(out: RdbOutput, stream: Stream, now_ms: cython.longlong) -> cython.void:
    """Write the idempotency settings and the requests that have not expired at now_ms."""
    memory: IdempotencyStore | None = stream.idempotency
    out.length(mem.as_unsigned(stream.idmp_duration_s))
    out.length(mem.as_unsigned(stream.idmp_maxsize))
    if memory is None:
        out.length(0)
        out.length(0)
        out.length(0)
        return
    entry: StreamId
    young: list[tuple[bytes, Any]] = []
    for pid, iids in memory.by_producer.items():
        left = _unexpired_iids(iids, now_ms - 1000 * memory.duration_s)
        if left:
            young.append((pid, left))
    out.length(len(young))
    for pid, left in young:
        out.string(pid)
        out.length(len(left))
        for iid, entry in left:
            out.string(iid)
            out.id(entry.ms, entry.seq)
    out.length(memory.added)
    out.length(memory.duplicates)


@cython.ccall
def placeholder_consumer(group: Group) -> bytes:
    """Return the name of the placeholder owner of unowned entries, which the group does not use."""
    name = b"headrace-unowned"
    while group.consumer(name) is not None:
        name += b"-"
    return name


@cython.cfunc
def _write_nodes(out: RdbOutput, stream: Stream) -> cython.void:
    cursor: RaxCursor = RaxCursor(stream.nodes)
    node: Node
    more: cython.bint = cursor.seek("^")
    out.length(stream.nodes.keys)
    while more:
        node = node_module.node_at(cursor)
        out.byte(NODE_KEY_BYTES)
        out.raw_id(node.ms, node.seq)
        out.string_from(node.pack.p, node.pack.used + 1)
        more = cursor.next()


@cython.cfunc
def _write_group(
    out: RdbOutput, group: Group, stream_type: cython.int, now_ms: cython.longlong
) -> cython.void:
    """Write one group with its pending entries and consumers."""
    pending: PendingEntries = group.pending
    consumer: Consumer
    consumers: list[Consumer] = group.consumers()
    slot: cython.Py_ssize_t
    stands_in: cython.bint = stream_type < WITH_UNOWNED and pending.unowned > 0
    out.string(group.name)
    out.id(group.last_ms, group.last_seq)
    out.length(mem.as_unsigned(group.entries_read))
    out.length(pending.count)
    slot = pending.from_id(0, 0)
    while slot >= 0:
        _write_id(out, pending, slot)
        out.time(pending.delivery_time_of(slot))
        out.length(mem.as_unsigned(pending.delivery_count_of(slot)))
        slot = pending.after(slot)
    out.length(len(consumers) + stands_in)
    for consumer in consumers:
        out.string(consumer.name)
        out.time(consumer.seen_ms)
        if stream_type >= WITH_ACTIVE_TIMES:
            out.time(consumer.active_ms)
        out.length(consumer.pending_count)
        slot = pending.of_consumer_from(consumer, 0, 0)
        while slot >= 0:
            _write_id(out, pending, slot)
            slot = pending.of_consumer_after(consumer, slot)
    if stands_in:
        out.string(placeholder_consumer(group))
        out.time(now_ms)
        if stream_type >= WITH_ACTIVE_TIMES:
            out.time(NEVER)
    if stands_in or stream_type >= WITH_UNOWNED:
        write_unowned(out, pending)


@cython.ccall
def write_unowned(out: RdbOutput, pending: PendingEntries) -> cython.void:
    """Write the number of unowned entries and their IDs, in order of release."""
    _: cython.Py_ssize_t
    slot: cython.Py_ssize_t = pending.oldest()
    out.length(pending.unowned)
    for _ in range(pending.unowned):
        _write_id(out, pending, slot)
        slot = pending.newer(slot)


@cython.cfunc
def _write_id(out: RdbOutput, pending: PendingEntries, slot: cython.Py_ssize_t) -> cython.void:
    out.raw_id(pending.ms_of(slot), pending.seq_of(slot))


@cython.cfunc
def _unexpired_iids(iids: Any, limit: cython.longlong) -> list[Any]:
    """Return the items of iids, oldest first, from the first one later than limit on."""
    items: list[Any] = list(iids.items())
    entry: StreamId
    at: cython.Py_ssize_t = 0
    while at < len(items):
        entry = items[at][1]
        if limit < 0 or entry.ms > mem.as_unsigned(limit):
            break
        at += 1
    return items[at:]
