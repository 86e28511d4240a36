"""Parses replies for clients of a server: RESP2 and RESP3 bytes in, Python objects out.

    $ = string, verbatim   bytes          * array        list        _ $-1 *-1   None
    + status               str            % map          dict        #           bool
    - ! error              CommandError   ~ set          list        ,           float
    : ( number             int            > push         Push        |           skipped

A reply may be incomplete and is resumed; open aggregates are on an explicit stack.
"""

from __future__ import annotations

import cython

from headrace import limits, mem
from headrace.errors import CommandError, ProtocolError
from headrace.resp.read_buffer import ReadBuffer

NO_SIZE = cython.declare(cython.longlong, -1)  # no string has begun
# Elements of one aggregate; it grows as they arrive.
AGGREGATE_ITEMS_MAX = cython.declare(cython.longlong, 0xFFFFFFFF)
DEPTH_MAX = cython.declare(cython.Py_ssize_t, limits.REPLY_DEPTH_MAX)
BULK_MAX = cython.declare(cython.longlong, limits.BULK_BYTES_MAX)

SIMPLE = cython.declare(cython.uchar, 43)  # +
ERROR = cython.declare(cython.uchar, 45)  # -
INTEGER = cython.declare(cython.uchar, 58)  # :
BULK = cython.declare(cython.uchar, 36)  # $
BLOB_ERROR = cython.declare(cython.uchar, 33)  # !
VERBATIM = cython.declare(cython.uchar, 61)  # =
ARRAY = cython.declare(cython.uchar, 42)  # *
MAP = cython.declare(cython.uchar, 37)  # %
SET = cython.declare(cython.uchar, 126)  # ~
PUSH = cython.declare(cython.uchar, 62)  # >
ATTRIBUTE = cython.declare(cython.uchar, 124)  # |
NULL = cython.declare(cython.uchar, 95)  # _
BOOLEAN = cython.declare(cython.uchar, 35)  # #
DOUBLE = cython.declare(cython.uchar, 44)  # ,
BIG_NUMBER = cython.declare(cython.uchar, 40)  # (


class Push(list[object]):
    """A push message: not a reply to a request."""


class _Marker:
    """A parser state that is not a reply."""


INCOMPLETE = _Marker()  # the reply's last byte has not arrived
_OPENED = _Marker()  # an aggregate has begun
_SKIPPED = _Marker()  # an attribute has ended


@cython.final
@cython.cclass
class Aggregate:
    """An array, map, set, push or attribute whose elements are still arriving."""

    kind: cython.uchar
    items_left: cython.longlong  # elements to come, keys and values counted apart
    items: list[object]
    parent: Aggregate | None

    def __init__(self, kind: cython.uchar, left: cython.longlong, parent: Aggregate | None) -> None:
        self.kind = kind
        self.items_left = left
        self.items = []
        self.parent = parent

    @cython.cfunc
    def build(self) -> object:
        """Return the reply built from the elements; _SKIPPED for an attribute."""
        if self.kind == MAP:
            return _pairs(self.items)
        if self.kind == PUSH:
            return Push(self.items)
        if self.kind == ATTRIBUTE:
            return _SKIPPED
        return self.items


