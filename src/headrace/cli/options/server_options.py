"""Options that select a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.options.profiles import DEFAULT_PROFILE, PROFILE_VARIABLE, URL_VARIABLE, resolve_url
from headrace.spark.options import DEFAULT_URL

PROFILE_KEY = "headrace.profile"  # in context.meta of click

C = TypeVar("C", bound=Callable[..., Any])


def url_option(command: C) -> C:
    """Add the options --url and --profile to a command, which gets the resolved URL as `url`."""
    url = click.option(
        "--url",
        metavar="URL",
        callback=lambda context, option, value: chosen_url(context, value),
        help="Connect to this server: redis://, rediss://, unix://, sentinel:// or cluster://.  "
        f"[default: --profile, ${URL_VARIABLE}, the profile {DEFAULT_PROFILE!r}, or {DEFAULT_URL}]",
    )
    profile = click.option(
        "--profile",
        metavar="NAME",
        envvar=PROFILE_VARIABLE,
        is_eager=True,  # before --url, which reads it
        expose_value=False,
        callback=lambda context, option, value: context.meta.__setitem__(PROFILE_KEY, value),
        help=f"Use the server of this profile in profiles.toml.  [default: ${PROFILE_VARIABLE}]",
    )
    return url(profile(command))


def chosen_url(context: click.Context, given: str | None) -> str | None:
    """Return the resolved URL for a command; during shell completion the value of --url, unresolved."""
    return given if context.resilient_parsing else resolve_url(given, context.meta.get(PROFILE_KEY))
