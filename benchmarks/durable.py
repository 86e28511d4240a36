"""What durability costs: writes under each appendfsync, loading, saving; beside redis-server on one disk.

    python -m benchmarks.durable [--quick] [--rounds 5] [--requests 100000] [--entries 1000000] [--out docs]

Writes: redis-benchmark, 50 connections, XADD of two fields; --requests 0 leaves them out. Loading: both start
on copies of two snapshots, packed and not, and a log of commands, all made by redis-server; the figures are
from the start of the process until the first command is not refused with LOADING, less the same of an empty
start. Saving: SAVE of what was loaded, and the longest wait of a PING sent all the time while BGSAVE runs.
CPU is the server's, per command or entry. A ratio above 1: better than redis-server.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import redis
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import load
from benchmarks.servers import IN_MEMORY, Server

XADD = ["XADD", "bench", "*", "device", "dev123", "temp", "21.5"]
LOG = ("--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--appendfsync")
POLICIES = {  # name: (appendfsync, pipeline depth, share of the requests)
    "appendfsync always, depth 1": ("always", 1, 0.5),
    "appendfsync always, depth 16": ("always", 16, 1.0),
    "appendfsync everysec, depth 1": ("everysec", 1, 1.0),
    "appendfsync everysec, depth 16": ("everysec", 16, 4.0),
    "appendfsync no, depth 16": ("no", 16, 4.0),
}
SEEDS = {  # name: what redis-server makes it with, and both start on it with
    "snapshot": ("--save", "", "--appendonly", "no"),
    "plain snapshot": ("--save", "", "--appendonly", "no", "--rdbcompression", "no"),
    "log": (*LOG, "no", "--aof-use-rdb-preamble", "no"),
}
SERVERS: dict[str, Callable[..., Server]] = {"headrace": Server.headrace, "redis": Server.redis}
WIDTH_MIN = 110
Figures = dict[str, dict[str, float]]  # by server, by figure
Rows = dict[str, Figures]


def writes(policy: str, depth: int, requests: int, rounds: int) -> Figures:
    """Medians of throughput, p99 latency and server CPU, servers alternating."""
    taken: dict[str, list[load.Sample]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        for name in sorted(SERVERS, reverse=bool(turn % 2)):
            with SERVERS[name](*LOG, policy) as server:
                taken[name].append(load.run(server, XADD, depth, requests))
    return {
        name: {
            "rate": statistics.median(s.requests_per_s for s in samples),
            "p99_ms": statistics.median(s.p99_ms for s in samples),
            "cpu_us": statistics.median(s.cpu_us for s in samples),
        }
        for name, samples in taken.items()
    }


def fill(directory: Path, entries: int) -> None:
    """Make the directories of SEEDS, of so many entries, by redis-server."""
    for name, directives in SEEDS.items():
        path = directory / name
        path.mkdir()
        with Server.redis("--dir", str(path), *directives) as server:
            words = ["redis-benchmark", "-p", str(server.port), "-P", "500", "-n", str(entries), "-q", *XADD]
            subprocess.run(words, check=True, capture_output=True)
            client = redis.Redis(port=server.port)
            assert client.xlen("bench") == entries
            if directives is not SEEDS["log"]:
                client.save()


def start(
    make: Callable[..., Server], directives: tuple[str, ...], seed: Path | None, entries: int
) -> tuple[float, float]:
    """Seconds, and seconds of CPU, until the server answers; there must then be so many entries."""
    with make(*directives, seed=seed) as server:
        wait_until_loaded(server, entries)
        return time.monotonic() - server.started, server.cpu_s()


def loading(seed: Path, entries: int, rounds: int) -> Figures:
    """Entries a second, and µs of CPU for each: the best full start less the best empty one."""
    empty: dict[str, list[tuple[float, float]]] = {name: [] for name in SERVERS}
    full: dict[str, list[tuple[float, float]]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        for name in sorted(SERVERS, reverse=bool(turn % 2)):
            empty[name].append(start(SERVERS[name], IN_MEMORY, None, 0))
            full[name].append(start(SERVERS[name], SEEDS[seed.name], seed, entries))
    figures = {}
    for name in SERVERS:
        best = [min(column) for column in zip(*full[name], strict=True)]
        idle = [min(column) for column in zip(*empty[name], strict=True)]
        seconds, cpu_s = (max(a - b, 0.001) for a, b in zip(best, idle, strict=True))
        figures[name] = {"rate": entries / seconds, "cpu_us": cpu_s / entries * 1e6}
    return figures


def saving(seed: Path, entries: int, rounds: int) -> tuple[Figures, Figures]:
    """Entries a second of SAVE, and the longest answer time in ms during a BGSAVE."""
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        for name in sorted(SERVERS, reverse=bool(turn % 2)):
            with SERVERS[name](*SEEDS[seed.name], seed=seed) as server:
                client = wait_until_loaded(server, entries)
                started, cpu_s = time.monotonic(), server.cpu_s()
                client.save()
                seconds, cpu_s = time.monotonic() - started, server.cpu_s() - cpu_s
                taken[name].append((entries / seconds, cpu_s / entries * 1e6, longest_ping_ms(client)))
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in taken.items()
    }
    save = {name: {"rate": row[0], "cpu_us": row[1]} for name, row in medians.items()}
    return save, {name: {"ms": row[2]} for name, row in medians.items()}


def longest_ping_ms(client: redis.Redis) -> float:
    """The longest wait of a PING while a BGSAVE runs."""
    worst_s = 0.0
    client.bgsave()
    while client.info("persistence")["rdb_bgsave_in_progress"]:
        started = time.monotonic()
        client.ping()
        worst_s = max(worst_s, time.monotonic() - started)
    return worst_s * 1000


def wait_until_loaded(server: Server, entries: int) -> redis.Redis:
    """A client of the server, which has loaded so many entries."""
    client = redis.Redis(port=server.port)
    while True:
        try:
            assert client.xlen("bench") == entries
            return client
        except (redis.BusyLoadingError, redis.ConnectionError):
            time.sleep(0.002)


def table(figures: Rows) -> Table:
    shown = Table(title="durability (a ratio above 1: better than redis-server)")
    for column in ("", "headrace", "redis-server", "ratio", "CPU µs", "ratio"):
        shown.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for name, by in figures.items():
        ours, theirs = by["headrace"], by["redis"]
        if "ms" in ours:
            shown.add_row(
                name, f"{ours['ms']:.1f} ms", f"{theirs['ms']:.1f} ms", f"{theirs['ms'] / ours['ms']:.2f}"
            )
            continue
        row = [
            name,
            f"{ours['rate']:,.0f}/s",
            f"{theirs['rate']:,.0f}/s",
            f"{ours['rate'] / theirs['rate']:.2f}",
        ]
        if "cpu_us" in ours:
            row += [f"{ours['cpu_us']:.3f}", f"{theirs['cpu_us'] / ours['cpu_us']:.2f}"]
        shown.add_row(*row)
    return shown


def measure(rounds: int, requests: int, entries: int) -> Rows:
    """All rows, by name."""
    figures: Rows = {}
    if requests:
        for name, (policy, depth, share) in track(POLICIES.items(), description="writes"):
            figures[name] = writes(policy, depth, int(requests * share), rounds)
    with tempfile.TemporaryDirectory() as scratch:
        fill(Path(scratch), entries)
        few = min(rounds, 3)
        for name in track(SEEDS, description="loading and saving"):
            seed = Path(scratch, name)
            figures[f"load a {name} of {entries:,}"] = loading(seed, entries, few)
            if name != "log":
                save, stall = saving(seed, entries, few)
                figures[f"SAVE a {name}"] = save
                figures[f"longest PING during BGSAVE, {name}"] = stall
    return figures


def report(rounds: int, requests: int, entries: int, out: Path) -> None:
    """Measure, print the table, write durable.json."""
    figures = measure(rounds, requests, entries)
    console = Console()
    console.width = max(console.width, WIDTH_MIN)  # into a file, too, the table is whole
    console.print(table(figures))
    out.mkdir(parents=True, exist_ok=True)
    said = {"rounds": rounds, "requests": requests, "entries": entries, "figures": figures}
    (out / "durable.json").write_text(json.dumps(said, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one round, fewer requests: a look, not a figure"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where durable.json goes")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.requests = 1, options.requests // 10
    report(options.rounds, options.requests, options.entries, options.out)


if __name__ == "__main__":
    main()
