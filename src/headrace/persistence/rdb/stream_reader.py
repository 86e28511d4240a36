"""Read the stream object of RDB files and DUMP payloads, of all types, from untrusted bytes.

A number such as "19 on" names the first type that has the part. An ID is stored as two lengths, a raw ID
as 16 bytes.

    nodes       count, then: string of 16 bytes (the master ID), string (the listpack: see streams/node.py)
    counters    length, last ID
                first ID, max-deleted ID, entries-added          19 on
    groups      count, then:
                name, last-delivered ID
                entries-read (2^64-1: unknown)                   19 on
        pending     count, then: raw ID, time of delivery, deliveries
        consumers   count, then: name, time seen
                    time active (-1: never)                      21 on
                    count, then: raw ID of a pending entry
        unowned     count, then: raw ID of a pending entry       27 on; in order of release
    producers   duration (s), maxsize, count, then:              26 on
                pid, count, then: iid, ID; oldest first
                iids-added, iids-duplicates

The types are 15 (Redis 5.0), 19 (7.0), 21 (7.2, Valkey), 26 (8.6) and 27 (8.8). TYPE_COLD is Headrace's
own: a type from 19 on follows it, and nodes may be cold runs (see cold_stream.py). A value that an old type
lacks is computed as the server of that type does.

The reader rejects what would break a stream. It also rejects what no server writes. It accepts the following:

    a node without live entries
    a first node with entries before its own ID: only its live entries are kept
    pending entries that are deleted, or are after the last ID
    a group that has read more entries than were ever added
    a max-deleted ID above the last ID
    a last ID below the last entry: it is raised to that entry
    a delivery count above 2^63-1: it is lowered to that number
"""

from __future__ import annotations

from typing import Any

import cython

from headrace import mem
from headrace.keyspace.cold_storage import ColdStorage
from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.damage import Damaged
from headrace.persistence.rdb import cold_stream
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.versions import TYPE_COLD
from headrace.streams import cold_run, delivery
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.node import Node
from headrace.streams.node_check import EntryBeforeNode
from headrace.streams.node_walk import EntryWalk
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.listpack import Listpack
from headrace.structures.stream_id import StreamId

COLD_STREAM_TYPE = cython.declare(cython.int, TYPE_COLD)
TYPE_WITH_COUNTERS = cython.declare(cython.int, 19)
TYPE_WITH_ACTIVE_TIMES = cython.declare(cython.int, 21)
TYPE_WITH_PRODUCERS = cython.declare(cython.int, 26)
TYPE_WITH_UNOWNED = cython.declare(cython.int, 27)
UNKNOWN_ENTRIES_READ = cython.declare(cython.longlong, -1)
I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
# XSETID sets a lifetime counter to 2^63 - 1 at most; from there it rises one by one.
COUNTER_MAX = cython.declare(cython.ulonglong, 3 << 62)
REMEMBERED_REQUESTS_MAX = cython.declare(cython.ulonglong, 1 << 32)
NODES_PER_STEP = cython.declare(cython.ulonglong, 64)  # read before nodes become cold
NO_TIME_LIMIT = cython.declare(cython.Py_ssize_t, 0x7FFFFFFFFFFFFFFF)


@cython.ccall
def is_stream_type(kind: cython.int) -> cython.bint:
    """Return whether this is a type byte of a stream; not TYPE_COLD."""
    return kind == 15 or kind == 19 or kind == 21 or kind == 26 or kind == 27


@cython.ccall
def read_stream(inp: RdbInput, kind: cython.int, keyspace: Keyspace) -> Stream:
    """Read a stream that is to be put into keyspace. Raises Damaged.

    kind: its type byte; TYPE_COLD is allowed.
    """
    stream: Stream = Stream()
    alive: cython.ulonglong
    at: cython.longlong = inp.offset()
    stream.compaction = keyspace.compaction
    stream.idmp_duration_s = keyspace.settings.stream_idmp_duration
    stream.idmp_maxsize = keyspace.settings.stream_idmp_maxsize
    if kind == COLD_STREAM_TYPE:
        kind = inp.byte()
        if not is_stream_type(kind) or kind < TYPE_WITH_COUNTERS:
            raise Damaged(at, f"a stream with cold runs cannot have the type {kind}")
        alive = _read_nodes_and_runs(inp, stream, keyspace)
    else:
        alive = _read_nodes(inp, stream, keyspace.cold_storage)
    _read_counters(inp, kind, stream, alive)
    groups: cython.ulonglong = inp.length()
    while groups > 0:
        _read_group(inp, kind, stream)
        groups -= 1
    if kind >= TYPE_WITH_PRODUCERS:
        read_producers(inp, stream, keyspace)
    return stream


