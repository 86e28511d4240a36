"""The hottest paths of a server, each as bytes: what prepares it, and the requests whose cost is counted.

    prepare   what the path needs: entries, groups, pending entries
    request   the bytes of the i-th request, fixed beforehand: no answer is needed to know the next one

Entry i of a prepared stream has the ID (FIRST_MS + i)-0, so that all answers of a path have one length.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.resp.request import request

FIRST_MS = 1_700_000_000_000
CONSUMER = ("GROUP", "g", "alice")


def words(*parts: object) -> bytes:
    """A request as it is sent."""
    return request(*(str(part).encode() for part in parts))


def entry_id(i: int) -> str:
    return f"{FIRST_MS + i}-0"


def fields(i: int) -> tuple[str, ...]:
    return ("device", f"dev{100 + i % 900}", "temp", f"{10 + i % 90}.5")


def filled(key: str, entries: int) -> Iterator[bytes]:
    """A stream of two small fields an entry."""
    for i in range(entries):
        yield words("XADD", key, entry_id(i), *fields(i))


def delivered(key: str, entries: int) -> Iterator[bytes]:
    """The same, and a group whose consumer has been given everything."""
    yield from filled(key, entries)
    yield words("XGROUP", "CREATE", key, "g", "0")
    yield words("XREADGROUP", *CONSUMER, "COUNT", entries, "STREAMS", key, ">")


def undelivered(key: str, entries: int) -> Iterator[bytes]:
    """The same, and a group that has been given nothing."""
    yield from filled(key, entries)
    yield words("XGROUP", "CREATE", key, "g", "0")


@dataclass(frozen=True)
class Path:
    """One path. Both functions take how many requests there will be in all."""

    name: str
    prepare: Callable[[int], Iterator[bytes]]
    request: Callable[[int, int], bytes]  # (which, of how many)
    logged: bool = False  # with appendonly yes
    depth: int = 16  # requests sent at once


def nothing(total: int) -> Iterator[bytes]:
    return iter(())


def some_position(i: int, total: int) -> str:
    """An ID anywhere in the first three quarters of so many entries, the same in every run."""
    return entry_id(i * 7919 % (total * 3 // 4))


def shuffled(total: int) -> list[int]:
    order = list(range(total))
    random.Random(7).shuffle(order)
    return order


ORDERS: dict[int, list[int]] = {}


def at_random(i: int, total: int) -> int:
    """The i-th of all numbers below total, in an order that is random and always the same."""
    if total not in ORDERS:
        ORDERS[total] = shuffled(total)
    return ORDERS[total][i]


TEN_FIELDS = [part for i in range(10) for part in (f"field{i}", f"value{i}")]
WARM_UP, COUNTED = 192, 800  # requests of a path, both a number of whole turns
ENTRIES = 6_000  # of the streams that are read

PATHS = [
    Path("PING", nothing, lambda i, n: words("PING")),
    Path("GET", lambda n: iter([words("SET", "k", "v" * 16)]), lambda i, n: words("GET", "k")),
    Path("XADD", nothing, lambda i, n: words("XADD", "s", "*", *fields(i))),
    Path("XADD depth 1", nothing, lambda i, n: words("XADD", "s", "*", *fields(i)), depth=1),
    Path("XADD logged", nothing, lambda i, n: words("XADD", "s", "*", *fields(i)), logged=True),
    Path(
        "XADD logged depth 1",
        nothing,
        lambda i, n: words("XADD", "s", "*", *fields(i)),
        logged=True,
        depth=1,
    ),
    Path("XADD of 10 fields", nothing, lambda i, n: words("XADD", "s", "*", *TEN_FIELDS)),
    Path("XADD of 1 KiB", nothing, lambda i, n: words("XADD", "s", "*", "value", "v" * 1024)),
    Path(
        "XADD MAXLEN ~",
        lambda n: filled("s", 1200),
        lambda i, n: words("XADD", "s", "MAXLEN", "~", 1000, "*", *fields(i)),
    ),
    Path(
        "XRANGE COUNT 10",
        lambda n: filled("s", ENTRIES),
        lambda i, n: words("XRANGE", "s", some_position(i, ENTRIES), "+", "COUNT", 10),
    ),
    Path(
        "XRANGE COUNT 100",
        lambda n: filled("s", ENTRIES),
        lambda i, n: words("XRANGE", "s", some_position(i, ENTRIES), "+", "COUNT", 100),
    ),
    Path(
        "XREAD COUNT 10",
        lambda n: filled("s", ENTRIES),
        lambda i, n: words("XREAD", "COUNT", 10, "STREAMS", "s", some_position(i, ENTRIES)),
    ),
    Path(
        "XREADGROUP COUNT 1",
        lambda n: undelivered("s", n),
        lambda i, n: words("XREADGROUP", *CONSUMER, "COUNT", 1, "STREAMS", "s", ">"),
    ),
    Path(
        "XREADGROUP COUNT 10",
        lambda n: undelivered("s", 10 * n),
        lambda i, n: words("XREADGROUP", *CONSUMER, "COUNT", 10, "STREAMS", "s", ">"),
    ),
    Path("XACK", lambda n: delivered("s", n), lambda i, n: words("XACK", "s", "g", entry_id(i))),
    Path(
        "XAUTOCLAIM COUNT 100",
        lambda n: delivered("s", ENTRIES),
        lambda i, n: words("XAUTOCLAIM", "s", "g", "bob", 0, some_position(i, ENTRIES), "COUNT", 100),
    ),
    Path("XDEL", lambda n: filled("s", n), lambda i, n: words("XDEL", "s", entry_id(at_random(i, n)))),
]
BY_NAME = {path.name: path for path in PATHS}
