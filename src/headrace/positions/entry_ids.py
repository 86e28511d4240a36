"""IDs of entries as pairs of numbers: milliseconds and sequence.

IDs are compared as numbers, never as text ("10-0" < "5-1" as text).
"""

from __future__ import annotations

START = "0-0"  # before every entry: no entry can have this ID
U64_MAX = (1 << 64) - 1

EntryId = tuple[int, int]


def parse_id(text: str) -> EntryId:
    """Return the two numbers of "ms-seq"; "ms" alone has sequence 0. Raises ValueError."""
    ms, dash, seq = text.partition("-")
    parts = (ms, seq) if dash else (ms, "0")
    if not all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts):
        raise ValueError(f"{text!r} is not an entry ID")
    numbers = (int(parts[0]), int(parts[1]))
    if max(numbers) > U64_MAX:
        raise ValueError(f"{text!r} is not an entry ID")
    return numbers


def format_id(entry_id: EntryId) -> str:
    """Return the ID as Redis writes it."""
    return f"{entry_id[0]}-{entry_id[1]}"


def next_id(entry_id: EntryId) -> EntryId:
    """Return the ID just after this one, which must not be the last possible one."""
    ms, seq = entry_id
    return (ms, seq + 1) if seq < U64_MAX else (ms + 1, 0)


def previous_id(entry_id: EntryId) -> EntryId:
    """Return the ID just before this one, which must not be 0-0."""
    ms, seq = entry_id
    return (ms, seq - 1) if seq else (ms - 1, U64_MAX)
