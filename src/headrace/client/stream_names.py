r"""Names of streams as text. A key may have any bytes; options, offsets and the column `stream` are text.

    orders, naïve        unchanged: it is UTF-8
    b"a\xff"             a\xff      a byte that is not UTF-8: its two hexadecimal digits, in lower case
    the text a\xff       a\x5cxff   a backslash that would look like such an escape is escaped itself

So each name has one text. Several texts may denote one name; normalize_name() returns the one that is shown.
"""

from __future__ import annotations

import re

ESCAPED_BYTE_PATTERN = re.compile(rb"\\x([0-9a-f]{2})")
BACKSLASH_TO_ESCAPE_PATTERN = re.compile(rb"\\(?=x[0-9a-f]{2})")


def stream_name(key: bytes) -> str:
    """Return the text for a stream's key."""
    if b"\\" in key:
        key = BACKSLASH_TO_ESCAPE_PATTERN.sub(rb"\\x5c", key)
    return key.decode("utf-8", "backslashreplace")


def stream_key(name: str) -> bytes:
    """Return the stream's key for a text. A lone surrogate stands for a byte, as in sys.argv."""
    raw = name.encode("utf-8", "surrogateescape")
    return (
        ESCAPED_BYTE_PATTERN.sub(lambda found: bytes.fromhex(found[1].decode()), raw)
        if b"\\x" in raw
        else raw
    )


def normalize_name(name: str) -> str:
    """Return the canonical text of a typed name: the one that is shown."""
    return stream_name(stream_key(name))
