"""Measure writes with each value of appendfsync; both servers have their log on the same disk.

redis-benchmark sends XADDs of two fields on 50 connections. Each sample is of a new server.
"""

from __future__ import annotations

from rich.progress import track

from benchmarks import redis_benchmark
from benchmarks.rounds import SERVERS, Rows, medians, sample_rounds
from benchmarks.workloads import XADD

LOG = ("--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--appendfsync")
POLICIES = {  # name: (appendfsync, pipeline depth, share of the requests)
    "appendfsync always depth 1": ("always", 1, 0.12),
    "appendfsync always depth 16": ("always", 16, 0.5),
    "appendfsync everysec depth 1": ("everysec", 1, 0.25),
    "appendfsync everysec depth 16": ("everysec", 16, 1.0),
    "appendfsync no depth 1": ("no", 1, 0.25),
    "appendfsync no depth 16": ("no", 16, 1.0),
}


def measure(rounds: int, requests: int, wanted: list[str]) -> Rows:
    """Measure the rows of these names."""
    rows: Rows = {}
    for name in track(wanted, description="durability"):

        def sample(server: str, row: tuple[str, int, float] = POLICIES[name]) -> redis_benchmark.Sample:
            policy, depth, share = row
            with SERVERS[server](*LOG, policy) as running:
                return redis_benchmark.run(running, XADD, depth, int(requests * share))

        rows[name] = medians(sample_rounds(rounds, sample))
    return rows
