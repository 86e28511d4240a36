"""What durability costs: writes under each appendfsync, loading, saving; beside redis-server on one disk.

    python -m benchmarks.durable [--rounds 5] [--requests 100000] [--entries 1000000] [--out docs]

Writes: redis-benchmark, 50 connections, XADD of two fields. Loading: redis-server makes one snapshot and one
log of commands, both servers start on copies of them; the time is from the start of the process until the
first command is not refused with LOADING, less the same of an empty start. Saving: SAVE of what was loaded,
and the longest wait of a PING sent all the time while BGSAVE runs. A ratio above 1: better than redis-server.
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
SERVERS: dict[str, Callable[..., Server]] = {"headrace": Server.headrace, "redis": Server.redis}
Figures = dict[str, dict[str, float]]  # by server, by figure


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


def fill(directory: Path, entries: int) -> tuple[Path, Path]:
    """Directories with a snapshot and with a log of commands, of so many entries, made by redis-server."""
    snapshot, log = directory / "snapshot", directory / "log"
    for path, directives in (
        (snapshot, ("--save", "", "--appendonly", "no")),
        (log, (*LOG, "no", "--aof-use-rdb-preamble", "no")),
    ):
        path.mkdir()
        with Server.redis("--dir", str(path), *directives) as server:
            command = [
                "redis-benchmark",
                "-p",
                str(server.port),
                "-P",
                "500",
                "-n",
                str(entries),
                "-q",
                *XADD,
            ]
            subprocess.run(command, check=True, capture_output=True)
            client = redis.Redis(port=server.port)
            assert client.xlen("bench") == entries
            if path == snapshot:
                client.save()
    return snapshot, log


def seconds_to_start(
    make: Callable[..., Server], directives: tuple[str, ...], seed: Path | None, n: int
) -> float:
    """From the start of the process until it answers; there must then be n entries."""
    with make(*directives, seed=seed) as server:
        client = redis.Redis(port=server.port)
        while True:
            try:
                assert client.xlen("bench") == n
                return time.monotonic() - server.started
            except (redis.BusyLoadingError, redis.ConnectionError):
                time.sleep(0.002)


def loading(seed: Path, directives: tuple[str, ...], entries: int, rounds: int) -> Figures:
    """Entries a second, medians."""
    taken: dict[str, list[float]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        for name in sorted(SERVERS, reverse=bool(turn % 2)):
            empty = seconds_to_start(SERVERS[name], IN_MEMORY, None, 0)
            full = seconds_to_start(SERVERS[name], directives, seed, entries)
            taken[name].append(entries / max(full - empty, 0.001))
    return {name: {"rate": statistics.median(rates)} for name, rates in taken.items()}


def saving(seed: Path, entries: int, rounds: int) -> dict[str, Figures]:
    """Entries a second of SAVE, and the longest answer time in ms during a BGSAVE."""
    save: dict[str, list[float]] = {name: [] for name in SERVERS}
    stall: dict[str, list[float]] = {name: [] for name in SERVERS}
    for turn in range(rounds):
        for name in sorted(SERVERS, reverse=bool(turn % 2)):
            with SERVERS[name](*IN_MEMORY, seed=seed) as server:
                client = redis.Redis(port=server.port)
                wait_until_loaded(client)
                started = time.monotonic()
                client.save()
                save[name].append(entries / (time.monotonic() - started))
                client.bgsave()
                worst = 0.0
                while client.info("persistence")["rdb_bgsave_in_progress"]:
                    started = time.monotonic()
                    client.ping()
                    worst = max(worst, time.monotonic() - started)
                stall[name].append(worst * 1000)
    return {
        "SAVE": {name: {"rate": statistics.median(values)} for name, values in save.items()},
        "longest PING during BGSAVE": {n: {"ms": statistics.median(values)} for n, values in stall.items()},
    }


def wait_until_loaded(client: redis.Redis) -> None:
    while True:
        try:
            client.xlen("bench")
            return
        except (redis.BusyLoadingError, redis.ConnectionError):
            time.sleep(0.01)


def table(figures: dict[str, Figures]) -> Table:
    shown = Table(title="durability, headrace beside redis-server (ratio above 1: better than redis-server)")
    for column in ("", "headrace", "redis-server", "ratio", "server CPU µs", "ratio"):
        shown.add_column(column, justify="left" if not column else "right")
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
            row += [f"{ours['cpu_us']:.2f}", f"{theirs['cpu_us'] / ours['cpu_us']:.2f}"]
        shown.add_row(*row)
    return shown


def measure(rounds: int, requests: int, entries: int) -> dict[str, Figures]:
    """All rows, by name."""
    figures: dict[str, Figures] = {}
    for name, (policy, depth, share) in track(POLICIES.items(), description="writes"):
        figures[name] = writes(policy, depth, int(requests * share), rounds)
    with tempfile.TemporaryDirectory() as scratch:
        snapshot, log = fill(Path(scratch), entries)
        few = min(rounds, 3)
        figures[f"load a snapshot of {entries:,}"] = loading(snapshot, IN_MEMORY, entries, few)
        figures[f"load a log of {entries:,} commands"] = loading(log, (*LOG, "no"), entries, few)
        figures |= saving(snapshot, entries, few)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durable", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where durable.json goes")
    options = parser.parse_args()
    figures = measure(options.rounds, options.requests, options.entries)
    Console().print(table(figures))
    options.out.mkdir(parents=True, exist_ok=True)
    said = {"rounds": options.rounds, "entries": options.entries, "figures": figures}
    (options.out / "durable.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
