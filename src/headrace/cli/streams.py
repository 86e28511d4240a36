"""Which server a command talks to, and which of its streams it is about: named, or matching a pattern."""

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
from headrace.spark.options import DEFAULT_URL
from headrace.spark.source.stream_state import last_ids

PROFILE_KEY = "headrace.profile"  # in the context of click

C = TypeVar("C", bound=Callable[..., Any])


def url_option(command: C) -> C:
    """Give a command the options --url and --profile; it gets the URL that they and the environment say."""
    url = click.option(
        "--url",
        metavar="URL",
        callback=lambda context, option, value: chosen_url(context, value),
        help="The server: redis://, rediss://, unix://, sentinel:// or cluster://. If left out: --profile, "
        f"{URL_VARIABLE}, the profile {DEFAULT_PROFILE!r}, or {DEFAULT_URL}.",
    )
    profile = click.option(
        "--profile",
        metavar="NAME",
        envvar=PROFILE_VARIABLE,
        is_eager=True,  # before --url, which reads it
        expose_value=False,
        callback=lambda context, option, value: context.meta.__setitem__(PROFILE_KEY, value),
        help=f"The server of this profile in profiles.toml; also {PROFILE_VARIABLE}.",
    )
    return url(profile(command))


def chosen_url(context: click.Context, given: str | None) -> str | None:
    """Return the URL that a command gets; what was given while click only completes words."""
    return given if context.resilient_parsing else resolve_url(given, context.meta.get(PROFILE_KEY))


def wanted_streams(url: str, names: tuple[str, ...], pattern: str | None) -> list[str]:
    """The streams, which exist. UsageError if one does not, or none matches, or none is asked for."""
    if bool(names) == bool(pattern):
        raise UsageError("say which streams: --stream, once or more, or --pattern")
    with servers_at(url) as servers:
        if pattern is not None:
            try:
                found = servers.scan(re.compile(pattern, re.DOTALL))
            except (re.error, OverflowError, RecursionError) as error:
                raise UsageError(f"{pattern!r} is no regular expression: {error}") from error
            if not found:
                raise UsageError(f"{without_password(url)}: no stream matches {pattern!r}")
            return found
        wanted = list(dict.fromkeys(map(normalize_name, names)))
        there = last_ids(servers, wanted)
        for name in wanted:
            if name not in there:
                raise no_stream(servers, name)
        return wanted


def no_stream(servers: Servers, name: str) -> UsageError:
    """Return what to raise when a stream does not exist: it says which one may be meant."""
    where = without_password(servers.url)
    return UsageError(f"{where}: there is no stream {name!r}{similar_stream(servers, name)}")


def lengths(url: str, streams: list[str]) -> int:
    """How many entries the streams have, all together."""
    with servers_at(url) as servers:
        answers = servers.request(streams, lambda pipe, stream: pipe.xlen(stream_key(stream)))
        return sum(answer for answer in answers.values() if isinstance(answer, int))
