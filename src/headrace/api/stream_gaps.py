"""Detect entries that were removed before a follower of a stream has read them.

A stream counts the entries ever added. While a follower is before the first entry, or has read all, the
number up to its position is known: entries added minus those that are left to read. If that number has grown
by more than the follower has read, the others were removed.

    position 4-0, 4 entries up to it     XTRIM MINID 990-0     first entry 990-0, 989 entries before it
                                                               →  985 are missing after 4-0

A check is one XINFO STREAM. A follower that raises gaps checks after each read, before it returns entries.
Any other one checks once a second while it reads, a second after its last entry, and when it is stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from headrace.api.stream_id import StreamID, id_from_reply
from headrace.client.stream_info import first_entry_id
from headrace.errors import HeadraceError, UsageError
from headrace.plurals import plural

log = logging.getLogger("headrace.stream")

CHECK_INTERVAL_S = 1.0

OnGap: TypeAlias = Literal["warn", "raise"]  # what is done about entries that were missed


def checked_on_gap(on_gap: OnGap) -> OnGap:
    """Return the argument. Raises UsageError if it is not valid."""
    if on_gap not in ("warn", "raise"):
        raise UsageError(f'on_gap={on_gap!r}: must be "warn" or "raise"')
    return on_gap


class StreamGap(HeadraceError):
    """Entries that were removed before a follower, or the group of a consumer, has read them.

    Followers and consumers collect them in their attribute `gaps`, or raise them: `on_gap="raise"`.

    Attributes:
        after: an ID before these entries: the position at the previous check for gaps, or at the first one.
        before: the ID of the next entry, or the last ID of an empty stream. If a group has read entries
            since the removal, it may be the ID of a later entry.
        missing: how many entries were removed; None: unknown, perhaps none.
    """

    after: StreamID
    before: StreamID
    missing: int | None

    def __init__(self, after: StreamID, before: StreamID, missing: int | None) -> None:
        super().__init__(after, before, missing)
        self.after = after
        self.before = before
        self.missing = missing

    def __str__(self) -> str:
        if self.missing is None:
            return f"entries between {self.after} and {self.before} may have been removed unread"
        count = plural(self.missing, "entry")
        return f"{count} removed before they were read, between {self.after} and {self.before}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamGap) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)


class GapWatch:
    """Detects gaps in what one follower reads."""

    def __init__(self, name: str, after: StreamID | None = None, on_gap: OnGap = "warn") -> None:
        """Create a watch for a follower of the stream `name` that has read up to `after`.

        after: None if set_start() sets it later, to the end of the stream.
        on_gap: with "raise", raise_found() raises gaps.
        """
        self.found_gaps: list[StreamGap] = []
        self.raises_gaps = checked_on_gap(on_gap) == "raise"
        self._name = name
        self._position = self._gapless_position = StreamID.MIN if after is None else after
        self._count: int | None = None  # entries ever added up to the position
        self._next_check = 0.0
        self._checked: StreamID | None = None  # the position at the last check

    def set_start(self, after: StreamID) -> None:
        """Set the position of a follower that has read nothing."""
        self._position = self._gapless_position = after

    @property
    def must_raise(self) -> bool:
        """Whether gaps are to be raised, and there is one."""
        return self.raises_gaps and bool(self.found_gaps)

    def raise_found(self) -> None:
        """Raise the last gap, if gaps are to be raised and there is one."""
        if self.must_raise:
            raise self.found_gaps[-1]

    def is_due(self) -> bool:
        """Return whether to call find_gap() before the next read."""
        return time.monotonic() >= self._next_check

    @property
    def has_unchecked_entries(self) -> bool:
        """Whether the follower has read entries since the last check, or was never checked."""
        return self._checked is not self._position

    def seconds_until_due(self) -> float | None:
        """Return how many seconds to wait for an entry before find_gap() is called; None: no check is due."""
        if not self.has_unchecked_entries:
            return None
        return max(0.0, self._next_check - time.monotonic())

    def record_read(self, entry: StreamID) -> None:
        """Record that the follower has read an entry."""
        self._position = entry
        if self._count is not None:
            self._count += 1

    def schedule_next_check(self) -> None:
        """Set the time of the next check, because there is no information about the stream."""
        self._next_check = time.monotonic() + CHECK_INTERVAL_S
        self._checked = self._position

    def find_gap(self, info: dict[str, Any], unread: Sequence[Any] = ()) -> StreamGap | None:
        """Return the gap that a reply of XINFO STREAM reveals, and log it; None if there is none.

        unread: the entries after the position, as in a reply, if they were read before `info`.
        """
        self.schedule_next_check()
        added = info.get("entries-added")
        if added is None:
            return None  # before Redis 7
        last = id_from_reply(info["last-generated-id"])
        first_id = first_entry_id(info)
        first = id_from_reply(first_id) if first_id else last
        if self._position >= last:
            count = added
        elif first > self._position:
            count = added - info["length"] - count_entries_before(first, unread)
        else:
            return None
        following = first if not unread else min(first, id_from_reply(unread[0][0]))
        gap: StreamGap | None = None
        if self._count is not None and count > self._count:
            gap = StreamGap(self._gapless_position, following, count - self._count)
        elif self._count is None and StreamID.MIN < self._position < following and added > info["length"]:
            gap = StreamGap(self._position, following, None)
        self._count, self._gapless_position = count, self._position
        if gap is not None:
            self.found_gaps.append(gap)
            log.warning("stream %s: %s", self._name, gap)
        return gap


def count_entries_before(first: StreamID, entries: Sequence[Any]) -> int:
    """Return how many of the entries of a reply were removed since: those before the stream's first one."""
    if not entries or id_from_reply(entries[0][0]) >= first:
        return 0
    return sum(id_from_reply(entry[0]) < first for entry in entries)
