"""Measure BGSAVE beside requests: of one large stream, of many streams, and of many pending entries.

BGSAVE of ...                the time without requests, and the CPU of server and child
longest ... during BGSAVE    the longest wait for a reply: of one PING; of sixteen XADDs sent at once; of one
                             XREADGROUP for an entry. Sent repeatedly by one client, on another core. The
                             waits for BGSAVE and INFO count, too: redis-server forks within the first
longest ... without BGSAVE   the same for a second without a snapshot: what the machine adds
... during BGSAVE            how many a second
memory for BGSAVE            what the server and its child need more at the peak, while entries are added

The server may use all cores: a snapshot is written by a child or thread.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rich.progress import track

from benchmarks.connection import Connection
from benchmarks.hot_paths import encode, fields
from benchmarks.loading import PING, timed_s, wait_until_loaded
from benchmarks.rounds import SERVERS, Rows, medians, sample_rounds
from benchmarks.servers import ALL_CORES, IN_MEMORY, Server
from benchmarks.workloads import XADD

LARGE = 5  # times as many entries: the second size of one stream
STREAMS, STREAM_ENTRIES = 100_000, 10
QUIET_S = 1.0  # how long the requests are sent without a BGSAVE
CHECK_S = 0.02  # between two questions whether BGSAVE has ended
LOADS = {
    "PING": PING,
    "16 XADDs": [encode("XADD", "bench", "*", *fields(i)) for i in range(16)],
    "XREADGROUP": [encode("XREADGROUP", "GROUP", "g", "ann", "COUNT", "1", "STREAMS", "bench", ">")],
}


def measure(rounds: int, entries: int) -> Rows:
    """Measure all rows; `entries` in a stream, and LARGE times as many."""
    datasets = {
        f"{entries:,} entries": (1, entries, 0),
        f"{LARGE * entries:,} entries": (1, LARGE * entries, 0),
        f"{STREAMS:,} streams": (STREAMS, STREAM_ENTRIES, 0),
        f"{entries // 10:,} pending": (1, entries // 10, entries // 10),
    }
    rows: Rows = {}
    for name, (streams, each, pending) in track(datasets.items(), description="snapshots"):
        with tempfile.TemporaryDirectory() as seed:
            fill(Path(seed), streams, each, pending)
            taken = medians(sample_rounds(rounds, partial(sample, Path(seed), streams * each)))
        for row in (f"BGSAVE of {name}", *(f"{load} during BGSAVE of {name}" for load in LOADS)):
            rows[row] = select(taken, row.partition(" of ")[0], ("per_s", "cpu_us"))
        for load in LOADS:
            for when in ("during", "without"):
                found = select(taken, f"{load} {when} BGSAVE", ("worst_ms",))
                rows[f"longest {load} {when} BGSAVE of {name}"] = found
        rows[f"memory for BGSAVE of {name}"] = select(taken, "16 XADDs during BGSAVE", ("bytes",))
    return rows


def select(
    taken: dict[str, dict[str, float]], row: str, names: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Return some figures of a row, of each server."""
    return {server: {name: figures[f"{row} {name}"] for name in names} for server, figures in taken.items()}


def fill(directory: Path, streams: int, entries: int, pending: int) -> None:
    """Let redis-server write a snapshot of so many streams, the first one with pending entries of a group."""
    with Server.redis("--dir", str(directory), *IN_MEMORY) as server:
        connection = Connection(server.port)
        command = ["redis-benchmark", "-p", str(server.port), "-P", "500", "-n", str(entries), "-q", *XADD]
        subprocess.run(command, check=True, capture_output=True)
        for number in range(1, streams):
            connection.exchange(encode("XADD", f"stream-{number}", "*", *fields(n)) for n in range(entries))
        connection.exchange([encode("XGROUP", "CREATE", "bench", "g", "0")])
        reading = encode("XREADGROUP", "GROUP", "g", "ann", "COUNT", "10000", "STREAMS", "bench", ">")
        for _ in range(-(-pending // 10_000)):
            connection.exchange([reading])
        connection.exchange([encode("SAVE")])


def sample(seed: Path, entries: int, name: str) -> dict[str, float]:
    """Measure one server on this snapshot; return its figures by row and name."""
    found = {}
    with SERVERS[name](*IN_MEMORY, seed=seed, cores=ALL_CORES) as server:
        connection = wait_until_loaded(server)
        for load in ("", *LOADS):
            row = f"{load} during BGSAVE" if load else "BGSAVE"
            figures = during_bgsave(server, connection, LOADS.get(load, []), entries)
            found |= {f"{row} {figure}": value for figure, value in figures.items()}
        for load, batch in LOADS.items():
            longest_s = max(waits_s(connection, batch, QUIET_S))
            found[f"{load} without BGSAVE worst_ms"] = longest_s * 1000
    return found


def waits_s(connection: Connection, batch: list[bytes], duration_s: float) -> list[float]:
    """Send the batch repeatedly for so long; return the waits. An empty batch: only wait."""
    waits = []
    until = time.perf_counter() + duration_s
    while time.perf_counter() < until:
        if batch:
            waits.append(timed_s(connection, batch)[0])
        else:
            time.sleep(duration_s / 4)
    return waits


def during_bgsave(
    server: Server, connection: Connection, batch: list[bytes], entries: int
) -> dict[str, float]:
    """Send the batch repeatedly during a BGSAVE; return the figures. Without a batch, only wait."""
    waits: list[float] = []
    longest_s = 0.0  # of the other requests
    before, peak = memory_bytes(server), 0
    cpu_s, started = cpu_with_children_s(connection), time.perf_counter()
    for wait_s in checks_until_saved(connection):
        longest_s = max(longest_s, wait_s)
        waits += waits_s(connection, batch, CHECK_S)
        peak = max(peak, memory_bytes(server))
    took = time.perf_counter() - started
    cpu_s = cpu_with_children_s(connection) - cpu_s
    done = len(waits) * len(batch) or entries
    figures = {"per_s": done / took, "cpu_us": cpu_s / done * 1e6, "bytes": float(max(peak - before, 1))}
    return figures | {"worst_ms": max([*waits, longest_s]) * 1000}


def checks_until_saved(connection: Connection) -> Iterator[float]:
    """Start a BGSAVE; yield the wait for the last reply, of BGSAVE or INFO, until it has ended."""
    wait_s, _ = timed_s(connection, [encode("BGSAVE")])
    while True:
        yield wait_s
        wait_s, replies = timed_s(connection, [encode("INFO", "persistence")])
        if b"rdb_bgsave_in_progress:0" in str(replies[0]).encode():
            return


def info(connection: Connection, section: str) -> bytes:
    """Return a section of INFO."""
    (reply,) = connection.exchange([encode("INFO", section)])
    assert isinstance(reply, bytes)
    return reply


def cpu_with_children_s(connection: Connection) -> float:
    """Return the CPU time of the server and its ended children."""
    rows = dict(line.split(b":") for line in info(connection, "cpu").split() if b":" in line)
    kinds = (b"sys", b"user", b"sys_children", b"user_children")
    return sum(float(rows[b"used_cpu_" + kind]) for kind in kinds)


def memory_bytes(server: Server) -> int:
    """Return the memory of the server and its children; pages that they share count once."""
    total = 0
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    for pid in (str(server.pid), *children):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total
