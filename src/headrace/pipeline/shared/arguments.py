"""Check the arguments of jobs. Errors name the command's option, such as --keep-for for keep_for=."""

from __future__ import annotations

import datetime
import math

from headrace.errors import UsageError
from headrace.pipeline.shared.durations import parse_duration_ms

ONE_MS = datetime.timedelta(milliseconds=1)


def duration_ms(option: str, given: str | datetime.timedelta) -> int:
    """Return a duration in milliseconds, rounded down.

    Raises:
        UsageError: if it is negative, or the text is not a duration such as `2h`.
    """
    if isinstance(given, str):
        return parse_duration_ms(given)
    if given < datetime.timedelta():
        raise UsageError(f"{option}: a duration cannot be negative: {given}")
    return given // ONE_MS


def checked_at_least(option: str, given: int, minimum: int) -> int:
    """Return the number. UsageError if it is below the minimum."""
    if given < minimum:
        raise UsageError(f"{option}: {given} is too low; the minimum is {minimum}")
    return given


def checked_positive(option: str, given: float) -> float:
    """Return the number. UsageError if it is not a number, not above 0, or not finite."""
    if not isinstance(given, int | float) or not math.isfinite(given) or given <= 0:
        raise UsageError(f"{option}: expected a number above 0, or None for no limit, not {given!r}")
    return given


def time_or_id_text(given: str | datetime.datetime) -> str:
    """Return an ID or a time as text; a datetime without a zone is in UTC."""
    return given.isoformat() if isinstance(given, datetime.datetime) else given
