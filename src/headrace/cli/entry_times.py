"""Read where in a stream to begin: an ID, a time, or a time ago."""

from __future__ import annotations

import datetime
import re
import time

from headrace.errors import UsageError
from headrace.pipeline.durations import DURATION, parse_duration_ms
from headrace.spark.source.offsets import EntryId, parse_id

ID = re.compile(r"\d+(-\d+)?")


def first_id_of(text: str) -> EntryId:
    """Return the first ID that an ID, a time, or a time ago lets in.

    Args:
        text: An ID (1763676000000-0, or its milliseconds), an ISO 8601 time (UTC without a zone), or a
            length of time such as 15min, counted back from now.

    Raises:
        UsageError: if it is none of them, or lies before 1970.
    """
    if ID.fullmatch(text):
        try:
            return parse_id(text)
        except ValueError as error:
            raise UsageError(str(error)) from None
    if DURATION.fullmatch(text.strip().lower()):
        return max(time.time_ns() // 1_000_000 - parse_duration_ms(text), 0), 0
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is neither an ID, such as 1763676000000-0, nor a time: 2026-03-01T09:30 or 15min"
        ) from None
    ms = round(moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp() * 1000)
    if ms < 0:
        raise UsageError(f"{text} lies before 1970, where no ID is")
    return ms, 0
