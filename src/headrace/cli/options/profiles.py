"""Resolve the URL of the server: the first of these that is set.

    1  --url URL
    2  --profile NAME, or HEADRACE_PROFILE
    3  HEADRACE_URL
    4  the profile `default`
    5  redis://127.0.0.1:7777

Profiles are in $XDG_CONFIG_HOME/headrace/profiles.toml, by default ~/.config/headrace/profiles.toml:

    [profile.default]
    url = "redis://127.0.0.1:7777"

    [profile.production]
    url = "rediss://reader:secret@streams.example:6380"
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import click

from headrace.client.url import has_password
from headrace.console.escaping import one_line
from headrace.errors import UsageError, os_error_text
from headrace.spark.options import DEFAULT_URL
from headrace.suggestions import suggestion_suffix

URL_VARIABLE = "HEADRACE_URL"
PROFILE_VARIABLE = "HEADRACE_PROFILE"
DEFAULT_PROFILE = "default"
READABLE_BY_OTHERS_BITS = stat.S_IRGRP | stat.S_IROTH


def resolve_url(url: str | None, profile: str | None) -> str:
    """Return the URL of the server for a command.

    Args:
        url: The value of --url, if given.
        profile: The value of --profile or HEADRACE_PROFILE, if given.

    Raises:
        UsageError: if the profile does not exist or the file is not valid.
    """
    if url is not None:
        return url
    if profile is not None:
        return profile_url(profile)
    if from_environment := os.environ.get(URL_VARIABLE):
        return from_environment
    path = profiles_path()
    if path is not None and path.exists():
        profiles = read_profiles(path)
        if DEFAULT_PROFILE in profiles:
            return checked_url(path, DEFAULT_PROFILE, profiles[DEFAULT_PROFILE])
    return DEFAULT_URL


def profiles_path() -> Path | None:
    """Return the path of the profiles; None if the user has no home directory."""
    directory = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(directory):  # the XDG specification ignores relative paths
        return Path(directory) / "headrace" / "profiles.toml"
    try:
        return Path.home() / ".config" / "headrace" / "profiles.toml"
    except RuntimeError:
        return None


def profile_url(name: str) -> str:
    """Return the URL of a profile. UsageError if there is none of that name."""
    path = profiles_path()
    if path is None or not path.exists():
        raise UsageError(
            f"profile {name!r}: there is no file {path}; create it with [profile.{name}] and url"
        )
    profiles = read_profiles(path)
    if name not in profiles:
        hint = suggestion_suffix(name, profiles) or f"; it has {', '.join(map(repr, profiles)) or 'none'}"
        raise UsageError(f"{path} has no profile {name!r}{hint}")
    return checked_url(path, name, profiles[name])


def read_profiles(path: Path) -> dict[str, Any]:
    """Return the tables of the file by profile name. UsageError if it cannot be read or is not valid."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path}: {os_error_text(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    profiles = content.pop("profile", {})
    if content or not isinstance(profiles, dict):
        unknown = ", ".join(map(repr, content)) or "'profile'"
        raise UsageError(f"{path}: unexpected {unknown}; expected tables [profile.NAME] with a url")
    return profiles


def checked_url(path: Path, name: str, profile: Any) -> str:
    """Return the URL in a profile; warn if other users can read its password. UsageError if it has none."""
    if not isinstance(profile, dict) or not isinstance(profile.get("url"), str):
        raise UsageError(f'{path}: profile {name!r} has no url; expected url = "redis://host:port"')
    unknown = sorted(set(profile) - {"url"})
    if unknown:
        hint = suggestion_suffix(unknown[0], ["url"])
        raise UsageError(f"{path}: profile {name!r} has an unknown key {unknown[0]!r}{hint}")
    url: str = profile["url"]
    if has_password(url) and path.stat().st_mode & READABLE_BY_OTHERS_BITS:
        warning = f"{path} contains a password and other users can read it; run: chmod 600 {path}"
        click.echo(f"headrace: warning: {one_line(warning)}", err=True)
    return url
