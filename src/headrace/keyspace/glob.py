"""Glob patterns as in Redis, matched in time linear in the pattern and the text.

    user:*[a-c]?:*x       pattern
    u s e r :  *  [a-c] ? :  *  x
    prefix        segment          suffix

A pattern is split into elements when first used: each is a star, or accepts one byte of the text. Prefix
and suffix have fixed places. Of a segment only the offset is open, and its leftmost one is the best. It is
found without going back in the text:

    up to SHORT_SEGMENT_MAX elements    compared at each offset
    literals only           Knuth-Morris-Pratt
    others                  bit-parallel: 64 elements in one word; at most SEGMENT_MAX elements are accepted
"""

from __future__ import annotations

import cython

from headrace import limits, mem
from headrace.errors import CommandError

BACKSLASH = cython.declare(cython.int, 92)
CARET = cython.declare(cython.int, 94)
DASH = cython.declare(cython.int, 45)
OPENING_BRACKET = cython.declare(cython.int, 91)
CLOSING_BRACKET = cython.declare(cython.int, 93)
QUESTION = cython.declare(cython.int, 63)
STAR = cython.declare(cython.int, 42)

SHORT_SEGMENT_MAX = cython.declare(cython.Py_ssize_t, 16)
SEGMENT_MAX = cython.declare(cython.Py_ssize_t, limits.GLOB_SEGMENT_MAX)
ACCEPT_TABLES_BYTES_MAX = cython.declare(cython.Py_ssize_t, 64 * 1024)  # kept for the next text

# Codes of elements. Below 256: that byte.
ANY_BYTE_CODE = cython.declare(cython.uint, 256)
ANY_RUN_CODE = cython.declare(cython.uint, 257)  # a star, or several
FIRST_CLASS_CODE = cython.declare(cython.uint, 258)  # and above: its bitmap's number
BITMAP_BYTES = cython.declare(cython.Py_ssize_t, 32)
U64_MAX = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


class PatternTooComplex(CommandError):
    """A segment with `?` or a class is too long to be found in linear time."""

    text = (
        f"ERR pattern too complex: at most {limits.GLOB_SEGMENT_MAX} characters are supported between two '*'"
        " if there is a '?' or a '[' among them"
    )


def matching_names(patterns: list[bytes], names: list[bytes]) -> list[bytes]:
    """Return the names that match one of the patterns, ignoring case, in the order of `names`.

    Patterns without `*`, `?`, `[` and backslash are looked up: a request may have a million of them.
    """
    exact = {pattern.lower() for pattern in patterns}
    globs = [
        Glob(pattern, True)
        for pattern in dict.fromkeys(patterns)
        if pattern.translate(None, b"*?[\\") != pattern
    ]
    return [name for name in names if name.lower() in exact or any(glob.matches(name) for glob in globs)]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def lower_case(c: cython.int) -> cython.int:
    """Return the ASCII letter in lower case, any other byte as it is."""
    return c + 32 if 65 <= c <= 90 else c


