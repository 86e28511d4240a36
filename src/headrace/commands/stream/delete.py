"""XDEL and XDELEX: delete single entries.

XDEL key id [id …]
XDELEX key [KEEPREF | DELREF | ACKED] IDS numids id [id …]
"""

from __future__ import annotations

import cython

from headrace.commands import arguments, redis7_equivalents, strict_rules
from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.commands.stream import left_out_removals
from headrace.commands.stream import trim as trim_options
from headrace.errors import CommandError, InvalidSyntax
from headrace.streams import deletions, references
from headrace.streams.deletions import Deletions
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId


class NoIds(CommandError):
    text = "ERR IDS option is required"


class BadIdCount(CommandError):
    text = "ERR Number of IDs must be a positive integer"


class IdCountMismatch(CommandError):
    text = "ERR The `numids` parameter must match the number of arguments"


@cython.final
@cython.cclass
class DeleteOptions:
    """The options of XDELEX after its key, and of XACKDEL after its group."""

    policy: cython.int  # a policy of references.py
    id_count: cython.Py_ssize_t  # how many IDs
    ids_at: cython.Py_ssize_t

    def __init__(self) -> None:
        self.policy = references.KEEPREF
        self.id_count = 0
        self.ids_at = 0

    @cython.ccall
    def ids(self, argv: list[bytes]) -> list[StreamId]:
        """Return the IDs of the request, parsed. Raises InvalidStreamId."""
        return [stream_id.parse(word, 0) for word in argv[self.ids_at : self.ids_at + self.id_count]]


@cython.cfunc
def parse_delete_options(argv: list[bytes], at: cython.Py_ssize_t) -> DeleteOptions:
    """Read [KEEPREF | DELREF | ACKED] IDS numids id [id …] in any order; the IDs are not parsed yet.

    Only one policy may be given. Of several blocks of IDs the last one counts.
    """
    request: DeleteOptions = DeleteOptions()
    policy: cython.int
    policy_given: cython.bint = False
    while at < len(argv):
        policy = trim_options.parse_policy(argv[at])
        if policy >= 0 and not policy_given:
            request.policy = policy
            policy_given = True
            at += 1
        elif arguments.is_keyword(argv[at], b"IDS") and at + 1 < len(argv):
            request.id_count = arguments.parse_id_count(argv, at + 1, BadIdCount, IdCountMismatch)
            request.ids_at = at + 2
            at = request.ids_at + request.id_count
        else:
            raise InvalidSyntax()
    if request.id_count == 0:
        raise NoIds()
    return request


@cython.cfunc
def write_missing(call: Call, count: cython.Py_ssize_t) -> cython.void:
    """Write -1 for each ID, valid or not: the stream or the group does not exist."""
    _: cython.Py_ssize_t
    call.reply.array(count)
    for _ in range(count):
        call.reply.integer(-1)


def run(call: Call) -> None:
    """XDEL: delete entries; reply how many existed. An invalid ID is an error before any change."""
    argv: list[bytes] = call.argv
    key: bytes = argv[1]
    stream: Stream | None = call.database.stream(key)
    if stream is None:
        call.reply.integer(0)
        return
    ids: list[StreamId] = [stream_id.parse(word, 0) for word in argv[2:]]
    left_out: set[StreamId] = left_out_removals.left_out_ids(call, stream, ids)
    if left_out:
        ids = [one for one in ids if one not in left_out]
    deleted: cython.longlong = 0
    wanted: StreamId
    if stream.rules is not None:
        strict_rules.check_entry_deletion(call, key, stream, False, ids, None)
    for wanted in ids:
        if stream.delete(wanted.ms, wanted.seq):
            deleted += 1
    if deleted > 0:
        call.keyspace.changes += deleted - 1  # finish_change() counts one
        call.finish_change(key, "t", b"xdel", argv)
    call.reply.integer(deleted)


@cython.cfunc
def _ids_to_delete(call: Call, stream: Stream, policy: cython.int, ids: list[StreamId]) -> list[StreamId]:
    """Ensure that the cold runs needed for the deletion by this policy are loaded; return the IDs to process.

    When a log is replayed, IDs whose run cannot be read are left out; DELREF drops the references to them.
    """
    if stream.run_count() == 0:
        return ids
    deleted: list[StreamId] = ids
    if policy == references.ACKED:
        deleted = [one for one in ids if not references.is_referenced(stream, one.ms, one.seq)]
    left_out: set[StreamId] = left_out_removals.left_out_ids(call, stream, deleted)
    if policy == references.DELREF:
        for one in left_out:
            references.drop_references(stream, one.ms, one.seq)
    return [one for one in ids if one not in left_out] if left_out else ids


def run_by_policy(call: Call) -> None:
    """XDELEX: delete entries by the policy.

    The reply for each ID: 1 if the entry was deleted, -1 if there is none, 2 if groups still need it.
    DELREF removes references even if there is no entry: that is recorded, but watchers are not invalidated,
    and there is no notification.
    """
    key: bytes = call.argv[1]
    stream: Stream | None = call.database.stream(key)
    request: DeleteOptions = parse_delete_options(call.argv, 2)
    if stream is None:
        write_missing(call, request.id_count)
        return
    ids: list[StreamId] = _ids_to_delete(call, stream, request.policy, request.ids(call.argv))
    removed: Deletions | None = (
        deletions.new_deletions(stream) if call.effects.needs_redis7_equivalents else None
    )
    deleted: cython.longlong = 0
    changed: cython.longlong = 0
    dropped: cython.Py_ssize_t
    wanted: StreamId
    if stream.rules is not None:
        acked_only: cython.bint = request.policy == references.ACKED
        strict_rules.check_entry_deletion(call, key, stream, acked_only, ids, None)
    call.reply.array(request.id_count)
    for wanted in ids:
        if request.policy == references.ACKED and references.is_referenced(stream, wanted.ms, wanted.seq):
            call.reply.integer(2)
            continue
        dropped = 0
        if request.policy == references.DELREF:
            if removed is not None:
                removed.add_references(stream, wanted.ms, wanted.seq)
            dropped = references.drop_references(stream, wanted.ms, wanted.seq)
        if stream.delete(wanted.ms, wanted.seq):
            if removed is not None:
                removed.add_entry(wanted.ms, wanted.seq)
            deleted += 1
            changed += 1
            call.reply.integer(1)
        else:
            changed += 1 if dropped > 0 else 0
            call.reply.integer(-1)
    if changed > 0:
        if removed is not None:
            redis7_equivalents.add_deletion_equivalent(call, key, [], removed)
        call.count_and_record_changes(changed)
    if deleted > 0:
        call.database.invalidate_watchers(key)
        call.notify("t", b"xdel", key)


COMMANDS = [
    Command(
        "xdel",
        -3,
        run,
        "write fast",
        keys="1: RW delete",
        group="stream",
        since="5.0.0",
        summary="Deletes single entries of a stream by their IDs.",
        complexity="O(1) for each ID, however long the stream is",
        syntax="key id [id ...]",
    ),
    Command(
        "xdelex",
        -5,
        run_by_policy,
        "write fast",
        keys="1: RW delete",
        group="stream",
        since="8.2.0",
        summary="Deletes single entries of a stream, with a policy for references of groups.",
        complexity="O(1) for each ID, times the number of groups unless the policy is KEEPREF",
        syntax="key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
    ),
]
