"""Entry IDs: 128 bits, written <milliseconds>-<sequence>, ordered as one number.

As a rax key an ID is 16 bytes, big-endian, so that byte order is ID order:

    0                 8                 16
    +-----------------+-----------------+
    | ms      u64 be  | seq     u64 be  |
    +-----------------+-----------------+
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.errors import CommandError, IdsExhausted, InvalidStreamId
from headrace.limits import ID_TEXT_MAX

U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
KEY_BYTES = cython.declare(cython.Py_ssize_t, 16)
FORMATTED_BYTES_MAX = cython.declare(cython.Py_ssize_t, 41)  # two numbers of 20 digits and the dash
PARSED_BYTES_MAX = cython.declare(cython.Py_ssize_t, ID_TEXT_MAX)
# Text is formatted here, then copied.
FORMAT_BUFFER = cython.declare(bytearray, bytearray(FORMATTED_BYTES_MAX))
DASH = cython.declare(cython.uchar, 45)
PLUS = cython.declare(cython.uchar, 43)
SPACE = cython.declare(cython.uchar, 32)
OPEN_PARENTHESIS = cython.declare(cython.uchar, 40)


@cython.final
@cython.freelist(64)
@cython.cclass
class StreamId:
    """An immutable entry ID."""

    ms: cython.ulonglong
    seq: cython.ulonglong

    def __init__(self, ms: cython.ulonglong, seq: cython.ulonglong) -> None:
        self.ms = ms
        self.seq = seq

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def precedes(self, other: StreamId) -> cython.bint:
        """Return whether this ID is lower than other."""
        if self.ms != other.ms:
            return self.ms < other.ms
        return self.seq < other.seq

    @cython.ccall
    def successor(self) -> StreamId:
        """Return the next higher ID. Raises IdsExhausted if there is none."""
        if self.seq < U64_MAX:
            return StreamId(self.ms, self.seq + 1)
        if self.ms < U64_MAX:
            return StreamId(self.ms + 1, 0)
        raise IdsExhausted()

    @cython.ccall
    def predecessor(self) -> StreamId:
        """Return the next lower ID. Raises ValueError if there is none."""
        if self.seq > 0:
            return StreamId(self.ms, self.seq - 1)
        if self.ms > 0:
            return StreamId(self.ms - 1, U64_MAX)
        raise ValueError("no ID comes before 0-0")

    @cython.ccall
    def key(self) -> bytes:
        """Return the 16 bytes of this ID as a rax key."""
        return key_of(self.ms, self.seq)

    @cython.ccall
    def text(self) -> bytes:
        """Return `ms-seq` in decimal."""
        return text_of(self.ms, self.seq)

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    def __repr__(self) -> str:
        return f"StreamId({self.ms}, {self.seq})"

    def __hash__(self) -> int:
        return hash((self.ms, self.seq))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamId) and self.ms == other.ms and self.seq == other.seq

    def __lt__(self, other: StreamId) -> bool:
        return self.precedes(other)

    def __le__(self, other: StreamId) -> bool:
        return not other.precedes(self)

    def __gt__(self, other: StreamId) -> bool:
        return other.precedes(self)

    def __ge__(self, other: StreamId) -> bool:
        return not self.precedes(other)


@cython.cfunc
@cython.exceptval(check=False)
def is_before(
    ms: cython.ulonglong, seq: cython.ulonglong, than_ms: cython.ulonglong, than_seq: cython.ulonglong
) -> cython.bint:
    """Return whether ms-seq is lower than than_ms-than_seq, without creating a StreamId."""
    return ms < than_ms or (ms == than_ms and seq < than_seq)


@cython.ccall
def text_of(ms: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return `ms-seq` in decimal."""
    p: cython.p_uchar = FORMAT_BUFFER
    n: cython.Py_ssize_t = mem.put_decimal(p, 0, ms)
    p[n] = DASH
    n += 1
    n += mem.put_decimal(p, n, seq)
    return mem.to_bytes(p, 0, n)


@cython.ccall
def format_decimal(n: cython.longlong) -> bytes:
    """Return n in decimal, as an argument of a request."""
    if n < 0:
        return b"%d" % n
    p: cython.p_uchar = FORMAT_BUFFER
    return mem.to_bytes(p, 0, mem.put_decimal(p, 0, mem.as_unsigned(n)))


