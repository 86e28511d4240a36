"""Measure a primary with replicas; the replicas of each server are servers of the same kind.

XADD depth 16, n replicas     throughput, and CPU of the primary alone
the replica of that           its own CPU for each command, and how long after the load it has all of it
full synchronisation          entries per second until the replica has them, and CPU of the primary, and of
                              its child process, for it
longest PING during it        at the primary
visible at the replica        under load, from the reply of XADD to that of an XREAD which waits at the
                              replica; 99th percentile
bytes for lagging replicas    what three replicas that do not read cost more than none

The primary has its core for itself; replicas and load share the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator

from rich.progress import track

from benchmarks import redis_benchmark
from benchmarks.connection import Connection
from benchmarks.hot_paths import encode
from benchmarks.loading import PING, timed_s
from benchmarks.memory import MemoryUse
from benchmarks.rounds import SERVERS, Figures, Rows, medians, sample_rounds
from benchmarks.servers import IN_MEMORY, Server, load_cores
from benchmarks.workloads import XADD

PRIMARY = (*IN_MEMORY, "--repl-diskless-sync-delay", "0")
VISIBLE_SAMPLES = 200
LAGGING = 3  # replicas
SYNCED_FACTOR = 10  # a full synchronisation of fewer entries is mostly the start of a child process
DEPTH = 16


def measure(rounds: int, requests: int, entries: int) -> Rows:
    """Measure all rows; `requests` of the load, `entries` times SYNCED_FACTOR of the full synchronisation."""
    rows: Rows = {}
    for replicas in track((0, 1, 2), description="replication"):
        name = f"XADD depth {DEPTH}, {replicas} replica{'s' * (replicas != 1)}"
        rows[name] = medians(sample_rounds(rounds, lambda server, n=replicas: load(server, n, requests)))  # type: ignore[misc]
    rows[f"the replica of XADD depth {DEPTH}"] = medians(
        sample_rounds(rounds, lambda server: replica_load(server, requests))
    )
    synced = medians(sample_rounds(rounds, lambda server: synchronise(server, entries * SYNCED_FACTOR)))
    rows["full synchronisation"] = select(synced, "per_s", "cpu_us")
    rows["longest PING during a full synchronisation"] = select(synced, "worst_ms")
    rows["visible at the replica, under load"] = medians(
        sample_rounds(rounds, lambda server: visibility(server, requests))
    )
    rows[f"bytes for {LAGGING} lagging replicas"] = {
        server: {"bytes": max(lagging_bytes(server, requests // 10), 1.0)} for server in SERVERS
    }
    return rows


def select(figures: Figures, *names: str) -> Figures:
    """Return some figures of each server."""
    return {server: {name: by[name] for name in names} for server, by in figures.items()}


@contextlib.contextmanager
def group(server: str, count: int) -> Iterator[tuple[Server, list[Server]]]:
    """A primary and its replicas, which have its data."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(SERVERS[server](*PRIMARY))
        replicas = [stack.enter_context(SERVERS[server](*PRIMARY)) for _ in range(count)]
        for replica in replicas:
            os.sched_setaffinity(replica.pid, load_cores())
            follow(primary, replica)
        yield primary, replicas


def follow(primary: Server, replica: Server) -> None:
    """Let the replica follow the primary; return when it has its data."""
    connection = Connection(replica.port)
    connection.exchange([encode("REPLICAOF", "127.0.0.1", primary.port)])
    while b"master_link_status:up" not in info(connection, "replication"):
        time.sleep(0.005)


def info(connection: Connection, section: str) -> bytes:
    [text] = connection.exchange([encode("INFO", section)])
    assert isinstance(text, bytes)
    return text


def load(server: str, replicas: int, requests: int) -> redis_benchmark.Sample:
    """Add entries to a primary with so many replicas."""
    with group(server, replicas) as (primary, _):
        return redis_benchmark.run(primary, XADD, DEPTH, requests)


