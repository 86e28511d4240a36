"""Removals in a log that need a cold run which cannot be read: they are left out when the log is replayed.

When the command ran, the run could be read; now its file is damaged or missing, or the object store is away.
An error would be wrong: an XADD that trims would lose its entry, and an XDEL all of its deletions. So what
can be removed is removed, and the run is marked: its entries may be more than they should be. As long as the
stream has such a run, the log is not rewritten, because it has the only record of the removal. The next start
tries again.

A replica does not leave out removals: it asks for a new copy of the data (replication/stream_applier.py).
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.errors import DamagedColdRun
from headrace.keyspace.cold_storage import ColdStorage
from headrace.streams import cold_reads
from headrace.streams import node as node_module
from headrace.streams.cold_run import ColdRun
from headrace.streams.node import Node
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor
from headrace.structures.stream_id import StreamId


@cython.ccall
def removable_ids(call: Call, stream: Stream, ids: list[StreamId]) -> list[StreamId]:
    """Return the IDs of the entries that can be deleted, and load the runs that this needs."""
    removable: list[StreamId] = []
    entry: StreamId
    try:
        cold_reads.ensure_deletion_runs_loaded(stream, ids)
        return ids
    except DamagedColdRun:
        pass
    for entry in ids:
        try:
            cold_reads.ensure_entries_loaded(stream, [entry])
            removable.append(entry)
        except DamagedColdRun as damage:
            leave_out(call, cold_reads.run_with(stream, entry), damage)
    try:
        cold_reads.ensure_deletion_runs_loaded(stream, removable)
    except (
        DamagedColdRun
    ):  # no entry would be left in memory, and a run that would replace them cannot be read
        leave_out_first_unreadable(call, stream, True)
        return []
    return removable


@cython.ccall
def leave_out_trim(call: Call, stream: Stream) -> cython.void:
    """Record that a trim ended at the first run of the stream that cannot be read."""
    leave_out_first_unreadable(call, stream, False)


@cython.ccall
def leave_out_trim_at(call: Call, stream: Stream, end: StreamId | None) -> cython.void:
    """Record that a trim ended at an ID, if a run there cannot be read. end: None if it did not end early."""
    run: ColdRun | None = None if end is None else cold_reads.run_with(stream, end)
    if run is not None:
        try:
            cold_reads.ensure_run_loaded(run, True)
        except DamagedColdRun as damage:
            leave_out(call, run, damage)


@cython.cfunc
def leave_out_first_unreadable(call: Call, stream: Stream, backwards: cython.bint) -> cython.void:
    """Record that a removal was left out because of the first, or the last, run that cannot be read."""
    node: Node
    cursor: RaxCursor = RaxCursor(stream.nodes)
    more: cython.bint = cursor.seek("$" if backwards else "^")
    while more:
        node = node_module.node_of_cursor(cursor)
        if node.run is not None:
            try:
                cold_reads.ensure_run_loaded(node.run, True)
            except DamagedColdRun as damage:
                leave_out(call, node.run, damage)
                return
        elif not backwards:
            break
        more = cursor.previous() if backwards else cursor.next()


@cython.cfunc
def leave_out(call: Call, run: ColdRun | None, damage: DamagedColdRun) -> cython.void:
    """Count a removal that is left out, and mark the run that may have too many entries now."""
    cold: ColdStorage | None = call.keyspace.cold_storage
    if run is not None:
        run.has_left_out_removals = True
    if cold is not None:
        cold.left_out_removals += 1
        cold.left_out_reason = cold.left_out_reason or str(damage)
