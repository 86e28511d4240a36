"""Groups and their consumers as the commands need them: found, joined, and written down for the log.

What a log or a replica must repeat is never the reading itself but what it did: one XCLAIM for each
delivered entry, one XGROUP SETID for how far the group has come, one XGROUP CREATECONSUMER for a
consumer that nothing else tells of.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.errors import CommandError
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


class NoSuchKeyOrGroup(CommandError):
    """The stream, or its group, is not there; `where` ends the sentence."""

    def __init__(self, key: bytes, group: bytes, where: str = "") -> None:
        key_name = key.decode("utf-8", "surrogateescape")
        group_name = group.decode("utf-8", "surrogateescape")
        super().__init__(f"NOGROUP No such key '{key_name}' or consumer group '{group_name}'{where}")


class NoSuchGroupForKey(CommandError):
    """A key has no group of that name."""

    def __init__(self, group: bytes, key: bytes) -> None:
        group_name = group.decode("utf-8", "surrogateescape")
        key_name = key.decode("utf-8", "surrogateescape")
        super().__init__(f"NOGROUP No such consumer group '{group_name}' for key name '{key_name}'")


@cython.ccall
def stream_of_group(call: Call) -> Stream:
    """The stream of argv[1], which has the group of argv[2]; WrongType, NoSuchKeyOrGroup."""
    argv: list[bytes] = call.argv
    stream: Stream | None = call.database.stream(argv[1])
    if stream is None:
        call.notify_miss(argv[1])
    if stream is None or stream.group(argv[2]) is None:
        raise NoSuchKeyOrGroup(argv[1], argv[2])
    return stream


@cython.ccall
def create_consumer(call: Call, key: bytes, group: Group, name: bytes) -> Consumer:
    """A new consumer of the group; who listens to events is told, the log is not."""
    made: Consumer = group.make_consumer(name, call.now)
    call.keyspace.changes += 1
    call.notify("t", b"xgroup-createconsumer", key)
    return made


@cython.ccall
def touch_consumer(call: Call, key: bytes, group: Group, name: bytes) -> Consumer:
    """The consumer of that name, made when there is none; it has been seen now."""
    found: Consumer | None = group.consumer(name)
    if found is None:
        return create_consumer(call, key, group, name)
    found.seen_ms = call.now
    return found


@cython.ccall
@cython.exceptval(check=False)
def saturating_increment(deliveries: cython.longlong) -> cython.longlong:
    """A delivery count after one delivery more; at its maximum it stays."""
    return deliveries if deliveries == I64_MAX else deliveries + 1


# The words of effects. Ask call.recording before: they are built of objects.


@cython.ccall
def record_claim(
    call: Call, key: bytes, group: Group, slot: cython.Py_ssize_t, word: bytes, last: bytes
) -> cython.void:
    """The pending entry of slot, word its ID, is as it is now; last is the group's last ID to be said."""
    pending: PendingEntries = group.pending
    owner: Consumer | None = pending.owner_of(slot)
    if owner is None:
        call.record([b"XACK", key, group.name, word])
        return
    time: bytes = stream_id.decimal(pending.delivery_time_of(slot))
    deliveries: bytes = stream_id.decimal(pending.delivery_count_of(slot))
    words: list[bytes] = [b"XCLAIM", key, group.name, owner.name, b"0", word, b"TIME", time]
    words += [b"RETRYCOUNT", deliveries, b"FORCE", b"JUSTID", b"LASTID", last]
    call.record(words)


@cython.ccall
def record_redelivery(
    call: Call, key: bytes, group: Group, slot: cython.Py_ssize_t, ids: list[bytes]
) -> cython.void:
    """These entries were given to their owner again, as that of slot was: at one time, and as often."""
    pending: PendingEntries = group.pending
    owner: Consumer | None = pending.owner_of(slot)
    assert owner is not None
    words: list[bytes] = [b"XCLAIM", key, group.name, owner.name, b"0", *ids]
    words += [
        b"TIME",
        stream_id.decimal(pending.delivery_time_of(slot)),
        b"RETRYCOUNT",
        stream_id.decimal(pending.delivery_count_of(slot)),
    ]
    words += [b"FORCE", b"JUSTID"]
    call.record(words)


@cython.ccall
def record_last_id(call: Call, key: bytes, group: Group) -> cython.void:
    """How far the group has come."""
    last: bytes = stream_id.text_of(group.last_ms, group.last_seq)
    read: bytes = stream_id.decimal(group.entries_read)
    call.record([b"XGROUP", b"SETID", key, group.name, last, b"ENTRIESREAD", read])


@cython.ccall
def record_consumer(call: Call, key: bytes, group: Group, consumer: Consumer) -> cython.void:
    """There is a new consumer."""
    call.record([b"XGROUP", b"CREATECONSUMER", key, group.name, consumer.name])
