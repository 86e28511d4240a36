"""Times to wait or to keep, as people write them: 45s, 30min, 2h, 7d."""

from __future__ import annotations

import re

from headrace.errors import UsageError

MILLISECONDS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
MILLISECONDS_MAX = 365_250 * 86_400_000
FORM = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|m|h|d)")


def milliseconds_in(text: str) -> int:
    """What `2h` or `1.5 d` is in milliseconds. UsageError if it is nothing of the kind."""
    match = FORM.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{text!r} is no length of time; expected one such as 45s, 30min, 2h or 7d")
    unit = "min" if match[2] == "m" else match[2]
    found = float(match[1]) * MILLISECONDS[unit]
    if found > MILLISECONDS_MAX:
        raise UsageError(f"{text!r} is no length of time to wait or keep: it is more than 1000 years")
    return int(found)


def duration(milliseconds: int) -> str:
    """The time in the largest unit of which it has at least one, rounded down."""
    for unit in ("d", "h", "min", "s"):
        if milliseconds >= MILLISECONDS[unit]:
            return f"{milliseconds // MILLISECONDS[unit]} {unit}"
    return f"{milliseconds} ms"
