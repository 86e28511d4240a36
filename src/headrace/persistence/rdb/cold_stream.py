"""Write and read cold runs in an RDB stream: a type of its own, which only the base of a log contains.

The time of a rewrite of the log then depends on the data in memory, not on those in the files. No other
server knows the type: redis-server rejects such a base. The object, between key and next opcode:

    type    1 byte: the stream type of the rest, 19 to 27
    items   count, then:
              0, node    string of 16 bytes (the master ID), string (the listpack)
              1, run     raw ID (of its first node when it was stored), string (the name of the cold file),
                         offset, bytes, checksum (u64 le)                        where it is, as it was stored
                         nodes, skipped, string (indexes of dropped nodes)       streams/cold_run.py
                         bytes of memory, live entries, tombstones, first ID, last ID,
                         string (deleted IDs)
    rest    counters, groups and producers: stream_reader.py

Numbers are lengths unless stated otherwise. Nodes and runs are in order of their IDs.
"""

from __future__ import annotations

from typing import Any

import cython

from headrace.keyspace.keyspace import Keyspace
from headrace.persistence.cold.cold_store import ColdStore
from headrace.persistence.damage import Damaged
from headrace.persistence.rdb.input import RdbInput
from headrace.persistence.rdb.output import RdbOutput
from headrace.streams import cold_run
from headrace.streams.cold_run import ColdRun
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.streams.stream_image import StreamImage
from headrace.structures import stream_id

INLINE_NODE_KIND = cython.declare(cython.uchar, 0)
RUN_KIND = cython.declare(cython.uchar, 1)
ID_BYTES = cython.declare(cython.Py_ssize_t, 16)
INDEX_BYTES = cython.declare(cython.Py_ssize_t, 4)
COUNT_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFF)


@cython.ccall
def write_run_location(out: RdbOutput, image: StreamImage, references: Any) -> cython.void:
    """Write the location of the run that is the image's current node; add it to these ColdReferences.

    Raises DamagedColdRun if the run cannot be read, and only the log has its entries (ColdReferences.add()).
    """
    run: ColdRun | None = image.node_run
    assert run is not None
    place: Any = run.storage_location
    references.add(place)
    out.byte(RUN_KIND)
    out.raw_id(image.node_ms, image.node_seq)
    out.string(place.file.name.encode())
    out.length(place.offset)
    out.length(place.size)
    out.u64le(place.checksum)
    out.length(run.stored_node_count)
    out.length(run.skipped_node_count)
    out.string(run.encoded_dropped_indexes)
    out.length(run.bytes_if_loaded)
    out.length(image.node_live_count)
    out.length(image.node_tombstone_count)
    out.id(run.first_ms, run.first_seq)
    out.id(run.last_ms, run.last_seq)
    out.string(run.encoded_deleted_ids())


@cython.ccall
def add_run_from_location(inp: RdbInput, stream: Stream, keyspace: Keyspace) -> Node:
    """Read the location of a run, after the byte for its kind; add it to the stream and return its node.

    The cold file is opened, but the nodes in it are not read. Raises Damaged.
    """
    at: cython.longlong = inp.offset()
    run: ColdRun
    live: cython.ulonglong
    tombstones: cython.ulonglong
    inp.raw_id()
    ms: cython.ulonglong = inp.ms
    seq: cython.ulonglong = inp.seq
    place: Any = _read_place(inp, keyspace)
    stored: cython.ulonglong = inp.length()
    skipped: cython.ulonglong = inp.length()
    dropped: bytes = inp.string()
    if not skipped < stored <= COUNT_MAX or not _are_indexes(dropped, skipped, stored):
        raise Damaged(at, "the nodes of a cold run are impossible")
    run = ColdRun(place, keyspace.cold_storage.cache, stored)
    run.skipped_node_count = skipped
    run.encoded_dropped_indexes = dropped
    run.bytes_if_loaded = inp.length()
    live = inp.length()
    tombstones = inp.length()
    inp.id()
    run.first_ms = inp.ms
    run.first_seq = inp.seq
    inp.id()
    run.last_ms = inp.ms
    run.last_seq = inp.seq
    deleted: bytes = inp.string()
    if not 0 < live <= COUNT_MAX or tombstones > COUNT_MAX or len(deleted) % ID_BYTES:
        raise Damaged(at, "the entries of a cold run are impossible")
    if stream_id.is_before(run.first_ms, run.first_seq, ms, seq) or stream_id.is_before(
        run.last_ms, run.last_seq, run.first_ms, run.first_seq
    ):
        raise Damaged(at, "the IDs of a cold run are not in order")
    run.set_deleted_ids(deleted)
    tail: Node | None = stream.tail
    if tail is not None and not stream_id.is_before(tail.ms, tail.seq, ms, seq):
        raise Damaged(at, "a cold run is out of order")
    if tail is not None and not stream_id.is_before(stream.last_ms, stream.last_seq, ms, seq):
        raise Damaged(at, "a cold run begins inside the node before it")
    node: Node = cold_run.create_cold_node(Node(ms, seq, cold_run.EMPTY_LISTPACK), run, live, tombstones)
    stream.append_cold_node(node)
    return node


@cython.cfunc
def _read_place(inp: RdbInput, keyspace: Keyspace) -> Any:
    """Read where a run is; return its place. Raises Damaged."""
    at: cython.longlong = inp.offset()
    name: str = inp.string().decode(errors="backslashreplace")
    offset: cython.ulonglong = inp.length()
    size: cython.ulonglong = inp.length()
    checksum: bytes = inp.raw(8)
    cold: Any = keyspace.cold_storage
    if cold is None or not isinstance(cold.store, ColdStore):
        raise Damaged(at, f"a stream needs the cold file {name}, but no cold files are open")
    return cold.store.files.place_from_log(name, offset, size, int.from_bytes(checksum, "little"))


@cython.cfunc
@cython.exceptval(-1, check=False)
def _are_indexes(dropped: bytes, skipped: cython.ulonglong, stored: cython.ulonglong) -> cython.bint:
    """Return whether these are different indexes of nodes that are not skipped, and a node is left."""
    if len(dropped) % INDEX_BYTES:
        return False
    indexes: list[int] = cold_run.decode_dropped_indexes(dropped)
    count: cython.ulonglong = len(indexes)
    if count == 0:
        return True
    if min(indexes) < skipped or max(indexes) >= stored or len(set(indexes)) < len(indexes):
        return False
    return count < stored - skipped
