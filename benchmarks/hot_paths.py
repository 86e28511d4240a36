"""The most frequent paths of a server: for each one the preparation and the measured requests, encoded.

    prepare   the requests that add what the path needs: entries, groups, pending entries
    request   the i-th measured request; it does not depend on the reply to an earlier one

Entry i of a prepared stream has the ID (FIRST_MS + i)-0, so all replies of a path have the same length.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from headrace.resp.request import request

FIRST_MS = 1_700_000_000_000
CONSUMER = ("GROUP", "g", "alice")


def encode(*parts: object) -> bytes:
    """Encode a request."""
    return request(*(str(part).encode() for part in parts))


def entry_id(i: int) -> str:
    return f"{FIRST_MS + i}-0"


def fields(i: int) -> tuple[str, ...]:
    return ("device", f"dev{100 + i % 900}", "temp", f"{10 + i % 90}.5")


def fill_requests(key: str, entries: int) -> Iterator[bytes]:
    """Yield XADDs of two small fields each."""
    for i in range(entries):
        yield encode("XADD", key, entry_id(i), *fields(i))


def delivered_requests(key: str, entries: int) -> Iterator[bytes]:
    """Yield the same, and a group whose consumer reads all entries."""
    yield from fill_requests(key, entries)
    yield encode("XGROUP", "CREATE", key, "g", "0")
    yield encode("XREADGROUP", *CONSUMER, "COUNT", entries, "STREAMS", key, ">")


def undelivered_requests(key: str, entries: int) -> Iterator[bytes]:
    """Yield the same, and a group that has read no entry."""
    yield from fill_requests(key, entries)
    yield encode("XGROUP", "CREATE", key, "g", "0")


@dataclass(frozen=True)
class HotPath:
    """One path. The last argument of both functions is the total number of requests."""

    name: str
    prepare: Callable[[int], Iterator[bytes]]
    request: Callable[[int, int], bytes]  # (index, total)
    logged: bool = False  # with appendonly yes
    depth: int = 16  # requests sent at once


def no_preparation(total: int) -> Iterator[bytes]:
    """Yield nothing."""
    return iter(())


def spread_id(i: int, total: int) -> str:
    """Return an ID in the first three quarters of `total` entries, the same one in every run."""
    return entry_id(i * 7919 % (total * 3 // 4))


@cache
def shuffled_indexes(total: int) -> list[int]:
    """Return the numbers below `total` in random order, the same one in every run."""
    order = list(range(total))
    random.Random(7).shuffle(order)
    return order


TEN_FIELDS = [part for i in range(10) for part in (f"field{i}", f"value{i}")]
WARM_UP, COUNTED = 192, 800  # requests of a path; multiples of its depth
ENTRIES = 6_000  # of the streams that are read

PATHS = [
    HotPath("PING", no_preparation, lambda i, n: encode("PING")),
    HotPath("GET", lambda n: iter([encode("SET", "k", "v" * 16)]), lambda i, n: encode("GET", "k")),
    HotPath("XADD", no_preparation, lambda i, n: encode("XADD", "s", "*", *fields(i))),
    HotPath("XADD depth 1", no_preparation, lambda i, n: encode("XADD", "s", "*", *fields(i)), depth=1),
    HotPath("XADD logged", no_preparation, lambda i, n: encode("XADD", "s", "*", *fields(i)), logged=True),
    HotPath(
        "XADD logged depth 1",
        no_preparation,
        lambda i, n: encode("XADD", "s", "*", *fields(i)),
        logged=True,
        depth=1,
    ),
    HotPath("XADD of 10 fields", no_preparation, lambda i, n: encode("XADD", "s", "*", *TEN_FIELDS)),
    HotPath("XADD of 1 KiB", no_preparation, lambda i, n: encode("XADD", "s", "*", "value", "v" * 1024)),
    HotPath(
        "XADD MAXLEN ~",
        lambda n: fill_requests("s", 1200),
        lambda i, n: encode("XADD", "s", "MAXLEN", "~", 1000, "*", *fields(i)),
    ),
    HotPath(
        "XRANGE COUNT 10",
        lambda n: fill_requests("s", ENTRIES),
        lambda i, n: encode("XRANGE", "s", spread_id(i, ENTRIES), "+", "COUNT", 10),
    ),
    HotPath(
        "XRANGE COUNT 100",
        lambda n: fill_requests("s", ENTRIES),
        lambda i, n: encode("XRANGE", "s", spread_id(i, ENTRIES), "+", "COUNT", 100),
    ),
    HotPath(
        "XREAD COUNT 10",
        lambda n: fill_requests("s", ENTRIES),
        lambda i, n: encode("XREAD", "COUNT", 10, "STREAMS", "s", spread_id(i, ENTRIES)),
    ),
    HotPath(
        "XREADGROUP COUNT 1",
        lambda n: undelivered_requests("s", n),
        lambda i, n: encode("XREADGROUP", *CONSUMER, "COUNT", 1, "STREAMS", "s", ">"),
    ),
    HotPath(
        "XREADGROUP COUNT 10",
        lambda n: undelivered_requests("s", 10 * n),
        lambda i, n: encode("XREADGROUP", *CONSUMER, "COUNT", 10, "STREAMS", "s", ">"),
    ),
    HotPath("XACK", lambda n: delivered_requests("s", n), lambda i, n: encode("XACK", "s", "g", entry_id(i))),
    HotPath(
        "XAUTOCLAIM COUNT 100",
        lambda n: delivered_requests("s", ENTRIES),
        lambda i, n: encode("XAUTOCLAIM", "s", "g", "bob", 0, spread_id(i, ENTRIES), "COUNT", 100),
    ),
    HotPath(
        "XDEL",
        lambda n: fill_requests("s", n),
        lambda i, n: encode("XDEL", "s", entry_id(shuffled_indexes(n)[i])),
    ),
]
PATHS_BY_NAME = {path.name: path for path in PATHS}
