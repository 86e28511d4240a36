"""The trim horizon of a stream: the first entry that must stay, and why: archive, groups, retention.

    1-0  2-0  3-0  4-0  5-0  6-0  7-0  8-0  9-0          the stream
    ├──────────────────────────────►|                    archived up to 7-0 in one archive
    ├───────────────────────────────────►|               and up to 8-0 in another one
    ├────────────────────►|                              group mail has read up to 5-0
    ├────────────►|                                      group billing: oldest pending 3-0
    trimmed       ^ the horizon: this entry and all after it stay

Each blocker is an ID from which on entries must stay; the lowest one is the horizon. The entry at the horizon
stays even if it is archived and acknowledged. Its presence shows an archive job, or a Spark query with a
groupId, that no later entry was lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from headrace.archive.watermark import UNKNOWN_ARCHIVE_NAME, Watermark
from headrace.fingerprint import entry_fingerprint
from headrace.pipeline.shared.durations import format_duration
from headrace.plurals import plural
from headrace.positions.entry_ids import EntryId, parse_id
from headrace.positions.recreation import StreamObservation, identity_mismatch_reason
from headrace.positions.stream_state import parse_stream_state

PAGE_ENTRIES = 1000


@dataclass(frozen=True)
class RetentionPolicy:
    """Entries to keep in addition to those that are not archived or not acknowledged.

    Attributes:
        keep_entries: The number of newest entries to keep.
        keep_ms: The age in milliseconds up to which entries are kept.
        allow_no_groups: Whether to trim a stream that has no consumer group.
    """

    keep_entries: int = 0
    keep_ms: int = 0
    allow_no_groups: bool = False


@dataclass(frozen=True)
class TrimBlocker:
    """A reason why entries must stay.

    Attributes:
        first_kept_id: The first entry that must stay; None if no entry may be removed.
        reason: The reason in words.
    """

    first_kept_id: EntryId | None
    reason: str


@dataclass(frozen=True)
class TrimHorizon:
    """How far a stream may be trimmed, at one moment.

    Attributes:
        length: Entries in the stream.
        blockers: The reasons why entries must stay, lowest ID first.
        archived_through: The last ID that all archives have; None if there is no archive.
    """

    length: int
    blockers: tuple[TrimBlocker, ...]
    archived_through: EntryId | None

    @property
    def first_kept_id(self) -> EntryId | None:
        """The first entry that must stay; None if no entry may be removed."""
        return self.blockers[0].first_kept_id

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons in words; the first one determines the horizon."""
        return tuple(blocker.reason for blocker in self.blockers)


def find_trim_horizon(
    client: Any, stream: str | bytes, watermarks: Sequence[Watermark], retention: RetentionPolicy
) -> TrimHorizon:
    """Return the stream's trim horizon now.

    Args:
        client: A client of redis-py.
        stream: The stream's key.
        watermarks: Up to which position each archive has the stream.
        retention: Entries to keep in addition.

    Raises:
        redis.ResponseError: if there is no such stream.
    """
    # The entries are read before the stream's state, which then shows whether one was deleted.
    entries = [client.xrange(stream, each.position.id, each.position.id, 1) for each in watermarks]
    tail = parse_stream_state(client.xinfo_stream(stream))
    groups = client.xinfo_groups(stream)
    blockers = [
        archive_blocker(
            client, stream, StreamObservation(tail, entry_fingerprint(found[0][1]) if found else None), each
        )
        for each, found in zip(watermarks, entries, strict=True)
    ] or [TrimBlocker(None, "the stream is not archived (run headrace archive first)")]
    if not groups and not retention.allow_no_groups:
        blockers.append(
            TrimBlocker(None, "the stream has no consumer group (--no-groups-ok trims what is archived)")
        )
    for group in groups:
        blockers += group_blockers(client, stream, group)
    blockers += retention_blockers(client, stream, retention)
    blockers.sort(key=lambda blocker: blocker.first_kept_id or (-1, 0))
    archived = min((parse_id(each.position.id) for each in watermarks), default=None)
    return TrimHorizon(tail.length, tuple(blockers), archived)