@cython.ccall
def key_of(ms: cython.ulonglong, seq: cython.ulonglong) -> bytes:
    """Return the 16 bytes of ms-seq as a rax key."""
    room: bytearray = bytearray(KEY_BYTES)
    p: cython.p_uchar = room
    mem.put_u64be(p, 0, ms)
    mem.put_u64be(p, 8, seq)
    return mem.to_bytes(p, 0, KEY_BYTES)


@cython.ccall
def from_key(key: bytes) -> StreamId:
    """Decode a rax key of 16 bytes. Raises ValueError for any other length."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key of an ID must have 16 bytes, not {len(key)}")
    p: cython.p_const_uchar = key
    return StreamId(mem.u64be(p, 0), mem.u64be(p, 8))


@cython.ccall
def parse(text: bytes, missing_seq: cython.ulonglong) -> StreamId:
    """Parse `ms-seq`, or `ms`, which means `ms-missing_seq`. Raises InvalidStreamId for anything else."""
    return _parse(text, 0, missing_seq)


@cython.ccall
def parse_bound(text: bytes, missing_seq: cython.ulonglong) -> StreamId:
    """Parse like parse(), and also `-`, the lowest ID, and `+`, the highest. Raises InvalidStreamId."""
    if text == b"-":
        return StreamId(0, 0)
    if text == b"+":
        return StreamId(U64_MAX, U64_MAX)
    return _parse(text, 0, missing_seq)


@cython.ccall
def parse_start(text: bytes) -> StreamId:
    """Parse the first ID of a range; a missing sequence is 0. A leading `(` excludes the ID.

    Raises CommandError if it is invalid, or if no ID follows the excluded one.
    """
    p: cython.p_const_uchar = text
    if len(text) == 0 or p[0] != OPEN_PARENTHESIS:
        return parse_bound(text, 0)
    bound: StreamId = _parse(text, 1, 0)
    if bound.ms == U64_MAX and bound.seq == U64_MAX:
        raise CommandError("ERR invalid start ID for the interval")
    return bound.successor()


@cython.ccall
def parse_end(text: bytes) -> StreamId:
    """Parse the last ID of a range; a missing sequence is the largest. A leading `(` excludes the ID.

    Raises CommandError if it is invalid, or if no ID precedes the excluded one.
    """
    p: cython.p_const_uchar = text
    if len(text) == 0 or p[0] != OPEN_PARENTHESIS:
        return parse_bound(text, U64_MAX)
    bound: StreamId = _parse(text, 1, U64_MAX)
    if bound.ms == 0 and bound.seq == 0:
        raise CommandError("ERR invalid end ID for the interval")
    return bound.predecessor()


@cython.cfunc
def _parse(text: bytes, at: cython.Py_ssize_t, missing_seq: cython.ulonglong) -> StreamId:
    """Parse text[at:], split at the first dash. Raises InvalidStreamId."""
    p: cython.p_const_uchar = text
    end: cython.Py_ssize_t = len(text)
    if end - at > PARSED_BYTES_MAX:
        raise InvalidStreamId()
    dash: cython.Py_ssize_t = mem.find(p, at, end, DASH)
    if dash < 0:
        return StreamId(_number(p, at, end), missing_seq)
    return StreamId(_number(p, at, dash), _number(p, dash + 1, end))


@cython.cfunc
def _number(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.ulonglong:
    """Parse p[at:end] as an unsigned number. Raises InvalidStreamId if it is not one.

    Leading white space and a plus are allowed, as in Redis and Valkey, because some clients send them.
    """
    while at < end and (p[at] == SPACE or 9 <= p[at] <= 13):
        at += 1
    if at < end and p[at] == PLUS:
        at += 1
    if at >= end:
        raise InvalidStreamId()
    value: cython.ulonglong = 0
    digit: cython.uint
    while at < end:
        if not 48 <= p[at] <= 57:
            raise InvalidStreamId()
        digit = p[at] - 48
        if value > (U64_MAX - digit) // 10:
            raise InvalidStreamId()
        value = value * 10 + digit
        at += 1
    return value
