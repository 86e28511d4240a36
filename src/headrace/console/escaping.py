"""Escape data for a terminal: names and values may hold control sequences.

A terminal executes some characters instead of showing them: ESC sequences write to the title, the clipboard
or other lines, and bidirectional overrides reorder text. A stream's name and values come from any client, so
everything printed from data passes through `printable`. Output for programs stays exact: `json_text` writes
the same characters as JSON escapes.

    bytes 6F 72 1B 5B 32 4A    ->  or\\x1b[2J
    bytes 6F 72 FF             ->  or\\xff         (not UTF-8)
    text with U+202E           ->  \\u202e
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

# Letters and marks that str.isprintable() accepts although they take no space on the screen.
INVISIBLE_CHARACTERS = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef\u2800"
)
# U+DC80 to U+DCFF stand for bytes that are not UTF-8 (errors="surrogateescape").
FIRST_ESCAPED_BYTE, LAST_ESCAPED_BYTE = 0xDC80, 0xDCFF
LOG_LINE_MAX = 4096  # characters
_invisible = re.compile(f"[{INVISIBLE_CHARACTERS}]")


def is_printable(text: str) -> bool:
    """Return whether a terminal shows every character of the text."""
    return text.isprintable() and (text.isascii() or not _invisible.search(text))


def printable(value: object) -> str:
    """Return a value as text without characters that a terminal would execute.

    Args:
        value: Bytes are read as UTF-8. Anything else that is not a string is converted by `str`.

    Returns:
        The text, with `\\xNN`, `\\uNNNN` or `\\n` in place of control characters, bidirectional and
        zero-width characters, line separators and bytes that are not UTF-8. A backslash stays as it is.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value).decode(errors="surrogateescape")
    else:
        text = value if isinstance(value, str) else str(value)
    return text if is_printable(text) else "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    if is_printable(char):
        return char
    code = ord(char)
    if FIRST_ESCAPED_BYTE <= code <= LAST_ESCAPED_BYTE:
        return f"\\x{code & 0xFF:02x}"
    # repr() does not escape what isprintable() accepts, so invisible letters are escaped here.
    if char.isprintable():
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return repr(char)[1:-1]


def one_line(text: object) -> str:
    """Return a message as one printable line: line breaks and runs of spaces become one space."""
    return printable(" ".join(str(text).split()))


def json_text(value: Any) -> str:
    """Return a value as one line of JSON that is safe to print on a terminal.

    The data are exact: characters that a terminal would execute are written as JSON escapes.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if is_printable(text) else "".join(map(_json_escaped, text))


def _json_escaped(char: str) -> str:
    return char if is_printable(char) else json.dumps(char)[1:-1] if char != "\x7f" else "\\u007f"


def truncated_log_message(message: str) -> str:
    """Return a log message, cut to LOG_LINE_MAX characters: it may contain a value, and escaping is slow."""
    cut = len(message) - LOG_LINE_MAX
    return message if cut <= 0 else f"{message[:LOG_LINE_MAX]}... ({cut} more characters)"


class EscapingFormatter(logging.Formatter):
    """A log formatter that escapes and shortens names and values in messages; a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the escaped line of a record, without its traceback."""
        return printable(truncated_log_message(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:
        """Return the traceback with each line escaped."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(printable(truncated_log_message(line)) for line in lines)
