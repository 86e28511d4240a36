"""Requests as other clients may see them: without passwords, and printable."""

from __future__ import annotations

from headrace.commands.spec import Command

REDACTED = b"(redacted)"

# Settings with one of these in their names are secret.
SECRET_NAMES = (b"pass", b"masterauth", b"masteruser")

ESCAPES = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
SHOWN = [ESCAPES.get(byte, b"%c" % byte if 32 <= byte < 127 else b"\\x%02x" % byte) for byte in range(256)]


def without_secrets(command: Command, argv: list[bytes]) -> list[bytes]:
    """Return the request's arguments without possible passwords; argv itself if there are none.

    It removes too many rather than too few: malformed requests may contain passwords, too.
    """
    name = command.name
    if name == b"auth":
        return [argv[0], *[REDACTED] * (len(argv) - 1)]
    if name == b"acl|setuser":
        return [*argv[:2], *[REDACTED] * (len(argv) - 2)]
    if name == b"acl|dryrun":  # user, command, and arguments of any command
        return [*argv[:4], *[REDACTED] * (len(argv) - 4)]
    if name == b"hello":
        return _without_auth(argv)
    if name == b"config|set":
        return _without_secret_settings(argv)
    return argv


def _without_auth(argv: list[bytes]) -> list[bytes]:
    """Redact user and password after AUTH in a HELLO."""
    words = list(argv)
    for at in range(1, len(argv)):
        if argv[at].lower() == b"auth":
            words[at + 1 : at + 3] = [REDACTED] * len(argv[at + 1 : at + 3])
    return words


def _without_secret_settings(argv: list[bytes]) -> list[bytes]:
    """Redact the values of secret settings in a CONFIG SET."""
    words = list(argv)
    for at in range(2, len(argv) - 1):
        name = argv[at].lower()
        if any(secret in name for secret in SECRET_NAMES):
            words[at + 1] = REDACTED
    return words


def quoted(word: bytes) -> bytes:
    """Return the word in double quotes, with escapes for unprintable bytes, as redis-cli reads it."""
    return b'"' + b"".join([SHOWN[byte] for byte in word]) + b'"'
