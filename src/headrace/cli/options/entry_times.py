"""Parse a position in a stream: an ID, a time, or a duration before now."""

from __future__ import annotations

import datetime
import re
import time

from headrace.errors import UsageError
from headrace.pipeline.shared.durations import DURATION_PATTERN, parse_duration_ms
from headrace.positions.entry_ids import EntryId, parse_id

ID_PATTERN = re.compile(r"\d+(-\d+)?")


def parse_first_id(text: str) -> EntryId:
    """Return the smallest ID at or after a position.

    Args:
        text: An ID (1763676000000-0, or its milliseconds), an ISO 8601 time (UTC without a zone), or a
            duration before now, such as 15min.

    Raises:
        UsageError: if it is none of them, or is before 1970.
    """
    if ID_PATTERN.fullmatch(text):
        try:
            return parse_id(text)
        except ValueError as error:
            raise UsageError(str(error)) from None
    if DURATION_PATTERN.fullmatch(text.strip().lower()):
        return max(time.time_ns() // 1_000_000 - parse_duration_ms(text), 0), 0
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is neither an ID, such as 1763676000000-0, nor a time: 2026-03-01T09:30 or 15min"
        ) from None
    ms = round(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1000)
    if ms < 0:
        raise UsageError(f"{text} is before 1970; IDs begin there")
    return ms, 0
