"""The idempotent requests that a stream remembers, and XIDMPRECORD, by which a log restores them.

XIDMPRECORD key pid iid id
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.spec import Command
from headrace.errors import CommandError, NoSuchKey
from headrace.streams.idempotency import IdempotencyStore
from headrace.streams.stream import Stream
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId


class EmptyProducer(CommandError):
    text = "ERR producer ID must be non-empty"


class EmptyIid(CommandError):
    text = "ERR idempotent ID must be non-empty"


class NoSuchEntry(CommandError):
    text = "ERR No such message in stream"


class IidTaken(CommandError):
    text = "ERR IID already exists for this producer with a different stream ID"


@cython.cfunc
def new_stream(call: Call) -> Stream:
    """Create an empty stream with the present settings for idempotent requests."""
    stream: Stream = Stream()
    stream.compaction = call.keyspace.compaction
    stream.idmp_duration_s = call.keyspace.settings.stream_idmp_duration
    stream.idmp_maxsize = call.keyspace.settings.stream_idmp_maxsize
    return stream


@cython.cfunc
def ensure_idempotency(call: Call, stream: Stream) -> IdempotencyStore:
    """Return the stream's store of idempotent requests; create it if there is none."""
    memory: IdempotencyStore | None = stream.idempotency
    if memory is None:
        memory = IdempotencyStore(stream.idmp_duration_s, call.keyspace.idempotency_sweeper)
        stream.set_idempotency(memory)
    return memory


def run_record(call: Call) -> None:
    """XIDMPRECORD: remember a request for an existing entry, to restore a stream.

    In a replay the checks for entry and iid are skipped. The request passed them when it was executed. The
    log need not contain what removed the entry or iid since.
    """
    argv: list[bytes] = call.argv
    pid: bytes = argv[2]
    iid: bytes = argv[3]
    entry: StreamId = stream_id.parse(argv[4], 0)
    if not pid:
        raise EmptyProducer()
    if not iid:
        raise EmptyIid()
    stream: Stream | None = call.database.stream(argv[1])
    if stream is None:
        raise NoSuchKey()
    if not call.replayed() and not stream.contains(entry.ms, entry.seq):
        raise NoSuchEntry()
    memory: IdempotencyStore = ensure_idempotency(call, stream)
    known: StreamId | None = memory.lookup(pid, iid)
    same: cython.bint = known is not None and known.ms == entry.ms and known.seq == entry.seq
    if known is not None and not same and not call.replayed():
        raise IidTaken()
    if not same or call.replayed():
        memory.record(pid, iid, entry.ms, entry.seq, stream.idmp_maxsize)
        call.count_and_record_changes(1)
    call.reply.ok()


COMMANDS = [
    Command(
        "xidmprecord",
        5,
        run_record,
        "write denyoom fast",
        keys="1: RW update",
        group="stream",
        since="8.6.2",
        summary="Makes a stream remember an idempotent request; used to restore streams.",
        complexity="O(1)",
        syntax="key pid iid id",
    ),
]
