"""Dead letters: copies of entries that failed too often, in a stream of their own.

A dead letter has the fields of the entry, and these, all as text:

    dead:stream       the entry's stream, where it stays until it is trimmed
    dead:id           its ID there
    dead:group        the group that gave it up
    dead:consumer     the consumer of that group
    dead:deliveries   the number of deliveries
    dead:error        the text of the last failure

A field of the entry with one of these names is replaced. One stream holds the dead letters of all groups of a
stream, unless they are configured otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from headrace.api.backend import Backend
from headrace.api.codecs.arguments import IdLike, decode_name, to_stream_id
from headrace.api.codecs.codec import Codec
from headrace.api.consuming.requests import ConsumerRequestBuilder
from headrace.api.delivery import Delivery
from headrace.api.entry import Entry, entries_from_reply
from headrace.api.stream_id import StreamID
from headrace.errors import CommandError, InvalidID

T = TypeVar("T")

DEAD_LETTER_FIELDS = tuple(
    b"dead:" + name for name in (b"stream", b"id", b"group", b"consumer", b"deliveries", b"error")
)
ERROR_BYTES_MAX = 4096  # bytes of an error's text that are kept
PAGE_ENTRIES = 256


def dead_letter_fields(delivery: Delivery[Any], requests: ConsumerRequestBuilder) -> list[bytes]:
    """Return names and values of a dead letter: the entry's own, including duplicates, and the reason."""
    pairs = zip(delivery.flat_fields[::2], delivery.flat_fields[1::2], strict=True)
    kept = [word for pair in pairs if pair[0] not in DEAD_LETTER_FIELDS for word in pair]
    values = (
        requests.stream,
        delivery.raw_id,
        requests.group,
        requests.consumer,
        b"%d" % delivery.times_delivered,
        delivery.error.encode("utf-8", "replace")[:ERROR_BYTES_MAX],
    )
    return [*kept, *(word for pair in zip(DEAD_LETTER_FIELDS, values, strict=True) for word in pair)]


class DeadLetter(Entry[T]):
    """An entry that was given up. Fields and value are those of the original entry.

    Attributes:
        id: its ID in the dead-letter stream.
        origin: its ID in the original stream.
        stream: the name of the original stream.
        group: the group that gave it up.
        consumer: the consumer of that group.
        deliveries: the number of deliveries.
        error: the text of the last failure.
    """

    __slots__ = ("consumer", "deliveries", "error", "group", "origin", "stream")

    stream: str  # where it was
    origin: StreamID  # its ID there
    group: str
    consumer: str
    deliveries: int
    error: str

    def __init__(self, id: StreamID, fields: dict[bytes, bytes], codec: Codec[T] | None = None) -> None:
        super().__init__(
            id, {name: value for name, value in fields.items() if name not in DEAD_LETTER_FIELDS}, codec
        )
        self.stream = decode_name(fields.get(b"dead:stream", b""))
        self.origin = parse_origin_id(fields.get(b"dead:id", b"0-0"))
        self.group = decode_name(fields.get(b"dead:group", b""))
        self.consumer = decode_name(fields.get(b"dead:consumer", b""))
        deliveries = fields.get(b"dead:deliveries", b"0")  # any client may have added the entry
        self.deliveries = int(deliveries) if deliveries.isdigit() and len(deliveries) < 20 else 0
        self.error = fields.get(b"dead:error", b"").decode("utf-8", "replace")


def parse_origin_id(text: bytes) -> StreamID:
    """Parse the field dead:id, the ID of the original entry; return 0-0 for an invalid text.

    Any client may add an entry with an invalid field.
    """
    try:
        return StreamID.parse(text)
    except InvalidID:
        return StreamID(0, 0)


