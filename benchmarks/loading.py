"""Loading and saving: snapshots, packed and plain, and a log of commands, all made by redis-server.

load   from the start of the process until the first command is not refused with LOADING, less the
       same of an empty start
SAVE   of what was loaded
stall  the longest wait for an answer while a BGSAVE runs: of a PING, then of sixteen XADDs, sent all
       the time
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from rich.progress import track

from benchmarks.durable import LOG
from benchmarks.paths import fields, words
from benchmarks.rounds import SERVERS, Rows, alternately, medians
from benchmarks.servers import IN_MEMORY, Server
from benchmarks.wire import Wire
from benchmarks.workloads import XADD
from headrace.resp.replies import ReplyError

SEEDS = {  # name: what redis-server makes it with, and both start on it with
    "snapshot": ("--save", "", "--appendonly", "no"),
    "plain snapshot": ("--save", "", "--appendonly", "no", "--rdbcompression", "no"),
    "log": (*LOG, "no", "--aof-use-rdb-preamble", "no"),
}
LOOKS = 20  # requests between two questions whether the BGSAVE has ended
PING = [words("PING")]
ADDS = [words("XADD", "load", "*", *fields(i)) for i in range(16)]


def measure(rounds: int, entries: int) -> Rows:
    """All rows, of a stream of so many entries."""
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        fill(Path(scratch), entries)
        for name in track(SEEDS, description=f"loading and saving {entries:,}"):
            seed = Path(scratch, name)
            rows[f"load a {name}"] = loading(seed, entries, rounds)
            if name != "log":
                rows |= saving(seed, entries, rounds)
    return rows


def fill(directory: Path, entries: int) -> None:
    """Make the directories of SEEDS, of so many entries, by redis-server."""
    for name, directives in SEEDS.items():
        path = directory / name
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
            wire = Wire(server.port)
            assert wire.exchange([words("XLEN", "bench")]) == [entries]
            if directives is not SEEDS["log"]:
                wire.exchange([words("SAVE")])


def start(server: str, directives: tuple[str, ...], seed: Path | None, entries: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU, until it answers; there must then be so many entries."""
    with SERVERS[server](*directives, seed=seed) as running:
        wait_until_loaded(running, entries)
        return time.monotonic() - running.started, running.cpu_s()


def loading(seed: Path, entries: int, rounds: int) -> dict[str, dict[str, float]]:
    """Entries a second, and µs of CPU for each."""
    empty = {}
    for server in SERVERS:
        starts = [start(server, IN_MEMORY, None, 0) for _ in range(3)]
        empty[server] = [min(column) for column in zip(*starts, strict=True)]

    def sample(server: str) -> dict[str, float]:
        full = start(server, SEEDS[seed.name], seed, entries)
        seconds, cpu_s = (max(a - b, 0.001) for a, b in zip(full, empty[server], strict=True))
        return {"per_s": entries / seconds, "cpu_us": cpu_s / entries * 1e6}

    return medians(alternately(rounds, sample))


def saving(seed: Path, entries: int, rounds: int) -> Rows:
    """SAVE, and the stalls of BGSAVE."""

    def sample(server: str) -> dict[str, float]:
        with SERVERS[server](*SEEDS[seed.name], seed=seed) as running:
            wire = wait_until_loaded(running, entries)
            started, cpu_s = time.monotonic(), running.cpu_s()
            wire.exchange([words("SAVE")])
            seconds, cpu_s = time.monotonic() - started, running.cpu_s() - cpu_s
            said = {"per_s": entries / seconds, "cpu_us": cpu_s / entries * 1e6}
            return said | {"ping_ms": longest_ms(wire, PING), "adds_ms": longest_ms(wire, ADDS)}

    found = medians(alternately(rounds, sample))
    save = {s: {figure: by[figure] for figure in ("per_s", "cpu_us")} for s, by in found.items()}
    ping = {s: {"worst_ms": by["ping_ms"]} for s, by in found.items()}
    adds = {s: {"worst_ms": by["adds_ms"]} for s, by in found.items()}
    name = seed.name
    return {
        f"SAVE a {name}": save,
        f"longest PING during BGSAVE of a {name}": ping,
        f"longest 16 XADDs during BGSAVE of a {name}": adds,
    }


def longest_ms(wire: Wire, batch: list[bytes]) -> float:
    """The longest wait for a batch's answers while a BGSAVE runs.

    The fork counts, too. It is before BGSAVE is answered, or after that; so whatever is asked is timed.
    """
    waits = [timed_s(wire, [words("BGSAVE")])[0]]
    info = b"rdb_bgsave_in_progress:1"
    while True:
        wait_s, said = timed_s(wire, [words("INFO", "persistence")])
        waits.append(wait_s)
        if info not in str(said[0]).encode():
            return max(waits) * 1000
        waits += [timed_s(wire, batch)[0] for _ in range(LOOKS)]


def timed_s(wire: Wire, batch: list[bytes]) -> tuple[float, list[object]]:
    """The wait for a batch's answers, and those."""
    started = time.perf_counter()
    answers = wire.exchange(batch)
    return time.perf_counter() - started, answers


def wait_until_loaded(server: Server, entries: int) -> Wire:
    """A connection to the server, which has loaded so many entries."""
    wire = Wire(server.port)
    while True:
        try:
            assert wire.exchange([words("XLEN", "bench")]) == [entries]
            return wire
        except ReplyError as wrong:
            if not str(wrong).startswith("LOADING"):
                raise
            time.sleep(0.002)
