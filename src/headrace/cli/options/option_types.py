"""Check option values in ways that click's own types do not."""

from __future__ import annotations

import math
import zoneinfo
from typing import TYPE_CHECKING

import click

from headrace.archive.location import ArchiveLocation, archive_location
from headrace.errors import UsageError

if TYPE_CHECKING:  # generic from click 8.4 on only
    ArchiveType = click.ParamType[ArchiveLocation]
else:
    ArchiveType = click.ParamType


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


class ArchivePath(ArchiveType):
    """An archive: a directory, or a URL of an object store."""

    name = "archive"

    def convert(
        self, value: str | ArchiveLocation, param: click.Parameter | None, ctx: click.Context | None
    ) -> ArchiveLocation:
        """Return the location. UsageError for a URL of another scheme."""
        return archive_location(value)


def with_storage_options(location: ArchiveLocation, pairs: tuple[str, ...]) -> ArchiveLocation:
    """Return a location with the values of --storage-option.

    Raises:
        UsageError: if a pair is not KEY=VALUE, or if there are pairs and the archive is a directory.
    """
    options = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            # The text may be a secret.
            raise UsageError("--storage-option: expected KEY=VALUE, such as AWS_REGION=eu-west-1")
        options[name] = text
    return archive_location(location.uri, options) if options else location


def optional_archive(location: ArchiveLocation | None, pairs: tuple[str, ...]) -> ArchiveLocation | None:
    """Return the location of --archive with the values of --storage-option; None if it is not given.

    Raises:
        UsageError: if a pair is not KEY=VALUE, or if there are pairs and the archive is a directory or is
            not given.
    """
    if location is None and pairs:
        raise UsageError("--storage-option is for an archive in an object store: give it with --archive")
    return None if location is None else with_storage_options(location, pairs)


storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the object store, such as AWS_ENDPOINT_URL; may be repeated.  [default: the "
    "environment variable of that name]",
)


cold_store_option = click.option(
    "--cold-store",
    metavar="URL",
    default="",
    envvar="HEADRACE_COLD_STORE",
    help="Also read cold files that are in this object store, as in s3://bucket/prefix.",
)


quiet_option = click.option("--quiet", is_flag=True, help="Print only warnings and errors, as for cron.")
