"""A digest of a keyspace in 20 bytes: the same data gives the same digest, however it was written.

    value     SHA-1 of its fields in a fixed order, each with its length before it
    key       SHA-1 of database, key, expiry, the value's digest
    keyspace  XOR of the keys' digests, so their order does not matter; 0 if empty

Not included: how entries are packed, and when consumers were last seen and active, which no log contains.
"""

from __future__ import annotations

import hashlib
from typing import Any

from headrace.keyspace.keyspace import Keyspace
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.pending import PendingEntries
from headrace.streams.stream import Stream

DIGEST_BYTES = 20
U64_MAX = (1 << 64) - 1


class FieldHash:
    """A hash over fields, each with its length, so that their boundaries count."""

    def __init__(self, kind: bytes) -> None:
        self._sha = hashlib.sha1(kind, usedforsecurity=False)

    def add(self, *facts: bytes | bytearray | int) -> None:
        """Add fields; numbers as decimal text."""
        for fact in facts:
            data = b"%d" % fact if isinstance(fact, int) else fact
            self._sha.update(b"%d:" % len(data))
            self._sha.update(data)

    def digest(self) -> bytes:
        """Return the digest of all fields so far."""
        return self._sha.digest()


def digest_of_keyspace(keyspace: Keyspace) -> bytes:
    """Return the digest of all keys that have not expired."""
    total = 0
    for database in keyspace.databases:
        alive = database.keys()
        for key in alive:
            facts = FieldHash(b"key")
            facts.add(database.index, key, database.expiry(key))
            facts.add(digest_of_value(database.values[key], keyspace.now))
            total ^= int.from_bytes(facts.digest(), "big")
    return total.to_bytes(DIGEST_BYTES, "big")


def digest_of_value(value: object, now_ms: int) -> bytes:
    """Return the digest of one value, without key and expiry."""
    if isinstance(value, Stream):
        return digest_of_stream(value, now_ms)
    assert isinstance(value, bytes | bytearray)
    facts = FieldHash(b"string")
    facts.add(value)
    return facts.digest()


def digest_of_stream(stream: Stream, now_ms: int) -> bytes:
    """Return the digest of a stream: entries, counters, groups, remembered idempotent requests."""
    facts = FieldHash(b"stream")
    facts.add(stream.length, stream.entries_added, stream.last_ms, stream.last_seq)
    facts.add(stream.max_deleted_ms, stream.max_deleted_seq)
    walk = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX)
    while walk.next():
        words = walk.remaining_pieces()
        facts.add(walk.ms, walk.seq, len(words), *words)
    for group in sorted(stream.groups(), key=name_of):
        hash_group(facts, group)
    hash_producers(facts, stream, now_ms)
    return facts.digest()


def name_of(named: Any) -> bytes:
    """Return the name of a group or consumer."""
    name: bytes = named.name
    return name


def hash_group(facts: FieldHash, group: Group) -> None:
    """Add a group: its position, its consumers by name, its pending entries."""
    facts.add(b"group", group.name, group.last_ms, group.last_seq, group.entries_read)
    for consumer in sorted(group.consumers(), key=name_of):
        facts.add(b"consumer", consumer.name)
    unowned: list[int] = []
    owned: list[int] = []
    pending = group.pending
    slot = pending.first_by_delivery()
    while slot >= 0:
        (unowned if pending.owner_of(slot) is None else owned).append(slot)
        slot = pending.next_by_delivery(slot)
    owned.sort(key=lambda slot: (pending.ms_of(slot), pending.seq_of(slot)))
    for slot in [*unowned, *owned]:  # returned entries in their order, the others by time and ID
        hash_pending_entry(facts, pending, slot)


def hash_pending_entry(facts: FieldHash, pending: PendingEntries, slot: int) -> None:
    """Add a pending entry."""
    owner = pending.owner_of(slot)
    facts.add(b"unowned" if owner is None else b"owned", b"" if owner is None else owner.name)
    facts.add(
        pending.ms_of(slot),
        pending.seq_of(slot),
        pending.delivery_time_of(slot),
        pending.delivery_count_of(slot),
    )


def hash_producers(facts: FieldHash, stream: Stream, now_ms: int) -> None:
    """Add each producer's requests, oldest first; expired ones do not count, whether removed yet or not."""
    facts.add(b"idmp", stream.idmp_duration_s, stream.idmp_maxsize)
    memory = stream.idempotency
    if memory is None:
        facts.add(0, 0)
        return
    facts.add(memory.added_count, memory.duplicate_count)
    oldest_ms = now_ms - 1000 * memory.duration_s
    lines: dict[bytes, list[Any]] = {}
    for pid, iid, entry in memory.items():
        line = lines.setdefault(pid, [])
        if line or entry.ms > oldest_ms:
            line.append((iid, entry))
    for pid in sorted(lines):
        for iid, entry in lines[pid]:
            facts.add(pid, iid, entry.ms, entry.seq)
