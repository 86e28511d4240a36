"""Express effects as commands of Redis 7.0, for replicas that know no newer ones.

    XACKDEL s g IDS 1 1-0           XACK s g 1-0, XDEL s 1-0
    XDELEX s DELREF IDS 1 1-0       XACK s g 1-0 for each group that has it pending, XDEL s 1-0
    XNACK s g FAIL IDS 1 1-0        XCLAIM s g headrace-unowned 0 1-0 TIME 0 RETRYCOUNT 1 FORCE JUSTID
    XADD s MAXLEN 5 ACKED 1-0 f v   XADD s MAXLEN 5 1-0 f v, if it removed the oldest entries; otherwise
                                    XADD s 1-0 f v, XDEL s ..., XSETID s ...: a trim keeps max-deleted
    XTRIM s MAXLEN = 5 DELREF       XACK ..., XTRIM s MAXLEN = 5

The commands on the right are the Redis 7 equivalent of an effect. Only the running command knows what it has
changed, so it adds the equivalent to Effects if a replica needs it (Effects.needs_redis7_equivalents). An
effect without an equivalent is replaced by the value of its key: see replication/translation.py. An
equivalent is not exact if its XACK replaces the removal of pending entries: Headrace counts those as lost,
not as acknowledged.
"""

from __future__ import annotations

from headrace.commands.call import Call
from headrace.errors import DamagedColdRun
from headrace.persistence.rdb.stream_writer import placeholder_consumer
from headrace.streams.deletions import Deletions
from headrace.streams.group import Group
from headrace.streams.stream import Stream
from headrace.structures import stream_id

FIRST_ID = b"0-1"  # as max-deleted it says as much as 0-0, which XSETID cannot set


def add_deletion_equivalent(call: Call, key: bytes, acknowledged: list[bytes], deletions: Deletions) -> None:
    """Add the equivalent of an XACKDEL or XDELEX that has just run.

    Args:
        acknowledged: the IDs that are no longer pending in the group of an XACKDEL.
    """
    commands = [[b"XACK", key, call.argv[2], *acknowledged]] if acknowledged else []
    lost = deletions.xack_commands(key)
    commands += lost
    if deletions.entry_ids:
        commands.append([b"XDEL", key, *deletions.entry_ids])
    call.effects.set_redis7_equivalent(call.argv, commands, not lost)


def add_nack_equivalent(call: Call, stream: Stream, group: Group, ids: list[bytes]) -> None:
    """Add the equivalent of an XNACK of these IDs: XCLAIMs by a placeholder consumer.

    No equivalent is added if an entry was deleted, because XCLAIM would drop it, or cannot be read.
    The equivalent is not exact, because in Redis the entries have an owner. A replica that runs Headrace
    gets the XNACK.
    """
    key, owner = call.argv[1], placeholder_consumer(group)
    commands: list[list[bytes]] = []
    for word in ids:
        entry = stream_id.parse(word, 0)
        slot = group.pending.find(entry.ms, entry.seq)
        try:
            if slot < 0 or not stream.contains(entry.ms, entry.seq):
                return
        except DamagedColdRun:
            return
        count = b"%d" % group.pending.delivery_count_of(slot)
        claim = [b"XCLAIM", key, group.name, owner, b"0", word]
        commands.append([*claim, b"TIME", b"0", b"RETRYCOUNT", count, b"FORCE", b"JUSTID"])
    call.effects.set_redis7_equivalent(call.argv, commands, False)


def add_trim_equivalent(call: Call, effect: list[bytes], stream: Stream, deletions: Deletions) -> None:
    """Add the equivalent of an XADD or XTRIM with DELREF or ACKED.

    Args:
        effect: the request as it is recorded.
        deletions: the entries that its trim has removed.
    """
    key = call.argv[1]
    commands = deletions.xack_commands(key)
    exact = not commands
    removed = deletions.entry_ids
    oldest = not removed or _is_before_first(stream, removed[-1])
    trim = [b"MAXLEN", b"=", b"%d" % stream.length] if removed and oldest else []
    if effect[0].upper() == b"XADD":
        commands.append(with_trim_replaced(effect, trim))
    elif trim:
        commands.append([b"XTRIM", key, *trim])
    if removed and not oldest:
        last, added = stream.last_id().text(), b"%d" % stream.entries_added
        deleted = FIRST_ID if deletions.max_deleted_id_before == b"0-0" else deletions.max_deleted_id_before
        commands.append([b"XDEL", key, *removed])
        commands.append([b"XSETID", key, last, b"ENTRIESADDED", added, b"MAXDELETEDID", deleted])
    call.effects.set_redis7_equivalent(effect, commands, oldest and exact)


def _is_before_first(stream: Stream, word: bytes) -> bool:
    """Return whether no entry up to this ID is left."""
    return stream.length == 0 or stream_id.parse(word, 0).precedes(stream.first_id())


def with_trim_replaced(words: list[bytes], trim: list[bytes]) -> list[bytes]:
    """Return the XADD with this trim instead of its own, and without a policy for references."""
    options, at = options_and_end(words)
    kept = [word for option in options if option[0] not in (b"MAXLEN", b"MINID", b"LIMIT") for word in option]
    return [*words[:2], *kept, *trim, *words[at:]]


def options_and_end(words: list[bytes]) -> tuple[list[list[bytes]], int]:
    """Return the options of an XADD or XTRIM, and the index of the argument after them.

    Option names are in upper case. Policies (KEEPREF, DELREF, ACKED) are left out.
    """
    found: list[list[bytes]] = []
    at = 2
    while at < len(words):
        name = words[at].upper()
        if name in (b"MAXLEN", b"MINID"):
            size = 3 if words[at + 1] in (b"=", b"~") else 2
        elif name == b"IDMP":
            size = 3
        elif name in (b"LIMIT", b"IDMPAUTO"):
            size = 2
        elif name in (b"NOMKSTREAM", b"KEEPREF", b"DELREF", b"ACKED"):
            size = 1
        else:
            break
        if name not in (b"KEEPREF", b"DELREF", b"ACKED"):
            found.append([name, *words[at + 1 : at + size]])
        at += size
    return found, at
