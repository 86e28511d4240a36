"""Measure loading and saving of snapshots, compressed and plain, and of a log, all written by redis-server.

load   the time from the start of the process until it replies, minus the same time of an empty start
SAVE   of the loaded data

The servers may use all cores: nothing else runs.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from rich.progress import track

from benchmarks.connection import Connection
from benchmarks.durability import LOG
from benchmarks.hot_paths import encode
from benchmarks.rounds import SERVERS, Rows, medians, sample_rounds
from benchmarks.servers import ALL_CORES, IN_MEMORY, Server
from benchmarks.workloads import XADD
from headrace.errors import CommandError

SEED_DIRECTIVES = {  # name: the directives with which redis-server writes it, and both servers load it
    "snapshot": ("--save", "", "--appendonly", "no"),
    "plain snapshot": ("--save", "", "--appendonly", "no", "--rdbcompression", "no"),
    "log": (*LOG, "no", "--aof-use-rdb-preamble", "no"),
}
PING = [encode("PING")]


def measure(rounds: int, entries: int) -> Rows:
    """Measure all rows with a stream of `entries` entries."""
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        fill(Path(scratch), entries)
        for name in track(SEED_DIRECTIVES, description=f"loading and saving {entries:,}"):
            seed = Path(scratch, name)
            rows[f"load a {name}"] = measure_loading(seed, entries, rounds)
            if name != "log":
                rows[f"SAVE a {name}"] = measure_saving(seed, entries, rounds)
    return rows


def fill(directory: Path, entries: int) -> None:
    """Make a directory for each of SEED_DIRECTIVES with redis-server, of `entries` entries."""
    for name, directives in SEED_DIRECTIVES.items():
        path = directory / name
        path.mkdir()
        with Server.redis("--dir", str(path), *directives) as server:
            command = ["redis-benchmark", "-p", str(server.port), "-P", "500", "-n", str(entries), "-q"]
            command += XADD
            subprocess.run(command, check=True, capture_output=True)
            connection = Connection(server.port)
            assert connection.exchange([encode("XLEN", "bench")]) == [entries]
            if directives is not SEED_DIRECTIVES["log"]:
                connection.exchange([encode("SAVE")])


def start(server: str, directives: tuple[str, ...], seed: Path | None, entries: int) -> tuple[float, float]:
    """Return the seconds, and the seconds of CPU, until the server has loaded `entries` entries."""
    with SERVERS[server](*directives, seed=seed, cores=ALL_CORES) as running:
        wait_until_loaded(running, entries)
        return time.monotonic() - running.started, running.cpu_s()


def measure_loading(seed: Path, entries: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return entries per second, and microseconds of CPU per entry."""
    empty = {}
    for server in SERVERS:
        starts = [start(server, IN_MEMORY, None, 0) for _ in range(3)]
        empty[server] = [min(column) for column in zip(*starts, strict=True)]

    def sample(server: str) -> dict[str, float]:
        full = start(server, SEED_DIRECTIVES[seed.name], seed, entries)
        seconds, cpu_s = (max(a - b, 0.001) for a, b in zip(full, empty[server], strict=True))
        return {"per_s": entries / seconds, "cpu_us": cpu_s / entries * 1e6}

    return medians(sample_rounds(rounds, sample))


def measure_saving(seed: Path, entries: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return entries per second of SAVE, and microseconds of CPU per entry."""

    def sample(server: str) -> dict[str, float]:
        with SERVERS[server](*SEED_DIRECTIVES[seed.name], seed=seed, cores=ALL_CORES) as running:
            connection = wait_until_loaded(running, entries)
            started, cpu_s = time.monotonic(), running.cpu_s()
            connection.exchange([encode("SAVE")])
            seconds, cpu_s = time.monotonic() - started, running.cpu_s() - cpu_s
            return {"per_s": entries / seconds, "cpu_us": cpu_s / entries * 1e6}

    return medians(sample_rounds(rounds, sample))


def timed_s(connection: Connection, batch: list[bytes]) -> tuple[float, list[object]]:
    """Return the wait for the replies to a batch, in seconds, and the replies."""
    started = time.perf_counter()
    replies = connection.exchange(batch)
    return time.perf_counter() - started, replies


def wait_until_loaded(server: Server, entries: int | None = None) -> Connection:
    """Return a connection to the server, once it has loaded its data: `entries` entries, if given."""
    connection = Connection(server.port)
    while True:
        try:
            assert connection.exchange([encode("XLEN", "bench")])[0] == entries or entries is None
            return connection
        except CommandError as error:
            if not str(error).startswith("LOADING"):
                raise
            time.sleep(0.002)
