"""What is measured, by name: how to prepare a server, and the load.

Requests of a workload are made once and sent to both servers in every round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from benchmarks import deliveries, load, pipes
from benchmarks.load import Sample
from benchmarks.paths import (
    BY_NAME,
    TEN_FIELDS,
    delivered,
    entry_id,
    filled,
    some_position,
    words,
)
from benchmarks.servers import Server
from benchmarks.wire import Wire

XADD = ["XADD", "bench", "*", "device", "dev123", "temp", "21.5"]
ADDED = {
    "XADD": XADD,
    "XADD of 10 fields": ["XADD", "bench", "*", *TEN_FIELDS],
    "XADD of 1 KiB": ["XADD", "bench", "*", "value", "v" * 1024],
    "XADD MAXLEN ~ 1000": ["XADD", "bench", "MAXLEN", "~", "1000", *XADD[2:]],
}
DEPTHS = {1: 0.15, 16: 1.0, 64: 1.0}  # pipeline depth: the share of the requests
PIPES = 10  # connections of our own load
PENDING = 100_000
STREAM = 100_000  # entries of the streams that are read


@dataclass(frozen=True)
class Workload:
    """One row of the table: measure() is called with a server that is empty."""

    name: str
    measure: Callable[[Server, int], Sample]
    share: float  # of the requests


def stock(command: list[str], depth: int, connections: int = load.CONNECTIONS) -> Callable[..., Sample]:
    """A workload of redis-benchmark's."""

    def measure(server: Server, requests: int) -> Sample:
        return load.run(server, command, depth, requests, connections)

    return measure


def prepare(server: Server, requests: Iterable[bytes]) -> None:
    wire = Wire(server.port)
    wire.exchange(requests)
    wire.close()


def piped(
    preparation: Callable[[int], Iterable[bytes]], request: Callable[[int, int], bytes], depth: int
) -> Callable[..., Sample]:
    """Requests by number, dealt out to the connections `depth` at a time."""

    @cache
    def made(total: int) -> tuple[list[bytes], list[list[list[bytes]]]]:
        batches = [
            [request(j, total) for j in range(i, i + depth)] for i in range(0, total - depth + 1, depth)
        ]
        return list(preparation(total)), [batches[i::PIPES] for i in range(PIPES)]

    def measure(server: Server, requests: int) -> Sample:
        before, scripts = made(requests)
        prepare(server, before)
        return pipes.run(server, scripts)

    return measure


def read_and_acknowledged(count: int, pairs: int) -> Callable[..., Sample]:
    """XREADGROUP of `count` entries, then XACK of them; every connection has a group of its own.

    So it is known beforehand which entries each is given. A batch is so many pairs of the two.
    """

    @cache
    def made(total: int) -> tuple[list[bytes], list[list[list[bytes]]]]:
        batches = total // (2 * pairs) // PIPES
        before = list(filled("s", batches * pairs * count))
        scripts = []
        for i in range(PIPES):
            group = f"g{i}"
            before.append(words("XGROUP", "CREATE", "s", group, "0"))
            read = words("XREADGROUP", "GROUP", group, "c", "COUNT", count, "STREAMS", "s", ">")
            acks = [
                words("XACK", "s", group, *map(entry_id, range(k, k + count)))
                for k in range(0, batches * pairs * count, count)
            ]
            script = [
                [part for ack in acks[k : k + pairs] for part in (read, ack)]
                for k in range(0, len(acks), pairs)
            ]
            scripts.append(script)
        return before, scripts

    def measure(server: Server, requests: int) -> Sample:
        before, scripts = made(requests)
        prepare(server, before)
        return pipes.run(server, scripts)

    return measure


def of_stream(total: int) -> Iterable[bytes]:
    return filled("s", STREAM)


def ranged(count: int) -> Callable[[int, int], bytes]:
    return lambda i, total: words("XRANGE", "s", some_position(i, STREAM), "+", "COUNT", count)


def after(i: int, total: int) -> bytes:
    return words("XREAD", "COUNT", 10, "STREAMS", "s", some_position(i, STREAM))


def newest(i: int, total: int) -> bytes:
    return words("XREAD", "STREAMS", "s", entry_id(STREAM - 2))


def claimed(i: int, total: int) -> bytes:
    return words("XAUTOCLAIM", "s", "g", "bob", 0, some_position(i, PENDING), "COUNT", 100)


def got(server: Server, requests: int) -> Sample:
    prepare(server, [words("SET", "bench", "v" * 16)])
    return load.run(server, ["GET", "bench"], 16, requests)


WORKLOADS = [
    *(
        Workload(f"{name} depth {depth}", stock(command, depth), share)
        for name, command in ADDED.items()
        for depth, share in DEPTHS.items()
    ),
    Workload("XADD 1000 connections", stock(XADD, 1, 1000), 0.25),
    Workload("XRANGE COUNT 10 depth 16", piped(of_stream, ranged(10), 16), 0.15),
    Workload("XRANGE COUNT 100 depth 4", piped(of_stream, ranged(100), 4), 0.03),
    Workload("XRANGE COUNT 1000 depth 1", piped(of_stream, ranged(1000), 1), 0.006),
    Workload("XREAD COUNT 10 depth 16", piped(of_stream, after, 16), 0.15),
    Workload("XREAD of the newest depth 16", piped(of_stream, newest, 16), 0.4),
    Workload("XREADGROUP COUNT 1 + XACK depth 16", read_and_acknowledged(1, 8), 0.3),
    Workload("XREADGROUP COUNT 10 + XACK depth 16", read_and_acknowledged(10, 8), 0.1),
    Workload("XREADGROUP COUNT 100 + XACK depth 4", read_and_acknowledged(100, 2), 0.015),
    Workload(
        "XAUTOCLAIM COUNT 100 of 100k depth 1",
        piped(lambda total: delivered("s", PENDING), claimed, 1),
        0.004,
    ),
    Workload("XDEL at random depth 16", piped(BY_NAME["XDEL"].prepare, BY_NAME["XDEL"].request, 16), 0.3),
    Workload("XADD to a blocked consumer", deliveries.run, 0.15),
    Workload("PING depth 16", stock(["PING"], 16), 1.5),
    Workload("GET depth 16", got, 1.5),
]
