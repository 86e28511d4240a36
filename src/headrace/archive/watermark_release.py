"""List the archives of streams by their watermarks, and release those that are no longer used.

The watermark of an archive that is no longer used, or was deleted, protects entries from trimming for ever.
Releasing the archive deletes its watermark. The next archive job to the same archive publishes a new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial

from headrace.archive.watermark import (
    UNKNOWN_ARCHIVE_NAME,
    Watermark,
    change_watermarks,
    parse_watermarks,
    percent_encoded_location,
    watermark_key,
)
from headrace.client.servers import Servers, servers_at
from headrace.errors import UsageError
from headrace.suggestions import suggestion_suffix

STREAMS_PER_REQUEST = 100


def iter_watermarks(servers: Servers, streams: Iterable[str]) -> Iterator[tuple[str, Watermark]]:
    """Yield the watermarks of these streams, the lowest of each one first.

    Raises:
        HeadraceError: if a key holds something other than watermarks.
        redis.ResponseError: if the server rejects a request.
    """
    names = list(streams)
    for start in range(0, len(names), STREAMS_PER_REQUEST):
        page = names[start : start + STREAMS_PER_REQUEST]
        replies = servers.request_each(page, lambda pipe, stream: pipe.get(watermark_key(stream)))
        for stream, value in replies.items():
            if isinstance(value, Exception):
                raise value
            for watermark in parse_watermarks(stream, value):
                yield stream, watermark


def delete_watermarks(url: str, streams: Iterable[str], name: str) -> list[str]:
    """Delete the watermarks of an archive: it no longer protects entries of these streams from trimming.

    Args:
        url: The server.
        streams: The streams' names.
        name: The ID of the archive's table, or where it is; `unknown` for what earlier versions published.

    Returns:
        The streams that had a watermark of the archive.

    Raises:
        UsageError: if there is no such archive, or several tables are at this place.
        HeadraceError: if the server is not reachable, or rejects a command.
    """
    with servers_at(url) as servers:
        watermarks = list(iter_watermarks(servers, streams))
        table = find_table_id([watermark for _, watermark in watermarks], name)
        released = [stream for stream, watermark in watermarks if watermark.table_id == table]

        def without_table(_: object, present: list[Watermark]) -> list[Watermark]:
            return [each for each in present if each.table_id != table]

        def release(stream: str) -> None:
            change_watermarks(servers.client(), stream, without_table)

        for stream in released:
            servers.with_retries(partial(release, stream))
        return released


def find_table_id(watermarks: Iterable[Watermark], name: str) -> str:
    """Return the ID of the table that a user names; an empty one for `unknown`, if a watermark has no ID.

    Raises:
        UsageError: if there is no such table, or there are several.
    """
    known = list(watermarks)
    if name == UNKNOWN_ARCHIVE_NAME and not all(each.table_id for each in known):
        return ""
    places = {percent_encoded_location(name), percent_encoded_location(os.path.abspath(name))}
    found = {
        each.table_id
        for each in known
        if each.table_id == name or percent_encoded_location(each.location) in places
    }
    if len(found) > 1:
        raise UsageError(
            f"several archives were at {name}; give the ID of one of them: {', '.join(sorted(found))}"
        )
    if not found:
        names = sorted({each.archive_name for each in known})
        listed = f"; there are {', '.join(names)}" if names else ""
        raise UsageError(f"no archive {name!r} of these streams{suggestion_suffix(name, names) or listed}")
    return found.pop()
