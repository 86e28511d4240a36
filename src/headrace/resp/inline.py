r"""Split a line that a person typed: an inline request, or a line of redis.conf.

    SET key "two words\n" 'it\'s'      ->      SET | key | two words<newline> | it's

Words are separated by blanks. Double quotes allow \n \r \t \a \b \xHH and a backslash before anything; single
quotes allow \' alone. A closing quote must end its word. A zero byte ends the line.
"""

from __future__ import annotations

import re

import cython

_BLANKS = b" \t\n\v\f\r"
_WORD_ENDS = b" \t\n\r\0"
_HEX = re.compile(rb"x([0-9a-fA-F]{2})")
_ESCAPES = {ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t", ord("a"): b"\a", ord("b"): b"\b"}
_UNUSUAL = re.compile(rb"[\"'\0\v\f]")
_DOUBLE, _SINGLE, _BACKSLASH = b"\"'\\"


def split_line(line: bytes) -> list[bytes] | None:
    """Split line into words; None if a quote is not closed, or text follows a closing quote."""
    if not _UNUSUAL.search(line):
        return line.split()
    line = line.partition(b"\0")[0]
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if at == len(line):
            return words
        word, at = _word(line, at)
        if word is None:
            return None
        words.append(word)


def _word(line: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the word at `at` (None if its quotes are unbalanced) and the offset after it."""
    word: list[int] = []
    while at < len(line) and line[at] not in _WORD_ENDS:
        if line[at] == _DOUBLE or line[at] == _SINGLE:
            end = _quoted(line, at, word)
            whole = end > 0 and (end == len(line) or line[end] in _BLANKS)
            return (bytes(word) if whole else None), end
        word.append(line[at])
        at += 1
    return bytes(word), at


def _quoted(line: bytes, at: int, word: list[int]) -> int:
    """Append the quoted text at `at`, byte by byte; return the offset after the closing quote, or -1."""
    quote = line[at]
    at += 1
    while at < len(line) and line[at] != quote:
        if line[at] == _BACKSLASH and at + 1 < len(line):
            if quote == _SINGLE:
                escaped = line[at + 1] == _SINGLE
                word.append(_SINGLE if escaped else _BACKSLASH)
                at += 2 if escaped else 1
            elif digits := _HEX.match(line, at + 1):
                word.append(int(digits[1], 16))
                at += 4
            else:
                word += _ESCAPES.get(line[at + 1], line[at + 1 : at + 2])
                at += 2
        else:
            word.append(line[at])
            at += 1
    return at + 1 if at < len(line) else -1
