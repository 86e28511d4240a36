"""The stream to which entries go that failed too often: the fields that they had, and these, all as text:

    dead:stream       where the entry was, and is until it is trimmed
    dead:id           its ID there
    dead:group        who gave it up
    dead:consumer     and which of its consumers
    dead:deliveries   how often it was delivered
    dead:error        what the last failure said

A field of the entry's own with one of these names gives way. One stream holds the dead letters of all groups
of a stream, unless they are told other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from headrace.api.backend import Link
from headrace.api.codecs.arguments import IdLike, id_of, shown
from headrace.api.codecs.codec import Codec
from headrace.api.consuming.requests import Requests
from headrace.api.delivery import Delivery
from headrace.api.entry import Entry, entries_from
from headrace.api.stream_id import StreamID
from headrace.errors import CommandError

T = TypeVar("T")

OURS = tuple(b"dead:" + name for name in (b"stream", b"id", b"group", b"consumer", b"deliveries", b"error"))
ERROR_MAX = 4096  # bytes of an error's text that are kept
PAGE = 256


def burial_fields(delivery: Delivery[Any], requests: Requests) -> list[bytes]:
    """Names and values of a dead letter: those of the entry, of a name that stands twice both, and why."""
    pairs = zip(delivery.flat[::2], delivery.flat[1::2], strict=True)
    kept = [word for pair in pairs if pair[0] not in OURS for word in pair]
    told = (
        requests.stream,
        delivery.key,
        requests.group,
        requests.consumer,
        b"%d" % delivery.times_delivered,
        delivery.error.encode("utf-8", "replace")[:ERROR_MAX],
    )
    return [*kept, *(word for pair in zip(OURS, told, strict=True) for word in pair)]


class DeadLetter(Entry[T]):
    """An entry that was given up. Fields and value are what they were in its stream.

    origin       its ID there; `id` is the one that it has among the dead letters
    stream       where it was
    group        who gave it up
    consumer     and which of its consumers
    deliveries   how often it was delivered
    error        what the last failure said
    """

    __slots__ = ("consumer", "deliveries", "error", "group", "origin", "stream")

    stream: str  # where it was
    origin: StreamID  # its ID there
    group: str
    consumer: str
    deliveries: int
    error: str

    def __init__(self, id: StreamID, fields: dict[bytes, bytes], codec: Codec[T] | None = None) -> None:
        super().__init__(id, {name: value for name, value in fields.items() if name not in OURS}, codec)
        self.stream = shown(fields.get(b"dead:stream", b""))
        self.origin = StreamID.parse(fields.get(b"dead:id", b"0-0"))
        self.group = shown(fields.get(b"dead:group", b""))
        self.consumer = shown(fields.get(b"dead:consumer", b""))
        self.deliveries = int(fields.get(b"dead:deliveries", b"0"))
        self.error = fields.get(b"dead:error", b"").decode("utf-8", "replace")


class DeadLetters(Generic[T]):
    """The dead letters of one group.

    >>> for letter in billing.dead_letters:
    ...     print(letter.origin, letter.error)
    >>> billing.dead_letters.retry()  # all of them, after the mistake is mended
    3
    """

    def __init__(self, link: Link, name: bytes, stream: bytes, group: bytes, codec: Codec[T]) -> None:
        self.key = name
        self._link = link
        self._stream = stream
        self._group = group
        self._codec = codec

    @property
    def name(self) -> str:
        """The stream in which they are; others may read it like any stream."""
        return shown(self.key)

    def __iter__(self) -> Iterator[DeadLetter[T]]:
        """Those of this group that are there, oldest first."""
        start = b"-"
        while True:
            reply = self._link.execute(b"XRANGE", self.key, start, b"+", b"COUNT", b"%d" % PAGE)
            entries: list[Entry[Any]] = entries_from(reply, self._codec)
            for entry in entries:
                if self._ours(entry):
                    yield DeadLetter(entry.id, entry.fields, self._codec)
            if len(entries) < PAGE:
                return
            start = bytes(entries[-1].id.next())

    def _ours(self, entry: Entry[Any]) -> bool:
        return entry.get(b"dead:group") == self._group and entry.get(b"dead:stream") == self._stream

    def __len__(self) -> int:
        """How many there are; they are read to be counted."""
        return sum(1 for _ in self)

    def retry(self, *ids: IdLike) -> int:
        """Give dead letters of these IDs, or all, to the group once more; how many.

        The entry becomes pending again in this group, and in no other, its deliveries are counted anew, and a
        consumer takes it over before long. Is it in its stream no longer, it is added there, for all groups.
        After a crash in between it is both among the dead letters and with the group.
        """
        wanted = {id_of(id) for id in ids}
        return sum(self._retry(letter) for letter in self if not wanted or letter.id in wanted)

    def _retry(self, letter: DeadLetter[T]) -> bool:
        """Pending again, or added again, and then no dead letter any more."""
        remove = (b"XDEL", self.key, bytes(letter.id))
        place = (self._stream, self._group, letter.consumer.encode("utf-8", "surrogateescape"))
        how = (b"TIME", b"0", b"RETRYCOUNT", b"0", b"FORCE", b"JUSTID")
        if self._link.execute(b"XCLAIM", *place, b"0", bytes(letter.origin), *how):
            self._link.execute(*remove)
            return True
        reply = self._link.execute(b"XRANGE", self.key, bytes(letter.id), bytes(letter.id))
        if not reply:
            return False
        words = reply[0][1]
        pairs = [pair for pair in zip(words[::2], words[1::2], strict=True) if pair[0] not in OURS]
        add = (b"XADD", self._stream, b"*", *(word for pair in pairs for word in pair))
        for one in self._link.execute_all([add, remove], atomic=True):
            if isinstance(one, CommandError):
                raise one
        return True

    def delete(self, *ids: IdLike) -> int:
        """Remove dead letters of these IDs, or all of this group; how many."""
        removed = 0
        wanted = [bytes(id_of(id)) for id in ids] or [bytes(letter.id) for letter in self]
        for at in range(0, len(wanted), PAGE):
            removed += self._link.execute(b"XDEL", self.key, *wanted[at : at + PAGE])
        return removed

    def __repr__(self) -> str:
        return f"DeadLetters({self.name!r}, group={shown(self._group)!r})"
