"""The workloads: for each row its name, the preparation of the server, and the load.

The requests of a workload are encoded once and sent to both servers in every round.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from benchmarks import deliveries, load_generator, redis_benchmark
from benchmarks.connection import Connection
from benchmarks.hot_paths import (
    PATHS_BY_NAME,
    TEN_FIELDS,
    delivered_requests,
    encode,
    entry_id,
    fill_requests,
    spread_id,
)
from benchmarks.redis_benchmark import Sample
from benchmarks.servers import Server

XADD = ["XADD", "bench", "*", "device", "dev123", "temp", "21.5"]
ADDED = {
    "XADD": XADD,
    "XADD of 10 fields": ["XADD", "bench", "*", *TEN_FIELDS],
    "XADD of 1 KiB": ["XADD", "bench", "*", "value", "v" * 1024],
    "XADD MAXLEN ~ 1000": ["XADD", "bench", "MAXLEN", "~", "1000", *XADD[2:]],
}
SCRIPT_OF_GET = "return redis.call('GET', KEYS[1])"
SCRIPT_OF_XADD = (
    "local id = redis.call('XADD', KEYS[1], '*', 'temp', ARGV[1]) redis.call('SET', KEYS[2], id) return id"
)
# At most ARGV[1] requests in each ARGV[2] milliseconds, counted from any moment.
SCRIPT_OF_RATE_LIMITER = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if oldest and redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[1]) then
    if now - tonumber(oldest[1]:match('%d+')) < tonumber(ARGV[2]) then return {0, ARGV[1]} end
end
redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[1], '*', 'n', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[2] + 1000)
return {1, redis.call('XLEN', KEYS[1])}
"""
SCRIPT_OF_JSON = "local order = cjson.decode(ARGV[1]) return order.items[3].name"
ORDER_ITEMS = [{"name": f"item number {i}", "price": i * 1.25, "tags": ["a", "b"]} for i in range(16)]
ORDER = json.dumps({"id": 123, "paid": True, "note": None, "items": ORDER_ITEMS})  # of 1 kB
DEPTHS = {1: 0.15, 16: 1.0, 64: 1.0}  # pipeline depth: the share of the requests
CONNECTIONS = 10  # of the load generator
PENDING_ENTRIES = 100_000
STREAM_ENTRIES = 100_000  # of the streams that are read


@dataclass(frozen=True)
class Workload:
    """One row of the table. `measure` is called with an empty server and the number of requests."""

    name: str
    measure: Callable[[Server, int], Sample]
    share: float  # of the requests


def redis_benchmark_load(
    command: list[str], depth: int, connections: int = redis_benchmark.CONNECTIONS
) -> Callable[..., Sample]:
    """Return a workload that redis-benchmark sends."""

    def measure(server: Server, requests: int) -> Sample:
        return redis_benchmark.run(server, command, depth, requests, connections)

    return measure


def prepare(server: Server, requests: Iterable[bytes]) -> None:
    """Send the requests."""
    connection = Connection(server.port)
    connection.exchange(requests)
    connection.close()


def scripted_load(
    preparation: Callable[[int], Iterable[bytes]], request: Callable[[int, int], bytes], depth: int
) -> Callable[..., Sample]:
    """Return a workload of the load generator, which sends batches of `depth` requests."""

    @cache
    def make_requests(total: int) -> tuple[list[bytes], list[list[list[bytes]]]]:
        batches = [
            [request(j, total) for j in range(i, i + depth)] for i in range(0, total - depth + 1, depth)
        ]
        return list(preparation(total)), [batches[i::CONNECTIONS] for i in range(CONNECTIONS)]

    def measure(server: Server, requests: int) -> Sample:
        before, scripts = make_requests(requests)
        prepare(server, before)
        return load_generator.run(server, scripts)

    return measure


def read_and_acknowledge(count: int, pairs: int) -> Callable[..., Sample]:
    """Return a workload of XREADGROUP of `count` entries, then XACK of these entries.

    Each connection has its own group, so the entries that it gets are known beforehand. A batch consists of
    `pairs` pairs of the two commands.
    """

    @cache
    def make_requests(total: int) -> tuple[list[bytes], list[list[list[bytes]]]]:
        batches = total // (2 * pairs) // CONNECTIONS
        before = list(fill_requests("s", batches * pairs * count))
        scripts = []
        for i in range(CONNECTIONS):
            group = f"g{i}"
            before.append(encode("XGROUP", "CREATE", "s", group, "0"))
            read = encode("XREADGROUP", "GROUP", group, "c", "COUNT", count, "STREAMS", "s", ">")
            acks = [
                encode("XACK", "s", group, *map(entry_id, range(k, k + count)))
                for k in range(0, batches * pairs * count, count)
            ]
            script = [
                [part for ack in acks[k : k + pairs] for part in (read, ack)]
                for k in range(0, len(acks), pairs)
            ]
            scripts.append(script)
        return before, scripts

    def measure(server: Server, requests: int) -> Sample:
        before, scripts = make_requests(requests)
        prepare(server, before)
        return load_generator.run(server, scripts)

    return measure


