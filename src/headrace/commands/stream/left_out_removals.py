"""Removals in a log that need a cold run which cannot be read: they are left out when the log is replayed.

When the command ran, the run could be read; now its file is damaged or missing, or the object store cannot
be reached. An error would be wrong: an XADD that trims would lose its entry, and an XDEL all its deletions.
So what can be removed is removed. The cold part of the stream records the greatest ID up to which entries may
remain that should have been removed. As long as the first entry is not after that ID, the log is not
rewritten: it has the only record of the removal (persistence/rdb/stream_writer.py). The same holds for
pending entries if a trim with DELREF was left out. The next start tries again.

A replica does not leave out removals: it asks for a new copy of the data (replication/stream_applier.py).
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.errors import DamagedColdRun
from headrace.keyspace.cold_storage import ColdStorage
from headrace.streams import cold_reads
from headrace.streams.cold_part import ColdPart
from headrace.streams.stream import Stream
from headrace.structures.stream_id import StreamId


@cython.ccall
def left_out_ids(call: Call, stream: Stream, ids: list[StreamId]) -> set[StreamId]:
    """Load the runs that the deletion of these entries needs; return the IDs that it must leave out.

    Only the replay of a log leaves out IDs. Any other caller gets DamagedColdRun if a run cannot be read.
    Raises RunNeeded if a run must be loaded first.
    """
    left_out: set[StreamId] = set()
    entry: StreamId
    try:
        cold_reads.ensure_deletion_runs_loaded(stream, ids)
        return left_out
    except DamagedColdRun:
        if not call.policy.leaves_out_unreadable_removals:
            raise
    for entry in ids:
        try:
            cold_reads.ensure_entries_loaded(stream, [entry])
        except DamagedColdRun as damage:
            record_left_out_removal(call, stream, entry, damage)
            left_out.add(entry)
    removable: list[StreamId] = [entry for entry in ids if entry not in left_out]
    try:
        cold_reads.ensure_deletion_runs_loaded(stream, removable)
    except DamagedColdRun as damage:
        # The last entry in memory would go, and the run before it cannot be read.
        for entry in removable:
            record_left_out_removal(call, stream, entry, damage)
        return set(ids)
    return left_out


@cython.ccall
def record_left_out_removal(
    call: Call, stream: Stream, entry: StreamId, damage: DamagedColdRun, references: cython.bint = False
) -> cython.void:
    """Count a removal that is left out.

    Args:
        entry: the last ID that the removal should have removed, or a later ID.
        references: whether the removal should have removed pending entries, too.
    """
    cold: ColdStorage | None = call.keyspace.cold_storage
    part: ColdPart = stream.ensure_cold_part()
    if part.last_left_out_id is None or part.last_left_out_id < entry:
        part.last_left_out_id = entry
    part.left_out_removals_drop_references = part.left_out_removals_drop_references or references
    if cold is not None:
        cold.left_out_removal_count += 1
        cold.left_out_removal_reason = cold.left_out_removal_reason or str(damage)
