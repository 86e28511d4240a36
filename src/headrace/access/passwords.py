"""Passwords are known only as the hexadecimal SHA-256 of their bytes, and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

DIGEST_DIGITS = 64
HEXADECIMAL = frozenset(b"0123456789abcdef")


def digest(password: bytes) -> bytes:
    """What is kept of the password."""
    return hashlib.sha256(password).hexdigest().encode()


def is_digest(text: bytes) -> bool:
    """Whether text can be what digest() returns: 64 hexadecimal digits, lower case."""
    return len(text) == DIGEST_DIGITS and HEXADECIMAL.issuperset(text)


def is_one_of(password: bytes, digests: Iterable[bytes]) -> bool:
    """Whether the password is one of those kept; it takes equally long whichever it is, and if none."""
    given = digest(password)
    found = False
    for kept in digests:
        found |= hmac.compare_digest(given, kept)
    return found
