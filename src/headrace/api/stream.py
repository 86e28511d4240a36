"""A stream as a Python program holds it: add, read, range over it, follow it. Near and far are the same."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from headrace.api.backend import Link, Stop
from headrace.api.codecs.arguments import (
    IdLike,
    References,
    add_words,
    count_word,
    end_word,
    id_of,
    name_of,
    new_id_word,
    references_word,
    shown,
    start_word,
    trim_words,
)
from headrace.api.codecs.codec import PLAIN, Fields, codec_for
from headrace.api.entry import Entry, entries_from
from headrace.api.info import GroupInfo, StreamInfo
from headrace.api.remote.server_errors import not_supported
from headrace.api.retry_policy import DELIVERIES_DEFAULT, LEASE_DEFAULT, Backoff
from headrace.api.stream_id import StreamID, from_reply
from headrace.errors import (
    CommandError,
    InvalidStreamId,
    InvalidSyntax,
    NoSuchKey,
    NoSuchStream,
    NotSupported,
    UsageError,
)

if TYPE_CHECKING:
    from headrace.api.group import Group

T = TypeVar("T")

FIRST_PAGE = 64  # entries: little is fetched for who looks at the first few
LARGEST_PAGE = 1024
FOLLOW_COUNT = 256


class Stream(Generic[T]):
    """A stream of one name; it need not be there yet, and is made by the first add().

    >>> orders = db.stream("orders")
    >>> id = orders.add({"customer": "ada", "cents": 999})
    >>> orders[id]["customer"]
    b'ada'

    With a codec its values are of your own kind, see headrace.api.codecs.codec:

    >>> orders = db.stream("orders", codec=Order)
    >>> orders.add(Order("ada", cents=999))
    >>> [entry.value.cents for entry in orders]

    Wherever an ID is asked for, a StreamID, its text, or a datetime with a time zone will do. Methods may be
    called from any thread. What is refused raises CommandError, or one of its kinds in headrace.errors; a
    server that cannot be reached raises ConnectionLost.
    """

    def __init__(self, link: Link, name: str | bytes, codec: Any = None) -> None:
        self.link = link
        self.key = name_of(name)
        self.codec = codec_for(codec)

    @property
    def name(self) -> str:
        """The stream's name as text."""
        return shown(self.key)

    def __repr__(self) -> str:
        codec = repr(self.codec)
        return f"Stream({self.name!r})" if codec == "None" else f"Stream({self.name!r}, codec={codec})"

    # Writing.

    @overload
    def add(
        self: Stream[dict[Any, Any]],
        value: Fields,
        *,
        id: IdLike = ...,
        maxlen: int | None = ...,
        minid: IdLike | None = ...,
        approximate: bool = ...,
        references: References = ...,
        idempotency: tuple[str | bytes, str | bytes] | None = ...,
        create: bool = ...,
    ) -> StreamID: ...
    @overload
    def add(
        self,
        value: T,
        *,
        id: IdLike = ...,
        maxlen: int | None = ...,
        minid: IdLike | None = ...,
        approximate: bool = ...,
        references: References = ...,
        idempotency: tuple[str | bytes, str | bytes] | None = ...,
        create: bool = ...,
    ) -> StreamID: ...

    def add(
        self,
        value: Any,
        *,
        id: IdLike = "*",
        maxlen: int | None = None,
        minid: IdLike | None = None,
        approximate: bool = True,
        references: References = "keep",
        idempotency: tuple[str | bytes, str | bytes] | None = None,
        create: bool = True,
    ) -> StreamID:
        """Add an entry; its ID. When this returns the entry is as durable as the database promises.

        >>> orders.add({"customer": "ada"}, maxlen=1_000_000)
        StreamID(1700000000000, 0)

        id            its ID, larger than all before; by default the stream gives one by the clock.
                      A datetime, or "ms-*", leaves only the number after the dash to the stream
        maxlen        trim the stream to so many entries
        minid         trim what is before this ID
        approximate   trim only when much can go at once, which is a lot cheaper
        references    what becomes of trimmed entries in groups' pending lists: "keep" them there, "delete"
                      them, or trim only what all groups have "acknowledged"
        idempotency   (producer, request): added twice, it is there once, and both get the same ID. A stream
                      remembers a producer's last 100 requests, for 100 seconds; the settings
                      stream_idmp_maxsize and stream_idmp_duration of open() say otherwise
        create        False: NoSuchStream if the stream is not there

        Against a server, a lost connection raises ConnectionLost: the entry may have been added or not. With
        idempotency it is tried again instead.
        """
        options: list[bytes] = []
        if not (maxlen is None and minid is None and references == "keep" and idempotency is None and create):
            options = add_words(maxlen, minid, approximate, references, idempotency, create)
        word = b"*" if id == "*" else new_id_word(id)
        if idempotency is not None and word != b"*":
            raise UsageError("idempotency and id: the stream gives the ID of such an entry, leave id out")
        try:
            reply = self.link.add(self.key, word, self.codec.encode(value), options)
        except CommandError as refused:
            raise _explained(refused, options) from None
        if reply is None:
            raise self._missing()
        return from_reply(reply)

    @overload
    def add_many(
        self: Stream[dict[Any, Any]],
        values: Iterable[Fields],
        *,
        maxlen: int | None = ...,
        minid: IdLike | None = ...,
        approximate: bool = ...,
        references: References = ...,
    ) -> list[StreamID]: ...
    @overload
    def add_many(
        self,
        values: Iterable[T],
        *,
        maxlen: int | None = ...,
        minid: IdLike | None = ...,
        approximate: bool = ...,
        references: References = ...,
    ) -> list[StreamID]: ...

    def add_many(
        self,
        values: Iterable[Any],
        *,
        maxlen: int | None = None,
        minid: IdLike | None = None,
        approximate: bool = True,
        references: References = "keep",
    ) -> list[StreamID]:
        """Add entries, all or none, with one sync or one round trip: by far the fastest way. Their IDs.

        >>> orders.add_many({"customer": name} for name in ("ada", "grace"))
        [StreamID(1700000000000, 0), StreamID(1700000000000, 1)]

        Options are those of add(). No reader sees some of the entries without the others.
        """
        options = add_words(maxlen, minid, approximate, references, None, True)
        # Plain fields are looked at by the link, once.
        entries = values if self.codec is PLAIN else map(self.codec.encode, values)
        try:
            replies = self.link.add_many(self.key, entries, options)
        except CommandError as refused:
            raise _explained(refused, options) from None
        return list(map(from_reply, replies))

    def trim(
        self,
        *,
        maxlen: int | None = None,
        minid: IdLike | None = None,
        approximate: bool = False,
        references: References = "keep",
    ) -> int:
        """Remove the oldest entries: all but maxlen, or those before minid. How many went.

        >>> orders.trim(minid=datetime.now(UTC) - timedelta(days=30))

        approximate   remove only what can go cheaply: up to a hundred entries too many are kept
        references    as for add()
        """
        words = trim_words(maxlen, minid, approximate)
        if not words:
            raise UsageError("trim to what? Give maxlen= or minid=")
        if references != "keep":
            words.append(references_word(references))
        try:
            removed: int = self.link.execute(b"XTRIM", self.key, *words)
        except CommandError as refused:
            raise _explained(refused, words) from None
        return removed

    def delete(self, *ids: IdLike, references: References = "keep") -> int:
        """Remove entries; how many there were. references: as for add().

        >>> orders.delete("1700000000000-0")
        1
        """
        if not ids:
            return 0
        words = [bytes(id_of(id)) for id in ids]
        if references == "keep":
            removed: int = self.link.execute(b"XDEL", self.key, *words)
            return removed
        policy = references_word(references)
        try:
            codes = self.link.execute(b"XDELEX", self.key, policy, b"IDS", b"%d" % len(words), *words)
        except NotSupported as refused:
            raise _explained(refused, [policy]) from None
        return sum(code == 1 for code in codes)

    def destroy(self) -> bool:
        """Remove the stream with all its entries and groups; False if it was not there."""
        return bool(self.link.execute(b"DEL", self.key))

    # Looking at what is there.

    def range(
        self, start: IdLike | None = None, end: IdLike | None = None, count: int | None = None
    ) -> Iterator[Entry[T]]:
        """The entries from start to end, both included, oldest first; fetched in pages as you go.

        >>> today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        >>> for entry in orders.range(start=today, count=10):
        ...     print(entry.id.datetime, entry.text)

        Entries that are added or deleted meanwhile are seen if the pages have not passed them yet.
        """
        return self._pages(b"XRANGE", start_word(start), end_word(end), count)

    def reverse(
        self, start: IdLike | None = None, end: IdLike | None = None, count: int | None = None
    ) -> Iterator[Entry[T]]:
        """The same entries as range(start, end), newest first; `count` counts from the newest.

        >>> latest = list(orders.reverse(count=10))
        """
        return self._pages(b"XREVRANGE", end_word(end), start_word(start), count)

    def _pages(self, command: bytes, at: bytes, to: bytes, count: int | None) -> Iterator[Entry[T]]:
        left = math.inf if count is None else int(count_word(count))
        return self._walk(command, at, to, left)

    def _walk(self, command: bytes, at: bytes, to: bytes, left: float) -> Iterator[Entry[T]]:
        page = FIRST_PAGE
        last = StreamID.MAX if command == b"XRANGE" else StreamID.MIN
        while left > 0:
            asked = int(min(page, left))
            reply = self.link.execute(command, self.key, at, to, b"COUNT", b"%d" % asked)
            entries = entries_from(reply, self.codec)
            yield from entries
            if len(entries) < asked or entries[-1].id == last:
                return
            id = entries[-1].id
            at = bytes(id.next() if command == b"XRANGE" else id.previous())
            left -= asked
            page = min(4 * page, LARGEST_PAGE)

    def __iter__(self) -> Iterator[Entry[T]]:
        """The entries that are there, oldest first; to wait for more, follow()."""
        return self.range()

    def __reversed__(self) -> Iterator[Entry[T]]:
        return self.reverse()

    @overload
    def __getitem__(self, at: slice) -> list[Entry[T]]: ...
    @overload
    def __getitem__(self, at: IdLike) -> Entry[T]: ...

    def __getitem__(self, at: slice | IdLike) -> list[Entry[T]] | Entry[T]:
        """The entry of an ID, KeyError if there is none; or those of a slice, whose end is not included.

        >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
        >>> orders[noon : noon + timedelta(hours=1)]
        """
        if not isinstance(at, slice):
            found = list(self.range(id := id_of(at), id))
            if not found:
                raise KeyError(f"stream {self.name!r} has no entry {id}")
            return found[0]
        if at.step is not None:
            raise UsageError("a slice of a stream has no step; reverse() goes backwards")
        if at.stop is None:
            return list(self.range(at.start))
        end = id_of(at.stop)
        return list(self.range(at.start, end.previous())) if end > StreamID.MIN else []

    def __contains__(self, id: IdLike) -> bool:
        """Whether there is an entry of that ID."""
        whole = id_of(id)
        return any(True for _ in self.range(whole, whole))

    def __len__(self) -> int:
        """How many entries there are."""
        length: int = self.link.execute(b"XLEN", self.key)
        return length

    def __bool__(self) -> bool:
        """Whether there are entries."""
        return len(self) > 0

    def first(self) -> Entry[T] | None:
        """The oldest entry, None if there is none."""
        return next(self.range(count=1), None)

    def last(self) -> Entry[T] | None:
        """The newest entry, None if there is none."""
        return next(self.reverse(count=1), None)

    def info(self) -> StreamInfo[T]:
        """Length, IDs and more; NoSuchStream if the stream is not there."""
        try:
            return StreamInfo.read(self.link.execute(b"XINFO", b"STREAM", self.key), self.codec)
        except NoSuchKey:
            raise self._missing() from None

    # Waiting for what comes.

    def read(
        self,
        after: IdLike = "$",
        count: int | None = None,
        block: float | None = None,
        stop: Stop | None = None,
    ) -> list[Entry[T]]:
        """The entries behind an ID, `count` at most; if there are none yet, wait for `block` seconds.

        >>> entries = orders.read(after="0", count=100)
        >>> more = orders.read(after=entries[-1].id, block=5.0)

        after="$" is for what is added from now on. block None does not wait, math.inf waits for ever. An
        empty list if time is over, or stop.set() was called.
        """
        if after == "$":
            if block is None:
                return []
            after = self._last_id()
        words = [b"XREAD"]
        if count is not None:
            if count == 0:
                return []
            words += [b"COUNT", count_word(count)]
        words += [b"STREAMS", self.key, bytes(id_of(after))]
        if block is None:
            reply = self.link.execute(*words)
        elif block >= 0:
            reply = self.link.wait(words, None if math.isinf(block) else block, stop)
        else:
            raise UsageError(f"block={block}: seconds to wait, None for not at all, math.inf for ever")
        return entries_from(reply[0][1], self.codec) if reply else []

    def follow(self, after: IdLike = "$", stop: Stop | None = None) -> Iterator[Entry[T]]:
        """The entries behind an ID, and then whatever is added, for ever, or until stop.set() is called.

        >>> for entry in orders.follow(after="0"):  # all of it; by default from now on
        ...     print(entry.value)

        Nothing is acknowledged or remembered: for work that must be done once use a group.
        """
        return self._follow(self._last_id() if after == "$" else id_of(after), stop)

    def follow_async(self, after: IdLike = "$", stop: Stop | None = None) -> AsyncIterator[Entry[T]]:
        """The same in asyncio: the loop goes on while this waits, and a task that is cancelled ends it.

        >>> async for entry in orders.follow_async():
        ...     await websocket.send(entry.text["customer"])
        """
        made: AsyncIterator[Entry[T]] = import_module("headrace.api.consuming.async_stream").follow(
            self, after, stop
        )
        return made

    def _follow(self, after: StreamID, stop: Stop | None) -> Iterator[Entry[T]]:
        while stop is None or not stop.is_set():
            for entry in self.read(after, FOLLOW_COUNT, math.inf, stop):
                if stop is not None and stop.is_set():
                    return
                yield entry
                after = entry.id

    def _last_id(self) -> StreamID:
        """The largest ID that was ever given: what is added from now on comes behind it."""
        try:
            return self.info().last_id
        except NoSuchStream:
            return StreamID.MIN

    # Groups.

    def group(
        self,
        name: str | bytes,
        start: IdLike = "0",
        *,
        max_deliveries: int | None = DELIVERIES_DEFAULT,
        dead_letters: str | bytes | Literal[False] | None = None,
        lease: float = LEASE_DEFAULT,
        backoff: Backoff | None = None,
        recreate: Literal["0", "$", False] = False,
    ) -> Group[T]:
        """The consumer group of that name, which is made if it is not there, as is the stream.

        >>> billing = orders.group("billing", start="0", max_deliveries=5)
        >>> for entry in billing.consumer("worker-1"):
        ...     send_invoice(entry.value)

        start   where a group that is made begins: "0" at the oldest entry, "$" at what is added from now on

        What becomes of entries that fail, and of entries whose consumer dies, is said by the rest: see Group.
        """
        made: Group[T] = import_module("headrace.api.group").Group(
            self,
            name,
            start,
            max_deliveries=max_deliveries,
            dead_letters=dead_letters,
            lease=lease,
            backoff=backoff,
            recreate=recreate,
        )
        return made

    def groups(self) -> list[GroupInfo]:
        """The consumer groups that there are; none if the stream is not there."""
        try:
            return [GroupInfo.read(one) for one in self.link.execute(b"XINFO", b"GROUPS", self.key)]
        except NoSuchKey:
            return []

    def _missing(self) -> NoSuchStream:
        return NoSuchStream(f"there is no stream {self.name!r}; the first add() makes it")


NEWER = {b"KEEPREF": ("references", "8.2"), b"DELREF": ("references", "8.2"), b"ACKED": ("references", "8.2")}
NEWER[b"IDMP"] = ("idempotency", "8.6")


def _explained(refused: CommandError, options: list[bytes]) -> CommandError:
    """The refusal; NotSupported if it is for an option that older servers take for an ID, or for nothing."""
    if isinstance(refused, InvalidStreamId | InvalidSyntax | NotSupported):
        for word in options:
            if word in NEWER:
                return not_supported(refused, *NEWER[word])
    return refused
