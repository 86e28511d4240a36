r"""Parses requests: bytes in, lists of arguments out, no sockets.

    *2\r\n  $4\r\n ECHO\r\n  $2\r\n hi\r\n       an array of two strings
    ECHO hi\r\n                             the same, typed by a person

Arguments are extracted as they arrive, so an incomplete request is resumed where it stopped.
"""

from __future__ import annotations

import cython

from headrace import limits, mem
from headrace.errors import ProtocolError
from headrace.resp.inline import split_line
from headrace.resp.read_buffer import ReadBuffer
from headrace.resp.token_cache import TokenCache
from headrace.visibility import Public

CR = cython.declare(cython.uchar, 13)
LF = cython.declare(cython.uchar, 10)
ARRAY = cython.declare(cython.uchar, 42)  # *
BULK = cython.declare(cython.uchar, 36)  # $
TLS_HANDSHAKE = cython.declare(cython.uchar, 22)  # first byte of TLS, followed by its version byte 3
NO_SIZE = cython.declare(cython.longlong, -1)  # no argument begun
ARGUMENTS_MAX = cython.declare(cython.longlong, limits.REQUEST_ARGUMENTS_MAX)
INLINE_MAX = cython.declare(cython.Py_ssize_t, limits.INLINE_BYTES_MAX)
UNAUTHENTICATED_ARGUMENTS_MAX = cython.declare(cython.longlong, limits.UNAUTHENTICATED_ARGUMENTS_MAX)
UNAUTHENTICATED_ARGUMENT_BYTES_MAX = cython.declare(
    cython.Py_ssize_t, limits.UNAUTHENTICATED_ARGUMENT_BYTES_MAX
)
# Arguments for which memory is allocated before they arrive.
PREALLOCATED_ARGUMENTS_MAX = cython.declare(cython.longlong, 16)

# Shared by all parsers: clients of one server send the same tokens.
TOKEN_CACHE = cython.declare(TokenCache, TokenCache())