@cython.final
@cython.cclass
class Glob:
    """One pattern: `*`, `?`, `[a-c]`, `[^a]` and backslash."""

    pattern: bytes
    ignores_case: cython.bint  # ignore the case of letters
    codes: bytearray | None  # of the elements, four bytes each; None until the first use
    p: cython.p_uchar
    count: cython.Py_ssize_t  # of elements
    prefix_length: cython.Py_ssize_t  # number of elements before the first star, or of all
    suffix_length: cython.Py_ssize_t  # the same after the last star
    text_length_min: cython.Py_ssize_t  # number of elements without stars: the length of the shortest text
    bitmaps: bytes  # of classes: a bit for each byte they accept
    accept_tables: dict[int, bytearray]  # of segments, by their first element: see _accepting()
    accept_tables_bytes: cython.Py_ssize_t

    def __init__(self, pattern: bytes, ignore_case: cython.bint = False) -> None:
        """Prepare the pattern.

        Raises:
            PatternTooComplex: if a segment is longer than SEGMENT_MAX and not only literals.
        """
        self.pattern = pattern
        self.ignores_case = ignore_case
        self.codes = None
        if len(pattern) > SEGMENT_MAX:
            self._split()
            self._check()

    # Elements.

    @cython.cfunc
    def _split(self) -> cython.void:
        """Split the pattern into elements."""
        pattern: cython.p_const_uchar = self.pattern
        end: cython.Py_ssize_t = len(self.pattern)
        at: cython.Py_ssize_t = 0
        code: cython.uint
        codes: bytearray = bytearray(4 * end)
        bitmaps: list[bytes] = []
        p: cython.p_uchar = codes
        self.count = self.text_length_min = self.suffix_length = self.accept_tables_bytes = 0
        self.prefix_length = -1
        self.accept_tables = {}
        while at < end:
            at += 1
            if pattern[at - 1] == STAR:
                code = ANY_RUN_CODE
                while at < end and pattern[at] == STAR:
                    at += 1
            elif pattern[at - 1] == QUESTION:
                code = ANY_BYTE_CODE
            elif pattern[at - 1] == OPENING_BRACKET:
                code = FIRST_CLASS_CODE + len(bitmaps)
                at = self._read_class(at, bitmaps)
            else:
                if pattern[at - 1] == BACKSLASH and at < end:
                    at += 1
                code = lower_case(pattern[at - 1]) if self.ignores_case else pattern[at - 1]
            mem.put_u32le(p, 4 * self.count, code)
            if code == ANY_RUN_CODE:
                if self.prefix_length < 0:
                    self.prefix_length = self.count
                self.suffix_length = 0
            else:
                self.text_length_min += 1
                self.suffix_length += 1
            self.count += 1
        if self.prefix_length < 0:
            self.prefix_length = self.count
        self.codes = codes
        self.bitmaps = b"".join(bitmaps)
        self.p = codes

    @cython.cfunc
    def _read_class(self, at: cython.Py_ssize_t, bitmaps: list[bytes]) -> cython.Py_ssize_t:
        """Append the bitmap of the class whose first member is at `at`; return the offset after the class.

        As in Redis, an open class ends with the pattern, and an escaped member is compared with the byte as
        it is, whether case is ignored or not.
        """
        pattern: cython.p_const_uchar = self.pattern
        end: cython.Py_ssize_t = len(self.pattern)
        inverted: cython.bint = at < end and pattern[at] == CARET
        bitmap: bytearray = bytearray(BITMAP_BYTES)
        b: cython.p_uchar = bitmap
        low: cython.int
        high: cython.int
        i: cython.Py_ssize_t
        if inverted:
            at += 1
        while at < end and pattern[at] != CLOSING_BRACKET:
            low = pattern[at]
            high = low
            if low == BACKSLASH and at + 1 < end:
                at += 1
                low = pattern[at]
                b[low >> 3] = b[low >> 3] | (1 << (low & 7))
            elif at + 2 < end and pattern[at + 1] == DASH:
                at += 2
                high = pattern[at]
                self._add_range(b, min(low, high), max(low, high))
            else:
                self._add_range(b, low, high)
            at += 1
        if inverted:
            for i in range(BITMAP_BYTES):
                b[i] = b[i] ^ 255
        bitmaps.append(bytes(bitmap))
        return min(at + 1, end)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _add_range(self, b: cython.p_uchar, low: cython.int, high: cython.int) -> cython.void:
        """Set the bits of the bytes that the range from low to high accepts."""
        byte: cython.int
        if self.ignores_case:
            low = lower_case(low)
            high = lower_case(high)
        for byte in range(low, high + 1):
            if not self.ignores_case:
                b[byte >> 3] = b[byte >> 3] | (1 << (byte & 7))
            elif lower_case(byte) == byte:
                b[byte >> 3] = b[byte >> 3] | (1 << (byte & 7))
                if 97 <= byte <= 122:
                    b[(byte - 32) >> 3] = b[(byte - 32) >> 3] | (1 << ((byte - 32) & 7))

    @cython.cfunc
    def _check(self) -> cython.void:
        """Raise PatternTooComplex if one of the segments between two stars is too long."""
        i: cython.Py_ssize_t
        code: cython.uint
        begin: cython.Py_ssize_t = -1  # of the segment; -1: no star yet
        plain: cython.bint = True
        for i in range(self.count):
            code = mem.u32le(self.p, 4 * i)
            if code == ANY_RUN_CODE:
                if begin >= 0 and not plain and i - begin > SEGMENT_MAX:
                    raise PatternTooComplex()
                begin = i + 1
                plain = True
            elif code >= ANY_BYTE_CODE:
                plain = False

    # Comparison.

    @cython.ccall
    def matches(self, text: bytes) -> cython.bint:
        """Return whether the pattern matches the text. Only the empty pattern matches the empty text."""
        begin: cython.Py_ssize_t  # of the rest of the text
        end: cython.Py_ssize_t = len(text)
        first: cython.Py_ssize_t  # the rest of the elements: from the star `first` to the last star
        last: cython.Py_ssize_t
        i: cython.Py_ssize_t
        if end == 0:
            return len(self.pattern) == 0
        if self.codes is None:
            self._split()
        if end < self.text_length_min or (self.prefix_length == self.count and end != self.count):
            return False
        if not self._matches_at(0, self.prefix_length, text, 0):
            return False
        if self.prefix_length == self.count:
            return True
        last = self.count - self.suffix_length
        end -= self.suffix_length
        if not self._matches_at(last, self.count, text, end):
            return False
        begin = first = self.prefix_length
        while first + 1 < last:
            i = first + 1
            while mem.u32le(self.p, 4 * i) != ANY_RUN_CODE:
                i += 1
            begin = self._find(first + 1, i, text, begin, end)
            if begin < 0:
                return False
            begin += i - first - 1
            first = i
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _accepts(self, i: cython.Py_ssize_t, byte: cython.int) -> cython.bint:
        """Return whether the i-th element, which is no star, accepts the byte."""
        code: cython.uint = mem.u32le(self.p, 4 * i)
        if code < ANY_BYTE_CODE:
            c: cython.uint = lower_case(byte) if self.ignores_case else byte
            return code == c
        if code == ANY_BYTE_CODE:
            return True
        b: cython.p_const_uchar = self.bitmaps
        at: cython.Py_ssize_t = code - FIRST_CLASS_CODE
        return (b[BITMAP_BYTES * at + (byte >> 3)] >> (byte & 7)) & 1 != 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _matches_at(
        self,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        text: bytes,
        at: cython.Py_ssize_t,
    ) -> cython.bint:
        """Return whether the elements from first to last accept the text at offset `at`."""
        t: cython.p_const_uchar = text
        i: cython.Py_ssize_t
        i = first
        while i < last and self._accepts(i, t[at + i - first]):
            i += 1
        return i >= last

    @cython.cfunc
    def _find(
        self,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        text: bytes,
        begin: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Return the leftmost offset in text[begin:end] of the segment from first to last; -1 for none."""
        if end - begin < last - first:
            return -1
        at: cython.Py_ssize_t
        if last - first > SHORT_SEGMENT_MAX:
            for at in range(first, last):
                if mem.u32le(self.p, 4 * at) >= ANY_BYTE_CODE:
                    return self._find_bit_parallel(first, last, text, begin, end)
            return self._find_literals(first, last, text, begin, end)
        for at in range(begin, end - (last - first) + 1):
            if self._matches_at(first, last, text, at):
                return at
        return -1

    @cython.cfunc
    def _find_literals(
        self,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        text: bytes,
        begin: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """As _find, by Knuth-Morris-Pratt: with the longest border of each prefix of the segment."""
        t: cython.p_const_uchar = text
        n: cython.Py_ssize_t = last - first
        borders: bytearray = bytearray(4 * n)
        b: cython.p_uchar = borders
        i: cython.Py_ssize_t
        length: cython.Py_ssize_t = 0  # of the prefix that ends before i
        code: cython.uint
        for i in range(1, n):
            code = mem.u32le(self.p, 4 * (first + i))
            while length > 0 and code != mem.u32le(self.p, 4 * (first + length)):
                length = mem.u32le(b, 4 * (length - 1))
            if code == mem.u32le(self.p, 4 * (first + length)):
                length += 1
            mem.put_u32le(b, 4 * i, length)
        length = 0
        for i in range(begin, end):
            code = lower_case(t[i]) if self.ignores_case else t[i]
            while length > 0 and code != mem.u32le(self.p, 4 * (first + length)):
                length = mem.u32le(b, 4 * (length - 1))
            if code == mem.u32le(self.p, 4 * (first + length)):
                length += 1
            if length == n:
                return i + 1 - n
        return -1

    @cython.cfunc
    def _find_bit_parallel(
        self,
        first: cython.Py_ssize_t,
        last: cython.Py_ssize_t,
        text: bytes,
        begin: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """As _find. Bit i of the state: the segment's first i + 1 elements accept the text up to here."""
        t: cython.p_const_uchar = text
        n: cython.Py_ssize_t = last - first
        row: cython.Py_ssize_t = 8 * ((n + 63) // 64)  # bytes of a state
        state: bytearray = bytearray(row)
        s: cython.p_uchar = state
        accepting: bytearray = self._accepting(first, last)  # which elements accept each byte
        a: cython.p_uchar = accepting
        i: cython.Py_ssize_t
        w: cython.Py_ssize_t
        word: cython.ulonglong
        carry: cython.ulonglong
        found: cython.ulonglong = 1
        found <<= (n - 1) & 63
        for i in range(begin, end):
            carry = 1
            for w in range(0, row, 8):
                word = mem.u64le(s, w)
                mem.put_u64le(s, w, ((word << 1) & U64_MAX | carry) & mem.u64le(a, row * t[i] + w))
                carry = word >> 63
            if mem.u64le(s, row - 8) & found:
                return i + 1 - n
        return -1

    @cython.cfunc
    def _accepting(self, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> bytearray:
        """Return for each byte a row of bits: which elements of the segment accept it."""
        row: cython.Py_ssize_t = 8 * ((last - first + 63) // 64)
        made: bytearray | None = self.accept_tables.get(first)
        if made is not None:
            return made
        made = bytearray(256 * row)
        m: cython.p_uchar = made
        i: cython.Py_ssize_t
        byte: cython.Py_ssize_t
        at: cython.Py_ssize_t
        low: cython.Py_ssize_t
        high: cython.Py_ssize_t
        for i in range(last - first):
            low = mem.u32le(self.p, 4 * (first + i))
            high = low + 1
            if low >= ANY_BYTE_CODE or self.ignores_case:  # it may accept others than the byte of its code
                low = 0
                high = 256
            for byte in range(low, high):
                if self._accepts(first + i, byte):
                    at = row * byte + (i >> 3)
                    m[at] = m[at] | (1 << (i & 7))
        if self.accept_tables_bytes + len(made) <= ACCEPT_TABLES_BYTES_MAX:
            self.accept_tables_bytes += len(made)
            self.accept_tables[first] = made
        return made
