"""How far a stream may be trimmed, and who holds the rest: the archive, its groups, what is to be kept.

    1-0  2-0  3-0  4-0  5-0  6-0  7-0  8-0  9-0          the stream
    ├──────────────────────────────►|                    archived up to 7-0
    ├────────────────────►|                              group mail has read up to 5-0
    ├────────────►|                                      group billing: oldest pending 3-0
    trimmed       ^ the floor: this entry and all after it stay

The lowest hold is the floor. The entry on it stays, although it may be archived and acknowledged: an archive,
or a Spark query that goes by the group, finds by that entry being there that nothing after it was lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import redis

from headrace.pipeline.durations import duration
from headrace.spark.source.history import Sight, difference
from headrace.spark.source.offsets import Id, format_id, parse_id
from headrace.spark.source.positions import Position, fingerprint_of
from headrace.spark.source.stream_state import Tail, tail_of

PAGE = 1000


@dataclass(frozen=True)
class Wishes:
    """What else is to stay: the newest entries, those of the last milliseconds; whether groups are needed."""

    keep: int = 0
    keep_ms: int = 0
    no_groups_ok: bool = False


@dataclass(frozen=True)
class Hold:
    """Who needs the entries from an ID on, in words. An ID of None: nothing may be removed at all."""

    id: Id | None
    why: str


@dataclass(frozen=True)
class Floor:
    """A look at a stream: how many entries it has, who holds it (lowest first), its last archived entry."""

    length: int
    holds: tuple[Hold, ...]
    archived: Id | None

    @property
    def id(self) -> Id | None:
        """The first entry that must stay; None when all must."""
        return self.holds[0].id

    @property
    def whys(self) -> tuple[str, ...]:
        """Who holds the stream, the reason to stop here first."""
        return tuple(hold.why for hold in self.holds)


def look(
    client: Any,
    stream: str | bytes,
    archived: Id | None,
    wishes: Wishes,
    position: Position | None = None,
) -> Floor:
    """The stream's floor now; `archived`: the last ID archived. ResponseError if there is no stream.

    position: the same place with what identifies the stream that was archived, if that is known.
    """
    # The entry is asked for before the tail, which then tells whether it was deleted.
    entries = client.xrange(stream, position.id, position.id, 1) if position else []
    tail = tail_of(client.xinfo_stream(stream))
    groups = client.xinfo_groups(stream)
    sight = Sight(tail, fingerprint_of(entries[0][1]) if entries else None)
    why = difference(position, sight) if position and position.is_marked else None
    if why is not None and position is not None:
        other = f"what is archived up to {position.id} is of an earlier stream of this name: {why}"
        holds = [Hold(None, f"{other}; archive it again first")]
    else:
        holds = [archive_hold(client, stream, tail, archived)]
    if not groups and not wishes.no_groups_ok:
        holds.append(Hold(None, "it has no consumer group (--no-groups-ok trims it by the archive alone)"))
    for group in groups:
        holds += group_holds(client, stream, group)
    holds += wished_holds(client, stream, wishes)
    holds.sort(key=lambda hold: hold.id or (-1, 0))
    return Floor(tail.length, tuple(holds), archived)


def archive_hold(client: Any, stream: str | bytes, tail: Tail, archived: Id | None) -> Hold:
    """What the archive says; it says nothing about a stream in which its last entry is not to be found."""
    if archived is None:
        return Hold(None, "nothing of it is archived (headrace archive)")
    said = format_id(archived)
    passed = tail.first is None or parse_id(tail.first) > archived
    if parse_id(tail.last) < archived or not (passed or client.xrange(stream, said, said)):
        gone = f"entry {said}, the last one archived, is not there: it was deleted, or the stream made anew"
        return Hold(None, f"{gone}; archive it again first")
    return Hold(archived, f"archived up to {said}")


def group_holds(client: Any, stream: str | bytes, group: dict[str, Any]) -> list[Hold]:
    """What one group has not read, and what it has not acknowledged."""
    name = text(group["name"])
    last = text(group["last-delivered-id"])
    lag = group.get("lag")
    behind = f", {lag:,} entries behind" if lag else ""
    holds = [Hold(parse_id(last), f"group {name} has read up to {last}{behind}")]
    # A group's count of pending entries comes with the rest; which one is the oldest is another question.
    oldest = oldest_pending(client, stream, group["name"]) if group["pending"] else []
    if oldest:
        entry = oldest[0]
        first = text(entry["message_id"])
        owner = text(entry["consumer"])
        since = duration(int(entry["time_since_delivered"]))
        held = f"held by {owner} for {since}" if owner else "given back, and nobody has it"
        holds.append(
            Hold(parse_id(first), f"group {name}: {group['pending']:,} pending, oldest {first} {held}")
        )
    return holds


def oldest_pending(client: Any, stream: str | bytes, group: bytes | str) -> list[dict[str, Any]]:
    """The group's first pending entry, if there is one; none of a group that was destroyed a moment ago."""
    try:
        found: list[dict[str, Any]] = client.xpending_range(stream, group, "-", "+", 1)
        return found
    except redis.ResponseError as error:
        if str(error).startswith("NOGROUP"):
            return []
        raise


def wished_holds(client: Any, stream: str | bytes, wishes: Wishes) -> list[Hold]:
    """What is to be kept by wish."""
    holds = []
    if wishes.keep:
        first = newest(client, stream, wishes.keep)
        holds.append(Hold(first or (0, 0), f"the newest {wishes.keep:,} entries are kept"))
    if wishes.keep_ms:
        begin = max(0, int(time.time() * 1000) - wishes.keep_ms)
        holds.append(Hold((begin, 0), f"entries of the last {duration(wishes.keep_ms)} are kept"))
    return holds


def newest(client: Any, stream: str | bytes, count: int) -> Id | None:
    """The first ID of the so many newest entries; None if the stream has no more than these."""
    end = "+"
    while True:
        page = client.xrevrange(stream, end, "-", min(count, PAGE))
        if not page:
            return None
        last = text(page[-1][0])
        count -= len(page)
        if count == 0:
            return parse_id(last)
        end = f"({last}"


def text(value: bytes | str) -> str:
    """A name as it can be shown."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
