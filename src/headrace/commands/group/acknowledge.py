"""XACK and XACKDEL: acknowledge pending entries, and delete entries that no group needs.

XACK key group id [id …]
XACKDEL key group [KEEPREF | DELREF | ACKED] IDS numids id [id …]
"""

from __future__ import annotations

import cython

from headrace.commands import redis7_equivalents, strict_rules
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.stream import delete, left_out_removals
from headrace.commands.stream.delete import DeleteOptions
from headrace.streams import deletions, references
from headrace.streams.deletions import Deletions
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId


@cython.ccall
def group_or_none(call: Call) -> Group | None:
    """Return the group argv[2] of the stream argv[1], or None if one of them does not exist."""
    argv: list[bytes] = call.argv
    stream: Stream | None = call.database.stream(argv[1])
    call.count_lookup(argv[1], stream)
    return None if stream is None else stream.group(argv[2])


def run_ack(call: Call) -> None:
    """XACK: acknowledge entries; reply how many were pending. An invalid ID is an error before any change."""
    group: Group | None = group_or_none(call)
    if group is None:
        call.reply.integer(0)
        return
    argv: list[bytes] = call.argv
    pending: PendingEntries = group.pending
    acknowledged: cython.longlong = 0
    slot: cython.Py_ssize_t
    at: cython.Py_ssize_t
    wanted: StreamId = stream_id.parse(argv[3], 0)
    ids: list[StreamId] = [wanted]
    for at in range(4, len(argv)):
        ids.append(stream_id.parse(argv[at], 0))
    for wanted in ids:
        slot = pending.find(wanted.ms, wanted.seq)
        if slot >= 0:
            pending.remove(slot)
            acknowledged += 1
    if acknowledged > 0:
        call.keyspace.changes += acknowledged  # as count_and_record_changes()
        if call.effects.recording:
            call.record_verbatim()
    call.reply.integer(acknowledged)


@cython.cfunc
def _left_out_ids(
    call: Call, stream: Stream, group: Group, policy: cython.int, ids: list[StreamId]
) -> set[StreamId]:
    """Ensure that the cold runs needed to delete those of the entries that the group has pending are loaded.

    Returns the IDs of entries that can only be acknowledged: a log is replayed, and their run cannot be read.
    """
    entry: StreamId
    deleted: list[StreamId] = []
    if stream.run_count() == 0:
        return set()
    for entry in ids:
        if group.pending.find(entry.ms, entry.seq) < 0:
            continue
        if policy != references.ACKED or not references.is_referenced(stream, entry.ms, entry.seq, group):
            deleted.append(entry)
    return left_out_removals.left_out_ids(call, stream, deleted)


def run_ack_delete(call: Call) -> None:
    """XACKDEL: acknowledge entries and delete them by the policy.

    The reply for each ID: -1 if it is not pending, 1 if the entry was deleted, 2 if other groups need it.
    """
    argv: list[bytes] = call.argv
    stream: Stream | None = call.database.stream(argv[1])
    request: DeleteOptions = delete.parse_delete_options(argv, 3)
    group: Group | None = None if stream is None else stream.group(argv[2])
    if stream is None or group is None:
        delete.write_missing(call, request.id_count)
        return
    ids: list[StreamId] = request.ids(argv)
    left_out: set[StreamId] = _left_out_ids(call, stream, group, request.policy, ids)
    before: cython.ulonglong = stream.length
    removed: Deletions | None = (
        deletions.new_deletions(stream) if call.effects.needs_redis7_equivalents else None
    )
    words: list[bytes] = []  # of the acknowledged entries, if they are needed
    acknowledged: cython.longlong = 0
    slot: cython.Py_ssize_t
    wanted: StreamId
    if stream.rules is not None:
        acked_only: cython.bint = request.policy == references.ACKED
        strict_rules.check_entry_deletion(call, argv[1], stream, acked_only, ids, group)
    call.reply.array(request.id_count)
    for wanted in ids:
        slot = group.pending.find(wanted.ms, wanted.seq)
        if slot < 0:
            call.reply.integer(-1)
            continue
        group.pending.remove(slot)
        acknowledged += 1
        if removed is not None:
            words.append(wanted.text())
        if request.policy == references.ACKED and references.is_referenced(stream, wanted.ms, wanted.seq):
            call.reply.integer(2)
            continue
        if request.policy == references.DELREF:
            if removed is not None:
                removed.add_references(stream, wanted.ms, wanted.seq)
            references.drop_references(stream, wanted.ms, wanted.seq)
        if left_out and wanted in left_out:
            call.reply.integer(1)
            continue
        if stream.delete(wanted.ms, wanted.seq) and removed is not None:
            removed.add_entry(wanted.ms, wanted.seq)
        call.reply.integer(1)
    if acknowledged > 0:
        if removed is not None:
            redis7_equivalents.add_deletion_equivalent(call, argv[1], words, removed)
        call.count_and_record_changes(acknowledged)
    if stream.length < before:
        call.database.invalidate_watchers(argv[1])
        call.notify("t", b"xdel", argv[1])


COMMANDS = [
    Command(
        "xack",
        -4,
        run_ack,
        "write fast",
        keys="1: RW update",
        group="stream",
        since="5.0.0",
        summary="Acknowledges entries: they are no longer pending in the group.",
        complexity="O(log n) for each ID, for n pending entries",
        syntax="key group id [id ...]",
    ),
    Command(
        "xackdel",
        -6,
        run_ack_delete,
        "write fast",
        keys="1: RW update delete",
        group="stream",
        since="8.2.0",
        summary="Acknowledges entries and deletes them, with a policy for references of other groups.",
        complexity="O(log n) for each ID, times the number of groups unless the policy is KEEPREF",
        syntax="key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
    ),
]
