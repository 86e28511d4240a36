"""Measure loading and saving of snapshots, compressed and plain, and of a log, all written by redis-server.

load   the time from the start of the process until it replies, minus the same time of an empty start
SAVE   of the loaded data
stall  the longest wait for a reply during a BGSAVE: of one PING, then of sixteen XADDs, sent repeatedly
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from rich.progress import track

from benchmarks.connection import Connection
from benchmarks.durability import LOG
from benchmarks.hot_paths import encode, fields
from benchmarks.rounds import SERVERS, Rows, medians, sample_rounds
from benchmarks.servers import IN_MEMORY, Server
from benchmarks.workloads import XADD
from headrace.errors import CommandError

SEED_DIRECTIVES = {  # name: the directives with which redis-server writes it, and both servers load it
    "snapshot": ("--save", "", "--appendonly", "no"),
    "plain snapshot": ("--save", "", "--appendonly", "no", "--rdbcompression", "no"),
    "log": (*LOG, "no", "--aof-use-rdb-preamble", "no"),
}
REQUESTS_PER_CHECK = 20  # batches between two checks whether the BGSAVE has ended
PING = [encode("PING")]
ADDS = [encode("XADD", "load", "*", *fields(i)) for i in range(16)]


def measure(rounds: int, entries: int) -> Rows:
    """Measure all rows with a stream of `entries` entries."""
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        fill(Path(scratch), entries)
        for name in track(SEED_DIRECTIVES, description=f"loading and saving {entries:,}"):
            seed = Path(scratch, name)
            rows[f"load a {name}"] = measure_loading(seed, entries, rounds)
            if name != "log":
                rows |= measure_saving(seed, entries, rounds)
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
    with SERVERS[server](*directives, seed=seed) as running:
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


def measure_saving(seed: Path, entries: int, rounds: int) -> Rows:
    """Return the rows of SAVE, and of the stalls of BGSAVE."""

    def sample(server: str) -> dict[str, float]:
        with SERVERS[server](*SEED_DIRECTIVES[seed.name], seed=seed) as running:
            connection = wait_until_loaded(running, entries)
            started, cpu_s = time.monotonic(), running.cpu_s()
            connection.exchange([encode("SAVE")])
            seconds, cpu_s = time.monotonic() - started, running.cpu_s() - cpu_s
            figures = {"per_s": entries / seconds, "cpu_us": cpu_s / entries * 1e6}
            return figures | {
                "ping_ms": longest_ms(connection, PING),
                "adds_ms": longest_ms(connection, ADDS),
            }

    found = medians(sample_rounds(rounds, sample))
    save = {s: {figure: by[figure] for figure in ("per_s", "cpu_us")} for s, by in found.items()}
    ping = {s: {"worst_ms": by["ping_ms"]} for s, by in found.items()}
    adds = {s: {"worst_ms": by["adds_ms"]} for s, by in found.items()}
    name = seed.name
    return {
        f"SAVE a {name}": save,
        f"longest PING during BGSAVE of a {name}": ping,
        f"longest 16 XADDs during BGSAVE of a {name}": adds,
    }


def longest_ms(connection: Connection, batch: list[bytes]) -> float:
    """Return the longest wait for the replies to a batch during a BGSAVE, in milliseconds.

    The fork comes before or after the reply to BGSAVE; so the waits for BGSAVE and INFO count too.
    """
    waits = [timed_s(connection, [encode("BGSAVE")])[0]]
    in_progress = b"rdb_bgsave_in_progress:1"
    while True:
        wait_s, replies = timed_s(connection, [encode("INFO", "persistence")])
        waits.append(wait_s)
        if in_progress not in str(replies[0]).encode():
            return max(waits) * 1000
        waits += [timed_s(connection, batch)[0] for _ in range(REQUESTS_PER_CHECK)]


def timed_s(connection: Connection, batch: list[bytes]) -> tuple[float, list[object]]:
    """Return the wait for the replies to a batch, in seconds, and the replies."""
    started = time.perf_counter()
    replies = connection.exchange(batch)
    return time.perf_counter() - started, replies


def wait_until_loaded(server: Server, entries: int) -> Connection:
    """Return a connection to the server, once it has loaded `entries` entries."""
    connection = Connection(server.port)
    while True:
        try:
            assert connection.exchange([encode("XLEN", "bench")]) == [entries]
            return connection
        except CommandError as error:
            if not str(error).startswith("LOADING"):
                raise
            time.sleep(0.002)