def fill_stream(total: int) -> Iterable[bytes]:
    return fill_requests("s", STREAM_ENTRIES)


def xrange_request(count: int) -> Callable[[int, int], bytes]:
    return lambda i, total: encode("XRANGE", "s", spread_id(i, STREAM_ENTRIES), "+", "COUNT", count)


def xread_request(i: int, total: int) -> bytes:
    return encode("XREAD", "COUNT", 10, "STREAMS", "s", spread_id(i, STREAM_ENTRIES))


def xread_newest_request(i: int, total: int) -> bytes:
    return encode("XREAD", "STREAMS", "s", entry_id(STREAM_ENTRIES - 2))


def xautoclaim_request(i: int, total: int) -> bytes:
    return encode("XAUTOCLAIM", "s", "g", "bob", 0, spread_id(i, PENDING_ENTRIES), "COUNT", 100)


def script_load(script: str, *words: str) -> Callable[..., Sample]:
    """Return a workload of EVALSHA of the script; words: the number of keys, the keys and arguments."""
    digest = hashlib.sha1(script.encode()).hexdigest()

    def measure(server: Server, requests: int) -> Sample:
        prepare(server, [encode("SCRIPT", "LOAD", script), encode("SET", "k", "v")])
        return redis_benchmark.run(server, ["EVALSHA", digest, *words], 16, requests)

    return measure


def measure_get(server: Server, requests: int) -> Sample:
    prepare(server, [encode("SET", "bench", "v" * 16)])
    return redis_benchmark.run(server, ["GET", "bench"], 16, requests)


WORKLOADS = [
    *(
        Workload(f"{name} depth {depth}", redis_benchmark_load(command, depth), share)
        for name, command in ADDED.items()
        for depth, share in DEPTHS.items()
    ),
    Workload("XADD 1000 connections", redis_benchmark_load(XADD, 1, 1000), 0.25),
    Workload("XRANGE COUNT 10 depth 16", scripted_load(fill_stream, xrange_request(10), 16), 0.15),
    Workload("XRANGE COUNT 100 depth 4", scripted_load(fill_stream, xrange_request(100), 4), 0.03),
    Workload("XRANGE COUNT 1000 depth 1", scripted_load(fill_stream, xrange_request(1000), 1), 0.006),
    Workload("XREAD COUNT 10 depth 16", scripted_load(fill_stream, xread_request, 16), 0.15),
    Workload("XREAD of the newest depth 16", scripted_load(fill_stream, xread_newest_request, 16), 0.4),
    Workload("XREADGROUP COUNT 1 + XACK depth 16", read_and_acknowledge(1, 8), 0.3),
    Workload("XREADGROUP COUNT 10 + XACK depth 16", read_and_acknowledge(10, 8), 0.1),
    Workload("XREADGROUP COUNT 100 + XACK depth 4", read_and_acknowledge(100, 2), 0.015),
    Workload(
        "XAUTOCLAIM COUNT 100 of 100k depth 1",
        scripted_load(lambda total: delivered_requests("s", PENDING_ENTRIES), xautoclaim_request, 1),
        0.004,
    ),
    Workload(
        "XDEL at random depth 16",
        scripted_load(PATHS_BY_NAME["XDEL"].prepare, PATHS_BY_NAME["XDEL"].request, 16),
        0.3,
    ),
    Workload("XADD to a blocked consumer", deliveries.run, 0.15),
    Workload("PING depth 16", redis_benchmark_load(["PING"], 16), 1.5),
    Workload("GET depth 16", measure_get, 1.5),
    Workload("EVALSHA of GET depth 16", script_load(SCRIPT_OF_GET, "1", "k"), 0.2),
    Workload(
        "EVALSHA of XADD and SET depth 16", script_load(SCRIPT_OF_XADD, "2", "bench", "last", "21.5"), 0.15
    ),
    Workload(
        "EVALSHA of a rate limiter depth 16",
        script_load(SCRIPT_OF_RATE_LIMITER, "1", "limit", "1000", "1"),
        0.1,
    ),
    Workload("EVALSHA of cjson.decode depth 16", script_load(SCRIPT_OF_JSON, "0", ORDER), 0.1),
]
