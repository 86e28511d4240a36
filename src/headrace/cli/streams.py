"""Which server a command talks to, and which of its streams it is about: named, or matching a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from headrace.errors import UsageError
from headrace.server_url import failures_explained, without_password
from headrace.spark.options import DEFAULT_URL
from headrace.spark.shards import Servers
from headrace.spark.tails import tail

url_option = click.option(
    "--url",
    default=DEFAULT_URL,
    show_default=True,
    help="The server: redis://, rediss://, unix://, sentinel:// or cluster://.",
)


@contextmanager
def servers_at(url: str) -> Iterator[Servers]:
    """The servers there, closed in the end; inside, one that is lost is a HeadraceError."""
    with closing(Servers(url, patience=0)) as servers, failures_explained(url):
        yield servers


def wanted_streams(url: str, names: tuple[str, ...], pattern: str | None) -> list[str]:
    """The streams, which exist. UsageError if one does not, or none matches, or none is asked for."""
    if bool(names) == bool(pattern):
        raise UsageError("say which streams: --stream, once or more, or --pattern")
    with servers_at(url) as servers:
        if pattern is not None:
            try:
                found = servers.scan(re.compile(pattern))
            except (re.error, OverflowError, RecursionError) as error:
                raise UsageError(f"{pattern!r} is no regular expression: {error}") from error
            if not found:
                raise UsageError(f"{without_password(url)}: no stream matches {pattern!r}")
            return found
        there = tail(servers, names)
        for name in names:
            if name not in there:
                raise UsageError(f"{without_password(url)}: there is no stream {name!r}")
        return list(dict.fromkeys(names))


def lengths(url: str, streams: list[str]) -> int:
    """How many entries the streams have, all together."""
    with servers_at(url) as servers:
        answers = servers.ask(streams, lambda pipe, stream: pipe.xlen(stream))
        return sum(answer for answer in answers.values() if isinstance(answer, int))
