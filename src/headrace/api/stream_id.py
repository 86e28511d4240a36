"""Entry IDs in Python: ordered, hashable, with their time."""

from __future__ import annotations

from datetime import UTC, timedelta
from datetime import datetime as DateTime

import cython

from headrace.errors import InvalidID
from headrace.structures import stream_id
from headrace.structures.stream_id import StreamId

U64_MAX = 0xFFFFFFFFFFFFFFFF
EPOCH = DateTime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


class _Extreme:
    """StreamID.MIN and MAX: a class body cannot make instances of its own class."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __get__(self, instance: object, owner: object) -> StreamID:
        return StreamID(self.n, self.n)


@cython.final
@cython.freelist(64)
@cython.cclass
class StreamID:
    """The ID of an entry: milliseconds since 1970, and a sequence number within the millisecond.

    IDs are ordered like the entries. They are immutable.

    >>> first, second = StreamID(1700000000000, 0), StreamID.parse("1700000000000-1")
    >>> first < second
    True
    >>> str(second)
    '1700000000000-1'
    >>> second.datetime.isoformat()
    '2023-11-14T22:13:20+00:00'

    MIN and MAX are the smallest and the largest ID.

    Args:
        ms: milliseconds since 1970, an unsigned 64-bit number.
        seq: the sequence number, an unsigned 64-bit number.

    Raises:
        InvalidID: if a number is negative or needs more than 64 bits.
    """

    MIN = _Extreme(0)
    MAX = _Extreme(U64_MAX)

    _ms: cython.ulonglong
    _seq: cython.ulonglong

    def __init__(self, ms: int, seq: int = 0) -> None:
        if not (0 <= ms <= U64_MAX and 0 <= seq <= U64_MAX):
            raise InvalidID(
                f"{ms}-{seq} is not an entry ID: both numbers must be unsigned and fit in 64 bits"
            )
        self._ms = ms
        self._seq = seq

    @staticmethod
    def parse(text: str | bytes) -> StreamID:
        """Parse `ms-seq`, or `ms` alone, which means `ms-0`.

        >>> StreamID.parse("5-1")
        StreamID(5, 1)

        Raises:
            InvalidID: for any other text.
        """
        if isinstance(text, bytes):
            text = text.decode("ascii", "replace")
        ms, dash, seq = text.partition("-")
        # int() takes more than digits: signs, spaces, underscores.
        if not (ms.isdecimal() and ms.isascii() and (not dash or (seq.isdecimal() and seq.isascii()))):
            raise InvalidID(f"{text!r} is not an entry ID; an example is 1700000000000-0")
        return StreamID(int(ms), int(seq or 0))

    @staticmethod
    def at(when: DateTime) -> StreamID:
        """Return the smallest ID of the millisecond of a datetime, to start a range with.

        >>> from datetime import UTC, datetime
        >>> StreamID.at(datetime(2024, 1, 1, tzinfo=UTC))
        StreamID(1704067200000, 0)

        Raises:
            InvalidID: if the argument is not a datetime, or has no time zone, or is before 1970.
        """
        if not isinstance(when, DateTime):
            raise InvalidID(f"{when!r} is not a datetime")
        if when.utcoffset() is None:
            raise InvalidID(f"{when!r} has no time zone: add one, as in datetime.now(timezone.utc)")
        if when < EPOCH:
            raise InvalidID(f"{when!r} is before 1970, so no ID has this time; 0-0 precedes all")
        return StreamID((when - EPOCH) // MILLISECOND, 0)

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, by the clock that generated the ID."""
        return self._ms

    @property
    def seq(self) -> int:
        """The sequence number within the millisecond."""
        return self._seq

    @property
    def datetime(self) -> DateTime:
        """The time of the ID, in UTC. Raises InvalidID if it is after the year 9999."""
        try:
            return EPOCH + timedelta(milliseconds=self._ms)
        except OverflowError:
            raise InvalidID(f"{self} is after the year 9999 and has no datetime") from None

    def next(self) -> StreamID:
        """Return the smallest ID after this one. Raises InvalidID for MAX."""
        if self._seq < U64_MAX:
            return StreamID(self._ms, self._seq + 1)
        if self._ms < U64_MAX:
            return StreamID(self._ms + 1, 0)
        raise InvalidID("no ID comes after the largest")

    def previous(self) -> StreamID:
        """Return the largest ID before this one. Raises InvalidID for MIN."""
        if self._seq > 0:
            return StreamID(self._ms, self._seq - 1)
        if self._ms > 0:
            return StreamID(self._ms - 1, U64_MAX)
        raise InvalidID("no ID comes before 0-0")

    def __str__(self) -> str:
        return f"{self._ms}-{self._seq}"

    def __repr__(self) -> str:
        return f"StreamID({self._ms}, {self._seq})"

    def __bytes__(self) -> bytes:
        return b"%d-%d" % (self._ms, self._seq)

    def __reduce__(self) -> tuple[type[StreamID], tuple[int, int]]:
        return StreamID, (self._ms, self._seq)

    def __hash__(self) -> int:
        return hash((self._ms, self._seq))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamID):
            return NotImplemented
        that: StreamID = other
        return self._ms == that._ms and self._seq == that._seq

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, StreamID):
            return NotImplemented
        return self._before(other)

    def __le__(self, other: object) -> bool:
        if not isinstance(other, StreamID):
            return NotImplemented
        that: StreamID = other
        return not that._before(self)

    def __gt__(self, other: object) -> bool:
        if not isinstance(other, StreamID):
            return NotImplemented
        that: StreamID = other
        return that._before(self)

    def __ge__(self, other: object) -> bool:
        if not isinstance(other, StreamID):
            return NotImplemented
        return not self._before(other)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _before(self, that: StreamID) -> cython.bint:
        if self._ms != that._ms:
            return self._ms < that._ms
        return self._seq < that._seq


@cython.ccall
def id_from_reply(text: bytes) -> StreamID:
    """Return the ID in a server's reply."""
    pair: StreamId = stream_id.parse(text, 0)
    return StreamID(pair.ms, pair.seq)
