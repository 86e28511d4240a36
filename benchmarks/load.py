"""One measurement by redis-benchmark, from another core than the server's."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from dataclasses import dataclass

from benchmarks.servers import Server, load_cores
from benchmarks.wire import Wire
from headrace.resp.request import request

CONNECTIONS = 50


@dataclass(frozen=True)
class Sample:
    """What one round gave. Where `busy` is far below 1 the load was the bottleneck, not the server."""

    per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_us: float  # of the server, per command
    busy: float  # the share of the time in which the server used its core


def run(
    server: Server, command: list[str], depth: int, requests: int, connections: int = CONNECTIONS
) -> Sample:
    """Send `command` so many times at a pipeline depth of `depth`."""
    words = ["redis-benchmark", "-p", str(server.port), "-c", str(connections), "-P", str(depth)]
    words += ["-n", str(requests), *command]
    before = server.cpu_s()
    out = subprocess.run(
        words,
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
    """The load keeps off the server's core, and may open as many files as the system lets it."""
    os.sched_setaffinity(0, load_cores())
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def percentile(out: str, percent: float) -> float:
    """The latency in ms below which so many percent lie, by redis-benchmark's two distributions.

    One has rows at ever finer percents, the other at every 0.1 ms; between two rows the line is straight.
    """
    rows = sorted((float(a), float(b)) for a, b in re.findall(r"([\d.]+)% <= ([\d.]+) milliseconds", out))
    low_percent = low_ms = 0.0
    for high_percent, high_ms in rows:
        if high_percent >= percent:
            share = (percent - low_percent) / max(high_percent - low_percent, 1e-9)
            return low_ms + (high_ms - low_ms) * share
        low_percent, low_ms = high_percent, high_ms
    raise ValueError("redis-benchmark told no latencies")


def flush(server: Server) -> None:
    """Empty the server, for the next round."""
    wire = Wire(server.port)
    wire.exchange([request(b"FLUSHALL")])
    wire.close()
