"""Suggest a stream for a name that does not exist."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from redis.exceptions import ResponseError

from headrace.client.servers import Servers
from headrace.suggestions import suggestion_suffix

CANDIDATES_MAX = 10_000  # names that are compared


def similar_stream_suffix(servers: Servers, name: str) -> str:
    """Return the end of an error message such as "; did you mean 'orders'?", or an empty string."""
    with suppress(ResponseError):  # the user may not SCAN
        return suggestion_suffix(name, islice(servers.iter_streams(), CANDIDATES_MAX))
    return ""