class DeadLetters(Generic[T]):
    """The dead letters of one group.

    >>> for letter in billing.dead_letters:
    ...     print(letter.origin, letter.error)
    >>> billing.dead_letters.retry()  # all of them, after the bug is fixed
    3
    """

    def __init__(self, backend: Backend, name: bytes, stream: bytes, group: bytes, codec: Codec[T]) -> None:
        self.key = name
        self._backend = backend
        self._stream = stream
        self._group = group
        self._codec = codec

    @property
    def name(self) -> str:
        """The name of the dead-letter stream, which can be read like any stream."""
        return decode_name(self.key)

    def __iter__(self) -> Iterator[DeadLetter[T]]:
        """Iterate over the dead letters of this group, oldest first."""
        start = b"-"
        while True:
            reply = self._backend.request(b"XRANGE", self.key, start, b"+", b"COUNT", b"%d" % PAGE_ENTRIES)
            entries: list[Entry[Any]] = entries_from_reply(reply, self._codec)
            for entry in entries:
                if self._is_of_group(entry):
                    yield DeadLetter(entry.id, entry.fields, self._codec)
            if len(entries) < PAGE_ENTRIES or entries[-1].id == StreamID.MAX:
                return
            start = bytes(entries[-1].id.next())

    def _is_of_group(self, entry: Entry[Any]) -> bool:
        return entry.get(b"dead:group") == self._group and entry.get(b"dead:stream") == self._stream

    def __len__(self) -> int:
        """Return the number of dead letters, which are read to be counted."""
        return sum(1 for _ in self)

    def retry(self, *ids: IdLike) -> int:
        """Make dead letters pending in the group again.

        An entry becomes pending again in this group only, its delivery count restarts, and a consumer soon
        claims it. If the entry was trimmed from its stream, it is added there again, with a new ID and for
        all groups. After a crash during the call, an entry may be both a dead letter and pending.

        Args:
            ids: IDs in the dead-letter stream; none for all.

        Returns:
            The number of retried entries.

        Raises:
            NoSuchGroup: if the group or its stream does not exist.
        """
        wanted = {to_stream_id(id) for id in ids}
        return sum(self._retry(letter) for letter in self if not wanted or letter.id in wanted)

    def _retry(self, letter: DeadLetter[T]) -> bool:
        """Make the entry pending again, or add it again; then delete the dead letter."""
        remove = (b"XDEL", self.key, bytes(letter.id))
        place = (self._stream, self._group, letter.consumer.encode("utf-8", "surrogateescape"))
        how = (b"TIME", b"0", b"RETRYCOUNT", b"0", b"FORCE", b"JUSTID")
        if self._backend.request(b"XCLAIM", *place, b"0", bytes(letter.origin), *how):
            self._backend.request(*remove)
            return True
        reply = self._backend.request(b"XRANGE", self.key, bytes(letter.id), bytes(letter.id))
        if not reply:
            return False
        words = reply[0][1]
        pairs = [
            pair for pair in zip(words[::2], words[1::2], strict=True) if pair[0] not in DEAD_LETTER_FIELDS
        ]
        add = (b"XADD", self._stream, b"*", *(word for pair in pairs for word in pair))
        for one in self._backend.request_all([add, remove], atomic=True):
            if isinstance(one, CommandError):
                raise one
        return True

    def delete(self, *ids: IdLike) -> int:
        """Delete dead letters.

        Args:
            ids: IDs in the dead-letter stream; none for all. IDs of other entries, such as dead letters of
                other groups, are ignored.

        Returns:
            The number of deleted dead letters.
        """
        removed = 0
        found = self._letters_with_ids(ids) if ids else self
        wanted = [bytes(letter.id) for letter in found]
        for at in range(0, len(wanted), PAGE_ENTRIES):
            removed += self._backend.request(b"XDEL", self.key, *wanted[at : at + PAGE_ENTRIES])
        return removed

    def _letters_with_ids(self, ids: Iterable[IdLike]) -> Iterator[Entry[Any]]:
        """Return the dead letters of this group among the entries with these IDs."""
        words = [bytes(to_stream_id(id)) for id in ids]
        for at in range(0, len(words), PAGE_ENTRIES):
            page = [(b"XRANGE", self.key, word, word) for word in words[at : at + PAGE_ENTRIES]]
            for reply in self._backend.request_all(page):
                if isinstance(reply, CommandError):
                    raise reply
                yield from filter(self._is_of_group, entries_from_reply(reply, self._codec))

    def __repr__(self) -> str:
        return f"DeadLetters({self.name!r}, group={decode_name(self._group)!r})"
