"""Checks of values that options of several commands take: what click's own types let pass."""

from __future__ import annotations

import datetime
import math
import re
import time
import zoneinfo

import click

from headrace.errors import UsageError
from headrace.pipeline.durations import FORM, milliseconds_in
from headrace.spark.offsets import Id, parse_id

ID = re.compile(r"\d+(-\d+)?")


def finite(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """The number, unless it is `nan` or `inf`, which Python takes for numbers. click.BadParameter."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number.")
    return value


def time_zone(context: click.Context, option: click.Parameter, name: str) -> str:
    """The name, if a time zone has it. click.BadParameter."""
    if name not in zoneinfo.available_timezones():
        raise click.BadParameter(f"no time zone {name!r}; expected a name such as UTC or Europe/Berlin")
    return name


def first_id_of(text: str) -> Id:
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
    if FORM.fullmatch(text.strip().lower()):
        return max(time.time_ns() // 1_000_000 - milliseconds_in(text), 0), 0
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
