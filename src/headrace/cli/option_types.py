"""Checks of option values that click's own types do not make."""

from __future__ import annotations

import math
import os
import zoneinfo
from pathlib import Path

import click

from headrace.errors import UsageError
from headrace.spark.archive.local_paths import local_path


def check_finite(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """Return the number. click.BadParameter for `nan` and `inf`, which Python accepts as numbers."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number.")
    return value


def check_time_zone(context: click.Context, option: click.Parameter, name: str) -> str:
    """Return the name of a time zone. click.BadParameter if there is none of that name."""
    if name not in zoneinfo.available_timezones():
        raise click.BadParameter(f"unknown time zone {name!r}; expected a name such as UTC or Europe/Berlin")
    return name


class LocalPath(click.ParamType[Path]):
    """A path on this machine, or a file:// URL. UsageError for other URL schemes."""

    name = "path"

    def __init__(self, *, existing_directory: bool = False) -> None:
        self._existing_directory = existing_directory

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path."""
        path = local_path(value)
        if self._existing_directory and not path.is_dir():
            raise UsageError(f"{path}: there is no such directory")
        return path
