"""The text of a script: the flags that its first line declares, and what is compiled.

    #!lua flags=no-writes,allow-stale
    return redis.call('GET', KEYS[1])

A script without such a line may do everything that its commands may do at the time of the call.
"""

from __future__ import annotations

import cython

from headrace import limits
from headrace.errors import CommandError, to_text
from headrace.visibility import Public

FLAG_BITS = {"no-writes": 1, "allow-oom": 2, "allow-stale": 4, "no-cluster": 8, "allow-cross-slot-keys": 16}
NO_WRITES, ALLOW_OOM, ALLOW_STALE = 1, 2, 4


@cython.final
@cython.cclass
class Script:
    """A loaded script."""

    digest: bytes
    text: bytes
    declares_flags: cython.bint  # it declares its flags
    flags: Public[cython.longlong]
    body: Public[bytes]  # what is compiled
    known_script_digest: Public[str | None]  # see commands/server/known_scripts.py
    write_call_lines: Public[list[int]]
    is_compiled: Public[cython.bint]
    never_evicted: Public[cython.bint]  # loaded by SCRIPT LOAD: never dropped to save memory

    def __init__(self, digest: bytes, text: bytes) -> None:
        """Parse the first line. Raises CommandError if it is not valid."""
        self.digest = digest
        self.text = text
        self.declares_flags = text.startswith(b"#!")
        self.flags = 0
        self.body = text
        self.known_script_digest = None
        self.write_call_lines = []
        self.is_compiled = self.never_evicted = False
        if self.declares_flags:
            self.flags, self.body = parse_flags_and_body(text)


def parse_flags_and_body(text: bytes) -> tuple[int, bytes]:
    """Return the flags and the body of a script that begins with `#!`; lines keep their numbers.

    Raises CommandError if the first line is not valid.
    """
    end = text.find(b"\n", 0, limits.SCRIPT_FIRST_LINE_BYTES_MAX)
    if end < 0:
        raise CommandError("ERR Invalid script shebang")
    words = text[:end].split()
    if not words or words[0] != b"#!lua":
        raise CommandError(f"ERR Unexpected engine in script shebang: {to_text(words[0]) if words else ''}")
    flags = 0
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise CommandError(f"ERR Unknown lua shebang option: {to_text(word)}")
        for flag in filter(None, to_text(word[6:]).split(",")):
            if flag not in FLAG_BITS:
                raise CommandError(f"ERR Unexpected flag in script shebang: {flag}")
            flags |= FLAG_BITS[flag]
    return flags, text[end:]
