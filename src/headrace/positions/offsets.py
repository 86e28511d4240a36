"""Offsets of streams: {"stream": "ms-seq"}, the last ID read of each stream, as in Spark's checkpoints.

Spark compares offsets as JSON text, so keys are always sorted: the same offsets in another order would always
look new.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.positions.entry_ids import START, U64_MAX, parse_id

Offsets = dict[str, str]


def is_timestamp_offset(entry_id: str) -> bool:
    """Return whether an ID is the last possible one before a time: see spark/option_values.py."""
    return entry_id.endswith(f"-{U64_MAX}")


def sorted_offsets(offsets: Mapping[str, str]) -> Offsets:
    """Return the offsets sorted by stream."""
    return {stream: offsets[stream] for stream in sorted(offsets)}


def advance_offsets(start: Offsets, news: Mapping[str, str]) -> Offsets:
    """Return `start` updated by each higher ID in `news`; `start` itself if none is higher.

    A stream that `start` lacks counts as 0-0 there, so it is added.
    """
    further = {s: i for s, i in news.items() if parse_id(i) > parse_id(start.get(s, START))}
    return sorted_offsets(start | further) if further else start


def cap_offsets(offsets: Offsets, target: Mapping[str, str]) -> Offsets:
    """Return the lower ID of `offsets` and `target` for each stream; omit streams not in `target`."""
    return {
        s: i if parse_id(i) <= parse_id(target[s]) else target[s] for s, i in offsets.items() if s in target
    }
