"""Requests as other clients may see them: without passwords, and printable.

The row of a command says where its arguments may contain passwords: at fixed positions, or where a function
finds them. It should find too many rather than too few: malformed requests may contain passwords, too.
"""

from __future__ import annotations

from headrace.commands.key_specs import Span
from headrace.commands.spec import Command

REDACTED = b"(redacted)"

ESCAPES = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
SHOWN = [ESCAPES.get(byte, b"%c" % byte if 32 <= byte < 127 else b"\\x%02x" % byte) for byte in range(256)]


def without_secrets(command: Command, argv: list[bytes]) -> list[bytes]:
    """Return the request's arguments without possible passwords; argv itself if it has none."""
    secrets = command.secrets
    if secrets is None:
        return argv
    words = list(argv)
    for at in secrets.positions(len(argv)) if isinstance(secrets, Span) else secrets(argv):
        words[at] = REDACTED
    return words


def quoted(word: bytes) -> bytes:
    """Return the word in double quotes, with escapes for unprintable bytes, as redis-cli reads it."""
    return b'"' + b"".join([SHOWN[byte] for byte in word]) + b'"'
