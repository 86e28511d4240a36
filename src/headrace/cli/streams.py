"""Options and helpers to select a server and its streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.profiles import DEFAULT_PROFILE, PROFILE_VARIABLE, URL_VARIABLE, resolve_url
from headrace.client.servers import Servers, servers_at
from headrace.client.stream_names import normalize_name, stream_key
from headrace.client.url import without_password
from headrace.errors import UsageError
from headrace.pipeline.similar_streams import similar_stream
from headrace.positions.stream_state import last_ids
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
    """Return the URL for a command; during shell completion the option's own value."""
    return given if context.resilient_parsing else resolve_url(given, context.meta.get(PROFILE_KEY))


def select_streams(url: str, names: tuple[str, ...], pattern: str | None) -> list[str]:
    """Return the existing streams with these names, or with names that match the pattern.

    Raises:
        UsageError: if a stream does not exist, none matches, or not exactly one of both is given.
    """
    if names and pattern:
        raise UsageError("--stream and --pattern exclude each other")
    if not names and not pattern:
        raise UsageError("no streams given: use --stream, once or more, or --pattern")
    with servers_at(url) as servers:
        if pattern is not None:
            found = servers.scan(compile_pattern(pattern))
            if not found:
                raise UsageError(f"{without_password(url)}: {no_match(pattern)}")
            return found
        streams = list(dict.fromkeys(map(normalize_name, names)))
        existing = last_ids(servers, streams)
        for name in streams:
            if name not in existing:
                raise no_stream(servers, name)
        return streams


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled value of --pattern. UsageError if it is not a regular expression."""
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error


def no_match(pattern: str) -> str:
    """Return the error for a pattern that no stream matches; `is*` of a shell is `is.*` here."""
    hint = f"; it is a regular expression, in which {pattern[:-1]}.* means any ending"
    looks_like_glob = pattern.endswith("*") and pattern[-2:-1] not in (".", "]", ")")
    return f"no stream matches {pattern!r}{hint if looks_like_glob else ''}"


def no_stream(servers: Servers, name: str) -> UsageError:
    """Return the error for a stream that does not exist; it names a similar one."""
    where = without_password(servers.url)
    return UsageError(f"{where}: there is no stream {name!r}{similar_stream(servers, name)}")


def total_length(url: str, streams: list[str]) -> int:
    """Return the number of entries of all these streams together."""
    with servers_at(url) as servers:
        replies = servers.request(streams, lambda pipe, stream: pipe.xlen(stream_key(stream)))
        return sum(reply for reply in replies.values() if isinstance(reply, int))
