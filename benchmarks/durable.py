"""What durability costs: writes under each appendfsync, both servers with their log on one disk.

redis-benchmark, 50 connections, XADD of two fields; every sample is of a server of its own.
"""

from __future__ import annotations

from rich.progress import track

from benchmarks import load
from benchmarks.rounds import SERVERS, Rows, alternately, medians
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
    """The rows whose names are wanted."""
    rows: Rows = {}
    for name in track(wanted, description="durability"):

        def sample(server: str, row: tuple[str, int, float] = POLICIES[name]) -> load.Sample:
            policy, depth, share = row
            with SERVERS[server](*LOG, policy) as running:
                return load.run(running, XADD, depth, int(requests * share))

        rows[name] = medians(alternately(rounds, sample))
    return rows
