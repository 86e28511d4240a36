"""Publish the progress of a query as a consumer group, so that XINFO GROUPS shows its lag.

The query does not read through the group, and does not use its position: a query continues from its
checkpoint only. So errors here are warnings, without retries.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import redis

from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers
from headrace.client.stream_names import stream_key
from headrace.errors import HeadraceError
from headrace.positions.entry_ids import START, parse_id
from headrace.positions.offsets import Offsets, sorted_offsets
from headrace.spark.options import Options
from headrace.spark.source.entry_numbers import EntryNumbers

PENDING_PAGE = 1000
GROUP_ERRORS = (redis.RedisError, HeadraceError, *CONNECTION_ERRORS)

log = logging.getLogger(__name__)


class GroupProgress:
    """The group of the option groupId. Without that option all methods do nothing.

    A group that only Spark uses is set to the position of the query. It is moved back if the query restarts
    at an earlier position.
    A shared group (acknowledgeOnCommit) is never moved back. Its pending entries that Spark has read are
    acknowledged.
    """

    def __init__(self, options: Options, numbers: EntryNumbers) -> None:
        self._group = options.group_id
        self._shared = options.acknowledge_on_commit
        self._servers = Servers(options.url, 0.0)
        self._numbers = numbers
        self._start: Offsets | None = None
        self._published: Offsets = {}
        self._warned: set[str] = set()

    def set_start(self, start: Offsets) -> None:
        """Record where the query starts, at the first call. Earlier pending entries are not acknowledged."""
        if self._start is None:
            self._start = start

    def reset_stream(self, stream: str) -> None:
        """Forget the position in a recreated stream, which is read from its beginning."""
        self._published.pop(stream, None)
        if self._start is not None:
            self._start = self._start | {stream: START}

    def publish(self, offsets: Offsets, create: bool = True) -> None:
        """Set the group to offsets up to which all entries are processed. Errors are logged, not raised.

        Args:
            create: whether to create a missing group. It may be missing because the stream was recreated.
        """
        changed = {s: i for s, i in offsets.items() if self._published.get(s) != i}
        if not self._group or not changed:
            return
        self._published = self._published | changed
        try:
            self._set_groups(self._offsets_after_group(changed) if self._shared else changed, create)
            if self._shared:
                self._acknowledge_range(changed)
        except GROUP_ERRORS as failure:
            self._warn_once(f"The progress cannot be shown in the group {self._group}: {failure}")

    def close(self) -> None:
        """Close the connection."""
        self._servers.close()

    def _set_groups(self, offsets: Offsets, create: bool) -> None:
        """Set the group in each stream."""
        missing = []
        for stream, reply in self._xgroup("SETID", offsets).items():
            if isinstance(reply, redis.ResponseError) and str(reply).startswith("NOGROUP"):
                missing.append(stream)
                self._published.pop(stream, None)
            else:
                self._warn_failed(stream, reply)
        if missing and create:
            self._published |= {s: offsets[s] for s in missing}
            for stream, reply in self._xgroup("CREATE", {s: offsets[s] for s in missing}).items():
                self._warn_failed(stream, reply)

    def _xgroup(self, subcommand: str, offsets: Offsets) -> dict[str, Any]:
        """Send XGROUP SETID or CREATE, with ENTRIESREAD only if exact: no lag is better than a wrong one."""

        def enqueue(pipe: Any, stream: str) -> None:
            number = self._numbers.exact_number(stream, offsets[stream])
            read = ("ENTRIESREAD", number) if number is not None else ()
            pipe.execute_command(
                f"XGROUP {subcommand}", stream_key(stream), self._group, offsets[stream], *read
            )

        return self._servers.request_each(sorted_offsets(offsets), enqueue)

    def _warn_failed(self, stream: str, reply: object) -> None:
        """Warn about an error reply, except for a stream that does not exist (yet)."""
        if isinstance(reply, Exception) and "key to exist" not in str(reply).lower():
            self._warn_once(f"The group {self._group} of the stream {stream!r} cannot be set: {reply}")

    def _offsets_after_group(self, offsets: Offsets) -> Offsets:
        """Return the offsets that are after the group's last-delivered-id."""
        group = str(self._group).encode()
        ahead = {}
        for stream, found in self._servers.request_each(
            offsets, lambda pipe, s: pipe.xinfo_groups(stream_key(s))
        ).items():
            reached = START
            if not isinstance(found, Exception):
                mine = [each["last-delivered-id"] for each in found if each["name"] == group]
                reached = mine[0].decode() if mine else START
            if reached == START or parse_id(offsets[stream]) > parse_id(reached):
                ahead[stream] = offsets[stream]
        return ahead

    def _acknowledge_range(self, offsets: Offsets) -> None:
        """Acknowledge the pending entries of all consumers in the range that the query has read."""
        lows = {s: (self._start or {}).get(s, START) for s in offsets}
        while lows:
            pages = {s: page for s, page in self._pending_pages(lows, offsets).items() if page}
            self._acknowledge_page(pages)
            lows = {s: page[-1].decode() for s, page in pages.items() if len(page) == PENDING_PAGE}

    def _pending_pages(self, lows: Offsets, highs: Offsets) -> dict[str, list[bytes]]:
        """Return the first pending entries after the low IDs and up to the high ones."""

        def enqueue(pipe: Any, stream: str) -> None:
            pipe.xpending_range(
                stream_key(stream), self._group, f"({lows[stream]}", highs[stream], PENDING_PAGE
            )

        found = self._servers.request_each(lows, enqueue)
        return {s: [e["message_id"] for e in page] for s, page in found.items() if isinstance(page, list)}

    def _acknowledge_page(self, pages: Mapping[str, list[bytes]]) -> None:
        replies = self._servers.request_each(
            pages, lambda pipe, s: pipe.xack(stream_key(s), self._group, *pages[s])
        )
        for stream, reply in replies.items():
            if isinstance(reply, Exception):
                self._warn_once(f"Entries of the stream {stream!r} cannot be acknowledged: {reply}")

    def _warn_once(self, text: str) -> None:
        """Log a warning, the same text only once."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)
