"""Numbers with their nouns or units, for messages to users."""

from __future__ import annotations


def plural(n: int, noun: str) -> str:
    """Return a number with its noun, such as "1 entry" or "2,000 entries"."""
    if n == 1:
        return f"{n:,} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{n:,} {noun[:-1]}ies"
    return f"{n:,} {noun}s"


def human_bytes(n: int) -> str:
    """Return a number of bytes as INFO shows it, such as "1.50M"."""
    size = float(n)
    for unit in "BKMGT":
        if size < 1024 or unit == "T":
            break
        size /= 1024
    return f"{size:.2f}{unit}" if unit != "B" else f"{n}B"
