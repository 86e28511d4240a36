"""Parse the first line of a library of functions: its engine and its name.

    #!lua name=orders
    redis.register_function('total', function(keys, args) ... end)

A keyspace holds the text of each library by its name. Its functions are known once Lua has loaded it.
"""

from __future__ import annotations

import re

from headrace import limits
from headrace.errors import CommandError, to_text

VALID_NAME = re.compile(rb"[A-Za-z0-9_]+\Z")


class InvalidLibraryName(CommandError):
    text = (
        "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one"
        " character long"
    )


def parse_library(text: bytes) -> tuple[bytes, bytes]:
    """Return the name and the body of a library; lines of the body keep their numbers.

    Raises CommandError if the first line is invalid.
    """
    if not text.startswith(b"#!"):
        raise CommandError("ERR Missing library metadata")
    end = text.find(b"\n", 0, limits.SCRIPT_FIRST_LINE_BYTES_MAX)
    if end < 0:
        raise CommandError("ERR Invalid library metadata")
    words = text[2:end].split()
    name: bytes | None = None
    for word in words[1:]:
        if not word.lower().startswith(b"name="):
            raise CommandError(f"ERR Invalid metadata value given: {to_text(word)}")
        if name is not None:
            raise CommandError("ERR Invalid metadata value, name argument was given multiple times")
        name = word[5:]
    if name is None:
        raise CommandError("ERR Library name was not given")
    if not VALID_NAME.match(name):
        raise InvalidLibraryName()
    if not words or words[0].lower() != b"lua":
        raise CommandError(f"ERR Engine '{to_text(words[0]) if words else ''}' not found")
    return name, text[end:]
