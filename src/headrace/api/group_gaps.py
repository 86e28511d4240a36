"""Detect entries that were removed before a consumer group has read them.

A Headrace server counts them for each group (`lost-unread`). Other servers count the entries that were ever
added, and those that a group has read, from Redis 7 on:

    group at 4-0, 4 entries read     XTRIM MINID 990-0     first entry 990-0, 989 entries removed
                                                           →  985 are missing after 4-0

When a group has passed removed entries, servers differ. Redis 7.0 and 7.2 do not count them as read. Then
they stay missing for as long as the group exists, and are reported once. Later versions count them as read.
Then they are found only if the group has one consumer: more entries count as read than it has received.

A check is one XINFO STREAM and one XINFO GROUPS, sent with a read of new entries: once a second, or with
each read if gaps are raised. XINFO GROUPS lists all groups of the stream, so checks are rarer if it has many.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from headrace.api import stream_gaps
from headrace.api.info import GroupInfo, dict_from_reply
from headrace.api.stream_gaps import OnGap, StreamGap, checked_on_gap
from headrace.api.stream_id import StreamID, id_from_reply
from headrace.client.stream_info import first_entry_id
from headrace.errors import AccessDenied

log = logging.getLogger("headrace.consumer")

GROUPS_PER_SECOND = 100  # whose states one consumer reads
DENIED_CHECK_SLOWDOWN = 60.0  # of the checks if the user may not send them


@dataclass(frozen=True, slots=True)
class GroupState:
    """What the server says about a group and its stream.

    Attributes:
        position: the ID of the last entry that the group has read.
        entries_read: how many entries up to the position it has read; None if unknown.
        is_entries_read_reported: whether the server reports `entries_read`.
        lag: how many entries are after the position; None if unknown.
        lost_unread: how many entries were removed before it has read them; None if the server does not
            count them, or there are none.
        has_at_most_one_consumer: whether the group has at most one consumer.
        entries_added: how many entries were ever added to the stream.
        length: the number of entries in the stream.
        first_id: the ID of the first entry; last_id if the stream is empty.
        last_id: the last ID.
    """

    position: StreamID
    entries_read: int | None
    is_entries_read_reported: bool
    lag: int | None
    lost_unread: int | None
    has_at_most_one_consumer: bool
    entries_added: int
    length: int
    first_id: StreamID
    last_id: StreamID

    @classmethod
    def from_replies(cls, about: Any, groups: Any, group: bytes) -> GroupState | None:
        """Build from the replies of XINFO STREAM and XINFO GROUPS.

        Returns:
            The state; None if a reply is an error, there is no such group, or the server does not
                count added entries.
        """
        if not (isinstance(about, list) and isinstance(groups, list)):
            return None
        row = next((row for row in groups if row[1] == group), None)
        stream = dict_from_reply(about)
        if row is None or stream.get("entries-added") is None:
            return None
        info = GroupInfo.from_reply(row)
        last = id_from_reply(stream["last-generated-id"])
        first = first_entry_id(stream)
        return cls(
            info.last_delivered_id,
            info.entries_read,
            info.entries_read is not None,
            info.lag,
            info.raw.get("lost-unread"),
            info.consumers <= 1,
            stream["entries-added"],
            stream["length"],
            id_from_reply(first) if first else last,
            last,
        )

    @property
    def removed_count(self) -> int:
        """How many of the entries ever added do not exist any more."""
        return self.entries_added - self.length

    @property
    def is_before_first(self) -> bool:
        """Whether the group has read only removed entries, and not yet up to the last ID."""
        return self.position < self.first_id or (not self.length and self.position < self.last_id)

    def with_derived_entries_read(self, before: GroupState | None) -> GroupState:
        """Return the state with `entries_read` filled in, if it can be derived.

        Servers do not report `entries_read` before the group has read an entry. In that case entries that
        were removed before the first check do not count as missing.
        """
        if self.entries_read is not None:
            return self
        if before is not None and before.position == self.position:
            return replace(self, entries_read=before.entries_read)
        if self.position >= self.last_id:
            return replace(self, entries_read=self.entries_added)
        return replace(self, entries_read=self.removed_count) if self.is_before_first else self

    @property
    def unread_passed_count(self) -> int | None:
        """How many added entries the group has passed without reading them; None if unknown.

        The number is known if the group is at the end of the stream or before its first entry.
        """
        if self.entries_read is None:
            return None
        if self.position >= self.last_id:
            return self.entries_added - self.entries_read
        return self.removed_count - self.entries_read if self.is_before_first else None


class GroupGapWatch:
    """Detects gaps in what a group reads, on behalf of one of its consumers."""

    def __init__(self, name: str = "", on_gap: OnGap = "warn") -> None:
        """Create a watch; `name` begins its log lines."""
        self.found_gaps: list[StreamGap] = []
        self.raises_gaps = checked_on_gap(on_gap) == "raise"
        self._name = name
        self._next_check_ms = 0
        self._slowdown = 1.0  # of the checks
        self._state: GroupState | None = None  # at the last check
        self._unaccounted = 0  # entries that were found missing, and that the server still does not count
        self.server_counts_lost_entries = (
            False  # whether the server is known to count what a group has lost: Headrace
        )
        self._accounted = StreamID.MIN  # the position when that was known
        self._counts_passed = False  # whether the server counts missing entries as read when they are passed
        self._delivered = 0  # new entries that this consumer has got since then
        self._last_delivered_id: bytes | None = None  # the ID of the last of them
        self._knows_deliveries = False  # whether these are all that it has got

    def is_due(self, now: int) -> bool:
        """Return whether to check at this time, in milliseconds."""
        return self.raises_gaps or now >= self._next_check_ms

    @property
    def has_unchecked_deliveries(self) -> bool:
        """Whether entries were delivered since the last check."""
        return self._delivered > 0

    def record_deliveries(self, count: int, last: bytes) -> None:
        """Record that `count` new entries were delivered to the consumer, and the ID of the last one."""
        if count:
            self._delivered += count
            self._last_delivered_id = last

    def forget_deliveries(self) -> None:
        """Record that a reply was lost, so more entries may have been delivered than were recorded."""
        self._knows_deliveries = False

    def schedule_next_check(self, now: int) -> None:
        """Set the time of the next check."""
        self._next_check_ms = now + round(stream_gaps.CHECK_INTERVAL_S * self._slowdown * 1000)

    def find_gap(self, about: Any, groups: Any, group: bytes) -> StreamGap | AccessDenied | None:
        """Return the gap that replies of XINFO STREAM and XINFO GROUPS reveal, and log it; None if none.

        If the user may not send one of these commands, gaps cannot be found; AccessDenied is returned, not
        raised.
        """
        for reply in (about, groups):
            if isinstance(reply, AccessDenied):
                if self._slowdown != DENIED_CHECK_SLOWDOWN:
                    log.warning("%s: entries that are removed unread are not counted: %s", self._name, reply)
                self._slowdown = DENIED_CHECK_SLOWDOWN
                return reply
        state = GroupState.from_replies(about, groups, group)
        if state is None:
            return None
        self._slowdown = max(1.0, len(groups) / GROUPS_PER_SECOND)
        before = self._state
        if before is not None and (
            state.entries_added < before.entries_added or state.position < before.position
        ):
            before, self._unaccounted = None, 0  # recreated, or set back
        state = state.with_derived_entries_read(before)
        missing = self._new_missing_count(before, state)
        self._state, self._delivered, self._last_delivered_id, self._knows_deliveries = state, 0, None, True
        if missing <= 0:
            return None
        after = state.position if before is None else before.position
        following = state.first_id if state.first_id > after else max(state.position, after)
        gap = StreamGap(after, following, missing)
        self.found_gaps.append(gap)
        log.warning("%s: %s", self._name, gap)
        return gap

    def _new_missing_count(self, before: GroupState | None, state: GroupState) -> int:
        """Return how many entries are missing that were not found to be missing before."""
        unaccounted = state.unread_passed_count
        self.server_counts_lost_entries = self.server_counts_lost_entries or state.lost_unread is not None
        if self.server_counts_lost_entries:
            lost = state.lost_unread or 0
            if before is not None:
                return lost - (before.lost_unread or 0)
            if state.position == StreamID.MIN:
                return lost  # it has read nothing, so it has not passed any
            return min(lost, unaccounted or 0) if state.is_before_first else 0
        if before is None:
            self._unaccounted, self._accounted = max(0, unaccounted or 0), state.position
            return self._unaccounted if state.is_before_first else 0
        passed = self._passed_as_read_count(before, state)
        has_passed = self._counts_passed and state.position > before.position
        if has_passed or (state.is_entries_read_reported and not before.is_entries_read_reported):
            self._unaccounted = 0
        if unaccounted is None:
            return passed
        if unaccounted > 0 and state.is_before_first and state.is_entries_read_reported:
            self._counts_passed = state.lag == state.length
        new = max(0, unaccounted - self._unaccounted) if state.first_id > self._accounted else 0
        self._unaccounted, self._accounted = max(0, unaccounted), state.position
        return passed + new

    def _passed_as_read_count(self, before: GroupState, state: GroupState) -> int:
        """Return how many entries the group has passed since the last check that were counted as read.

        It is known only if this consumer has got all entries that the group has read since then.
        """
        is_own = state.position == before.position
        if self._last_delivered_id is not None:
            is_own = state.position == id_from_reply(self._last_delivered_id)
        is_known = (
            self._knows_deliveries
            and is_own
            and before.has_at_most_one_consumer
            and state.has_at_most_one_consumer
        )
        if (
            not is_known
            or before.entries_read is None
            or state.entries_read is None
            or state.first_id <= before.position
        ):
            return 0
        passed = state.entries_read - before.entries_read - self._delivered
        if before.is_before_first:
            passed -= self._unaccounted  # they were found missing at that check
        return passed if 0 < passed <= state.removed_count - before.removed_count else 0
