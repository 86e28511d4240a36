"""Parse and format durations: 45s, 30min, 2h, 7d."""

from __future__ import annotations

import re

from headrace.errors import UsageError

MS_BY_UNIT = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION_MS_MAX = 365_250 * 86_400_000
DURATION_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|s|min|m|h|d)")


def parse_duration_ms(text: str) -> int:
    """Return a duration such as `2h` or `1.5 d` in milliseconds.

    Raises:
        UsageError: if the text is not a duration, or is more than 1000 years.
    """
    match = DURATION_PATTERN.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"not a duration: {text!r}; expected one such as 45s, 30min, 2h or 7d")
    unit = "min" if match[2] == "m" else match[2]
    found = float(match[1]) * MS_BY_UNIT[unit]
    if found > DURATION_MS_MAX:
        raise UsageError(f"duration {text!r} is too long: expected at most 1000 years")
    return int(found)


def format_duration(milliseconds: int) -> str:
    """Return a duration in the largest unit of which it has at least one, rounded down: `59 min`."""
    for unit in ("d", "h", "min", "s"):
        if milliseconds >= MS_BY_UNIT[unit]:
            return f"{milliseconds // MS_BY_UNIT[unit]} {unit}"
    return f"{milliseconds} ms"
