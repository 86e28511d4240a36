"""The stream that may be meant by a name that no stream has."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from redis.exceptions import ResponseError

from headrace.client.servers import Servers
from headrace.pipeline.suggestions import did_you_mean

CANDIDATES_MAX = 10_000  # names that are looked at


def similar_stream(servers: Servers, name: str) -> str:
    """Return the end of an error message, such as "; did you mean 'orders'?", or nothing."""
    with suppress(ResponseError):  # a user that may not SCAN gets no proposal
        return did_you_mean(name, islice(servers.iter_streams(), CANDIDATES_MAX))
    return ""
