"""Formats of times in fields: those of the option timestampFormat, and one that a column sets itself.

    epoch_ms, epoch_s     1772366400000, 1772366400
    iso8601               2026-03-01T12:00:00Z, and any other text of ISO 8601 when it is read
    iso8601:T3Z           reads the same; writes 2026-03-01T12:00:00.000Z: the letter between date and
                          time, the digits of the fraction (0, 3 or 6), the zone (nothing, Z or +01:00)
    auto                  reads epoch_ms and iso8601; writes epoch_ms

A comment in the schema sets the format of one column: `at TIMESTAMP COMMENT 'iso8601:T3Z'`. A DATE is written
in ISO 8601, or as 2026/03/01 with the comment 'yyyy/mm/dd'.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

TIME_FORMATS = ("epoch_ms", "epoch_s", "iso8601", "auto")
SLASHED_DATE_FORMAT = "yyyy/mm/dd"
EXACT_MS_FORMAT = "exact_ms"  # the sink's default: writes epoch_ms, and fails at a time that has microseconds
STYLE_PATTERN = re.compile(r"iso8601:(?P<between>[T ])(?P<digits>[036])(?P<zone>Z|[+-]\d\d:\d\d)?")
STYLED_TIME_PATTERN = re.compile(
    rb"\d{4}-\d\d-\d\d(?P<between>[T ])\d\d:\d\d:\d\d(\.(?P<digits>\d{3}|\d{6}))?(?P<zone>Z|[+-]\d\d:\d\d)?"
)
# Texts from which a column of times is inferred. A TIMESTAMP has microseconds.
LOSSLESS_TIME_PATTERN = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?")
UNITS_BY_DIGITS = {"0": "s", "3": "ms", "6": "us"}


@dataclass(frozen=True)
class IsoStyle:
    """A style of ISO 8601.

    unit: the Arrow unit with the style's digits of the fraction. utc_offset: the offset of `zone`.
    """

    strftime_format: str
    unit: str
    zone: str
    utc_offset: datetime.timedelta


def parse_style(text: str) -> IsoStyle | None:
    """Parse a format of the form iso8601:T3Z; None for another one."""
    found = STYLE_PATTERN.fullmatch(text)
    if found is None:
        return None
    zone = found["zone"] or ""
    shift = datetime.timedelta()
    if zone not in ("", "Z"):
        shift = datetime.timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
        shift = -shift if zone[0] == "-" else shift
    return IsoStyle(f"%Y-%m-%d{found['between']}%H:%M:%S", UNITS_BY_DIGITS[found["digits"]], zone, shift)


def infer_style(text: bytes) -> str:
    """Return the format that writes a time exactly like this text; iso8601 if no format does."""
    found = STYLED_TIME_PATTERN.fullmatch(text)
    if found is None:
        return "iso8601"
    zone = (found["zone"] or b"").decode()
    return f"iso8601:{found['between'].decode()}{len(found['digits'] or b'')}{zone}"


def is_lossless_iso(text: bytes) -> bool:
    """Return whether a text is a time in ISO 8601 that a TIMESTAMP represents without loss."""
    if not LOSSLESS_TIME_PATTERN.fullmatch(text):
        return False
    try:
        datetime.datetime.fromisoformat(text.decode())
    except ValueError:
        return False
    return True


def column_time_format(comment: str, is_date: bool, default: str) -> str:
    """Return the format in a column's comment, or else the default. is_date: for a column of dates."""
    if is_date:
        return SLASHED_DATE_FORMAT if comment == SLASHED_DATE_FORMAT else default
    return comment if comment in TIME_FORMATS or STYLE_PATTERN.fullmatch(comment) else default
