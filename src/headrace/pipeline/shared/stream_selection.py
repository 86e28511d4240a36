"""Select the streams of a job: those with given names, or those whose names match a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.client.servers import Servers, servers_at
from headrace.client.stream_names import normalize_name, stream_key
from headrace.client.url import without_password
from headrace.errors import UsageError
from headrace.pipeline.shared.similar_streams import similar_stream_suffix
from headrace.positions.stream_state import last_ids


def select_streams(url: str, names: str | Sequence[str] | None, pattern: str | None) -> list[str]:
    """Return the existing streams with these names, or with names that match the pattern.

    Args:
        url: The server.
        names: The names, or one name; empty or None if a pattern is given.
        pattern: A regular expression for whole names; None if names are given.

    Raises:
        UsageError: if a stream does not exist, none matches, the pattern is not valid, or not exactly one of
            `names` and `pattern` is given.
    """
    names = [names] if isinstance(names, str) else names
    if names and pattern:
        raise UsageError("--stream and --pattern exclude each other")
    if not names and not pattern:
        raise UsageError("no streams given: use --stream, once or more, or --pattern")
    with servers_at(url) as servers:
        if pattern is not None:
            found = servers.matching_streams(compile_pattern(pattern))
            if not found:
                raise UsageError(f"{without_password(url)}: {no_match_message(pattern)}")
            return found
        streams = list(dict.fromkeys(map(normalize_name, names or ())))
        existing = last_ids(servers, streams)
        for name in streams:
            if name not in existing:
                raise no_such_stream_error(servers, name)
        return streams


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled value of --pattern. UsageError if it is not a regular expression."""
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error


def no_match_message(pattern: str) -> str:
    """Return the error text for a pattern without matches; for `orders*` it suggests `orders.*`."""
    hint = f"; it is a regular expression, in which {pattern[:-1]}.* means any ending"
    looks_like_glob = pattern.endswith("*") and pattern[-2:-1] not in (".", "]", ")")
    return f"no stream matches {pattern!r}{hint if looks_like_glob else ''}"


def no_such_stream_error(servers: Servers, name: str) -> UsageError:
    """Return the error for a stream that does not exist; it names a similar one."""
    where = without_password(servers.url)
    return UsageError(f"{where}: there is no stream {name!r}{similar_stream_suffix(servers, name)}")


def total_length(url: str, streams: Sequence[str]) -> int:
    """Return the number of entries of all these streams together."""
    with servers_at(url) as servers:
        replies = servers.request_each(streams, lambda pipe, stream: pipe.xlen(stream_key(stream)))
        return sum(reply for reply in replies.values() if isinstance(reply, int))