def replica_load(server: str, requests: int) -> dict[str, float]:
    """Add entries to a primary, and return what its replica needs for them."""
    with group(server, 1) as (primary, [replica]):
        before = replica.cpu_s()
        redis_benchmark.run(primary, XADD, DEPTH, requests)
        ended = time.monotonic()
        wait_for_replica(primary, replica)
        late_ms = (time.monotonic() - ended) * 1000
        return {"cpu_us": (replica.cpu_s() - before) / requests * 1e6, "worst_ms": late_ms}


def wait_for_replica(primary: Server, replica: Server) -> None:
    """Return when the replica has applied what the primary has written."""
    source, target = Connection(primary.port), Connection(replica.port)
    while number(info(target, "replication"), b"slave_repl_offset") < number(
        info(source, "replication"), b"master_repl_offset"
    ):
        time.sleep(0.002)
    source.close()
    target.close()


def number(text: bytes, field: bytes) -> int:
    """Return a number of INFO's reply."""
    return int(text.split(field + b":", 1)[1].split(b"\r\n", 1)[0])


def synchronise(server: str, entries: int) -> dict[str, float]:
    """Fill a primary, and let a replica copy it."""
    with SERVERS[server](*PRIMARY) as primary, SERVERS[server](*PRIMARY) as replica:
        os.sched_setaffinity(replica.pid, load_cores())
        redis_benchmark.run(primary, XADD, 500, entries)
        connection = Connection(primary.port)
        waits: list[float] = []
        done = threading.Event()

        def send_pings() -> None:
            while not done.is_set():
                waits.append(timed_s(connection, PING)[0])

        pings = threading.Thread(target=send_pings)
        pings.start()
        started, cpu_s = time.monotonic(), primary.cpu_with_children_s()
        follow(primary, replica)
        seconds = time.monotonic() - started
        done.set()
        pings.join()
        wait_for_child(connection)
        cpu_s = primary.cpu_with_children_s() - cpu_s
        return {
            "per_s": entries / seconds,
            "cpu_us": cpu_s / entries * 1e6,
            "worst_ms": max(waits) * 1000,
        }


def wait_for_child(connection: Connection) -> None:
    """Return when the server no longer has a child process that writes a snapshot, and counts its CPU."""
    while number(info(connection, "persistence"), b"rdb_bgsave_in_progress"):
        time.sleep(0.01)


def visibility(server: str, requests: int) -> dict[str, float]:
    """Return how long after its reply an entry can be read at the replica, while others are added."""
    with group(server, 1) as (primary, [replica]):
        # Depth 1: the replica shares a core with the load, and must be able to follow.
        command = ["redis-benchmark", "-p", str(primary.port), "-c", "8", "-q", "-l", *XADD]
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, preexec_fn=redis_benchmark.prepare_process
        ) as background:
            try:
                waits = [wait_ms(primary, replica, number) for number in range(VISIBLE_SAMPLES)]
            finally:
                background.kill()
    return {"worst_ms": statistics.quantiles(waits, n=100)[98]}


def wait_ms(primary: Server, replica: Server, number: int) -> float:
    """Add entry number + 1 at the primary, and read it at the replica."""
    writer, reader = Connection(primary.port), Connection(replica.port)
    reader.sock.sendall(encode("XREAD", "BLOCK", 0, "STREAMS", "marker", f"{number}-0"))
    time.sleep(0.002)  # until it waits
    writer.exchange([encode("XADD", "marker", f"{number + 1}-0", "a", "b")])
    replied = time.perf_counter()
    reader.read_reply()
    seen = time.perf_counter()
    writer.close()
    reader.close()
    return max(seen - replied, 1e-6) * 1000


def lagging_bytes(server: str, requests: int) -> float:
    """Return the memory that replicas cost which have stopped reading."""
    growth = {}
    for count in (0, LAGGING):
        with group(server, count) as (primary, replicas):
            connection = Connection(primary.port)
            before = MemoryUse.measure(primary, connection)
            for replica in replicas:
                os.kill(replica.pid, signal.SIGSTOP)
            redis_benchmark.run(primary, XADD, DEPTH, requests)
            growth[count] = MemoryUse.measure(primary, connection).growth_since(before, 1).used
            for replica in replicas:
                os.kill(replica.pid, signal.SIGCONT)
    return growth[LAGGING] - growth[0]
