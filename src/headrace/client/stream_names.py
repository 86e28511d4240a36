r"""Names of streams as text. A key may have any bytes; options, offsets and the column `stream` are text.

    orders, naïve        as it is, being UTF-8
    b"a\xff"             a\xff      a byte that is no UTF-8: its two hexadecimal digits, in lower case
    the text a\xff       a\x5cxff   only where a name looks like such an escape its backslash is escaped, too

So each name has one text, and each text stands for one name.
"""

from __future__ import annotations

import re

ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
ESCAPED_BACKSLASH = re.compile(rb"\\(?=x[0-9a-f]{2})")


def stream_name(key: bytes) -> str:
    """The text that stands for a stream's key."""
    if b"\\" in key:
        key = ESCAPED_BACKSLASH.sub(rb"\\x5c", key)
    return key.decode("utf-8", "backslashreplace")


def stream_key(name: str) -> bytes:
    """The key of the stream that a text stands for; half of a surrogate pair is a byte, as in sys.argv."""
    raw = name.encode("utf-8", "surrogateescape")
    return ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), raw) if b"\\x" in raw else raw


def normalize_name(name: str) -> str:
    """The one text of the name that a text stands for: what was typed becomes what is shown."""
    return stream_name(stream_key(name))
