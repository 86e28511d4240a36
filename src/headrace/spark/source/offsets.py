"""Offsets as Spark's checkpoint keeps them: {"stream": "ms-seq"}, the last ID read of each stream.

Spark compares offsets as JSON text, so keys are always sorted: the same offset in another order would look
new for ever. IDs are compared as numbers here, never as text ("10-0" < "5-1" as text).
"""

from __future__ import annotations

from collections.abc import Mapping

START = "0-0"  # before every entry: no entry can have this ID
U64_MAX = (1 << 64) - 1

Offsets = dict[str, str]
EntryId = tuple[int, int]


def parse_id(text: str) -> EntryId:
    """The two numbers of "ms-seq", or of "ms" with sequence 0. ValueError for anything else."""
    ms, dash, seq = text.partition("-")
    parts = (ms, seq) if dash else (ms, "0")
    if not all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts):
        raise ValueError(f"{text!r} is no entry ID")
    numbers = (int(parts[0]), int(parts[1]))
    if max(numbers) > U64_MAX:
        raise ValueError(f"{text!r} is no entry ID")
    return numbers


def format_id(entry_id: EntryId) -> str:
    """The ID as Redis writes it."""
    return f"{entry_id[0]}-{entry_id[1]}"


def is_timestamp_offset(entry_id: str) -> bool:
    """Whether an ID stands for a time (option_values): it is the last that there could be before it."""
    return entry_id.endswith(f"-{U64_MAX}")


def sorted_offsets(offsets: Mapping[str, str]) -> Offsets:
    """The same offsets, keys sorted."""
    return {stream: offsets[stream] for stream in sorted(offsets)}


def advance_offsets(start: Offsets, news: Mapping[str, str]) -> Offsets:
    """start with the IDs of news that lie further; start itself when none does. Never goes back."""
    further = {s: i for s, i in news.items() if parse_id(i) > parse_id(start.get(s, START))}
    return sorted_offsets(start | further) if further else start


def cap_offsets(offsets: Offsets, target: Mapping[str, str]) -> Offsets:
    """The offsets, none past its target; streams the target does not name are left out."""
    return {
        s: i if parse_id(i) <= parse_id(target[s]) else target[s] for s, i in offsets.items() if s in target
    }
