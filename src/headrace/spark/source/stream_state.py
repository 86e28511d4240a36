"""Where streams end, and the numbers of their entries: what XINFO STREAM tells, of many streams at once.

The n-th entry that a stream was ever given has the number n. Trimming takes entries away from the front, XDEL
from anywhere; neither makes a number anew:

    given     1  2  3  4  5  6  7  8      entries-added 8
    trimmed   x  x  x                     length 5: the first entry there has the number 8 - 5 + 1 = 4
    deleted               x               a hole: now length and added say nothing about the first

So while max-deleted-entry-id lies before the first entry there is no hole behind it, and the first entry's
number is exact. Servers before Redis 7 do not count; then it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import redis

from headrace.spark.servers import Servers, StreamRefused
from headrace.spark.source.offsets import Offsets, parse_id
from headrace.spark.source.positions import Position, fingerprint_of
from headrace.spark.stream_names import key


@dataclass(frozen=True)
class Tail:
    """A stream as XINFO STREAM saw it. last: the last ID it ever gave; first: of the first entry there is.

    last_entry, fingerprint: the ID of the last entry there is, and of what its fields are.
    """

    last: str
    first: str | None
    length: int
    added: int | None
    deleted: str | None
    last_entry: str | None = None
    fingerprint: str | None = None

    @property
    def number_of_first(self) -> int | None:
        """How many entries the stream was given up to the first there is, that included; None if unknown.

        Of an empty stream: one more than it was given.
        """
        if self.added is None or self.deleted is None:
            return None
        if self.first is not None and parse_id(self.deleted) > parse_id(self.first):
            return None
        return self.added - self.length + 1

    @property
    def position(self) -> Position:
        """The end of the stream as a place in its history."""
        if self.last_entry is None and not self.added:
            return Position(self.last)
        fingerprint = self.fingerprint if self.last_entry == self.last else None
        return Position(self.last, self.added, fingerprint=fingerprint)


def tail_of(answer: Any) -> Tail:
    """What redis-py makes of the reply to XINFO STREAM, as a Tail."""
    first, last = answer["first-entry"], answer["last-entry"]
    added = answer.get("entries-added")
    deleted = answer.get("max-deleted-entry-id")
    return Tail(
        text(answer["last-generated-id"]),
        text(first[0]) if first else None,
        int(answer["length"]),
        None if added is None else int(added),
        None if deleted is None else text(deleted),
        text(last[0]) if last else None,
        fingerprint_of(last[1]) if last else None,
    )


def tails(servers: Servers, streams: Iterable[str]) -> dict[str, Tail]:
    """The tails of those streams that exist. One round trip a shard. StreamRefused for what is no stream."""
    found = {}
    for stream, answer in servers.ask(streams, lambda pipe, s: pipe.xinfo_stream(key(s))).items():
        if isinstance(answer, Exception):
            if isinstance(answer, redis.ResponseError) and "no such key" in str(answer).lower():
                continue
            raise StreamRefused(stream, answer)
        found[stream] = tail_of(answer)
    return found


def tail(servers: Servers, streams: Iterable[str]) -> Offsets:
    """The last ID that each stream has ever given, of the streams that exist."""
    return {stream: each.last for stream, each in tails(servers, streams).items()}


def lost_after(place: str, number: int | None, now: Tail) -> int | None:
    """Count the entries after an ID that were trimmed, when no entry up to that ID is left.

    An entry that was deleted by itself is not lost. If only one after the ID is missing, and the highest
    deleted ID lies after it, then that is the one.

    Args:
        place: the ID. number: how many entries the stream had been given up to it, if that is known.

    Returns:
        How many; None if it cannot be known.
    """
    if number is None or now.added is None:
        return None
    missing = now.added - number - now.length
    if missing < 0:
        return None  # another stream: it counts from 1 again
    if missing and now.deleted is not None and parse_id(now.deleted) > parse_id(place):
        return 0 if missing == 1 else None
    return missing


def text(value: bytes | str) -> str:
    """A word of an answer, whichever way the client decodes."""
    return value.decode() if isinstance(value, bytes) else value
