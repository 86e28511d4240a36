"""Parsing of a request's arguments: numbers, times, and a cursor over them."""

from __future__ import annotations

import math
from collections.abc import Callable

import cython

from headrace.errors import CommandError, InvalidSyntax, NotAFloat, NotAnInteger
from headrace.visibility import Public

IDS_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)  # IDs in one block of a request
I64_TEXT_BYTES_MAX = cython.declare(cython.Py_ssize_t, 20)  # a sign and 19 digits
U64_TENTH = cython.declare(cython.ulonglong, 1844674407370955161)
I64_MAX = cython.declare(cython.ulonglong, 0x7FFFFFFFFFFFFFFF)
ASCII_ZERO = cython.declare(cython.int, 48)
MINUS = cython.declare(cython.int, 45)
ASCII_CASE_BIT = cython.declare(cython.int, 32)  # the bit that distinguishes upper from lower case


class TimeoutNotAnInteger(CommandError):
    text = "ERR timeout is not an integer or out of range"


class TimeoutNegative(CommandError):
    text = "ERR timeout is negative"


class TimeoutTooLong(CommandError):
    text = "ERR timeout is out of range"


@cython.ccall
def is_keyword(text: bytes, word: bytes) -> cython.bint:
    """Return whether the text is the keyword, ignoring case. `word` is upper case."""
    n: cython.Py_ssize_t = len(text)
    if n != len(word):
        return False
    a: cython.p_const_uchar = text
    b: cython.p_const_uchar = word
    i: cython.Py_ssize_t
    c: cython.int
    for i in range(n):
        c = a[i]
        if 97 <= c <= 122:
            c -= ASCII_CASE_BIT
        if c != b[i]:
            return False
    return True


@cython.ccall
def parse_i64(text: bytes) -> cython.longlong:
    """Parse an integer in its canonical form: no plus sign, no leading zero.

    Raises:
        NotAnInteger: if it has another form or exceeds 64 bits.
    """
    n: cython.Py_ssize_t = len(text)
    if not 0 < n <= I64_TEXT_BYTES_MAX:
        raise NotAnInteger()
    p: cython.p_const_uchar = text
    negative: cython.bint = p[0] == MINUS
    at: cython.Py_ssize_t = 1 if negative else 0
    value: cython.ulonglong = 0
    digit: cython.uint
    limit: cython.ulonglong = I64_MAX
    signed: cython.longlong
    if negative:
        limit += 1
    if at == n or (p[at] == ASCII_ZERO and n > 1):
        raise NotAnInteger()
    while at < n:
        if not 48 <= p[at] <= 57:
            raise NotAnInteger()
        digit = p[at] - 48
        if value > U64_TENTH - 1:
            raise NotAnInteger()
        value = value * 10 + digit
        if value > limit:
            raise NotAnInteger()
        at += 1
    if negative:
        if value == 0:
            return 0
        signed = value - 1
        return -signed - 1
    signed = value
    return signed


@cython.ccall
def parse_timeout(text: bytes, now: cython.longlong) -> cython.longlong:
    """Parse a timeout in milliseconds.

    Raises:
        CommandError: if it is not an integer, is negative, or if `now` plus the timeout exceeds 64 bits.
    """
    latest: cython.longlong = I64_MAX
    try:
        timeout: cython.longlong = parse_i64(text)
    except NotAnInteger:
        raise TimeoutNotAnInteger() from None
    if timeout < 0:
        raise TimeoutNegative()
    if timeout > latest - now:
        raise TimeoutTooLong()
    return timeout


@cython.ccall
def parse_id_count(
    argv: list[bytes],
    at: cython.Py_ssize_t,
    bad: Callable[[], CommandError],
    mismatch: Callable[[], CommandError],
) -> cython.Py_ssize_t:
    """Parse argv[at], the number of IDs that follow. Raises bad() if invalid, mismatch() if fewer follow."""
    count: cython.longlong
    try:
        count = parse_i64(argv[at])
    except NotAnInteger:
        raise bad() from None
    if not 0 < count <= IDS_MAX:
        raise bad()
    if count > len(argv) - at - 1:
        raise mismatch()
    return count


@cython.ccall
def parse_double(text: bytes) -> cython.double:
    """Parse a number as C's strtod does. Raises NotAFloat, also for NaN, spaces and underscores."""
    if not text or text.isspace() or text[0] in b" \t\n\v\f\r" or text[-1] in b" \t\n\v\f\r" or b"_" in text:
        raise NotAFloat()
    try:
        if text.lstrip(b"+-")[:2].lower() == b"0x":
            value = float.fromhex(text.decode("ascii"))
        else:
            value = float(text)
    except (ValueError, OverflowError):
        raise NotAFloat() from None
    if math.isnan(value):
        raise NotAFloat()
    return value


@cython.final
@cython.cclass
class Arguments:
    """A cursor over the arguments of a request."""

    argv: Public[list[bytes]]
    at: Public[cython.Py_ssize_t]

    def __init__(self, argv: list[bytes], at: cython.Py_ssize_t = 1) -> None:
        self.argv = argv
        self.at = at

    @cython.ccall
    def has_more(self) -> cython.bint:
        """Return whether an argument is left."""
        return self.at < len(self.argv)

    @cython.ccall
    def remaining_count(self) -> cython.Py_ssize_t:
        """Return how many arguments are left."""
        return len(self.argv) - self.at

    @cython.ccall
    def next_argument(self) -> bytes:
        """Return the next argument. Raises InvalidSyntax if there is none."""
        if self.at >= len(self.argv):
            raise InvalidSyntax()
        word: bytes = self.argv[self.at]
        self.at += 1
        return word

    @cython.ccall
    def take_flag(self, word: bytes) -> cython.bint:
        """Step over the next argument if it is this keyword (given in upper case); return whether it was."""
        if self.at >= len(self.argv):
            return False
        text: bytes = self.argv[self.at]
        if not is_keyword(text, word):
            return False
        self.at += 1
        return True

    @cython.ccall
    def take_option(self, word: bytes) -> cython.bint:
        """Step over the keyword if it is next and its value follows; return whether it was stepped over."""
        return self.remaining_count() >= 2 and self.take_flag(word)

    @cython.ccall
    def next_integer(self) -> cython.longlong:
        """Return the next argument as a signed 64-bit integer. Raises NotAnInteger or InvalidSyntax."""
        return parse_i64(self.next_argument())

    @cython.ccall
    def take_rest(self) -> list[bytes]:
        """Return all arguments that are left, and step over them."""
        words = self.argv[self.at :]
        self.at = len(self.argv)
        return words

    @cython.ccall
    def expect_end(self) -> cython.void:
        """Raise InvalidSyntax if an argument is left."""
        if self.at < len(self.argv):
            raise InvalidSyntax()
