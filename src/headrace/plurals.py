"""Numbers with their nouns, for messages to users."""

from __future__ import annotations


def plural(n: int, noun: str) -> str:
    """Return a number with its noun, such as "1 entry" or "2,000 entries"."""
    if n == 1:
        return f"{n:,} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{n:,} {noun[:-1]}ies"
    return f"{n:,} {noun}s"
