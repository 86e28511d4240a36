"""A short hash of an entry, by which an archive recognises the stream that it has archived."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

FINGERPRINT_BYTES = 4


def entry_fingerprint(fields: Mapping[Any, Any]) -> str:
    """Return a short hash of an entry's fields in their order, the same for bytes and for str."""
    found = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
    for pair in fields.items():
        for word in pair:
            raw = word.encode("utf-8", "surrogateescape") if isinstance(word, str) else word
            found.update(b"%d:" % len(raw))
            found.update(raw)
    return found.hexdigest()
