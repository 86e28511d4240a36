"""Read the last ID and the entry numbers of many streams at once, by XINFO STREAM.

The n-th entry ever added to a stream has the number n. Trimming removes entries from the front, XDEL from
anywhere; neither changes the number of another entry:

    added     1  2  3  4  5  6  7  8      entries-added 8
    trimmed   x  x  x                     length 5: the first entry has the number 8 - 5 + 1 = 4
    deleted               x               a hole: now this formula is wrong

So while max-deleted-entry-id is below the first entry, there is no hole after it, and the first entry's
number is exact. Servers before Redis 7 do not count, so the number is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import redis

from headrace.client.servers import Servers
from headrace.client.stream_info import first_entry_id
from headrace.client.stream_names import stream_key
from headrace.errors import HeadraceError
from headrace.fingerprint import entry_fingerprint
from headrace.positions.entry_ids import parse_id
from headrace.positions.offsets import Offsets
from headrace.positions.position import Position


class StreamReadError(HeadraceError):
    """The server rejected a request about a stream."""

    def __init__(self, stream: str, error: Exception) -> None:
        super().__init__(f"Cannot read the stream {stream!r}: {error}")


@dataclass(frozen=True)
class StreamState:
    """A stream as XINFO STREAM describes it.

    last_id                     its last generated ID
    first_id, last_entry_id     of its first and last entry; None if it is empty
    fingerprint                 of the fields of the last entry
    entries_added, max_deleted_id  None if the server does not report them
    """

    last_id: str
    first_id: str | None
    length: int
    entries_added: int | None
    max_deleted_id: str | None
    last_entry_id: str | None = None
    last_entry_fingerprint: str | None = None

    @property
    def first_number(self) -> int | None:
        """The number of the first entry, or of the next one if the stream is empty; None if unknown."""
        if self.entries_added is None or self.max_deleted_id is None:
            return None
        if self.first_id is not None and parse_id(self.max_deleted_id) > parse_id(self.first_id):
            return None
        return self.entries_added - self.length + 1

    @property
    def end_position(self) -> Position:
        """The position of the end of the stream."""
        if self.last_entry_id is None and not self.entries_added:
            return Position(self.last_id)
        fingerprint = self.last_entry_fingerprint if self.last_entry_id == self.last_id else None
        return Position(self.last_id, self.entries_added, fingerprint=fingerprint)


def parse_stream_state(reply: Any) -> StreamState:
    """Convert redis-py's form of the reply to XINFO STREAM."""
    first, last = first_entry_id(reply), reply["last-entry"]
    added = reply.get("entries-added")
    deleted = reply.get("max-deleted-entry-id")
    return StreamState(
        as_text(reply["last-generated-id"]),
        as_text(first) if first else None,
        int(reply["length"]),
        None if added is None else int(added),
        None if deleted is None else as_text(deleted),
        as_text(last[0]) if last else None,
        entry_fingerprint(last[1]) if last else None,
    )


def stream_states(servers: Servers, streams: Iterable[str]) -> dict[str, StreamState]:
    """Return the states of the streams that exist, in one round trip a shard. Raises StreamReadError."""
    found = {}
    for stream, reply in servers.request_each(
        streams, lambda pipe, s: pipe.xinfo_stream(stream_key(s))
    ).items():
        if isinstance(reply, Exception):
            if isinstance(reply, redis.ResponseError) and "no such key" in str(reply).lower():
                continue
            raise StreamReadError(stream, reply)
        found[stream] = parse_stream_state(reply)
    return found


def last_ids(servers: Servers, streams: Iterable[str]) -> Offsets:
    """Return the last generated IDs of the streams that exist. Raises StreamReadError."""
    return {stream: each.last_id for stream, each in stream_states(servers, streams).items()}


def count_trimmed_after(entry_id: str, number: int | None, state: StreamState) -> int | None:
    """Count the entries after an ID that were trimmed, if no entry up to that ID is left.

    An entry that was deleted by XDEL does not count. If exactly one entry after the ID is missing, and the
    highest deleted ID is after the given ID, the missing entry was deleted and not trimmed.

    Args:
        number: how many entries had been added up to the ID; None if unknown.

    Returns:
        The number of trimmed entries; None if it cannot be known.
    """
    if number is None or state.entries_added is None:
        return None
    missing = state.entries_added - number - state.length
    if missing < 0:
        return None  # a recreated stream, which counts from 1 again
    if missing and state.max_deleted_id is not None and parse_id(state.max_deleted_id) > parse_id(entry_id):
        return 0 if missing == 1 else None
    return missing


def as_text(value: bytes | str) -> str:
    """Return a string of a reply as str, whether the client decodes replies or not."""
    return value.decode() if isinstance(value, bytes) else value
