"""A stream: add entries, read ranges, follow it. The same for a local engine and a server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from headrace.api.backend import Backend, Stop
from headrace.api.codecs.arguments import (
    IdLike,
    References,
    checked_replica_wait,
    count_argument,
    decode_name,
    encode_name,
    range_end,
    range_start,
    references_argument,
    to_stream_id,
    trim_arguments,
    with_headrace_xadd_options,
    xadd_id,
    xadd_options,
)
from headrace.api.codecs.codec import PLAIN_CODEC, Fields, codec_for
from headrace.api.entry import Entry, entries_from_reply
from headrace.api.follower_hub import FollowRead, check_gaps_at_end, read_through_hub
from headrace.api.followers import AsyncFollower, Follower
from headrace.api.group import Group
from headrace.api.info import GroupInfo, StreamInfo, dict_from_reply
from headrace.api.retry_policy import LEASE_DEFAULT, MAX_DELIVERIES_DEFAULT, Backoff
from headrace.api.rules import Duration, Retention, rules_error, rules_from_reply
from headrace.api.stream_gaps import GapWatch, OnGap
from headrace.api.stream_id import StreamID, id_from_reply
from headrace.client.server_errors import not_supported_error
from headrace.companion_keys import schedule_name
from headrace.errors import (
    CommandError,
    InvalidStreamId,
    InvalidSyntax,
    LastIdMismatch,
    NoSuchKey,
    NoSuchStream,
    NotSupported,
    UsageError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.api.arrow_batches import ArrowBatches

T = TypeVar("T")

FIRST_PAGE_ENTRIES = 64  # entries: a small first page, because many callers read only a few
PAGE_ENTRIES_MAX = 1024
SHORT_WAIT_S = 1.0  # a read that waits less than this first reads on a connection of its own
FOLLOW_COUNT = 256
REPLICAS_TIMEOUT_S = 1.0


class Stream(Generic[T]):
    """A stream by name. It need not exist yet: the first add() creates it.

    >>> orders = db.stream("orders")
    >>> id = orders.add({"customer": "ada", "cents": 999})
    >>> orders[id]["customer"]
    b'ada'

    A codec converts values of your own type, see headrace.api.codecs.codec:

    >>> orders = db.stream("orders", codec=Order)
    >>> orders.add(Order("ada", cents=999))
    >>> [entry.value.cents for entry in orders]

    Wherever an ID is an argument, you may pass a StreamID, its text, or a datetime with a time zone. An
    invalid ID raises InvalidID. A stream is thread-safe. All methods raise CommandError, or a subclass in
    headrace.errors, when the command is rejected, and ConnectionLost when the server cannot be reached.
    """

    def __init__(self, backend: Backend, name: str | bytes, codec: Any = None) -> None:
        self.backend = backend
        self.reading_backend: Backend = getattr(
            backend, "reading_backend", backend
        )  # executes what only reads entries
        self.key = encode_name(name)
        self.codec = codec_for(codec)

    @property
    def name(self) -> str:
        """The stream's name as text."""
        return decode_name(self.key)

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
        if_last: IdLike | None = ...,
        delay: Duration | None = ...,
        at: datetime | None = ...,
        wait_replicas: int | None = ...,
        timeout: float = ...,
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
        if_last: IdLike | None = ...,
        delay: Duration | None = ...,
        at: datetime | None = ...,
        wait_replicas: int | None = ...,
        timeout: float = ...,
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
        if_last: IdLike | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        wait_replicas: int | None = None,
        timeout: float = REPLICAS_TIMEOUT_S,
    ) -> StreamID:
        """Add an entry. When this returns, the entry is as durable as the database promises.

        >>> orders.add({"customer": "ada"}, maxlen=1_000_000)
        StreamID(1700000000000, 0)

        Args:
            value: a mapping of fields, or a value of the stream's codec.
            id: the entry's ID, larger than all before. `"*"`: the stream generates it from the clock. A
                datetime or `"ms-*"`: the stream generates only the sequence number.
            maxlen: trim the stream to this many entries.
            minid: trim entries before this ID.
            approximate: trim whole nodes only, which is much cheaper, but may leave up to 100 entries more.
            references: what happens to trimmed entries in the groups' pending lists: `"keep"` them,
                `"delete"` them, or trim only entries that all groups have `"acknowledged"`.
            idempotency: (producer, request). A request added twice is stored once, and both calls return the
                same ID. A stream remembers the last 100 requests of each producer for 100 seconds; see
                stream_idmp_maxsize and stream_idmp_duration of open().
            create: whether to create the stream if it does not exist.
            if_last: add the entry only if this is the stream's last ID; "0-0" for a new stream.
            delay: seconds, or a timedelta, until the entry is added. The returned ID is for cancel().
            at: when the entry is added, a datetime with a time zone. The returned ID is for cancel().
            wait_replicas: how many replicas must have the entry; None: the setting of connect().
            timeout: seconds to wait for the replicas.

        Returns:
            The ID of the entry.

        Raises:
            UsageError: if an argument is invalid, or arguments cannot be combined.
            NotSupported: if the server does not know an option.
            NoSuchStream: if the stream does not exist and `create` is False.
            IdTooSmall: if `id` is not larger than all IDs before.
            LastIdMismatch: if the last ID is not `if_last`.
            StreamFull: if the rules of the stream reject more entries.
            EntriesKept: if `maxlen` or `minid` would remove an entry that the rules of the stream keep.
            CodecError: if the value cannot be stored, or would come back changed.
            NotOnDisk: if the entry is in memory but the disk rejected it.
            ConnectionLost: if the server was lost: the entry may have been added. With `idempotency` the call
                is retried first.
            NotReplicated: if the entry is stored, but too few replicas confirmed it in time.
        """
        options: list[bytes] = []
        if not (maxlen is None and minid is None and references == "keep" and idempotency is None and create):
            options = xadd_options(maxlen, minid, approximate, references, idempotency, create)
        word = b"*" if id == "*" else xadd_id(id)
        if idempotency is not None and word != b"*":
            raise UsageError("idempotency and id: the stream generates the ID of such an entry; leave id out")
        if not (if_last is None and delay is None and at is None):
            options = with_headrace_xadd_options(options, word, if_last, delay, at)
        found = self._add(self._write_backend(wait_replicas, timeout), word, value, options)
        if found is None:
            raise self._no_such_stream_error() if if_last is None else LastIdMismatch(self.name, str(if_last))
        return found

    def _add(self, backend: Backend, id: bytes, value: Any, options: list[bytes]) -> StreamID | None:
        try:
            reply = backend.add(self.key, id, self.codec.encode(value), options)
        except CommandError as refused:
            raise _explained(refused, options) from None
        return None if reply is None else id_from_reply(reply)

    def cancel(self, id: IdLike) -> bool:
        """Cancel a scheduled entry, by the ID that add() has returned.

        Returns:
            True; False if there is no such entry, because it was already added to the stream or cancelled.
        """
        schedule = schedule_name(self.key)
        return bool(self.backend.request(b"XDEL", schedule, bytes(to_stream_id(id))))

    # Rules.

    def set_retention(self, retention: Retention | None) -> None:
        """Replace the rules by which the server trims the stream, which is created if it does not exist.

        Args:
            retention: the rules; None removes all.

        Raises:
            UsageError: if `retention` is not a Retention, or one of its values is invalid.
            NotSupported: if the server is not Headrace.
        """
        if retention is not None and not isinstance(retention, Retention):
            raise UsageError(
                f"retention={retention!r}: pass a headrace.Retention, such as Retention(max_age=60)"
            )
        words = (Retention() if retention is None else retention).xcfgset_arguments()
        try:
            self.backend.request(b"XCFGSET", self.key, b"MKSTREAM", *words)
        except CommandError as rejected:
            raise rules_error(rejected) from None

    def rules(self) -> dict[str, str]:
        """Return the rules of the stream, by the names that XCFGSET uses; {} if there are none."""
        try:
            return rules_from_reply(self.backend.request(b"XINFO", b"STREAM", self.key))
        except NoSuchKey:
            return {}

    @overload
    def add_many(
        self: Stream[dict[Any, Any]],
        values: Iterable[Fields],
        *,
        maxlen: int | None = ...,
        minid: IdLike | None = ...,
        approximate: bool = ...,
        references: References = ...,
        wait_replicas: int | None = ...,
        timeout: float = ...,
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
        wait_replicas: int | None = ...,
        timeout: float = ...,
    ) -> list[StreamID]: ...

    def add_many(
        self,
        values: Iterable[Any],
        *,
        maxlen: int | None = None,
        minid: IdLike | None = None,
        approximate: bool = True,
        references: References = "keep",
        wait_replicas: int | None = None,
        timeout: float = REPLICAS_TIMEOUT_S,
    ) -> list[StreamID]:
        """Add entries in one transaction, with one sync or one round trip: by far the fastest way.

        >>> orders.add_many({"customer": name} for name in ("ada", "grace"))
        [StreamID(1700000000000, 0), StreamID(1700000000000, 1)]

        No reader sees some of the entries without the others. If one of the values is invalid, no entry is
        added. If the rules of the stream reject some of the entries, the others are added: `stored_ids` of
        the error has their IDs, and None for each value that was not stored. Such an error does not say
        whether replicas have confirmed the entries.

        >>> try:
        ...     orders.add_many(values)
        ... except headrace.errors.StreamFull as full:
        ...     rest = [value for value, id in zip(values, full.stored_ids) if id is None]

        Args:
            values: as `value` of add().
            maxlen: as in add().
            minid: as in add().
            approximate: as in add().
            references: as in add().
            wait_replicas: as in add().
            timeout: as in add().

        Returns:
            The IDs, in the order of the values.

        Raises:
            UsageError: if an argument is invalid.
            NotSupported: if the server does not know an option.
            StreamFull: if the rules of the stream reject one of the entries.
            EntriesKept: if `maxlen` or `minid` would remove an entry that the rules of the stream keep.
            CodecError: if a value cannot be stored, or would come back changed.
            NotOnDisk: if the entries are in memory but the disk rejected them.
            ConnectionLost: if the server was lost: the entries may have been added.
            NotReplicated: if the entries are stored, but too few replicas confirmed them in time.
        """
        options = xadd_options(maxlen, minid, approximate, references, None, True)
        # The backend checks plain fields.
        entries = values if self.codec is PLAIN_CODEC else map(self.codec.encode, values)
        try:
            replies = self._write_backend(wait_replicas, timeout).add_many(self.key, entries, options)
        except CommandError as refused:
            refused.stored_ids = [None if id is None else id_from_reply(id) for id in refused.stored_ids]
            raise _explained(refused, options) from None
        return list(map(id_from_reply, replies))

    def _write_backend(self, wait_replicas: int | None, timeout: float) -> Backend:
        """Return the backend, or one that also waits for replicas."""
        if wait_replicas is None:
            return self.backend
        with_replica_wait = getattr(self.backend, "with_replica_wait", None)
        if with_replica_wait is None:
            raise UsageError("wait_replicas: this database has no replicas; a server has: headrace.connect()")
        writer: Backend = with_replica_wait(*checked_replica_wait(wait_replicas, timeout))
        return writer

    def trim(
        self,
        *,
        maxlen: int | None = None,
        minid: IdLike | None = None,
        approximate: bool = False,
        references: References = "keep",
    ) -> int:
        """Remove the oldest entries: all but `maxlen`, or those before `minid`. Pass exactly one of them.

        >>> orders.trim(minid=datetime.now(UTC) - timedelta(days=30))

        Args:
            maxlen: the number of entries to keep.
            minid: the first ID to keep.
            approximate: remove whole nodes only, which is cheaper, but may leave up to 100 entries more.
            references: as in add().

        Returns:
            The number of removed entries.

        Raises:
            UsageError: if neither or both of `maxlen` and `minid` are given.
            EntriesKept: if the rules of the stream keep one of the entries. Nothing was removed.
        """
        words = trim_arguments(maxlen, minid, approximate)
        if not words:
            raise UsageError("trim() needs maxlen= or minid=")
        if references != "keep":
            words.append(references_argument(references))
        try:
            removed: int = self.backend.request(b"XTRIM", self.key, *words)
        except CommandError as refused:
            raise _explained(refused, words) from None
        return removed

    def delete(self, *ids: IdLike, references: References = "keep") -> int:
        """Remove entries by ID.

        >>> orders.delete("1700000000000-0")
        1

        Args:
            ids: the IDs of the entries.
            references: as in add().

        Returns:
            The number of removed entries.

        Raises:
            EntriesKept: if the rules of the stream keep one of the entries. Nothing was removed.
        """
        if not ids:
            return 0
        words = [bytes(to_stream_id(id)) for id in ids]
        if references == "keep":
            removed: int = self.backend.request(b"XDEL", self.key, *words)
            return removed
        policy = references_argument(references)
        try:
            codes = self.backend.request(b"XDELEX", self.key, policy, b"IDS", b"%d" % len(words), *words)
        except NotSupported as refused:
            raise _explained(refused, [policy]) from None
        return sum(code == 1 for code in codes)

    def destroy(self) -> bool:
        """Delete the stream with all its entries and groups. Returns False if it did not exist."""
        return bool(self.backend.request(b"DEL", self.key))

    # Reading existing entries.

    def range(
        self, start: IdLike | None = None, end: IdLike | None = None, count: int | None = None
    ) -> Iterator[Entry[T]]:
        """Iterate over the entries from `start` to `end`, both included, oldest first.

        >>> today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        >>> for entry in orders.range(start=today, count=10):
        ...     print(entry.id.datetime, entry.text)

        Entries are fetched page by page. Changes made meanwhile are seen in pages that are not fetched yet.

        Args:
            start: the first ID; None for the oldest.
            end: the last ID; None for the newest.
            count: the maximum number of entries; None for all.

        Raises:
            UsageError: if `count` is not a non-negative integer.
        """
        return self._pages(b"XRANGE", range_start(start), range_end(end), count)

    def reverse(
        self, start: IdLike | None = None, end: IdLike | None = None, count: int | None = None
    ) -> Iterator[Entry[T]]:
        """Iterate over the entries of range(start, end), newest first. `count` counts from the newest.

        >>> latest = list(orders.reverse(count=10))
        """
        return self._pages(b"XREVRANGE", range_end(end), range_start(start), count)

    def _pages(self, command: bytes, at: bytes, to: bytes, count: int | None) -> Iterator[Entry[T]]:
        left = math.inf if count is None else int(count_argument(count))
        return self._walk(command, at, to, left)

    def _walk(self, command: bytes, at: bytes, to: bytes, left: float) -> Iterator[Entry[T]]:
        page = FIRST_PAGE_ENTRIES
        last = StreamID.MAX if command == b"XRANGE" else StreamID.MIN
        while left > 0:
            asked = int(min(page, left))
            reply = self.reading_backend.request(command, self.key, at, to, b"COUNT", b"%d" % asked)
            entries = entries_from_reply(reply, self.codec)
            yield from entries
            if len(entries) < asked or entries[-1].id == last:
                return
            id = entries[-1].id
            at = bytes(id.next() if command == b"XRANGE" else id.previous())
            left -= asked
            page = min(4 * page, PAGE_ENTRIES_MAX)

    def __iter__(self) -> Iterator[Entry[T]]:
        """Iterate over the existing entries, oldest first. To wait for new ones, use follow()."""
        return self.range()

    def __reversed__(self) -> Iterator[Entry[T]]:
        return self.reverse()

    @overload
    def __getitem__(self, at: slice) -> list[Entry[T]]: ...
    @overload
    def __getitem__(self, at: IdLike) -> Entry[T]: ...

    def __getitem__(self, at: slice | IdLike) -> list[Entry[T]] | Entry[T]:
        """Return the entry of an ID, or the list of entries of a slice, whose end is excluded.

        >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
        >>> orders[noon : noon + timedelta(hours=1)]

        Raises:
            KeyError: if no entry has that ID.
            UsageError: if the slice has a step.
        """
        if not isinstance(at, slice):
            found = list(self.range(id := to_stream_id(at), id))
            if not found:
                raise KeyError(f"stream {self.name!r} has no entry {id}")
            return found[0]
        if at.step is not None:
            raise UsageError("a slice of a stream has no step; use reverse() for the opposite order")
        if at.stop is None:
            return list(self.range(at.start))
        end = to_stream_id(at.stop)
        return list(self.range(at.start, end.previous())) if end > StreamID.MIN else []

    def __contains__(self, id: IdLike) -> bool:
        """Return whether an entry has that ID."""
        whole = to_stream_id(id)
        return any(True for _ in self.range(whole, whole))

    def __len__(self) -> int:
        """Return the number of entries."""
        length: int = self.reading_backend.request(b"XLEN", self.key)
        return length

    def __bool__(self) -> bool:
        """Return whether the stream has entries."""
        return len(self) > 0

    def first(self) -> Entry[T] | None:
        """Return the oldest entry, or None."""
        return next(self.range(count=1), None)

    def last(self) -> Entry[T] | None:
        """Return the newest entry, or None."""
        return next(self.reverse(count=1), None)

    def info(self) -> StreamInfo[T]:
        """Return length, IDs and more.

        Raises:
            NoSuchStream: if the stream does not exist.
        """
        try:
            return StreamInfo.from_reply(self.backend.request(b"XINFO", b"STREAM", self.key), self.codec)
        except NoSuchKey:
            raise self._no_such_stream_error() from None

    # Reading existing entries as columns.

    def to_arrow(
        self,
        schema: pa.Schema | None = None,
        *,
        start: IdLike | None = None,
        end: IdLike | None = None,
        count: int | None = None,
    ) -> pa.Table:
        """Return the entries from `start` to `end`, both included, as a pyarrow.Table, oldest first.

        >>> orders.to_arrow(pa.schema([("_id", pa.string()), ("cents", pa.int64())]))

        Each column is read from the field of its name. A missing field is null. A value that does not fit the
        type becomes null, too; such values are counted in the metadata of the schema, at `headrace.misfits`,
        and in a warning of the logger `headrace.stream`.

        Args:
            schema: the columns. Types of fields are string, binary, bool, int8 to int64, float32, float64,
                date32, decimal128, timestamp[us], and lists, maps and structs of these, which are read from
                JSON. Names of the entry's own columns begin with an underscore: `_id`, `_timestamp`,
                `_sequence`, `_stream`, `_fields`, `_corrupt_record`. None: `_id` as string, and `_fields` as
                map<string, string>.
            start: the first ID; None for the oldest.
            end: the last ID; None for the newest entry at the time of the call.
            count: the maximum number of entries; None for all.

        Raises:
            UsageError: if pyarrow is not installed, or a column has another type.
            CodecError: if a value is missing or does not fit, and its column is not nullable.
        """
        return self.arrow_batches(schema, start=start, end=end, count=count).read_all()

    def arrow_batches(
        self,
        schema: pa.Schema | None = None,
        *,
        start: IdLike | None = None,
        end: IdLike | None = None,
        count: int | None = None,
    ) -> ArrowBatches:
        """Return the entries of to_arrow() as record batches, which need little memory at a time.

        Entries that are removed during the read are missing if their batch was not read yet. PyArrow, Polars,
        pandas and DuckDB read the batches without copying them:

        >>> polars.DataFrame(orders.arrow_batches(schema))
        >>> for batch in orders.arrow_batches(schema):
        ...     writer.write_batch(batch)

        Args:
            schema: as in to_arrow().
            start: as in to_arrow().
            end: as in to_arrow().
            count: as in to_arrow().

        Raises:
            UsageError: if pyarrow is not installed, or a column has another type.
        """
        try:
            from headrace.api.arrow_batches import ArrowBatches
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            raise UsageError("Arrow tables need pyarrow: pip install 'headrace[arrow]'") from error

        most = None if count is None else int(count_argument(count))
        return ArrowBatches(self.reading_backend, self.key, schema, range_start(start), range_end(end), most)

    # Waiting for new entries.

    def read(
        self,
        after: IdLike = "$",
        count: int | None = None,
        block: float | None = None,
        stop: Stop | None = None,
    ) -> list[Entry[T]]:
        """Return the entries after an ID. If there are none yet, wait for them.

        >>> entries = orders.read(after="0", count=100)
        >>> more = orders.read(after=entries[-1].id, block=5.0)

        Args:
            after: entries after this ID; `"$"` for entries added from now on.
            count: the maximum number of entries; None for no limit.
            block: seconds to wait; None: do not wait; math.inf: no limit.
            stop: a Stop; calling its set() ends the wait.

        Returns:
            The entries; an empty list after a timeout or `stop.set()`.

        Raises:
            UsageError: if `count` or `block` is invalid.
        """
        if block is not None and not (isinstance(block, int | float) and block >= 0):
            raise UsageError(f"block={block!r}: must be seconds of at least 0, None not to wait, or math.inf")
        if after == "$":
            if block is None:
                return []
            after = self._last_id()
        words = [b"XREAD"]
        if count is not None:
            if count == 0:
                return []
            words += [b"COUNT", count_argument(count)]
        words += [b"STREAMS", self.key, bytes(to_stream_id(after))]
        if block is None:
            reply = self.reading_backend.request(*words)
            return entries_from_reply(reply[0][1], self.codec) if reply else []
        most = None if count is None else int(count_argument(count))
        seconds = None if math.isinf(block) else block
        return self._read_waiting(to_stream_id(after), most, seconds, stop, None)

    def _read_waiting(
        self,
        after: StreamID,
        count: int | None,
        seconds: float | None,
        stop: Stop | None,
        gaps: GapWatch | None,
    ) -> list[Entry[T]]:
        """Wait for the entries after an ID. On a server, all waiting readers share one connection."""
        backend = self.reading_backend
        options = () if count is None else (b"COUNT", b"%d" % count)
        words = (b"XREAD", *options, b"STREAMS", self.key, bytes(after))
        if not backend.is_remote:
            if gaps is not None:
                return entries_from_reply(self._read_checking_gaps(words, stop, gaps), self.codec)
            reply = backend.execute_blocking_read(words, seconds, stop)
            return entries_from_reply(reply[0][1], self.codec) if reply else []
        if seconds is not None and seconds < SHORT_WAIT_S:  # the shared one may take as long to begin
            reply = backend.request(*words)
            if reply or seconds <= 0:
                return entries_from_reply(reply[0][1], self.codec) if reply else []
        read = partial(FollowRead, self.key, after, count, gaps)
        return entries_from_reply([*read_through_hub(backend, read, seconds, stop).result()], self.codec)

    def _read_checking_gaps(self, words: Sequence[bytes], stop: Stop | None, gaps: GapWatch) -> list[Any]:
        """Return the entries of a read; none if `stop` is set or a gap must be raised."""
        if gaps.is_due():
            self._check_gaps(gaps, [])
        while not (gaps.must_raise or (stop is not None and stop.is_set())):
            reply = self.reading_backend.execute_blocking_read(words, gaps.seconds_until_due(), stop)
            entries: list[Any] = reply[0][1] if reply else []
            is_stopped = stop is not None and stop.is_set()
            if gaps.raises_gaps if entries else not is_stopped:
                self._check_gaps(gaps, entries)
            if entries:
                return entries
        return []

    def _check_gaps(self, gaps: GapWatch, unread: Sequence[Any]) -> None:
        try:
            about = self.reading_backend.request(b"XINFO", b"STREAM", self.key)
        except CommandError:  # there is no stream, or the user may not ask
            gaps.schedule_next_check()
        else:
            gaps.find_gap(dict_from_reply(about), unread)

    def follow(self, after: IdLike = "$", stop: Stop | None = None, *, on_gap: OnGap = "warn") -> Follower[T]:
        """Iterate over the entries after an ID, and then over new entries as they are added.

        >>> for entry in orders.follow(after="0"):  # all of it; by default from now on
        ...     print(entry.value)

        Nothing is acknowledged or recorded. To process every entry at least once, use a group. All followers
        and blocking reads of a server share one connection.

        Args:
            after: entries after this ID; `"$"` for entries added from now on.
            stop: a Stop; calling its set() ends the iteration. None: the iteration never ends.
            on_gap: what happens if entries were removed before they were read. `"warn"`: a StreamGap with
                their number is added to the follower's `gaps`, and the logger `headrace.stream` warns.
                `"raise"`: the StreamGap is raised, too.

        Raises:
            UsageError: if `on_gap` is invalid.
            StreamGap: in the iteration, with on_gap="raise".
        """
        position = self._last_id() if after == "$" else to_stream_id(after)
        gaps = GapWatch(self.name, position, on_gap)
        return Follower(self._follow(position, stop, gaps), gaps)

    def follow_async(
        self, after: IdLike = "$", stop: Stop | None = None, *, on_gap: OnGap = "warn"
    ) -> AsyncFollower[T]:
        """Follow the stream in asyncio, as follow() does. Cancelling the task ends the wait.

        >>> async for entry in orders.follow_async():
        ...     await websocket.send(entry.text["customer"])

        All followers of a database share one thread.

        Args:
            after: as in follow(), but `"$"` is for entries added after the iteration has begun.
            stop: as in follow().
            on_gap: as in follow().

        Raises:
            UsageError: if `on_gap` is invalid.
            StreamGap: in the iteration, with on_gap="raise".
        """
        from headrace.api.consuming.async_stream import follow

        position = None if after == "$" else to_stream_id(after)
        gaps = GapWatch(self.name, position, on_gap)
        return AsyncFollower(follow(self.reading_backend, self.key, self.codec, position, stop, gaps), gaps)

    def _follow(self, after: StreamID, stop: Stop | None, gaps: GapWatch) -> Iterator[Entry[T]]:
        while stop is None or not stop.is_set():
            entries = self._read_waiting(after, FOLLOW_COUNT, None, stop, gaps)
            gaps.raise_found()
            for entry in entries:
                if stop is not None and stop.is_set():
                    break
                gaps.record_read(entry.id)
                yield entry
                after = entry.id
        if gaps.has_unchecked_entries:
            check_gaps_at_end(self.reading_backend, self.key, gaps)

    def _last_id(self) -> StreamID:
        """Return the largest ID ever generated, which precedes all new entries; 0-0 if there is no stream."""
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
        max_deliveries: int | None = MAX_DELIVERIES_DEFAULT,
        dead_letters: str | bytes | Literal[False] | None = None,
        lease: float = LEASE_DEFAULT,
        backoff: Backoff | None = None,
        ordered_by: str | bytes | None = None,
        recreate: Literal["0", "$", False] = False,
        create: bool = False,
    ) -> Group[T]:
        """Return the consumer group of that name. Its first consumer creates it, and the stream.

        >>> billing = orders.group("billing", start="0", max_deliveries=5)
        >>> for entry in billing.consumer("worker-1"):
        ...     send_invoice(entry.value)

        Args:
            name: the name of the group.
            start: as in Group.
            max_deliveries: as in Group.
            dead_letters: as in Group.
            lease: as in Group.
            backoff: as in Group.
            ordered_by: as in Group.
            recreate: as in Group.
            create: create the group and the stream now if they do not exist. With `start="$"` the group then
                has the entries added from now on, even if its first consumer starts later.

        Raises:
            UsageError: if an argument is invalid.
            NotSupported: if `ordered_by` and `create` are given, and the server is not Headrace.
            CommandError: if the server rejects the group.
        """
        group = Group(
            self,
            name,
            start,
            max_deliveries=max_deliveries,
            dead_letters=dead_letters,
            lease=lease,
            backoff=backoff,
            ordered_by=ordered_by,
            recreate=recreate,
        )
        if create:
            group.create()
        return group

    def groups(self) -> list[GroupInfo]:
        """Return the consumer groups; an empty list if the stream does not exist."""
        try:
            return [GroupInfo.from_reply(one) for one in self.backend.request(b"XINFO", b"GROUPS", self.key)]
        except NoSuchKey:
            return []

    def _no_such_stream_error(self) -> NoSuchStream:
        return NoSuchStream(f"there is no stream {self.name!r}; the first add() creates it")


NEWER_XADD_OPTIONS = {
    b"KEEPREF": ("references", "8.2"),
    b"DELREF": ("references", "8.2"),
    b"ACKED": ("references", "8.2"),
}
NEWER_XADD_OPTIONS[b"IDMP"] = ("idempotency", "8.6")
ARGUMENT_BY_HEADRACE_OPTION = {b"IFLAST": "if_last", b"DELAY": "delay", b"DUE": "at"}


def _explained(refused: CommandError, options: list[bytes]) -> CommandError:
    """Return NotSupported if the error means that the server does not know an option; otherwise the error."""
    if isinstance(refused, InvalidStreamId | InvalidSyntax | NotSupported):
        for word in options:
            if word in NEWER_XADD_OPTIONS:
                return not_supported_error(refused, *NEWER_XADD_OPTIONS[word])
            if word in ARGUMENT_BY_HEADRACE_OPTION:
                return NotSupported(
                    f"{refused} ({ARGUMENT_BY_HEADRACE_OPTION[word]}= needs a Headrace server)"
                )
    return refused
