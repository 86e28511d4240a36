"""Glob patterns as in Redis, matched in time linear in the pattern and the text.

    user:*[a-c]?:*x       pattern
    u s e r :  *  [a-c] ? :  *  x
    prefix        segment       suffix

Each element takes one byte. So only the offset of a segment is open, and its leftmost offset is the best one.
Most patterns and texts are short: they are compared byte by byte, with backtracking to the last star. This is
abandoned after `STEPS_PER_BYTE` steps per byte of the text. Then the pattern is split into elements, once,
and each segment is found without backtracking: see glob_elements.py.
"""

from __future__ import annotations

import cython

from headrace.keyspace import glob_elements
from headrace.keyspace.glob_elements import GlobElements

STEPS_PER_BYTE = cython.declare(cython.Py_ssize_t, 16)
STEPS_MIN = cython.declare(cython.Py_ssize_t, 64)


@cython.ccall
def matches(pattern: bytes, text: bytes, ignore_case: cython.bint = False) -> cython.bint:
    """Return whether the pattern matches the text. To match many texts, create one Glob."""
    return Glob(pattern, ignore_case).matches(text)


def select(patterns: list[bytes], names: list[bytes]) -> list[bytes]:
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


@cython.final
@cython.cclass
class Glob:
    """One pattern: `*`, `?`, `[a-c]`, `[^a]` and backslash."""

    pattern: bytes
    fold: cython.bint  # ignore the case of letters
    elements: GlobElements | None  # created when needed

    def __init__(self, pattern: bytes, ignore_case: cython.bint = False) -> None:
        """Prepare the pattern.

        Raises:
            PatternTooComplex: if a segment is longer than SEGMENT_MAX and not only literals.
        """
        self.pattern = pattern
        self.fold = ignore_case
        self.elements = None
        if len(pattern) > glob_elements.SEGMENT_MAX:
            self.elements = GlobElements(pattern, ignore_case)
            self.elements.check()

    @cython.ccall
    def matches(self, text: bytes) -> cython.bint:
        """Return whether the pattern matches the text. Only the empty pattern matches the empty text."""
        if len(text) == 0:
            return len(self.pattern) == 0
        elements: GlobElements | None = self.elements
        found: cython.int
        if elements is None:
            found = self._compare(text)
            if found >= 0:
                return found > 0
            elements = self.elements = GlobElements(self.pattern, self.fold)
        return elements.match(text)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _compare(self, text: bytes) -> cython.int:
        """Compare directly: 1 for a match, 0 for none, -1 when it takes too many steps."""
        p: cython.p_const_uchar = self.pattern
        t: cython.p_const_uchar = text
        p_end: cython.Py_ssize_t = len(self.pattern)
        t_end: cython.Py_ssize_t = len(text)
        steps: cython.Py_ssize_t = STEPS_PER_BYTE * t_end + STEPS_MIN
        at: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t = 0
        star: cython.Py_ssize_t = -1  # offset after the last star
        swallowed: cython.Py_ssize_t = 0  # offset in the text up to which that star reaches
        after: cython.Py_ssize_t
        while True:
            if at < p_end and p[at] == glob_elements.STAR:
                at += 1
                if at == p_end:
                    return 1
                star = at
                swallowed = i
                continue
            if i == t_end:
                return 1 if at == p_end else 0  # a later start would leave even less text
            if at < p_end:
                after = self._accept(at, t[i])
                if after > 0:
                    steps -= after - at
                    at = after
                    i += 1
                    continue
                steps += after + at
            if star < 0:
                return 0
            if steps < 0:
                return -1
            swallowed += 1
            i = swallowed
            at = star

    @cython.cfunc
    @cython.exceptval(check=False)
    def _accept(self, at: cython.Py_ssize_t, byte: cython.int) -> cython.Py_ssize_t:
        """Return the offset after the element at `at` if it accepts the byte, else its negative."""
        p: cython.p_const_uchar = self.pattern
        end: cython.Py_ssize_t = len(self.pattern)
        c: cython.int = p[at]
        if c == glob_elements.QUESTION:
            return at + 1
        if c == glob_elements.OPENING:
            return self._accept_class(at + 1, byte)
        if c == glob_elements.BACKSLASH and at + 1 < end:
            at += 1
            c = p[at]
        if self.fold:
            return at + 1 if glob_elements.lower_case(c) == glob_elements.lower_case(byte) else -at - 1
        return at + 1 if c == byte else -at - 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _accept_class(self, at: cython.Py_ssize_t, byte: cython.int) -> cython.Py_ssize_t:
        """As _accept, for the class whose first member is at `at`. An open class ends with the pattern.

        As in Redis an escaped member is compared with the byte as it is, in either mode.
        """
        p: cython.p_const_uchar = self.pattern
        end: cython.Py_ssize_t = len(self.pattern)
        inverted: cython.bint = at < end and p[at] == glob_elements.CARET
        found: cython.bint = False
        c: cython.int = glob_elements.lower_case(byte) if self.fold else byte
        low: cython.int
        high: cython.int
        if inverted:
            at += 1
        while at < end and p[at] != glob_elements.CLOSING:
            if p[at] == glob_elements.BACKSLASH and at + 1 < end:
                at += 1
                if p[at] == byte:
                    found = True
                at += 1
                continue
            low = p[at]
            high = low
            if at + 2 < end and p[at + 1] == glob_elements.DASH:
                high = p[at + 2]
                at += 2
                if low > high:
                    low, high = high, low
            if self.fold:
                low = glob_elements.lower_case(low)
                high = glob_elements.lower_case(high)
            if low <= c <= high:
                found = True
            at += 1
        at = min(at + 1, end)
        return at if found != inverted else -at
