r"""Reads replies in the process that wrote them: RESP2 in a ReplyWriter's memory, Python objects out.

    +status\r\n      bytes            $3\r\nabc\r\n    bytes        *2\r\n ... ...   list
    :number\r\n      int              $-1\r\n *-1\r\n   None        -ERR text\r\n    CommandError, not raised

Unlike a client's parser (reply_parser.py) it never sees an incomplete reply, so it reads the bytes once, in
place.
"""

from __future__ import annotations

import cython

from headrace import mem
from headrace.errors import CommandError, ProtocolError
from headrace.resp.writer import ReplyWriter

CR = cython.declare(cython.uchar, 13)
SIMPLE = cython.declare(cython.uchar, 43)  # +
ERROR = cython.declare(cython.uchar, 45)  # -
INTEGER = cython.declare(cython.uchar, 58)  # :
BULK = cython.declare(cython.uchar, 36)  # $
ARRAY = cython.declare(cython.uchar, 42)  # *
ZERO_DIGIT = cython.declare(cython.uchar, 48)
HYPHEN = cython.declare(cython.uchar, 45)


@cython.final
@cython.cclass
class LocalReplyReader:
    """Reads replies from the front of a ReplyWriter, one at a time."""

    at: cython.Py_ssize_t
    end: cython.Py_ssize_t

    def __init__(self) -> None:
        self.at = 0
        self.end = 0

    @cython.ccall
    def read_reply(self, writer: ReplyWriter) -> object:
        """Return the first reply, which then counts as sent. An error reply is returned as a CommandError.

        Raises ProtocolError if there is no reply, or if it is incomplete or not RESP2.
        """
        self.at = writer.start
        self.end = writer.used
        item: object = self._item(writer.p)
        writer.mark_sent(self.at - writer.start)
        return item

    @cython.cfunc
    def _item(self, p: cython.p_const_uchar) -> object:
        if self.at >= self.end:
            raise ProtocolError("no reply")
        kind: cython.uchar = p[self.at]
        begin: cython.Py_ssize_t = self.at + 1
        n: cython.longlong
        if kind == BULK:
            n = self._number(p)
            if n < 0:
                return None
            begin = self.at
            if n > self.end - begin - 2:
                raise ProtocolError("incomplete reply")
            self.at = begin + n + 2
            return mem.to_bytes(p, begin, n)
        if kind == ARRAY:
            n = self._number(p)
            if n < 0:
                return None
            items: list[object] = []
            while n > 0:
                items.append(self._item(p))
                n -= 1
            return items
        if kind == INTEGER:
            return self._number(p)
        end: cython.Py_ssize_t = mem.find(p, begin, self.end, CR)
        if end < 0 or kind not in (SIMPLE, ERROR):
            raise ProtocolError("not a reply in RESP2")
        self.at = end + 2
        line: bytes = mem.to_bytes(p, begin, end - begin)
        return line if kind == SIMPLE else CommandError(line.decode(errors="replace"))

    @cython.cfunc
    def _number(self, p: cython.p_const_uchar) -> cython.longlong:
        """Read type byte, number and line end; return the number."""
        at: cython.Py_ssize_t = self.at + 1
        end: cython.Py_ssize_t = self.end
        negative: cython.bint = at < end and p[at] == HYPHEN
        if negative:
            at += 1
        number: cython.longlong = 0
        digit: cython.longlong
        while at < end and p[at] != CR:
            digit = p[at]
            number = number * 10 - (digit - ZERO_DIGIT)  # below zero there is room for one more
            at += 1
        self.at = at + 2
        return number if negative else -number
