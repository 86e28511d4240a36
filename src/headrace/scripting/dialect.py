r"""Translate the source of a script from Lua 5.1, which Redis has, to the dialect that LuaJIT compiles.

    Lua 5.1                           here                                         what LuaJIT does otherwise
    '\q', '\x41'                      'q', 'x41': unknown escapes lose their \     an error; 'A'
    function f(...) return arg.n end  a local `arg` after the parameters           no such variable
    42LL, 0x1ULL, 3i                  an error: malformed number                   a value of its FFI

The number of lines does not change. Most scripts contain none of this, and are not parsed here.
"""

from __future__ import annotations

import re

from headrace import limits

SUSPECT_PATTERN = re.compile(
    rb"""\\[^abfnrtv\\"'\r\n0-9]|\barg\b|[0-9.a-fA-F](?:[uU]?[lL][lL]|[iI])(?![\w\x80-\xff])"""
)
TOKEN_PATTERN = re.compile(
    rb"""(?P<skip>--\[(?P<level>=*)\[.*?(?:\](?P=level)\]|\Z)|--[^\n]*)
    |(?P<long>\[(?P<equals>=*)\[.*?(?:\](?P=equals)\]|\Z))
    |(?P<text>"(?:[^"\\\r\n]|\\.)*"?|'(?:[^'\\\r\n]|\\.)*'?)
    |(?P<number>\.?[0-9][0-9.]*(?:[eE][+-]?)?[\w\x80-\xff]*)
    |(?P<name>[A-Za-z_\x80-\xff][\w\x80-\xff]*)
    |(?P<dots>\.\.\.)|(?P<open>\()|(?P<close>\))""",
    re.DOTALL | re.VERBOSE,
)
ESCAPE_PATTERN = re.compile(rb"""\\(?:([abfnrtv\\"'\r\n0-9])|(.))""", re.DOTALL)
FOREIGN_NUMBER_PATTERN = re.compile(rb"(?:[uU]?[lL][lL]|[iI])\Z")
ARG_DEFINITION = b" local arg={n=select('#',...),...} "
OPENING, CLOSING = (b"do", b"if", b"repeat"), (b"end", b"until")


class Untranslatable(Exception):
    """The source has a number that Lua 5.1 does not have, or is too long; `text` is the error message."""

    def __init__(self, text: bytes, line: int) -> None:
        super().__init__(text, line)
        self.text = text
        self.line = line


class _Function:
    """A function whose source is being read."""

    def __init__(self) -> None:
        self.in_parameters = True
        self.body_at = -1  # where the body begins, if it has `...` among its parameters
        self.depth = 0  # of the blocks that are open in it
        self.is_vararg = self.has_arg = self.has_dots = False


def to_luajit(text: bytes) -> bytes:
    """Return the source for LuaJIT.

    Raises:
        Untranslatable: if it contains a literal of LuaJIT's FFI, or would take too long.
    """
    found = SUSPECT_PATTERN.search(text)
    if found is None:
        return text
    if len(text) > limits.TRANSLATED_SCRIPT_BYTES_MAX:
        line = text.count(b"\n", 0, found.start()) + 1
        limit = b"a chunk of more than %d bytes" % limits.TRANSLATED_SCRIPT_BYTES_MAX
        raise Untranslatable(b"'%b' is not allowed in %b" % (found[0], limit), line)
    return _Translation(text).run()


class _Translation:
    """One run over the tokens of a source."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.edits: list[tuple[int, int, bytes]] = []  # begin, end, what replaces it
        self.functions: list[_Function] = []
        self.varargs: list[_Function] = []  # those of them that have `...` among their parameters

    def run(self) -> bytes:
        for token in TOKEN_PATTERN.finditer(self.text):
            kind, value = token.lastgroup, token.group()
            if kind == "text":
                self._string(token.start(), value)
            elif kind == "number" and FOREIGN_NUMBER_PATTERN.search(value):
                line = self.text.count(b"\n", 0, token.start()) + 1
                raise Untranslatable(b"malformed number near '%b'" % value, line)
            elif kind == "name":
                self._track_name(value)
            elif kind in ("dots", "close") and self.functions:
                self._track_dots_or_close(kind, token.end())
        parts, at = [], 0
        for begin, end, replacement in sorted(self.edits):
            parts += [self.text[at:begin], replacement]
            at = end
        return b"".join([*parts, self.text[at:]])

    def _string(self, at: int, value: bytes) -> None:
        changed = ESCAPE_PATTERN.sub(lambda match: match[0] if match[1] else match[2], value)
        if changed != value:
            self.edits.append((at, at + len(value), changed))

    def _track_name(self, value: bytes) -> None:
        if value == b"function":
            self.functions.append(_Function())
        elif not self.functions:
            return
        elif value in OPENING:
            self.functions[-1].depth += 1
        elif value in CLOSING:
            self._end_block()
        elif value == b"arg" and self.varargs:
            self.varargs[-1].has_arg = True

    def _end_block(self) -> None:
        function = self.functions[-1]
        function.depth -= 1
        if function.depth < 0:
            self.functions.pop()
            if function.is_vararg:
                self.varargs.pop()
            if function.has_arg and not function.has_dots:
                self.edits.append((function.body_at, function.body_at, ARG_DEFINITION))

    def _track_dots_or_close(self, kind: str, end: int) -> None:
        """Store that the function has `...`, or where its parameters end. kind: `dots` or `close`."""
        function = self.functions[-1]
        if kind == "close":
            if function.in_parameters:
                function.in_parameters, function.body_at = False, end
        elif not function.in_parameters:
            function.has_dots = True
        elif not function.is_vararg:
            function.is_vararg = True
            self.varargs.append(function)
