"""Parse numbers of bytes as in redis.conf: 1024, 1kb, 1k (1000), 512mb, 1gb."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 10**6, "mb": 1 << 20, "g": 10**9, "gb": 1 << 30}
_MEMORY = re.compile(r"(\d{1,19})([kmg]?b?)", re.IGNORECASE | re.ASCII)


def parse_memory(word: str) -> int:
    """Return the number of bytes of a text such as 64mb. Raises ValueError for other text."""
    found = _MEMORY.fullmatch(word)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError("argument must be a memory value")
    return int(found[1]) * _UNITS[found[2].lower()]
