"""The rule STRICT: reject commands that would remove entries which the other rules of their stream keep.

    XTRIM, XADD with a trim        if it would remove a kept entry
    XDEL, XDELEX, XACKDEL          if one of the IDs is that of a kept entry
    DEL, UNLINK, SET, RENAME, ...  if the stream that is removed or replaced has a kept entry
    FLUSHDB, FLUSHALL              if one of the streams has a kept entry
    EXPIRE and the like            in any case: the stream would be removed later, whatever it keeps then

A rejected command changes nothing. Replays and the rules themselves are never rejected.
"""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.errors import EntriesKept, to_text
from headrace.keyspace import watermark
from headrace.keyspace.keyspace import Database
from headrace.streams import references, retention
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.rules import InvalidRule, StreamRules
from headrace.streams.stream import Stream
from headrace.structures.stream_id import StreamId

U64_MAX = (1 << 64) - 1
KEEP_UNACKED = "KEEP-UNACKED"
KEEP_UNARCHIVED = "KEEP-UNARCHIVED"


def is_exempt(call: Call) -> bool:
    """Return whether the command is never rejected: it was executed before, or a rule runs it."""
    return call.replayed() or call.session.is_rule_session


def strict_rules_or_none(call: Call, stream: Stream) -> StreamRules | None:
    """Return the rules of the stream if they reject commands of this caller; None if they do not."""
    rules = stream.rules
    return rules if rules is not None and rules.strict and not is_exempt(call) else None


def _rejection(call: Call, key: bytes, reason: str) -> EntriesKept:
    name = call.command.name.decode().upper()
    return EntriesKept(f"KEPT stream '{to_text(key)}': {reason}, and STRICT rejects {name}")


def _first_entry_id(stream: Stream, first: StreamId) -> StreamId | None:
    """Return the ID of the first entry from an ID on; None if there is none."""
    entries = StreamIterator(stream, first.ms, first.seq, U64_MAX, U64_MAX, False)
    return StreamId(entries.ms, entries.seq) if entries.next() else None


def first_kept_entry_and_rule(
    database: Database, key: bytes, stream: Stream, rules: StreamRules, *, by_groups: bool = True
) -> tuple[StreamId, str] | None:
    """Return the first entry that the rules keep, and by which rule; None if they keep none.

    by_groups: False leaves out what KEEP-UNACKED keeps.
    """
    found: tuple[StreamId, str] | None = None
    unacked = retention.first_unacked_id(stream) if rules.keep_unacked and by_groups else None
    if unacked is not None and (entry := _first_entry_id(stream, unacked)) is not None:
        found = entry, KEEP_UNACKED
    if rules.keep_unarchived:
        entry = _first_entry_id(
            stream, retention.first_unarchived_id(watermark.archived_id(database, key, stream))
        )
        if entry is not None and (found is None or entry.precedes(found[0])):
            found = entry, KEEP_UNARCHIVED
    return found


def check_stream_removal(call: Call, database: Database, key: bytes, stream: Stream) -> None:
    """Raise EntriesKept if the whole stream must not be removed."""
    rules = strict_rules_or_none(call, stream)
    kept = None if rules is None else first_kept_entry_and_rule(database, key, stream, rules)
    if kept is not None:
        raise _rejection(call, key, f"{kept[1]} keeps {kept[0]}")


def check_key_removal(call: Call, database: Database, key: bytes) -> None:
    """Raise EntriesKept if the value at the key must be neither removed nor replaced."""
    if call.keyspace.rule_registry.streams and database.contains(key):
        value = database.values[key]
        if isinstance(value, Stream):
            check_stream_removal(call, database, key, value)


def check_flush(call: Call, database: Database | None) -> None:
    """Raise EntriesKept if a stream of the database must not be removed. None checks all databases."""
    for ruled in call.keyspace.rule_registry.streams.values():
        if database is None or ruled.database == database.index:
            check_stream_removal(call, call.keyspace.databases[ruled.database], ruled.key, ruled.stream)


def check_expiry(call: Call, key: bytes, value: object) -> None:
    """Raise EntriesKept if the value is a stream with STRICT, which must not expire."""
    if isinstance(value, Stream) and strict_rules_or_none(call, value) is not None:
        raise _rejection(call, key, "it must not expire")


def check_strict_may_be_set(call: Call, key: bytes, rules: StreamRules) -> None:
    """Raise InvalidRule if STRICT is set on a stream that expires."""
    if rules.strict and not is_exempt(call) and call.database.expiry(key) >= 0:
        raise InvalidRule("STRICT must not be set on a stream that expires; PERSIST it first")


def check_trim(call: Call, key: bytes, stream: Stream, acked_only: bool, trimmed: int) -> None:
    """Raise EntriesKept if a rule keeps one of the oldest entries, which a trim would remove.

    Args:
        acked_only: the trim removes only what all groups have acknowledged.
        trimmed: how many of the oldest entries the trim reaches.
    """
    rules = strict_rules_or_none(call, stream)
    if rules is None or trimmed == 0:
        return
    kept = first_kept_entry_and_rule(call.database, key, stream, rules, by_groups=not acked_only)
    if kept is not None and retention.count_before(stream, kept[0]) < trimmed:
        raise _rejection(call, key, f"{kept[1]} keeps {kept[0]}")


def check_new_entry_trim(call: Call, key: bytes, stream: Stream, acked_only: bool) -> None:
    """Raise EntriesKept if a rule keeps the new entry, which the trim of the same XADD would remove."""
    rules = strict_rules_or_none(call, stream)
    if rules is None:
        return
    if rules.keep_unacked and stream.group_count and not acked_only:
        raise _rejection(call, key, f"{KEEP_UNACKED} keeps the new entry")
    if rules.keep_unarchived:
        raise _rejection(call, key, f"{KEEP_UNARCHIVED} keeps the new entry")


def check_entry_deletion(
    call: Call, key: bytes, stream: Stream, acked_only: bool, ids: list[StreamId], acking: Group | None
) -> None:
    """Raise EntriesKept if one of the entries must not be deleted.

    Args:
        acked_only: the command deletes only what all groups have acknowledged.
        acking: the group that acknowledges them in the same command; it does not keep them.
    """
    rules = strict_rules_or_none(call, stream)
    if rules is None:
        return
    archived = watermark.archived_id(call.database, key, stream) if rules.keep_unarchived else None
    unarchived = retention.first_unarchived_id(archived)
    for entry in ids:
        if not stream.contains(entry.ms, entry.seq):
            continue
        if acking is not None and acking.pending.find(entry.ms, entry.seq) < 0:
            continue  # it is not deleted
        referenced = references.is_referenced(stream, entry.ms, entry.seq, acking)
        if referenced and acked_only:
            continue  # it is not deleted
        if rules.keep_unacked and referenced:
            raise _rejection(call, key, f"{KEEP_UNACKED} keeps {entry}")
        if rules.keep_unarchived and not entry.precedes(unarchived):
            raise _rejection(call, key, f"{KEEP_UNARCHIVED} keeps {entry}")
