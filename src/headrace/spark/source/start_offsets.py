"""Where a read starts and ends, as its options say: a word or an ID for each stream, then an ID for each.

    startingTimestamp    goes before  startingOffsetsByTimestamp  goes before  startingOffsets
    endingTimestamp                   endingOffsetsByTimestamp                 endingOffsets

Times are IDs already when they come here (option_values). The precedence is that of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.errors import UsageError
from headrace.spark.options import Options
from headrace.spark.source.offsets import START, Offsets, sorted_offsets


def start_offsets(options: Options, streams: Iterable[str], default: str) -> dict[str, str]:
    """earliest, latest or an ID for each stream. default: the word when no option says anything."""
    chosen = _first_given(options.starting_timestamp, options.starting_offsets_by_timestamp)
    wanted = _first_given(chosen, options.starting_offsets, default)
    return _by_stream(wanted, streams, "earliest")


def end_offsets(options: Options, streams: Iterable[str]) -> dict[str, str]:
    """latest or an ID for each stream."""
    chosen = _first_given(options.ending_timestamp, options.ending_offsets_by_timestamp)
    return _by_stream(_first_given(chosen, options.ending_offsets, "latest"), streams, "latest")


def resolve_offsets(wanted: Mapping[str, str], last_ids: Mapping[str, str]) -> Offsets:
    """IDs for the words: earliest is before every entry, latest where the stream ends, if there is one."""
    named = {"earliest": START}
    return sorted_offsets(
        {s: last_ids.get(s, START) if w == "latest" else named.get(w, w) for s, w in wanted.items()}
    )


def check_offset_names(options: Options, streams: Iterable[str]) -> None:
    """UsageError if an option gives an offset for a stream that is not read: perhaps it is misspelt."""
    known = set(streams)
    for name, given in (
        ("startingOffsets", options.starting_offsets),
        ("startingOffsetsByTimestamp", options.starting_offsets_by_timestamp),
        ("endingOffsets", options.ending_offsets),
        ("endingOffsetsByTimestamp", options.ending_offsets_by_timestamp),
    ):
        unknown = set(given) - known if isinstance(given, dict) else ()
        if unknown:
            raise UsageError(f"The option {name} names {', '.join(sorted(unknown))}, which is not read.")


def _first_given(*wanted: str | dict[str, str] | None) -> str | dict[str, str] | None:
    return next((each for each in wanted if each is not None), None)


def _by_stream(wanted: str | dict[str, str] | None, streams: Iterable[str], rest: str) -> dict[str, str]:
    return {s: wanted.get(s, rest) if isinstance(wanted, dict) else wanted or rest for s in streams}
