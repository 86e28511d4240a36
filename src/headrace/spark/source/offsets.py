"""Offsets in the form of Spark's checkpoint: {"stream": "ms-seq"}, the last ID read of each stream.

Spark compares offsets as JSON text, so keys are always sorted: the same offsets in another order would always
look new. IDs are compared as numbers, never as text ("10-0" < "5-1" as text).
"""

from __future__ import annotations

from collections.abc import Mapping

START = "0-0"  # before every entry: no entry can have this ID
U64_MAX = (1 << 64) - 1

Offsets = dict[str, str]
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


def is_timestamp_offset(entry_id: str) -> bool:
    """Return whether an ID represents a time (see option_values): the last possible ID before it."""
    return entry_id.endswith(f"-{U64_MAX}")


def sorted_offsets(offsets: Mapping[str, str]) -> Offsets:
    """Return the offsets sorted by stream."""
    return {stream: offsets[stream] for stream in sorted(offsets)}


def advance_offsets(start: Offsets, news: Mapping[str, str]) -> Offsets:
    """Return start, advanced to the IDs of news that are higher; start itself if none is."""
    further = {s: i for s, i in news.items() if parse_id(i) > parse_id(start.get(s, START))}
    return sorted_offsets(start | further) if further else start


def cap_offsets(offsets: Offsets, target: Mapping[str, str]) -> Offsets:
    """Return the offsets, at most the target's; streams that are not in the target are omitted."""
    return {
        s: i if parse_id(i) <= parse_id(target[s]) else target[s] for s, i in offsets.items() if s in target
    }