@cython.final
@cython.cclass
class ReplyParser(ReadBuffer):
    """Feed it the bytes that the server sent, then call next() until it returns INCOMPLETE."""

    kind: cython.uchar  # of the string begun
    size: cython.longlong  # the length of the string begun, or NO_SIZE
    innermost_aggregate: Aggregate | None  # the innermost aggregate still open
    depth: cython.Py_ssize_t

    def __init__(self) -> None:
        super().__init__()
        self.kind = 0
        self.size = NO_SIZE
        self.innermost_aggregate = None
        self.depth = 0

    @cython.ccall
    def next(self) -> object:
        """Return the next reply, or INCOMPLETE. Raises ProtocolError if the bytes are not a reply.

        An error reply is returned as a CommandError, not raised.
        """
        item: object
        top: Aggregate | None
        while True:
            item = self._item()
            if item is _OPENED:
                continue
            if item is INCOMPLETE:
                return INCOMPLETE
            while item is not _SKIPPED:
                top = self.innermost_aggregate
                if top is None:
                    return item
                top.items.append(item)
                top.items_left -= 1
                if top.items_left > 0:
                    break
                self.innermost_aggregate = top.parent
                self.depth -= 1
                item = top.build()

    def unread_byte_count(self) -> int:
        """Return how many bytes next() has not used yet."""
        return self.filled - self.at

    @cython.cfunc
    def _item(self) -> object:
        """Return the next element (a reply or a part of one), INCOMPLETE, _OPENED or _SKIPPED."""
        if self.size != NO_SIZE:
            return self._string()
        if self.at >= self.filled:
            self.reset()
            return INCOMPLETE
        end: cython.Py_ssize_t = self.line_end("a reply's line is too long")
        if end < 0:
            return INCOMPLETE
        if end == self.at:
            raise ProtocolError("not a reply: an empty line")
        kind: cython.uchar = self.p[self.at]
        begin: cython.Py_ssize_t = self.at + 1
        if kind in (BULK, VERBATIM, BLOB_ERROR):
            self.size = self._length(begin, end, BULK_MAX)
            self.kind = kind
            self.at = end + 2
            return None if self.size == NO_SIZE else self._string()
        if kind in (ARRAY, MAP, SET, PUSH, ATTRIBUTE):
            count: cython.longlong = self._length(begin, end, AGGREGATE_ITEMS_MAX)
            self.at = end + 2
            return None if count == NO_SIZE else self._open(kind, count)
        line: bytes = mem.to_bytes(self.p, begin, end - begin)
        self.at = end + 2
        return _scalar(kind, line)

    @cython.cfunc
    def _open(self, kind: cython.uchar, count: cython.longlong) -> object:
        """Open an aggregate and return _OPENED; if it has no elements, return the built reply."""
        if kind in (MAP, ATTRIBUTE):
            count *= 2
        if self.depth >= DEPTH_MAX:
            raise ProtocolError(f"a reply nested more than {DEPTH_MAX} deep")
        aggregate: Aggregate = Aggregate(kind, count, self.innermost_aggregate)
        if count == 0:
            return aggregate.build()
        self.innermost_aggregate = aggregate
        self.depth += 1
        return _OPENED

    @cython.cfunc
    def _string(self) -> object:
        """Return the current string; INCOMPLETE until all of it has arrived."""
        size: cython.Py_ssize_t = self.size
        if size + 2 > self.filled - self.at:
            return INCOMPLETE
        text: bytes = mem.to_bytes(self.p, self.at, size)
        self.at += size + 2
        self.size = NO_SIZE
        if self.kind == BLOB_ERROR:
            return CommandError(text.decode(errors="replace"))
        return text[4:] if self.kind == VERBATIM else text

    @cython.cfunc
    def _length(
        self, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, most: cython.longlong
    ) -> cython.longlong:
        """Parse the length in [begin, end); NO_SIZE for RESP2's null."""
        n: cython.longlong = self.parse_number(begin, end)
        if n < NO_SIZE or n > most:
            raise ProtocolError("a reply with an invalid length")
        return n


def _pairs(items: list[object]) -> dict[object, object]:
    """Return a map's elements as a dict. A key that is a list or a map becomes its string form."""
    pairs: dict[object, object] = {}
    for key, value in zip(items[::2], items[1::2], strict=True):
        pairs[str(key) if isinstance(key, (list, dict)) else key] = value
    return pairs


def _scalar(kind: int, line: bytes) -> object:
    """Decode a reply of one line. Raises ProtocolError if it is not one."""
    try:
        if kind in (INTEGER, BIG_NUMBER):
            return int(line)
        if kind == SIMPLE:
            return line.decode(errors="replace")
        if kind == ERROR:
            return CommandError(line.decode(errors="replace"))
        if kind == NULL:
            return None
        if kind == BOOLEAN and line in (b"t", b"f"):
            return line == b"t"
        if kind == DOUBLE:
            return float(line)
    except ValueError:
        pass
    raise ProtocolError(f"not a reply: {(bytes([kind]) + line)[:40]!r}")
