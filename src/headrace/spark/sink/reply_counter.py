r"""Count replies and find errors among them, without making objects of them.

    +OK\r\n                        a reply
    $15\r\n1763676000000-0\r\n     a reply; its hyphen is not an error
    *3\r\n                         a reply of three elements, such as EXEC's:
    $15\r\n1763676000000-1\r\n       element 0
    -ERR no\r\n                      element 1, an error
    +OK\r\n                          element 2

A line is an error only if an element begins there; the contents of strings are skipped by their length.
"""

from __future__ import annotations

import cython

from headrace import limits, mem
from headrace.errors import ProtocolError
from headrace.resp.read_buffer import ReadBuffer
from headrace.visibility import Public

NULL_SIZE = cython.declare(cython.longlong, -1)
ARRAY_ELEMENTS_MAX = cython.declare(cython.longlong, 0xFFFFFFFF)
BULK_BYTES_MAX = cython.declare(cython.longlong, limits.BULK_BYTES_MAX)
SIMPLE = cython.declare(cython.uchar, 43)  # +
ERROR = cython.declare(cython.uchar, 45)  # -
INTEGER = cython.declare(cython.uchar, 58)  # :
BULK = cython.declare(cython.uchar, 36)  # $
ARRAY = cython.declare(cython.uchar, 42)  # *


@cython.final
@cython.cclass
class ReplyCounter(ReadBuffer):
    """Counts RESP2 replies: expect(n), then feed() until received_all().

    errors  (reply, element, text) of every error: two indexes; element is -1 if the reply is an error
    last_reply_string   the last reply if it is a string; None if it is null
    last_reply_is_null    whether the last reply is null
    strings the strings in the last reply, at any depth, if keep_strings is set
    """

    expected: cython.Py_ssize_t
    counted: cython.Py_ssize_t
    reply_elements_left: cython.longlong  # remaining elements of the current reply
    next_element_index: cython.Py_ssize_t  # index of the next element in its reply; -1: the reply itself
    errors: list[tuple[int, int, str]]
    last_reply_string: bytes | None
    last_reply_is_null: cython.bint
    keep_strings: Public[cython.bint]
    strings: list[bytes]

    def __init__(self) -> None:
        super().__init__()
        self.expected = 0
        self.counted = 0
        self.reply_elements_left = 1
        self.next_element_index = -1
        self.errors = []
        self.last_reply_string = None
        self.last_reply_is_null = False
        self.keep_strings = False
        self.strings = []

    def expect(self, replies: int, keep_strings: bool = False) -> None:
        """Start counting this number of replies. All previous ones must be counted."""
        assert self.counted == self.expected, "replies are outstanding"
        self.expected = replies
        self.counted = 0
        self.errors = []
        self.last_reply_string = None
        self.last_reply_is_null = False
        self.keep_strings = keep_strings
        self.strings = []

    @cython.ccall
    def received_all(self) -> cython.bint:
        """Count the received replies; return whether all have arrived. Raises ProtocolError."""
        while self.counted < self.expected and self._step():
            pass
        return self.counted == self.expected

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _step(self) -> cython.bint:
        """Consume one element; return False if it is incomplete."""
        if self.at >= self.filled:
            return False
        end: cython.Py_ssize_t = self.line_end("a reply's line is too long")
        if end < 0:
            return False
        kind: cython.uchar = self.p[self.at]
        begin: cython.Py_ssize_t = self.at + 1
        size: cython.longlong
        self.last_reply_is_null = False
        if kind in (BULK, ARRAY):
            size = self.parse_number(begin, end)
            if size < NULL_SIZE or size > (BULK_BYTES_MAX if kind == BULK else ARRAY_ELEMENTS_MAX):
                raise ProtocolError("a reply with an invalid length")
            begin = end + 2
            self.last_reply_is_null = size == NULL_SIZE
            if kind == BULK and not self.last_reply_is_null:
                end = begin + size
                if end + 2 > self.filled:
                    return False
            if kind == ARRAY and not self.last_reply_is_null:
                self.reply_elements_left += size
        elif kind == ERROR:
            text: str = mem.to_bytes(self.p, begin, end - begin).decode(errors="replace")
            self.errors.append((self.counted, self.next_element_index, text))
        elif kind != SIMPLE and kind != INTEGER:
            raise ProtocolError("not a reply")
        if self.keep_strings:
            if self.next_element_index < 0:
                self.strings = []
            if kind == BULK and not self.last_reply_is_null:
                self.strings.append(mem.to_bytes(self.p, begin, end - begin))
        if self.next_element_index < 0:
            self.last_reply_string = (
                None if self.last_reply_is_null or kind == ARRAY else mem.to_bytes(self.p, begin, end - begin)
            )
        self.at = end + 2
        self.next_element_index += 1
        self.reply_elements_left -= 1
        if self.reply_elements_left == 0:
            self.reply_elements_left = 1
            self.next_element_index = -1
            self.counted += 1
        return True