def archive_blocker(
    client: Any, stream: str | bytes, observed: StreamObservation, watermark: Watermark
) -> TrimBlocker:
    """Return an archive's blocker: the last archived entry, or all entries if trimming is not safe.

    Trimming is not safe if the archive has no entry of the stream, or has an earlier stream of that name, or
    if its last entry was deleted from the stream.
    """
    position, tail = watermark.position, observed.state
    if not watermark.table_id:
        return TrimBlocker(
            None,
            f"an earlier version published that the stream is archived up to {position.id}, but not where: "
            "run headrace archive for each of its archives, then headrace trim --release "
            f"{UNKNOWN_ARCHIVE_NAME}",
        )
    if not watermark.has_entries:
        reason = f"{watermark.archive_name} has no entry of the stream yet"
        return TrimBlocker(
            None, f"{reason}; run headrace archive, or release it with headrace trim --release"
        )
    mismatch = identity_mismatch_reason(position, observed) if position.has_identity else None
    if mismatch is not None:
        other = f"{watermark.archive_name} has an earlier stream of this name up to {position.id}: {mismatch}"
        return TrimBlocker(None, f"{other}; archive the stream there first, or release the archive")
    archived = parse_id(position.id)
    passed = tail.first_id is None or parse_id(tail.first_id) > archived
    if parse_id(tail.last_id) < archived or not (passed or client.xrange(stream, position.id, position.id)):
        missing = f"the last entry in {watermark.archive_name}, {position.id}, is not in the stream"
        return TrimBlocker(None, f"{missing}: it or the stream was deleted; archive the stream first")
    return TrimBlocker(archived, f"archived up to {position.id} in {watermark.archive_name}")


def group_blockers(client: Any, stream: str | bytes, group: dict[str, Any]) -> list[TrimBlocker]:
    """Return the blockers of a group: its last delivered entry, and its oldest pending one."""
    name = printable_name(group["name"])
    last = printable_name(group["last-delivered-id"])
    lag = group.get("lag")
    behind = f", {plural(lag, 'entry')} behind" if lag else ""
    blockers = [TrimBlocker(parse_id(last), f"group {name} has read up to {last}{behind}")]
    # XINFO GROUPS returns the count of pending entries; the oldest one needs another request.
    oldest = oldest_pending_or_empty(client, stream, group["name"]) if group["pending"] else []
    if oldest:
        entry = oldest[0]
        first = printable_name(entry["message_id"])
        owner = printable_name(entry["consumer"])
        since = format_duration(int(entry["time_since_delivered"]))
        state = f"held by {owner} for {since}" if owner else "released and not claimed"
        blockers.append(
            TrimBlocker(
                parse_id(first), f"group {name}: {group['pending']:,} pending, oldest {first} {state}"
            )
        )
    return blockers


def oldest_pending_or_empty(client: Any, stream: str | bytes, group: bytes | str) -> list[dict[str, Any]]:
    """Return the group's first pending entry, if any; an empty list if the group was destroyed meanwhile."""
    try:
        found: list[dict[str, Any]] = client.xpending_range(stream, group, "-", "+", 1)
        return found
    except redis.ResponseError as error:
        if str(error).startswith("NOGROUP"):
            return []
        raise


def retention_blockers(client: Any, stream: str | bytes, retention: RetentionPolicy) -> list[TrimBlocker]:
    """Return the blockers of the retention policy."""
    blockers = []
    if retention.keep_entries:
        first = id_of_nth_newest(client, stream, retention.keep_entries)
        count = retention.keep_entries
        kept = "the newest entry is kept" if count == 1 else f"the newest {count:,} entries are kept"
        blockers.append(TrimBlocker(first or (0, 0), kept))
    if retention.keep_ms:
        begin = max(0, int(time.time() * 1000) - retention.keep_ms)
        blockers.append(
            TrimBlocker((begin, 0), f"entries of the last {format_duration(retention.keep_ms)} are kept")
        )
    return blockers


def id_of_nth_newest(client: Any, stream: str | bytes, count: int) -> EntryId | None:
    """Return the ID of the count-th newest entry; None if the stream has fewer entries."""
    end = "+"
    while True:
        page = client.xrevrange(stream, end, "-", min(count, PAGE_ENTRIES))
        if not page:
            return None
        last = printable_name(page[-1][0])
        count -= len(page)
        if count == 0:
            return parse_id(last)
        end = f"({last}"


def printable_name(value: bytes | str) -> str:
    """Return a name as text; bytes that are not UTF-8 are replaced."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
