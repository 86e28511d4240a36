"""The progress of a query, shown as a consumer group: XINFO GROUPS then tells its lag like any consumer's.

Nothing is read through the group, and nothing is read from it: the checkpoint alone says where a query goes
on. So whatever goes wrong here is a warning, and is not waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import redis

from headrace.errors import HeadraceError
from headrace.spark.options import Options
from headrace.spark.servers import CONNECTION_ERRORS, Servers
from headrace.spark.source.entry_numbers import EntryNumbers
from headrace.spark.source.offsets import START, Offsets, in_order, parse_id
from headrace.spark.stream_names import key

PENDING_PAGE = 1000
CANNOT = (redis.RedisError, HeadraceError, *CONNECTION_ERRORS)

log = logging.getLogger(__name__)


class GroupProgress:
    """The group of the option groupId; without that option nothing happens here.

    A group of Spark's own is set to where the query is, also back if the query was made to begin anew. In one
    that others read, too (acknowledgeOnCommit), nothing is taken back, and what they were given and Spark has
    read is acknowledged.
    """

    def __init__(self, options: Options, numbers: EntryNumbers) -> None:
        self._group = options.group_id
        self._shared = options.acknowledge_on_commit
        self._servers = Servers(options.url, 0.0)
        self._numbers = numbers
        self._begin: Offsets | None = None
        self._shown: Offsets = {}
        self._said: set[str] = set()

    def begin(self, start: Offsets) -> None:
        """What the query reads lies after the offsets of the first call; the rest is not its affair."""
        if self._begin is None:
            self._begin = start

    def restart(self, stream: str) -> None:
        """Forget where the query was in a stream that was recreated: it reads it from the beginning."""
        self._shown.pop(stream, None)
        if self._begin is not None:
            self._begin = self._begin | {stream: START}

    def follow(self, offsets: Offsets, create: bool = True) -> None:
        """Every entry up to the offsets is done with. Never raises.

        create: make the group where it is missing. It may be missing because the stream was recreated.
        """
        news = {s: i for s, i in offsets.items() if self._shown.get(s) != i}
        if not self._group or not news:
            return
        self._shown = self._shown | news
        try:
            self._move(self._ahead(news) if self._shared else news, create)
            if self._shared:
                self._acknowledge(news)
        except CANNOT as failure:
            self._say(f"The progress is not shown in the group {self._group}: {failure}")

    def close(self) -> None:
        """Close the connection."""
        self._servers.close()

    def _move(self, news: Offsets, create: bool) -> None:
        """Set the group in each stream."""
        missing = []
        for stream, answer in self._set("SETID", news).items():
            if isinstance(answer, redis.ResponseError) and str(answer).startswith("NOGROUP"):
                missing.append(stream)
                self._shown.pop(stream, None)
            else:
                self._warn(stream, answer)
        if missing and create:
            self._shown |= {s: news[s] for s in missing}
            for stream, answer in self._set("CREATE", {s: news[s] for s in missing}).items():
                self._warn(stream, answer)

    def _set(self, word: str, news: Offsets) -> dict[str, Any]:
        """XGROUP SETID or CREATE. Where the number is not known exactly none is said: no lag is better than a
        false one."""

        def put(pipe: Any, stream: str) -> None:
            number = self._numbers.exact(stream, news[stream])
            read = ("ENTRIESREAD", number) if number is not None else ()
            pipe.execute_command(f"XGROUP {word}", key(stream), self._group, news[stream], *read)

        return self._servers.ask(in_order(news), put)

    def _warn(self, stream: str, answer: object) -> None:
        """Say that a stream refused. One that does not exist, or not yet, has no group to set."""
        if isinstance(answer, Exception) and "key to exist" not in str(answer).lower():
            self._say(f"The group {self._group} of the stream {stream!r} cannot be set: {answer}")

    def _ahead(self, news: Offsets) -> Offsets:
        """The offsets that lie before none which the group has reached already."""
        group = str(self._group).encode()
        ahead = {}
        for stream, found in self._servers.ask(news, lambda pipe, s: pipe.xinfo_groups(key(s))).items():
            reached = START
            if not isinstance(found, Exception):
                mine = [each["last-delivered-id"] for each in found if each["name"] == group]
                reached = mine[0].decode() if mine else START
            if reached == START or parse_id(news[stream]) > parse_id(reached):
                ahead[stream] = news[stream]
        return ahead

    def _acknowledge(self, news: Offsets) -> None:
        """XACK what is pending in the range that the query has read, whoever was given it."""
        lows = {s: (self._begin or {}).get(s, START) for s in news}
        while lows:
            pages = {s: page for s, page in self._pending(lows, news).items() if page}
            self._acknowledge_page(pages)
            lows = {s: page[-1].decode() for s, page in pages.items() if len(page) == PENDING_PAGE}

    def _pending(self, lows: Offsets, highs: Offsets) -> dict[str, list[bytes]]:
        """The first pending entries after the low IDs and up to the high ones."""

        def put(pipe: Any, stream: str) -> None:
            pipe.xpending_range(key(stream), self._group, f"({lows[stream]}", highs[stream], PENDING_PAGE)

        found = self._servers.ask(lows, put)
        return {s: [e["message_id"] for e in page] for s, page in found.items() if isinstance(page, list)}

    def _acknowledge_page(self, pages: Mapping[str, list[bytes]]) -> None:
        answers = self._servers.ask(pages, lambda pipe, s: pipe.xack(key(s), self._group, *pages[s]))
        for stream, answer in answers.items():
            if isinstance(answer, Exception):
                self._say(f"Entries of the stream {stream!r} cannot be acknowledged: {answer}")

    def _say(self, text: str) -> None:
        """Warn, but not of the same in every micro-batch."""
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)
