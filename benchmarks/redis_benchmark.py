"""Run redis-benchmark on other cores than the server's."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from dataclasses import dataclass

from benchmarks.connection import Connection
from benchmarks.servers import Server, load_cores
from headrace.resp.request import request

CONNECTIONS = 50


@dataclass(frozen=True)
class Sample:
    """The figures of one round. If `busy` is far below 1, the load was the bottleneck, not the server."""

    per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_us: float  # of the server, per command
    busy: float  # the share of the time in which the server used its core


def run(
    server: Server, command: list[str], depth: int, requests: int, connections: int = CONNECTIONS
) -> Sample:
    """Send `command` `requests` times at a pipeline depth of `depth`."""
    arguments = ["redis-benchmark", "-p", str(server.port), "-c", str(connections), "-P", str(depth)]
    arguments += ["-n", str(requests), *command]
    before = server.cpu_s()
    out = subprocess.run(
        arguments,
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=prepare_process,
    ).stdout
    cpu_us = (server.cpu_s() - before) / requests * 1e6
    rate = float(re.findall(r"throughput summary: ([\d.]+)", out)[-1])
    p50, p99, p999 = (percentile(out, percent) for percent in (50, 99, 99.9))
    return Sample(rate, p50, p99, p999, cpu_us, cpu_us * rate / 1e6)


def prepare_process() -> None:
    """Keep the process off the server's core, and raise its limit of open files."""
    os.sched_setaffinity(0, load_cores())
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def percentile(out: str, percent: float) -> float:
    """Return a percentile of the latency in milliseconds, from redis-benchmark's output.

    It prints two distributions, one by percent and one by 0.1 ms; values between two rows are interpolated.
    """
    rows = sorted((float(a), float(b)) for a, b in re.findall(r"([\d.]+)% <= ([\d.]+) milliseconds", out))
    low_percent = low_ms = 0.0
    for high_percent, high_ms in rows:
        if high_percent >= percent:
            share = (percent - low_percent) / max(high_percent - low_percent, 1e-9)
            return low_ms + (high_ms - low_ms) * share
        low_percent, low_ms = high_percent, high_ms
    raise ValueError("redis-benchmark printed no latencies")


def flush(server: Server) -> None:
    """Delete all keys of the server."""
    connection = Connection(server.port)
    connection.exchange([request(b"FLUSHALL")])
    connection.close()
