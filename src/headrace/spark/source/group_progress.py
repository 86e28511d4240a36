"""The progress of a query, shown as a consumer group: XINFO GROUPS then tells its lag like any consumer's.

Nothing is read through the group, and nothing is read from it: the checkpoint alone says where a query goes
on. So whatever goes wrong here is a warning, and is not waited for.
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
from headrace.spark.options import Options
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.offsets import START, Offsets, parse_id, sorted_offsets

PENDING_PAGE = 1000
GROUP_ERRORS = (redis.RedisError, HeadraceError, *CONNECTION_ERRORS)

log = logging.getLogger(__name__)


class GroupProgress:
    """The group of the option groupId; without that option nothing happens here.

    A group of Spark's own is set to where the query is, also back if the query was made to begin again. In
    one that others read, too (acknowledgeOnCommit), nothing is taken back, and what they were given and
    Spark has read is acknowledged.
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
        """What the query reads lies after the offsets of the first call; the rest is not its affair."""
        if self._start is None:
            self._start = start

    def reset_stream(self, stream: str) -> None:
        """Forget where the query was in a stream that was recreated: it reads it from the beginning."""
        self._published.pop(stream, None)
        if self._start is not None:
            self._start = self._start | {stream: START}

    def publish(self, offsets: Offsets, create: bool = True) -> None:
        """Every entry up to the offsets is done with. Never raises.

        create: make the group where it is missing. It may be missing because the stream was recreated.
        """
        changed = {s: i for s, i in offsets.items() if self._published.get(s) != i}
        if not self._group or not changed:
            return
        self._published = self._published | changed
        try:
            self._set_groups(self._ahead_of_group(changed) if self._shared else changed, create)
            if self._shared:
                self._acknowledge_range(changed)
        except GROUP_ERRORS as failure:
            self._warn_once(f"The progress is not shown in the group {self._group}: {failure}")

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
        """XGROUP SETID or CREATE. Where the number is not known exactly none is said: no lag is better than a
        false one."""

        def enqueue(pipe: Any, stream: str) -> None:
            number = self._numbers.exact_number(stream, offsets[stream])
            read = ("ENTRIESREAD", number) if number is not None else ()
            pipe.execute_command(
                f"XGROUP {subcommand}", stream_key(stream), self._group, offsets[stream], *read
            )

        return self._servers.request(sorted_offsets(offsets), enqueue)

    def _warn_failed(self, stream: str, reply: object) -> None:
        """Say that a stream refused. One that does not exist, or not yet, has no group to set."""
        if isinstance(reply, Exception) and "key to exist" not in str(reply).lower():
            self._warn_once(f"The group {self._group} of the stream {stream!r} cannot be set: {reply}")

    def _ahead_of_group(self, offsets: Offsets) -> Offsets:
        """The offsets that lie before none which the group has reached already."""
        group = str(self._group).encode()
        ahead = {}
        for stream, found in self._servers.request(
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
        """XACK what is pending in the range that the query has read, of any consumer."""
        lows = {s: (self._start or {}).get(s, START) for s in offsets}
        while lows:
            pages = {s: page for s, page in self._pending_pages(lows, offsets).items() if page}
            self._acknowledge_page(pages)
            lows = {s: page[-1].decode() for s, page in pages.items() if len(page) == PENDING_PAGE}

    def _pending_pages(self, lows: Offsets, highs: Offsets) -> dict[str, list[bytes]]:
        """The first pending entries after the low IDs and up to the high ones."""

        def enqueue(pipe: Any, stream: str) -> None:
            pipe.xpending_range(
                stream_key(stream), self._group, f"({lows[stream]}", highs[stream], PENDING_PAGE
            )

        found = self._servers.request(lows, enqueue)
        return {s: [e["message_id"] for e in page] for s, page in found.items() if isinstance(page, list)}

    def _acknowledge_page(self, pages: Mapping[str, list[bytes]]) -> None:
        replies = self._servers.request(
            pages, lambda pipe, s: pipe.xack(stream_key(s), self._group, *pages[s])
        )
        for stream, reply in replies.items():
            if isinstance(reply, Exception):
                self._warn_once(f"Entries of the stream {stream!r} cannot be acknowledged: {reply}")

    def _warn_once(self, text: str) -> None:
        """Warn, but not of the same in every micro-batch."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)
