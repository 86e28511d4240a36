"""Look up and create groups and consumers for commands, and record the effects.

The effects of a read are not the read itself but its changes: an XCLAIM for the entries that are delivered
together (claim_effects.py), an XGROUP SETID for the group's position, and an XGROUP CREATECONSUMER for a
consumer that no other effect creates.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.errors import CommandError, to_text
from headrace.streams.consumer import Consumer
from headrace.streams.group import Group
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream
from headrace.structures import stream_id

I64_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


class NoSuchKeyOrGroup(CommandError):
    """The stream or its group does not exist; `where` is appended to the error text."""

    def __init__(self, key: bytes, group: bytes, where: str = "") -> None:
        key_name = to_text(key)
        group_name = to_text(group)
        super().__init__(f"NOGROUP No such key '{key_name}' or consumer group '{group_name}'{where}")


class UnrecognizedOption(CommandError):
    """The command does not have the option; the error repeats it as the client wrote it."""

    def __init__(self, command: str, word: bytes) -> None:
        super().__init__(f"ERR Unrecognized {command} option '{to_text(word)}'")


@cython.ccall
def stream_of_group(call: Call) -> Stream:
    """Return the stream argv[1], which has the group argv[2]. Raises WrongType or NoSuchKeyOrGroup."""
    argv: list[bytes] = call.argv
    stream: Stream | None = call.database.stream(argv[1])
    call.count_lookup(argv[1], stream)
    if stream is None or stream.group(argv[2]) is None:
        raise NoSuchKeyOrGroup(argv[1], argv[2])
    return stream


@cython.ccall
def create_consumer(call: Call, key: bytes, group: Group, name: bytes) -> Consumer:
    """Create a consumer, count it, publish the event. The caller records it if no other effect does."""
    made: Consumer = group.make_consumer(name, call.now)
    call.keyspace.changes += 1
    call.notify("t", b"xgroup-createconsumer", key)
    return made


@cython.ccall
@cython.exceptval(check=False)
def saturating_increment(deliveries: cython.longlong) -> cython.longlong:
    """Return the delivery count plus one; the highest i64 stays as it is."""
    return deliveries if deliveries == I64_MAX else deliveries + 1


# Effects. Check call.effects.recording first: they create objects.


@cython.ccall
def record_claim(
    call: Call, key: bytes, group: Group, slot: cython.Py_ssize_t, word: bytes, last: bytes
) -> cython.void:
    """Record the state of the pending entry as an XCLAIM, or as an XACK if the entry has no owner.

    `word` is the entry's ID, `last` the group's last ID.
    """
    pending: PendingEntries = group.pending
    owner: Consumer | None = pending.owner_of(slot)
    if owner is None:
        call.record([b"XACK", key, group.name, word])
    else:
        time_ms: cython.longlong = pending.delivery_time_of(slot)
        deliveries: cython.longlong = pending.delivery_count_of(slot)
        record_claims(call, key, group, owner, [word], time_ms, deliveries, last)


@cython.ccall
def record_claims(
    call: Call,
    key: bytes,
    group: Group,
    owner: Consumer,
    ids: list[bytes],
    time_ms: cython.longlong,
    deliveries: cython.longlong,
    last: bytes,
) -> cython.void:
    """Record owner, time and delivery count of pending entries, as one XCLAIM.

    Args:
        time_ms: when the entries were delivered, in milliseconds since 1970.
        last: the group's last ID; empty to leave it out.
    """
    words: list[bytes] = [b"XCLAIM", key, group.name, owner.name, b"0", *ids]
    words += [b"TIME", stream_id.format_decimal(time_ms), b"RETRYCOUNT", stream_id.format_decimal(deliveries)]
    words += [b"FORCE", b"JUSTID"]
    if last:
        words += [b"LASTID", last]
    call.record(words)


@cython.ccall
def record_lost_entry(call: Call, key: bytes, group: Group, consumer: Consumer, word: bytes) -> cython.void:
    """Record that a pending entry was removed because the stream no longer has the entry.

    The effect is an XCLAIM: when it is executed, it removes the pending entry, too.
    """
    call.record([b"XCLAIM", key, group.name, consumer.name, b"0", word, b"JUSTID"])


@cython.ccall
def record_last_id(call: Call, key: bytes, group: Group) -> cython.void:
    """Record the group's last-delivered ID and entries_read, as XGROUP SETID."""
    last: bytes = stream_id.text_of(group.last_ms, group.last_seq)
    read: bytes = stream_id.format_decimal(group.entries_read)
    call.record([b"XGROUP", b"SETID", key, group.name, last, b"ENTRIESREAD", read])


@cython.ccall
def record_consumer(call: Call, key: bytes, group: Group, consumer: Consumer) -> cython.void:
    """Record a new consumer."""
    call.record([b"XGROUP", b"CREATECONSUMER", key, group.name, consumer.name])
