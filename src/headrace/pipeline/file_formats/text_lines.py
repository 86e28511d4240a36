"""Read the lines of text files as UTF-8, in any encoding and with any line ends.

encoding        the one that is given; UTF-16 and UTF-32 are also recognized by their byte order marks
line ends       \\n and \\r\\n; \\r alone in files that have no other (older Excel for Mac)
"""

from __future__ import annotations

import codecs
import io
from typing import IO, Protocol, cast

from headrace.errors import UsageError

BUFFER_BYTES = 1 << 18
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins like UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class LineReader(Protocol):
    """A binary file that can be read by lines."""

    def readlines(self, hint: int, /) -> list[bytes]:
        """Return whole lines of about `hint` bytes."""
        ...

    def readline(self) -> bytes:
        """Return one line; empty at the end."""
        ...


class TranscodedLines:
    """Reads the lines of a file in another encoding as UTF-8, or lines that end in carriage returns.

    Bytes that are not valid in the encoding are passed through; they make their row a bad row.
    """

    def __init__(self, file: IO[bytes], encoding: str, newline: str = "") -> None:
        self._text = io.TextIOWrapper(file, encoding, errors="surrogateescape", newline=newline)

    def readlines(self, hint: int, /) -> list[bytes]:
        """Return whole lines of about `hint` characters."""
        return [line.encode(errors="surrogateescape") for line in self._text.readlines(hint)]

    def readline(self) -> bytes:
        """Return one line; empty at the end."""
        return self._text.readline().encode(errors="surrogateescape")


class PushedBackLines:
    """Lines that were read already, and then those of a file."""

    def __init__(self, first: list[bytes], file: LineReader) -> None:
        self._first = first
        self._file = file

    def readlines(self, hint: int, /) -> list[bytes]:
        """Return whole lines of about `hint` bytes."""
        first, self._first = self._first, []
        return first + self._file.readlines(max(1, hint - sum(map(len, first))))

    def readline(self) -> bytes:
        """Return one line; empty at the end."""
        return self._first.pop(0) if self._first else self._file.readline()


def buffered_reader(file: object) -> io.BufferedReader:
    """Return a compressed file with a buffer, which makes reading its lines several times faster."""
    return io.BufferedReader(cast(io.RawIOBase, file), BUFFER_BYTES)


def text_lines_and_newline(file: io.BufferedReader, encoding: str) -> tuple[LineReader, bytes]:
    """Return the lines of a file in UTF-8, and the character that ends them."""
    head = file.peek(BUFFER_BYTES)
    if encoding == "utf-8":
        encoding = next((name for mark, name in BYTE_ORDER_MARKS if head.startswith(mark)), encoding)
    text = head.decode(encoding, errors="replace")
    # A carriage return at the end of the buffer may be followed by a line feed.
    newline = "\r" if "\n" not in text and "\r" in text[:-1] else ""
    if encoding == "utf-8" and not newline:
        return file, b"\n"
    return TranscodedLines(file, encoding, newline), (newline or "\n").encode()


def normalize_encoding(name: str) -> str:
    """Return Python's name of a text encoding. UsageError if it is unknown."""
    try:
        found = codecs.lookup(name)
        "".encode(name)  # a codec from bytes to bytes, such as base64, cannot do this
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"--encoding {name}: unknown encoding; expected a name such as utf-8, latin-1 or cp1252"
        ) from error
    return found.name
