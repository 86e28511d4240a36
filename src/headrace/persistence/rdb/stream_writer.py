"""Write the stream object of RDB files and DUMP payloads, types 19 to 27; stream_reader.py shows its bytes.

Nodes are written as they are in memory. What is written is an image (stream_image.py), in steps, so that
other work can be done in between.

Types below 27 cannot store that a pending entry is unowned. There it is written with a placeholder consumer
as its owner, so that it stays pending in other servers; stream_extras.py stores which consumer that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cython

from headrace import mem
from headrace.errors import DamagedColdRun
from headrace.persistence.rdb import cold_stream, run_piece
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.run_piece import RunPiece
from headrace.persistence.rdb.versions import TYPE_ACTIVE_TIMES, TYPE_IDEMPOTENCY, TYPE_UNOWNED
from headrace.streams.cold_run import ColdRun
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.streams.stream_image import StreamImage
from headrace.structures.stream_id import StreamId

LEFT_OUT_MESSAGE = (
    "removals that the log has were left out at the start, because cold runs could not be read: start again"
    " when they can be read, or trim the stream beyond them with XTRIM MINID"
)
TYPE_WITH_ACTIVE_TIMES = cython.declare(cython.int, TYPE_ACTIVE_TIMES)
TYPE_WITH_PRODUCERS = cython.declare(cython.int, TYPE_IDEMPOTENCY)
TYPE_WITH_UNOWNED = cython.declare(cython.int, TYPE_UNOWNED)
NEVER = cython.declare(cython.longlong, -1)
STEP_BYTES = cython.declare(cython.longlong, 1 << 14)
NODE_STEP_FACTOR = cython.declare(cython.longlong, 4)  # a node takes less time than as many bytes of numbers


def write_stream(out: RdbOutput, stream: Stream, stream_type: int, now_ms: int) -> None:
    """Write the stream as this type (19 or above), without idempotency IDs that have expired at now_ms."""
    write_image(out, stream.view_image(), stream_type, now_ms)


@cython.ccall
def write_image(
    out: RdbOutput,
    image: StreamImage,
    stream_type: cython.int,
    now_ms: cython.longlong,
    references: Any = None,
) -> cython.void:
    """Write the image at once; arguments: see stream_steps()."""
    group: Group
    for _ in _node_steps(out, image, stream_type, STEP_BYTES, references):
        pass
    _write_counters(out, image)
    for group in image.groups:
        for _ in _group_steps(out, group, stream_type, now_ms, STEP_BYTES):
            pass
    if stream_type >= TYPE_WITH_PRODUCERS:
        write_producers(out, image, now_ms)


def stream_steps(
    out: RdbOutput,
    image: StreamImage,
    stream_type: cython.int,
    now_ms: cython.longlong,
    step_bytes: cython.longlong,
    references: Any = None,
) -> Iterator[None]:
    """Write the image as write_stream() does, in steps of about step_bytes; yield after each.

    If image.yields_cold_runs is set, a cold run is passed to the sink as a RunPiece. If references
    (ColdReferences) are given as well, the stream is written as TYPE_COLD: of each cold run only its location
    is written, which is also added to references.

    Raises:
        DamagedColdRun: if references are given, and only the log has the entries of a run, or removals were
            left out when the log was loaded.
    """
    group: Group
    yield from _node_steps(out, image, stream_type, step_bytes, references)
    _write_counters(out, image)
    for group in image.groups:
        yield from _group_steps(out, group, stream_type, now_ms, step_bytes)
    if stream_type >= TYPE_WITH_PRODUCERS:
        write_producers(out, image, now_ms)


@cython.ccall
def write_producers(out: RdbOutput, image: StreamImage, now_ms: cython.longlong) -> cython.void:
    """Write the idempotency settings and the requests that have not expired at now_ms."""
    memory: IdempotencyStore | None = image.idempotency
    out.length(mem.as_unsigned(image.idmp_duration_s))
    out.length(mem.as_unsigned(image.idmp_maxsize))
    if memory is None:
        out.length(0)
        out.length(0)
        out.length(0)
        return
    entry: StreamId
    young: list[tuple[bytes, Any]] = []
    for pid, iids in memory.iids_by_producer.items():
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
    out.length(memory.added_count)
    out.length(memory.duplicate_count)


@cython.ccall
def placeholder_consumer(group: Group) -> bytes:
    """Return a consumer name that the group does not use, for the placeholder owner of unowned entries."""
    name = b"headrace-unowned"
    used = {consumer.name for consumer in group.pending.consumers()}
    while name in used:
        name += b"-"
    return name


def _node_steps(
    out: RdbOutput,
    image: StreamImage,
    stream_type: cython.uchar,
    step_bytes: cython.longlong,
    references: Any,
) -> Iterator[None]:
    """Write the number of nodes, then the nodes.

    Raises DamagedColdRun if this would be a base of the log, and the log has removals that were left out.
    """
    if references is not None and image.has_left_out_removals:
        raise DamagedColdRun("", 0, LEFT_OUT_MESSAGE)
    refers: cython.bint = references is not None and image.yields_cold_runs
    run: ColdRun | None
    step_bytes *= NODE_STEP_FACTOR
    due: cython.longlong = out.offset() + step_bytes
    if refers:
        out.byte(stream_type)
    out.length(image.tree_node_count if refers else image.node_count)
    while image.next_node():
        run = image.node_run
        if run is not None and refers:
            cold_stream.write_run_location(out, image, references)
        elif run is not None:
            out.pass_object(RunPiece(run, out.marks_strings), run.bytes_if_loaded)
        else:
            if refers:
                out.byte(cold_stream.INLINE_NODE_KIND)
            _write_node(out, image)
        if out.offset() >= due:
            yield
            due = out.offset() + step_bytes


@cython.cfunc
def _write_node(out: RdbOutput, image: StreamImage) -> cython.void:
    run_piece.write_node_key(out, image.node_ms, image.node_seq)
    if image.is_frozen():
        out.shared_string(image.node_data, image.node_size)
    else:
        data: cython.p_const_uchar = image.node_data
        out.string_from(data, image.node_size)


@cython.cfunc
def _write_counters(out: RdbOutput, image: StreamImage) -> cython.void:
    """Write the counters, and the number of groups."""
    out.length(image.length)
    out.id(image.last_ms, image.last_seq)
    out.id(image.first_ms, image.first_seq)
    out.id(image.max_deleted_ms, image.max_deleted_seq)
    out.length(image.entries_added)
    out.length(len(image.groups))


def _group_steps(
    out: RdbOutput,
    group: Group,
    stream_type: cython.int,
    now_ms: cython.longlong,
    step_bytes: cython.longlong,
) -> Iterator[None]:
    """Write one group with its pending entries and consumers."""
    pending: PendingEntries = group.pending
    consumer: Consumer
    stands_in: cython.bint = stream_type < TYPE_WITH_UNOWNED and pending.unowned_count > 0
    out.string(group.name)
    out.id(group.last_ms, group.last_seq)
    out.length(mem.as_unsigned(group.entries_read))
    yield from _pending_steps(out, pending, step_bytes)
    out.length(group.consumer_count() + stands_in)
    for consumer in group.preserved_consumers():
        out.string(consumer.name)
        out.time(consumer.seen_ms)
        if stream_type >= TYPE_WITH_ACTIVE_TIMES:
            out.time(consumer.active_ms)
        yield from _owned_steps(out, pending, consumer, step_bytes)
    if stands_in:
        out.string(placeholder_consumer(group))
        out.time(now_ms)
        if stream_type >= TYPE_WITH_ACTIVE_TIMES:
            out.time(NEVER)
    if stands_in or stream_type >= TYPE_WITH_UNOWNED:
        write_unowned(out, pending)


def _pending_steps(out: RdbOutput, pending: PendingEntries, step_bytes: cython.longlong) -> Iterator[None]:
    """Write the pending entries of a group."""
    due: cython.longlong = out.offset() + step_bytes
    slot: cython.Py_ssize_t = pending.first_by_id_from(0, 0)
    out.length(pending.count)
    while slot >= 0:
        _write_id(out, pending, slot)
        out.time(pending.delivery_time_of(slot))
        out.length(mem.as_unsigned(pending.delivery_count_of(slot)))
        slot = pending.next_by_id(slot)
        if out.offset() >= due:
            yield
            due = out.offset() + step_bytes


def _owned_steps(
    out: RdbOutput, pending: PendingEntries, consumer: Consumer, step_bytes: cython.longlong
) -> Iterator[None]:
    """Write the IDs of the entries of one consumer."""
    due: cython.longlong = out.offset() + step_bytes
    slot: cython.Py_ssize_t = pending.first_of_consumer_from(consumer, 0, 0)
    out.length(consumer.pending_count)
    while slot >= 0:
        _write_id(out, pending, slot)
        slot = pending.next_of_consumer(consumer, slot)
        if out.offset() >= due:
            yield
            due = out.offset() + step_bytes


@cython.ccall
def write_unowned(out: RdbOutput, pending: PendingEntries) -> cython.void:
    """Write the number of unowned entries and their IDs, in order of release."""
    _: cython.Py_ssize_t
    slot: cython.Py_ssize_t = pending.first_by_delivery()
    out.length(pending.unowned_count)
    for _ in range(pending.unowned_count):
        _write_id(out, pending, slot)
        slot = pending.next_by_delivery(slot)


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