@cython.final
@cython.cclass
class RequestParser(ReadBuffer):
    """Feed it the bytes that the client sent, then call next() until it returns None."""

    bulk_max: Public[cython.longlong]  # the longest argument accepted
    unauthenticated: Public[cython.bint]  # the client must authenticate first: it may send little
    arguments: list[bytes] | None  # arguments of the current request
    argument_count: cython.longlong  # how many arguments it has; 0 between requests
    received_count: cython.Py_ssize_t  # how many of them have arrived
    argument_size: cython.longlong  # the length of the current argument, or NO_SIZE
    copied_bytes: cython.Py_ssize_t  # bytes already copied to `arguments`

    def __init__(self) -> None:
        super().__init__()
        self.bulk_max = limits.BULK_BYTES_MAX
        self.unauthenticated = False
        self.arguments = None
        self.argument_count = 0
        self.received_count = 0
        self.argument_size = NO_SIZE
        self.copied_bytes = 0

    @cython.ccall
    def pending_bytes(self) -> cython.Py_ssize_t:
        """Return how many bytes are held for requests that next() has not returned yet."""
        return self.filled - self.at + self.copied_bytes

    @cython.ccall
    def next(self) -> list[bytes] | None:
        """Return the next request, never empty; None if it is incomplete.

        Raises ProtocolError, with the text for the client, if the bytes are not a request. The parser must
        not be used after that.
        """
        words: list[bytes] | None
        while True:
            if self.argument_count > 0:
                return self._array()
            if self.at >= self.filled:
                self.reset()
                return None
            if self.p[self.at] == ARRAY:
                if not self._begin_array():
                    return None
            else:
                words = self._inline()
                if words is None or len(words) > 0:
                    return words

    @cython.cfunc
    def _begin_array(self) -> cython.bint:
        """Read `*<count>\\r\\n`; return False if it is incomplete. A count of 0 or less is skipped."""
        end: cython.Py_ssize_t = self.line_end("Protocol error: too big mbulk count string")
        if end < 0:
            return False
        count: cython.longlong = self.parse_number(self.at + 1, end)
        if count > ARGUMENTS_MAX:
            raise ProtocolError("Protocol error: invalid multibulk length")
        if self.unauthenticated and count > UNAUTHENTICATED_ARGUMENTS_MAX:
            raise ProtocolError("Protocol error: unauthenticated multibulk length")
        self.at = end + 2
        if count > 0:
            self.arguments = [b""] * min(count, PREALLOCATED_ARGUMENTS_MAX)
            self.argument_count = count
            self.received_count = 0
            self.copied_bytes = 0
        return True

    @cython.cfunc
    def _array(self) -> list[bytes] | None:
        """Continue the current array; return its arguments, or None if it is incomplete."""
        words: list[bytes] | None = self.arguments
        assert words is not None
        p: cython.p_uchar = self.p
        begin: cython.Py_ssize_t = self.at
        at: cython.Py_ssize_t = begin
        filled: cython.Py_ssize_t = self.filled
        received: cython.Py_ssize_t = self.received_count
        size: cython.longlong = self.argument_size
        while received < self.argument_count:
            if size == NO_SIZE:
                if filled - at > 3 and p[at] == BULK and 48 <= p[at + 1] <= 57 and p[at + 2] == CR:
                    size = p[at + 1] - 48  # one digit, as most arguments have
                    at += 4
                else:
                    self.at = at
                    size = self._size()
                    at = self.at
            if size == NO_SIZE or size + 2 > filled - at:
                break
            if received < PREALLOCATED_ARGUMENTS_MAX:
                words[received] = TOKEN_CACHE.get(p, at, size)
            else:
                words.append(mem.to_bytes(p, at, size))
            at += size + 2
            received += 1
            size = NO_SIZE
        self.at = at
        self.argument_size = size
        self.received_count = received
        if received < self.argument_count:
            self.copied_bytes += at - begin
            return None
        self.argument_count = 0
        self.copied_bytes = 0
        self.arguments = None
        return words

    @cython.cfunc
    def _size(self) -> cython.longlong:
        """Read `$<size>\\r\\n`; return the size, or NO_SIZE if the line is incomplete."""
        p: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self.at
        end: cython.Py_ssize_t = self.line_end("Protocol error: too big bulk count string")
        if end < 0:
            return NO_SIZE
        if p[at] != BULK:
            raise ProtocolError(f"Protocol error: expected '$', got '{chr(p[at])}'")
        size: cython.longlong = self.parse_number(at + 1, end)
        if size < 0 or size > self.bulk_max:
            raise ProtocolError("Protocol error: invalid bulk length")
        if self.unauthenticated and size > UNAUTHENTICATED_ARGUMENT_BYTES_MAX:
            raise ProtocolError("Protocol error: unauthenticated bulk length")
        self.at = end + 2
        return size

    @cython.cfunc
    def _inline(self) -> list[bytes] | None:
        """Return the words of a line, possibly none; None if the line is incomplete."""
        if self.p[self.at] == TLS_HANDSHAKE and self.filled - self.at > 1 and self.p[self.at + 1] == 3:
            raise ProtocolError("Protocol error: this port does not speak TLS")
        end: cython.Py_ssize_t = mem.find(self.p, self.at, self.filled, LF)
        most: cython.Py_ssize_t = UNAUTHENTICATED_ARGUMENT_BYTES_MAX if self.unauthenticated else INLINE_MAX
        if (end if end >= 0 else self.filled) - self.at > most:
            raise ProtocolError("Protocol error: too big inline request")
        if end < 0:
            return None
        words: list[bytes] | None = split_line(mem.to_bytes(self.p, self.at, end - self.at))
        if words is None:
            raise ProtocolError("Protocol error: unbalanced quotes in request")
        self.at = end + 1
        return words
