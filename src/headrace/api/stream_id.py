"""IDs of entries as a Python program holds them: ordered, hashable, with the time that they tell."""

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
    """StreamID.MIN and MAX: a class cannot hold IDs of its own kind before it is made."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __get__(self, instance: object, owner: object) -> StreamID:
        return StreamID(self.n, self.n)


@cython.final
@cython.freelist(64)
@cython.cclass
class StreamID:
    """The ID of an entry: `ms` milliseconds since 1970, and `seq` to tell entries of one millisecond apart.

    IDs order as the entries do. They are never changed once made.

    >>> first, second = StreamID(1700000000000, 0), StreamID.parse("1700000000000-1")
    >>> first < second
    True
    >>> str(second)
    '1700000000000-1'
    >>> second.datetime.isoformat()
    '2023-11-14T22:13:20+00:00'

    MIN and MAX are the smallest and the largest. InvalidID for numbers that do not fit in 64 bits.
    """

    MIN = _Extreme(0)
    MAX = _Extreme(U64_MAX)

    _ms: cython.ulonglong
    _seq: cython.ulonglong

    def __init__(self, ms: int, seq: int = 0) -> None:
        if not (0 <= ms <= U64_MAX and 0 <= seq <= U64_MAX):
            raise InvalidID(f"{ms}-{seq} is no entry's ID: both numbers are of 64 bits, without a sign")
        self._ms = ms
        self._seq = seq

    @staticmethod
    def parse(text: str | bytes) -> StreamID:
        """The ID that `ms-seq` says, or `ms` alone; InvalidID for anything else.

        >>> StreamID.parse("5-1")
        StreamID(5, 1)
        """
        if isinstance(text, bytes):
            text = text.decode("ascii", "replace")
        ms, dash, seq = text.partition("-")
        # int() takes more than digits: signs, spaces, underscores.
        if not (ms.isdecimal() and ms.isascii() and (not dash or (seq.isdecimal() and seq.isascii()))):
            raise InvalidID(f"{text!r} is no entry's ID; one looks like 1700000000000-0")
        return StreamID(int(ms), int(seq or 0))

    @staticmethod
    def at(when: DateTime) -> StreamID:
        """The smallest ID of a moment's millisecond, to begin a range with. InvalidID without a time zone.

        >>> from datetime import UTC, datetime
        >>> StreamID.at(datetime(2024, 1, 1, tzinfo=UTC))
        StreamID(1704067200000, 0)
        """
        if when.utcoffset() is None:
            raise InvalidID(f"{when!r} has no time zone: say which, as in datetime.now(timezone.utc)")
        return StreamID((when - EPOCH) // MILLISECOND, 0)

    @property
    def ms(self) -> int:
        """Milliseconds since 1970, by the clock of whoever gave the ID."""
        return self._ms

    @property
    def seq(self) -> int:
        """The number within the millisecond."""
        return self._seq

    @property
    def datetime(self) -> DateTime:
        """The moment that the ID tells, in UTC. InvalidID if Python's calendar does not reach so far."""
        try:
            return EPOCH + timedelta(milliseconds=self._ms)
        except OverflowError:
            raise InvalidID(f"{self} lies beyond the year 9999: it is no time") from None

    def next(self) -> StreamID:
        """The smallest ID after this one; InvalidID for MAX."""
        if self._seq < U64_MAX:
            return StreamID(self._ms, self._seq + 1)
        if self._ms < U64_MAX:
            return StreamID(self._ms + 1, 0)
        raise InvalidID("no ID comes after the largest")

    def previous(self) -> StreamID:
        """The largest ID before this one; InvalidID for MIN."""
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
def from_reply(text: bytes) -> StreamID:
    """The ID in a server's answer."""
    pair: StreamId = stream_id.parse(text, 0)
    return StreamID(pair.ms, pair.seq)
