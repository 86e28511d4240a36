"""One measurement: redis-benchmark's load on a server, from another core."""

from __future__ import annotations

import csv
import os
import subprocess
from dataclasses import dataclass

import redis

from benchmarks.servers import Server

CONNECTIONS = 50


@dataclass(frozen=True)
class Sample:
    """What one round gave: requests per second, latencies in ms, server CPU per command in µs."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


def run(server: Server, command: list[str], depth: int, requests: int) -> Sample:
    """Empty the server, then `requests` times `command` at a pipeline depth of `depth`."""
    redis.Redis(port=server.port).flushall()
    before = server.cpu_s()
    words = ["redis-benchmark", "-p", str(server.port), "-c", str(CONNECTIONS), "-P", str(depth)]
    words += ["-n", str(requests), "--csv", *command]
    cores = set(range(os.cpu_count() or 1)) - {0} or {0}
    out = subprocess.run(
        words,
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    ).stdout
    used = server.cpu_s() - before
    row = list(csv.DictReader(out.splitlines()))[-1]
    return Sample(
        float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"]), used / requests * 1e6
    )


def bytes_per_entry(server: Server, entries: int) -> float:
    """Resident bytes that one entry of two small fields costs, when `entries` of them are in one stream."""
    client = redis.Redis(port=server.port)
    client.flushall()
    before = server.resident_bytes()
    pipe = client.pipeline(transaction=False)
    for i in range(entries):
        pipe.execute_command(  # type: ignore[no-untyped-call]
            "XADD", "m", f"{1_700_000_000_000 + i}-0", "device", f"dev{i % 1000}", "temp", i % 90
        )
        if i % 10_000 == 9_999:
            pipe.execute()
    pipe.execute()
    assert client.xlen("m") == entries
    return (server.resident_bytes() - before) / entries
