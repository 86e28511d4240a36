"""Where streams end, and the numbers of their entries: what XINFO STREAM tells, of many streams at once.

The n-th entry that a stream was ever given has the number n. Trimming takes entries away from the front, XDEL
from anywhere; neither restores a number:

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

from headrace.client.servers import Servers, StreamReadError
from headrace.client.stream_names import stream_key
from headrace.spark.source.offsets import Offsets, parse_id
from headrace.spark.source.positions import Position, entry_fingerprint


@dataclass(frozen=True)
class StreamState:
    """A stream as XINFO STREAM saw it. last: the last ID it ever gave; first: of the first entry there is.

    last_entry, fingerprint: the ID of the last entry there is, and of what its fields are.
    """

    last_id: str
    first_id: str | None
    length: int
    entries_added: int | None
    max_deleted_id: str | None
    last_entry_id: str | None = None
    fingerprint: str | None = None

    @property
    def first_number(self) -> int | None:
        """How many entries the stream was given up to the first there is, that included; None if unknown.

        Of an empty stream: one more than it was given.
        """
        if self.entries_added is None or self.max_deleted_id is None:
            return None
        if self.first_id is not None and parse_id(self.max_deleted_id) > parse_id(self.first_id):
            return None
        return self.entries_added - self.length + 1

    @property
    def position(self) -> Position:
        """The end of the stream as a place in its history."""
        if self.last_entry_id is None and not self.entries_added:
            return Position(self.last_id)
        fingerprint = self.fingerprint if self.last_entry_id == self.last_id else None
        return Position(self.last_id, self.entries_added, fingerprint=fingerprint)


def parse_stream_state(reply: Any) -> StreamState:
    """What redis-py makes of the reply to XINFO STREAM, as a Tail."""
    first, last = reply["first-entry"], reply["last-entry"]
    added = reply.get("entries-added")
    deleted = reply.get("max-deleted-entry-id")
    return StreamState(
        as_text(reply["last-generated-id"]),
        as_text(first[0]) if first else None,
        int(reply["length"]),
        None if added is None else int(added),
        None if deleted is None else as_text(deleted),
        as_text(last[0]) if last else None,
        entry_fingerprint(last[1]) if last else None,
    )


def stream_states(servers: Servers, streams: Iterable[str]) -> dict[str, StreamState]:
    """Return the states of those streams that exist, in one round trip a shard. Raises StreamReadError."""
    found = {}
    for stream, reply in servers.request(streams, lambda pipe, s: pipe.xinfo_stream(stream_key(s))).items():
        if isinstance(reply, Exception):
            if isinstance(reply, redis.ResponseError) and "no such key" in str(reply).lower():
                continue
            raise StreamReadError(stream, reply)
        found[stream] = parse_stream_state(reply)
    return found


def last_ids(servers: Servers, streams: Iterable[str]) -> Offsets:
    """The last ID that each stream has ever given, of the streams that exist."""
    return {stream: each.last_id for stream, each in stream_states(servers, streams).items()}


def count_trimmed_after(entry_id: str, number: int | None, state: StreamState) -> int | None:
    """Count the entries after an ID that were trimmed, when no entry up to that ID is left.

    An entry that was deleted by itself is not lost. If only one after the ID is missing, and the highest
    deleted ID lies after it, then that is the one.

    Args:
        place: the ID. number: how many entries the stream had been given up to it, if that is known.

    Returns:
        How many; None if it cannot be known.
    """
    if number is None or state.entries_added is None:
        return None
    missing = state.entries_added - number - state.length
    if missing < 0:
        return None  # another stream: it counts from 1 again
    if missing and state.max_deleted_id is not None and parse_id(state.max_deleted_id) > parse_id(entry_id):
        return 0 if missing == 1 else None
    return missing


def as_text(value: bytes | str) -> str:
    """A word of a reply, whichever way the client decodes."""
    return value.decode() if isinstance(value, bytes) else value