@cython.ccall
def drop_expired_iids(stream: Stream, now_ms: cython.longlong) -> cython.void:
    """Delete the idempotency IDs that have expired at now_ms (Unix milliseconds)."""
    memory: IdempotencyStore | None = stream.idempotency
    if memory is not None:
        memory.expire(now_ms, NO_TIME_LIMIT)


# ---- nodes and counters


@cython.cfunc
def _read_nodes(inp: RdbInput, stream: Stream, cold: ColdStorage | None) -> cython.ulonglong:
    """Read the nodes; return the number of their live entries. Some of them may become cold."""
    alive: cython.ulonglong = 0
    left: cython.ulonglong = inp.length()
    while left > 0:
        alive += _read_node(inp, stream)
        left -= 1
        if cold is not None and left % NODES_PER_STEP == 0:
            cold.cool_to_limit(stream)
    return alive


@cython.cfunc
def _read_nodes_and_runs(inp: RdbInput, stream: Stream, keyspace: Keyspace) -> cython.ulonglong:
    """Read nodes and cold runs; return the number of their live entries. More may become cold."""
    alive: cython.ulonglong = 0
    cold: ColdStorage | None = keyspace.cold_storage
    at: cython.longlong
    what: cython.uint
    left: cython.ulonglong = inp.length()
    while left > 0:
        at = inp.offset()
        what = inp.byte()
        if what == cold_stream.RUN_KIND:
            alive += mem.as_unsigned(cold_stream.add_run_from_location(inp, stream, keyspace).live_count)
        elif what == cold_stream.INLINE_NODE_KIND:
            alive += _read_node(inp, stream)
        else:
            raise Damaged(at, f"the part {what:#x} of a stream, which is not known here")
        left -= 1
        if cold is not None and left % NODES_PER_STEP == 0:
            cold.cool_to_limit(stream)
    return alive


@cython.cfunc
def _read_node(inp: RdbInput, stream: Stream) -> cython.ulonglong:
    """Read a node; return the number of its live entries."""
    at: cython.longlong = inp.offset()
    key: bytes = inp.string()
    data: bytearray = inp.string_as_bytearray()
    try:
        stream.append_stored_node(key, data)
    except EntryBeforeNode:
        _load_node_without_tombstones(stream, key, data, at)
    except ValueError as error:
        raise Damaged(at, f"a node of a stream is damaged: {error}") from None
    tail: Node | None = stream.tail
    return 0 if tail is None else mem.as_unsigned(tail.live_count)


@cython.cfunc
def _load_node_without_tombstones(
    stream: Stream, key: bytes, data: bytearray, at: cython.longlong
) -> cython.void:
    """Load a node that has entries before its own ID, as a node of its live entries.

    Redis 7.0 writes such a node as the first one of a stream: if a trim has left only tombstones in it, and
    XSETID then sets the last ID back before them, new entries are still added to it.
    """
    if stream.tail is not None:
        raise Damaged(at, "a node of a stream has entries that come before it")
    master: StreamId = stream_id.from_key(key)
    walk: EntryWalk = EntryWalk(Node(master.ms, master.seq, Listpack.from_bytes(data)))
    words: list[bytes]
    while walk.next():
        if walk.deleted:
            continue
        words = []
        while walk.next_field_or_value():
            words.append(walk.piece())
        stream.append(walk.ms, walk.seq, words, 0, 0, 0)


