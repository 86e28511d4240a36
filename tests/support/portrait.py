"""All that a client could ever learn of a keyspace, as plain dictionaries: two that look alike are alike.

    portrait(keyspace) -> {(database, key): {"type": "string", "value": …, "expiry": ms or -1},
                           (database, key): {"type": "stream", "entries": […], "groups": {…}, …}}

Keys whose time has come are in it as long as nobody has buried them; alive() takes them, and the requests
that producers may forget, out: that is what is left at a given moment.
"""

from __future__ import annotations

from typing import Any

from headrace.keyspace.keyspace import Keyspace
from headrace.streams.group import Group
from headrace.streams.iterator import StreamIterator
from headrace.streams.node import node_of_cursor
from headrace.streams.stream import Stream
from headrace.structures.rax_walk import RaxCursor

Portrait = dict[tuple[int, bytes], dict[str, Any]]
U64_MAX = 2**64 - 1


def portrait(
    keyspace: Keyspace, *, times: bool = True, ties: bool = True, nodes: bool = False, rules: bool = False
) -> Portrait:
    """Every key of every database.

    times=False leaves out what no log tells: when consumers were seen and active. ties=False: entries
    delivered in the same millisecond are in no order.
    nodes=True adds the packed nodes, tombstones and all. rules=True adds the rules of streams and groups.
    """
    return {
        (database.index, key): portrait_of(value, times=times, ties=ties, nodes=nodes)
        | (rules_of(value) if rules else {})
        | {"expiry": database.expiry(key)}
        for database in keyspace.databases
        for key, value in sorted(database.values.items())
    }


def rules_of(value: object) -> dict[str, Any]:
    """The rules of a stream and its groups."""
    if not isinstance(value, Stream):
        return {}
    found = {group.name: group.rules.explicit_values() for group in value.groups() if group.rules is not None}
    return {"rules": value.rules and value.rules.explicit_values(), "group rules": found}


def portrait_of(
    value: object, *, times: bool = True, ties: bool = True, nodes: bool = False
) -> dict[str, Any]:
    """One value, as portrait() shows it, without its expiry."""
    if not isinstance(value, Stream):
        assert isinstance(value, (bytes, bytearray)), type(value)
        return {"type": "string", "value": bytes(value)}
    shown: dict[str, Any] = {
        "type": "stream",
        "entries": entries(value),
        "length": value.length,
        "added": value.entries_added,
        "last": (value.last_ms, value.last_seq),
        "first": (value.first_ms, value.first_seq),
        "max-deleted": (value.max_deleted_ms, value.max_deleted_seq),
        "groups": {group.name: group_portrait(group, times, ties) for group in value.groups()},
        "idmp": producers(value),
    }
    if nodes:
        shown["nodes"] = packed_nodes(value)
    return shown


def entries(stream: Stream) -> list[tuple[tuple[int, int], list[bytes]]]:
    """((ms, seq), [field, value, …]) of every live entry."""
    found = []
    walk = StreamIterator(stream, 0, 0, U64_MAX, U64_MAX)
    while walk.next():
        found.append(((walk.ms, walk.seq), walk.remaining_pieces()))
    return found


def group_portrait(group: Group, times: bool, ties: bool) -> dict[str, Any]:
    """Where the group stands, who is in it, what is pending, in the order of delivery."""
    pending = group.pending
    line: list[tuple[Any, ...]] = []  # (ID, owner or None, time, deliveries)
    slot = pending.first_by_delivery()
    while slot >= 0:
        owner = pending.owner_of(slot)
        line.append(
            (
                (pending.ms_of(slot), pending.seq_of(slot)),
                None if owner is None else owner.name,
                pending.delivery_time_of(slot),
                pending.delivery_count_of(slot),
            )
        )
        slot = pending.next_by_delivery(slot)
    if not ties:  # what was given back keeps its order: that one is not by time
        owned = line[pending.unowned_count :]
        line[pending.unowned_count :] = sorted(owned, key=lambda one: (one[2], one[0]))
    return {
        "last": (group.last_ms, group.last_seq),
        "read": group.entries_read,
        "pending": line,
        "consumers": {
            consumer.name: (consumer.pending_count, consumer.seen_ms, consumer.active_ms)
            if times
            else consumer.pending_count
            for consumer in group.consumers()
        },
    }


def producers(stream: Stream) -> dict[str, Any]:
    """What the stream remembers of idempotent producers; each producer's requests oldest first."""
    memory = stream.idempotency
    shown: dict[str, Any] = {"duration": stream.idmp_duration_s, "maxsize": stream.idmp_maxsize}
    shown["added"] = 0 if memory is None else memory.added_count
    shown["duplicates"] = 0 if memory is None else memory.duplicate_count
    iids: dict[bytes, list[tuple[bytes, tuple[int, int]]]] = {}
    for pid, iid, entry in [] if memory is None else memory.items():
        iids.setdefault(pid, []).append((iid, (entry.ms, entry.seq)))
    shown["iids"] = iids
    return shown


def packed_nodes(stream: Stream) -> list[tuple[bytes, bytes]]:
    """(key, listpack) of every node."""
    found = []
    cursor = RaxCursor(stream.nodes)
    more = cursor.seek("^")
    while more:
        node = node_of_cursor(cursor)
        found.append((cursor.key, node.pack.to_bytes()))
        more = cursor.next()
    return found


def alive(shown: Portrait, now_ms: int) -> Portrait:
    """The portrait without what has died by now_ms: expired keys, and requests older than idmp-duration."""
    left: Portrait = {}
    for place, value in shown.items():
        if 0 <= value["expiry"] <= now_ms:
            continue
        if value["type"] == "stream" and value["idmp"]["iids"]:
            limit = now_ms - 1000 * value["idmp"]["duration"]
            value = value | {"idmp": value["idmp"] | {"iids": _remembered(value["idmp"]["iids"], limit)}}
        left[place] = value
    return left


def _remembered(iids: dict[bytes, list[Any]], limit: int) -> dict[bytes, list[Any]]:
    """As the sweep does it: from the oldest of each producer up to the first that is young enough."""
    left = {}
    for pid, line in iids.items():
        young = next((i for i, (_, (ms, _)) in enumerate(line) if ms > limit or limit < 0), len(line))
        if line[young:]:
            left[pid] = line[young:]
    return left


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two portraits differ, a line each: for the message of a test that fails."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for key in sorted(one.keys() | other.keys(), key=repr)
            for line in differences(one.get(key, "-"), other.get(key, "-"), f"{path}/{key!s}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            line
            for i, pair in enumerate(zip(one, other, strict=True))
            for line in differences(*pair, f"{path}/{i}")
        ]
    return [] if one == other else [f"{path}: {one!r} is not {other!r}"]
