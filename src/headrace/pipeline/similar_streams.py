"""The stream that may be meant by a name that no stream has."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from redis.exceptions import ResponseError

from headrace.client.servers import SCAN_COUNT, Servers
from headrace.client.stream_names import stream_name
from headrace.pipeline.suggestions import did_you_mean

CANDIDATES_MAX = 10_000  # names that are looked at


def similar_stream(servers: Servers, name: str) -> str:
    """Return the end of an error message, such as "; did you mean 'orders'?", or nothing."""
    with suppress(ResponseError):  # a user that may not SCAN gets no proposal
        scan = servers.client().scan_iter(count=SCAN_COUNT, _type="stream")
        return did_you_mean(name, (stream_name(found) for found in islice(scan, CANDIDATES_MAX)))
    return ""