@cython.cfunc
def _read_counters(inp: RdbInput, kind: cython.int, stream: Stream, alive: cython.ulonglong) -> cython.void:
    """Read the counters between nodes and groups.

    The stored first ID is ignored and computed again, unless the first node is cold: computing it
    would then read a run.
    """
    at: cython.longlong = inp.offset()
    first: Node | None = stream.first_node()
    tail: Node | None = stream.tail
    last: StreamId | None
    stream.length = inp.length()
    if stream.length != alive:
        raise Damaged(at, f"a stream says it has {stream.length} entries, its nodes have {alive}")
    inp.id()
    stream.last_ms = inp.ms
    stream.last_seq = inp.seq
    stream.entries_added = stream.length
    if kind >= TYPE_WITH_COUNTERS:
        inp.id()
        stream.first_ms = inp.ms
        stream.first_seq = inp.seq
        inp.id()
        stream.max_deleted_ms = inp.ms
        stream.max_deleted_seq = inp.seq
        stream.entries_added = _read_counter(inp)
        if stream.entries_added < stream.length:
            raise Damaged(
                at, f"a stream of {stream.length} entries says {stream.entries_added} were ever added"
            )
    if first is None or first.run is None:
        stream.update_first_id()
    elif not cold_run.run_of(first).may_contain(stream.first_ms, stream.first_seq):
        raise Damaged(at, "the first ID of a stream is not in its first cold run")
    if tail is None or tail.run is None:
        last = stream.last_entry_id()
    else:
        last = cold_run.run_of(tail).last_id()
    if last is not None and stream_id.is_before(stream.last_ms, stream.last_seq, last.ms, last.seq):
        stream.last_ms = last.ms  # the entries are valid: repair the number to keep them
        stream.last_seq = last.seq


@cython.cfunc
def _read_counter(inp: RdbInput) -> cython.ulonglong:
    """Read a counter that rises through the lifetime of a stream."""
    at: cython.longlong = inp.offset()
    n: cython.ulonglong = inp.length()
    if n > COUNTER_MAX:
        raise Damaged(at, f"a counter of {n} is impossible")
    return n


# ---- groups


@cython.cfunc
def _read_group(inp: RdbInput, kind: cython.int, stream: Stream) -> cython.void:
    """Read one group with its pending entries and consumers."""
    at: cython.longlong = inp.offset()
    name: bytes = inp.string()
    if stream.group(name) is not None:
        raise Damaged(at, f"a stream has the group {name!r} twice")
    inp.id()
    group: Group = stream.make_group(name, inp.ms, inp.seq, UNKNOWN_ENTRIES_READ)
    if kind >= TYPE_WITH_COUNTERS:
        group.entries_read = max(mem.as_signed(inp.length()), UNKNOWN_ENTRIES_READ)
    else:
        group.entries_read = delivery.entries_read_at(stream, group.last_ms, group.last_seq)
    times: list[Any] = _read_pending(inp, group.pending)
    owners: list[Any] = [None] * len(times)
    consumers: cython.ulonglong = inp.length()
    while consumers > 0:
        _read_consumer(inp, kind, group, owners)
        consumers -= 1
    _assign_owners(group.pending, owners, times)
    if kind >= TYPE_WITH_UNOWNED:
        _read_unowned(inp, group.pending)
    elif group.pending.unowned_count > 0:
        raise Damaged(
            at, f"{group.pending.unowned_count} pending entries of the group {name!r} have no owner"
        )
    group.passed_count = stream.derived_passed_count(group)
    group.logged_lost_unread_count = stream.lost_unread_count(group)


@cython.cfunc
def _read_pending(inp: RdbInput, pending: PendingEntries) -> list[Any]:
    """Read the pending entries, not owned yet; return the delivery time of each slot, from 0 on."""
    times: list[Any] = []
    at: cython.longlong
    ms: cython.ulonglong
    seq: cython.ulonglong
    deliveries: cython.ulonglong
    slot: cython.Py_ssize_t
    left: cython.ulonglong = inp.length()
    while left > 0:
        at = inp.offset()
        inp.raw_id()
        ms = inp.ms
        seq = inp.seq
        times.append(inp.time())
        deliveries = inp.length()
        if deliveries > mem.as_unsigned(I64_MAX):  # old servers counted beyond signed 64 bits
            deliveries = I64_MAX
        try:
            slot = pending.add(ms, seq, None, 0, mem.as_signed(deliveries))
        except ValueError:
            raise Damaged(at, f"the entry {ms}-{seq} is pending twice in a group") from None
        assert slot == len(times) - 1, "the slots of a new group go up one by one"
        left -= 1
    return times


