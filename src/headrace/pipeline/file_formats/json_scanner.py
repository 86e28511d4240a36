"""Read plain JSON objects as the texts of their fields, in a third of the time of Python's json module.

    {"city":"Oslo","n":5,"price":1.5,"ok":true,"left":null}

Plain objects have only values that are strings without escapes, short numbers as Python writes them, true,
false or null. For any other line, including one that is not JSON, scan() returns None, and json_rows parses
that line.
"""

from __future__ import annotations

import cython

INTEGER_CHARACTERS_MAX = cython.declare(cython.Py_ssize_t, 18)  # characters of an integer
# A decimal of at most this many characters is exact as a double.
REAL_CHARACTERS_MAX = cython.declare(cython.Py_ssize_t, 15)
QUOTE = cython.declare(cython.uchar, 34)
COMMA = cython.declare(cython.uchar, 44)
MINUS = cython.declare(cython.uchar, 45)
DOT = cython.declare(cython.uchar, 46)
ZERO = cython.declare(cython.uchar, 48)
NINE = cython.declare(cython.uchar, 57)
COLON = cython.declare(cython.uchar, 58)
BACKSLASH = cython.declare(cython.uchar, 92)
OPEN_BRACE = cython.declare(cython.uchar, 123)
CLOSE_BRACE = cython.declare(cython.uchar, 125)
LITERALS = cython.declare(tuple, (b"true", b"false", b"null"))
LITERAL_TEXTS = cython.declare(tuple, ("true", "false", None))


@cython.final
@cython.cclass
class JsonScanner:
    """Reads lines. Names at the same place as in the line before are not decoded again."""

    line: bytes
    p: cython.p_const_uchar
    at: cython.Py_ssize_t
    size: cython.Py_ssize_t
    raw_names: list[bytes]
    names: list[str]

    def __init__(self) -> None:
        self.line = b""
        self.p = self.line
        self.at = self.size = 0
        self.raw_names = []
        self.names = []

    def scan(self, line: bytes) -> dict[str, str | None] | None:
        """Return the fields of an object; None if the line is not a plain one."""
        self.line = line
        self.p = line
        self.at = 0
        self.size = len(line)
        try:
            return self._object()
        except UnicodeDecodeError:
            return None

    @cython.cfunc
    def _object(self) -> dict[str, str | None] | None:
        found: dict[str, str | None] = {}
        field: cython.Py_ssize_t = 0
        if self._peek_nonspace() != OPEN_BRACE:
            return None
        self.at += 1
        while True:
            if self._peek_nonspace() != QUOTE:
                return None
            start: cython.Py_ssize_t = self.at + 1
            if not self._skip_string():
                return None
            name: str = self._name(field, start, self.at - 1)
            if self._peek_nonspace() != COLON:
                return None
            self.at += 1
            if name in found or not self._scan_value(found, name):
                return None
            field += 1
            end: cython.uchar = self._peek_nonspace()
            self.at += 1
            if end == CLOSE_BRACE:
                return found if self._peek_nonspace() == 0 and self.at >= self.size else None
            if end != COMMA:
                return None

    @cython.cfunc
    @cython.exceptval(check=False)
    def _peek_nonspace(self) -> cython.uchar:
        """Skip white space and return the next byte, without moving past it; 0 at the end."""
        while self.at < self.size:
            byte: cython.uchar = self.p[self.at]
            if byte != 32 and not 9 <= byte <= 10 and byte != 13:
                return byte
            self.at += 1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _skip_string(self) -> cython.bint:
        """Move past the string that begins here; return False if it is not plain."""
        self.at += 1
        while self.at < self.size:
            byte: cython.uchar = self.p[self.at]
            self.at += 1
            if byte == QUOTE:
                return True
            if byte == BACKSLASH or byte < 32:
                return False
        return False

    @cython.cfunc
    def _name(self, field: cython.Py_ssize_t, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> str:
        """Return the name of a field."""
        raw: bytes = self.line[start:end]
        if field < len(self.names):
            if self.raw_names[field] == raw:
                return self.names[field]
            self.raw_names = self.raw_names[:field]
            self.names = self.names[:field]
        name: str = raw.decode("utf-8")
        self.raw_names.append(raw)
        self.names.append(name)
        return name

    @cython.cfunc
    def _scan_value(self, found: dict[str, str | None], name: str) -> cython.bint:
        """Read a value into the field of that name; return False if it is not plain."""
        first: cython.uchar = self._peek_nonspace()
        start: cython.Py_ssize_t = self.at
        which: cython.Py_ssize_t
        if first == QUOTE:
            if not self._skip_string():
                return False
            found[name] = self.line[start + 1 : self.at - 1].decode("utf-8")
            return True
        if first == MINUS or ZERO <= first <= NINE:
            if not self._skip_number():
                return False
            found[name] = self.line[start : self.at].decode("ascii")
            return True
        for which in range(3):
            word: bytes = LITERALS[which]
            if self.line.startswith(word, start):
                self.at = start + len(word)
                found[name] = LITERAL_TEXTS[which]
                return True
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _skip_number(self) -> cython.bint:
        """Move past the number that begins here; return False if Python would write it differently."""
        start: cython.Py_ssize_t = self.at
        negative: cython.bint = self.p[self.at] == MINUS
        if negative:
            self.at += 1
        digits: cython.Py_ssize_t = self.at
        self._skip_digits()
        count: cython.Py_ssize_t = self.at - digits
        if count == 0 or (count > 1 and self.p[digits] == ZERO):
            return False
        is_zero: cython.bint = self.p[digits] == ZERO
        if self.at >= self.size or self.p[self.at] != DOT:
            return (
                self.at - start <= INTEGER_CHARACTERS_MAX
                and not (negative and is_zero)
                and self._ends_number()
            )
        self.at += 1
        fraction: cython.Py_ssize_t = self.at
        self._skip_digits()
        count = self.at - fraction
        if count == 0 or self.at - start > REAL_CHARACTERS_MAX or not self._ends_number():
            return False
        if count > 1 and self.p[self.at - 1] == ZERO:
            return False
        # Python writes smaller numbers than 0.0001 with an exponent.
        return not (is_zero and count > 3 and self.line.startswith(b"0000", fraction))

    @cython.cfunc
    @cython.exceptval(check=False)
    def _skip_digits(self) -> cython.void:
        while self.at < self.size and ZERO <= self.p[self.at] <= NINE:
            self.at += 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _ends_number(self) -> cython.bint:
        """Return whether the number ends here: an exponent may follow."""
        return self.at < self.size and self.p[self.at] in (COMMA, CLOSE_BRACE, 32, 9, 10, 13)
