"""What XINFO says of a stream, its groups and their consumers, as objects with names and types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headrace.api.codecs.codec import Codec
from headrace.api.entry import Entry, entries_from
from headrace.api.stream_id import StreamID, from_reply

T = TypeVar("T")


@dataclass(frozen=True)
class StreamInfo(Generic[T]):
    """A stream as a whole.

    length           entries that are there
    last_id          the largest ID that was ever given: later ones are larger
    first, last      entries, None if there are none
    groups           consumer groups
    entries_added    entries that were ever added; None from servers before Redis 7
    max_deleted_id   the largest ID that was deleted; None from servers before Redis 7
    raw              all that the server said, by its own names
    """

    length: int
    last_id: StreamID
    first: Entry[T] | None
    last: Entry[T] | None
    groups: int
    entries_added: int | None
    max_deleted_id: StreamID | None
    raw: dict[str, Any] = field(repr=False, compare=False)

    @staticmethod
    def read(reply: list[Any], codec: Codec[T]) -> StreamInfo[T]:
        """From the answer to XINFO STREAM."""
        raw = pairs(reply)
        deleted = raw.get("max-deleted-entry-id")
        return StreamInfo(
            length=raw["length"],
            last_id=from_reply(raw["last-generated-id"]),
            first=_entry(raw["first-entry"], codec),
            last=_entry(raw["last-entry"], codec),
            groups=raw["groups"],
            entries_added=raw.get("entries-added"),
            max_deleted_id=None if deleted is None else from_reply(deleted),
            raw=raw,
        )


@dataclass(frozen=True)
class GroupInfo:
    """A consumer group.

    consumers           how many have a name there
    pending             entries that were delivered and not acknowledged
    last_delivered_id   what comes behind it was not delivered yet
    entries_read        entries that the group has read, as far as the server can tell; else None
    lag                 entries that it has yet to read, as far as the server can tell; else None
    raw                 all that the server said, by its own names
    """

    name: str
    consumers: int
    pending: int
    last_delivered_id: StreamID
    entries_read: int | None
    lag: int | None
    raw: dict[str, Any] = field(repr=False, compare=False)

    @staticmethod
    def read(reply: list[Any]) -> GroupInfo:
        """From one element of the answer to XINFO GROUPS."""
        raw = pairs(reply)
        return GroupInfo(
            name=raw["name"].decode("utf-8", "surrogateescape"),
            consumers=raw["consumers"],
            pending=raw["pending"],
            last_delivered_id=from_reply(raw["last-delivered-id"]),
            entries_read=raw.get("entries-read"),
            lag=raw.get("lag"),
            raw=raw,
        )


@dataclass(frozen=True)
class ConsumerInfo:
    """A consumer of a group.

    pending    entries that were delivered to it and not acknowledged
    idle       seconds since it last asked for anything
    inactive   seconds since it last got anything, None if it never did, or from servers before Redis 7.2
    raw        all that the server said, by its own names
    """

    name: str
    pending: int
    idle: float
    inactive: float | None
    raw: dict[str, Any] = field(repr=False, compare=False)

    @staticmethod
    def read(reply: list[Any]) -> ConsumerInfo:
        """From one element of the answer to XINFO CONSUMERS."""
        raw = pairs(reply)
        inactive = raw.get("inactive", -1)
        return ConsumerInfo(
            name=raw["name"].decode("utf-8", "surrogateescape"),
            pending=raw["pending"],
            idle=raw["idle"] / 1000,
            inactive=None if inactive < 0 else inactive / 1000,
            raw=raw,
        )


def pairs(reply: list[Any]) -> dict[str, Any]:
    """A reply in which names and values stand in turns."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _entry(reply: Any, codec: Codec[T]) -> Entry[T] | None:
    return entries_from([reply], codec)[0] if reply else None