@cython.cfunc
def _read_consumer(inp: RdbInput, kind: cython.int, group: Group, owners: list[Any]) -> cython.void:
    """Read one consumer, and add it to owners at the slots that it owns."""
    at: cython.longlong = inp.offset()
    name: bytes = inp.string()
    slot: cython.Py_ssize_t
    if group.consumer(name) is not None:
        raise Damaged(at, f"a group has the consumer {name!r} twice")
    consumer: Consumer = group.make_consumer(name, inp.time())
    consumer.active_ms = inp.time() if kind >= TYPE_WITH_ACTIVE_TIMES else consumer.seen_ms
    left: cython.ulonglong = inp.length()
    while left > 0:
        at = inp.offset()
        inp.raw_id()
        slot = group.pending.find(inp.ms, inp.seq)
        if slot < 0:
            raise Damaged(at, f"{name!r} owns {inp.ms}-{inp.seq}, which is not pending in its group")
        if owners[slot] is not None:
            raise Damaged(at, f"{name!r} owns {inp.ms}-{inp.seq}, which has an owner already")
        owners[slot] = consumer
        left -= 1


@cython.cfunc
def _assign_owners(pending: PendingEntries, owners: list[Any], times: list[Any]) -> cython.void:
    """Set the owners of the entries, in order of delivery."""
    slot: cython.Py_ssize_t
    owner: Consumer | None
    for slot in sorted(range(len(times)), key=times.__getitem__):
        owner = owners[slot]
        if owner is not None:
            pending.assign(slot, owner, times[slot], pending.delivery_count_of(slot))


@cython.cfunc
def _read_unowned(inp: RdbInput, pending: PendingEntries) -> cython.void:
    """Read the order in which the unowned entries were released. It must contain all of them."""
    at: cython.longlong = inp.offset()
    seen: set[int] = set()
    slot: cython.Py_ssize_t
    left: cython.ulonglong = inp.length()
    while left > 0:
        inp.raw_id()
        slot = pending.find(inp.ms, inp.seq)
        if slot < 0 or pending.owner_of(slot) is not None or slot in seen:
            raise Damaged(at, f"{inp.ms}-{inp.seq} is not unowned, or occurs twice")
        seen.add(slot)
        pending.assign(slot, None, 0, pending.delivery_count_of(slot))
        left -= 1
    if len(seen) != pending.unowned_count:
        raise Damaged(
            at, f"{pending.unowned_count} pending entries have no owner, {len(seen)} are listed as unowned"
        )


# ---- producers


@cython.ccall
def read_producers(inp: RdbInput, stream: Stream, keyspace: Keyspace) -> cython.void:
    """Read the remembered requests of idempotent producers into the stream. Raises Damaged."""
    at: cython.longlong = inp.offset()
    duration: cython.ulonglong = inp.length()
    maxsize: cython.ulonglong = inp.length()
    if not 0 < duration <= REMEMBERED_REQUESTS_MAX or not 0 < maxsize <= REMEMBERED_REQUESTS_MAX:
        raise Damaged(at, f"a stream cannot remember {maxsize} requests for {duration} s")
    stream.idmp_duration_s = duration
    stream.idmp_maxsize = maxsize
    memory: IdempotencyStore = IdempotencyStore(stream.idmp_duration_s, keyspace.idempotency_sweeper)
    pid: bytes
    iid: bytes
    iids: cython.ulonglong
    producers: cython.ulonglong = inp.length()
    while producers > 0:
        at = inp.offset()
        pid = inp.string()
        if pid in memory.iids_by_producer:
            raise Damaged(at, f"a stream has the producer {pid!r} twice")
        iids = inp.length()
        while iids > 0:
            iid = inp.string()
            inp.id()
            memory.record(pid, iid, inp.ms, inp.seq, stream.idmp_maxsize)
            iids -= 1
        producers -= 1
    memory.added_count = _read_counter(inp)
    memory.duplicate_count = _read_counter(inp)
    if memory.iids_by_producer or memory.added_count > 0 or memory.duplicate_count > 0:
        stream.set_idempotency(memory)
