"""Replies of XINFO as objects: a stream, its groups and their consumers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headrace.api.codecs.codec import Codec
from headrace.api.entry import Entry, entries_from_reply
from headrace.api.stream_id import StreamID, id_from_reply

T = TypeVar("T")


@dataclass(frozen=True)
class StreamInfo(Generic[T]):
    """State of a stream.

    Attributes:
        length: the number of entries.
        last_id: the largest ID ever generated; new IDs are larger.
        first: the oldest entry; None if there is none, or its cold file is damaged (`raw["cold-error"]`).
        last: the newest entry; None as for `first`.
        groups: the number of consumer groups.
        entries_added: the number of entries ever added; None from servers before Redis 7.
        max_deleted_id: the largest deleted ID; None from servers before Redis 7.
        cold_entries: the number of entries that are in files instead of in memory; only Headrace has them.
        cold_bytes: the bytes of memory that their nodes would take.
        cold_files: the number of these files.
        raw: the whole reply, by the server's names.
    """

    length: int
    last_id: StreamID
    first: Entry[T] | None
    last: Entry[T] | None
    groups: int
    entries_added: int | None
    max_deleted_id: StreamID | None
    cold_entries: int
    cold_bytes: int
    cold_files: int
    raw: dict[str, Any] = field(repr=False, compare=False)

    @staticmethod
    def from_reply(reply: list[Any], codec: Codec[T]) -> StreamInfo[T]:
        """Build from the reply of XINFO STREAM."""
        raw = dict_from_reply(reply)
        deleted = raw.get("max-deleted-entry-id")
        return StreamInfo(
            length=raw["length"],
            last_id=id_from_reply(raw["last-generated-id"]),
            first=_entry(raw["first-entry"], codec),
            last=_entry(raw["last-entry"], codec),
            groups=raw["groups"],
            entries_added=raw.get("entries-added"),
            max_deleted_id=None if deleted is None else id_from_reply(deleted),
            cold_entries=raw.get("cold-entries", 0),
            cold_bytes=raw.get("cold-bytes", 0),
            cold_files=raw.get("cold-files", 0),
            raw=raw,
        )


@dataclass(frozen=True)
class GroupInfo:
    """State of a consumer group.

    Attributes:
        name: the group's name.
        consumers: the number of consumers.
        pending: the number of entries delivered and not acknowledged.
        last_delivered_id: entries after it are not delivered yet.
        entries_read: the number of entries the group has read; None if the server cannot tell.
        lag: the number of entries not delivered yet; None if the server cannot tell.
        lost_unread: the number of entries that were removed before the group read them; 0 from servers other
            than Headrace, which do not count them.
        lost_pending: the number of its pending entries that were deleted before they were acknowledged; 0
            from servers other than Headrace.
        raw: the whole reply, by the server's names.
    """

    name: str
    consumers: int
    pending: int
    last_delivered_id: StreamID
    entries_read: int | None
    lag: int | None
    lost_unread: int
    lost_pending: int
    raw: dict[str, Any] = field(repr=False, compare=False)

    @staticmethod
    def from_reply(reply: list[Any]) -> GroupInfo:
        """Build from one element of the reply of XINFO GROUPS."""
        raw = dict_from_reply(reply)
        return GroupInfo(
            name=raw["name"].decode("utf-8", "surrogateescape"),
            consumers=raw["consumers"],
            pending=raw["pending"],
            last_delivered_id=id_from_reply(raw["last-delivered-id"]),
            entries_read=raw.get("entries-read"),
            lag=raw.get("lag"),
            lost_unread=raw.get("lost-unread", 0),
            lost_pending=raw.get("lost-pending", 0),
            raw=raw,
        )


@dataclass(frozen=True)
class ConsumerInfo:
    """State of a consumer.

    Attributes:
        name: the consumer's name.
        pending: the number of entries delivered to it and not acknowledged.
        idle: seconds since its last request.
        inactive: seconds since it last got an entry; None if it never did, or from servers before Redis 7.2.
        raw: the whole reply, by the server's names.
    """

    name: str
    pending: int
    idle: float
    inactive: float | None
    raw: dict[str, Any] = field(repr=False, compare=False)

    @staticmethod
    def from_reply(reply: list[Any]) -> ConsumerInfo:
        """Build from one element of the reply of XINFO CONSUMERS."""
        raw = dict_from_reply(reply)
        inactive = raw.get("inactive", -1)
        return ConsumerInfo(
            name=raw["name"].decode("utf-8", "surrogateescape"),
            pending=raw["pending"],
            idle=raw["idle"] / 1000,
            inactive=None if inactive < 0 else inactive / 1000,
            raw=raw,
        )


def dict_from_reply(reply: list[Any]) -> dict[str, Any]:
    """Return the dict of a reply in which names and values alternate."""
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _entry(reply: Any, codec: Codec[T]) -> Entry[T] | None:
    return entries_from_reply([reply], codec)[0] if reply else None
