"""Determine from the options where a read starts and ends: a word or an ID for each stream.

    startingTimestamp    overrides  startingOffsetsByTimestamp  overrides  startingOffsets
    endingTimestamp      overrides  endingOffsetsByTimestamp    overrides  endingOffsets

option_values has already converted times to IDs. The precedence is that of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.errors import UsageError
from headrace.positions.entry_ids import START
from headrace.positions.offsets import Offsets, sorted_offsets
from headrace.spark.options import Options


def start_offsets(options: Options, streams: Iterable[str], default: str) -> dict[str, str]:
    """Return earliest, latest, an ID or a position for each stream; `default` if no option is set."""
    chosen = _first_given(
        options.starting_timestamp, options.starting_offsets_by_timestamp, options.starting_offsets, default
    )
    return _by_stream(chosen, streams, "earliest")


def end_offsets(options: Options, streams: Iterable[str]) -> dict[str, str]:
    """Return latest or an ID for each stream."""
    chosen = _first_given(
        options.ending_timestamp, options.ending_offsets_by_timestamp, options.ending_offsets, "latest"
    )
    return without_identity(_by_stream(chosen, streams, "latest"))


def without_identity(chosen: Mapping[str, str]) -> dict[str, str]:
    """Replace each position (`ID:identity`) by its ID; `earliest`, `latest` and IDs are unchanged."""
    return {stream: each.partition(":")[0] for stream, each in chosen.items()}


def resolve_offsets(chosen: Mapping[str, str], last_ids: Mapping[str, str]) -> Offsets:
    """Replace earliest by 0-0, and latest by the last ID of the stream (0-0 if it does not exist)."""
    named = {"earliest": START}
    return sorted_offsets(
        {s: last_ids.get(s, START) if w == "latest" else named.get(w, w) for s, w in chosen.items()}
    )


def check_offset_names(options: Options, streams: Iterable[str]) -> None:
    """Raise UsageError if an option gives an offset for a stream that is not read; it may be misspelt."""
    known = set(streams)
    for name, given in (
        ("startingOffsets", options.starting_offsets),
        ("startingOffsetsByTimestamp", options.starting_offsets_by_timestamp),
        ("endingOffsets", options.ending_offsets),
        ("endingOffsetsByTimestamp", options.ending_offsets_by_timestamp),
    ):
        unknown = set(given) - known if isinstance(given, dict) else ()
        if unknown:
            raise UsageError(
                f"The option {name} names {', '.join(sorted(unknown))}, which is not read: correct the name, "
                "or add the stream to subscribe."
            )


def _first_given(*offsets: str | dict[str, str] | None) -> str | dict[str, str]:
    return next(each for each in offsets if each is not None)


def _by_stream(offsets: str | dict[str, str], streams: Iterable[str], rest: str) -> dict[str, str]:
    return {s: offsets.get(s, rest) if isinstance(offsets, dict) else offsets for s in streams}
