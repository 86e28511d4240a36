"""Checks of values that options of several commands take: what click's own types let pass."""

from __future__ import annotations

import math
import zoneinfo

import click


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
