"""Passwords. Only the hexadecimal SHA-256 of each is stored; they are compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

DIGEST_DIGITS = 64
HEXADECIMAL = frozenset(b"0123456789abcdef")


def digest(password: bytes) -> bytes:
    """Return the lower-case hexadecimal SHA-256 of a password, the form in which it is stored."""
    return hashlib.sha256(password).hexdigest().encode()


def is_digest(text: bytes) -> bool:
    """Return whether the text could come from digest(): 64 lower-case hexadecimal digits."""
    return len(text) == DIGEST_DIGITS and HEXADECIMAL.issuperset(text)


def matches_any_digest(password: bytes, digests: Iterable[bytes]) -> bool:
    """Return whether the password has one of these digests, in a time that does not depend on which."""
    given = digest(password)
    found = False
    for kept in digests:
        found |= hmac.compare_digest(given, kept)
    return found
