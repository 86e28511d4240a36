"""Measure cold storage: the same work on a server that keeps all in memory and on one with a small limit.

    python -m benchmarks.cold [--entries 10000000] [--limit 64mb] [--only read]

Both log to disk, on one core; the load has the others. Entries have two fields, of the same length in all
entries, so the load generator need not parse replies. Two streams are written, each by a connection.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import load_generator
from benchmarks.connection import Connection
from benchmarks.load_generator import LoadConnection
from benchmarks.loading import wait_until_loaded
from benchmarks.servers import Server
from headrace.resp.request import request

STREAMS = (b"orders:0", b"orders:1")
BATCH = 1000  # entries that are written or read at once
FIRST_MS = 1_700_000_000_000
NO_LATENCIES = (0.0,)  # these loads measure none
VALUES = 200_000  # from which those of a batch are taken
READERS = 3
SINGLE_READS = 20_000
LOGGED = ("--appendonly", "yes", "--save", "", "--auto-aof-rewrite-percentage", "0")


class Writer(LoadConnection):
    """Adds entries to one stream, BATCH at a time."""

    def __init__(self, server: Server, stream: bytes, first: int, count: int) -> None:
        super().__init__(server)
        self.ms, self.end = FIRST_MS + first, FIRST_MS + first + count
        choose = random.Random(1)
        self.head = request(b"XADD", stream, b"%d-0", b"user", b"%s", b"price", b"%s")
        self.head = self.head.replace(b"$4\r\n%d-0", b"$15\r\n%d-0").replace(b"$2\r\n%s", b"$6\r\n%s")
        self.values = [
            (b"%06d" % choose.randrange(10**6), b"%06.2f" % (choose.random() * 999)) for _ in range(VALUES)
        ]
        self.reply_bytes = BATCH * len(b"$15\r\n1700000000000-0\r\n")

    def send_next(self) -> bool:
        if self.ms >= self.end:
            return False
        head, ms = self.head, self.ms
        self.missing = self.reply_bytes
        self.ms += BATCH
        at = random.randrange(VALUES - BATCH)
        values = self.values[at : at + BATCH]
        self.sock.sendall(b"".join([head % (ms + i, *pair) for i, pair in enumerate(values)]))
        return True


class GroupReader(LoadConnection):
    """Reads a stream from its start in a group of its own, BATCH entries at a time."""

    def __init__(self, server: Server, stream: bytes, group: bytes, count: int) -> None:
        super().__init__(server)
        self.connection.exchange([request(b"XGROUP", b"CREATE", stream, group, b"0")])
        read = [b"XREADGROUP", b"GROUP", group, b"ann", b"COUNT", b"%d" % BATCH, b"NOACK", b"STREAMS"]
        self.request = request(*read, stream, b">")
        self.reply_bytes = self.measure_reply_bytes([self.request])
        self.left = count // BATCH - 1

    def send_next(self) -> bool:
        self.left -= 1
        if self.left < 0:
            return False
        self.missing = self.reply_bytes
        self.sock.sendall(self.request)
        return True


def write(server: Server, first: int, count: int) -> load_generator.Sample:
    """Add `count` entries to each stream."""
    with load_generator.leave_server_core():
        writers = [Writer(server, stream, first, count) for stream in STREAMS]
        return load_generator.measure_load(server, writers, count * len(STREAMS), [*NO_LATENCIES])


def read(server: Server, count: int, readers: int) -> load_generator.Sample:
    """Read `count` entries in each of some groups at once."""
    with load_generator.leave_server_core():
        groups = [
            GroupReader(server, STREAMS[number % 2], b"group:%d:%d" % (readers, number), count)
            for number in range(readers)
        ]
        return load_generator.measure_load(server, groups, count * readers, [*NO_LATENCIES])


def random_reads(server: Server, count: int) -> list[float]:
    """Return the sorted latencies, in ms, of XRANGE of 100 entries at random IDs of the older half."""
    choose = random.Random(2)
    taken = []
    with load_generator.leave_server_core():
        connection = Connection(server.port)
        for _ in range(SINGLE_READS):
            at = b"%d" % (FIRST_MS + choose.randrange(count // 2))
            line = request(b"XRANGE", choose.choice(STREAMS), at, b"+", b"COUNT", b"100")
            started = time.perf_counter()
            connection.exchange([line])
            taken.append((time.perf_counter() - started) * 1e3)
        connection.close()
    return sorted(taken)


@contextmanager
def pings(server: Server) -> Iterator[list[float]]:
    """Send PINGs from another process during the block; then the list has their sorted latencies in ms."""
    found: list[float] = []
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_ping, args=(server.port, there))
    process.start()
    here.recv()
    yield found
    here.send(None)
    found += sorted(here.recv())
    process.join()


def _ping(port: int, pipe: Pipe) -> None:
    connection, line, taken = Connection(port), request(b"PING"), []
    pipe.send(None)
    while not pipe.poll():
        started = time.perf_counter()
        connection.exchange([line])
        taken.append((time.perf_counter() - started) * 1e3)
        time.sleep(0.0005)
    pipe.send(taken)


def info(server: Server, section: bytes = b"memory") -> dict[str, str]:
    """Return the fields of a section of INFO."""
    connection = Connection(server.port)
    text = connection.exchange([request(b"INFO", section)])[0]
    connection.close()
    assert isinstance(text, bytes)
    return dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)


def wait_until_cold(server: Server) -> None:
    """Wait until nothing is left to be moved to files."""
    while int(info(server)["used_memory_dataset"]) > 1.1 * int(info(server)["stream_hot_memory"]):
        time.sleep(0.05)


def rewrite_s(server: Server) -> float:
    """Rewrite the log and return the time that it takes."""
    connection = Connection(server.port)
    started = time.perf_counter()
    connection.exchange([request(b"BGREWRITEAOF")])
    while info(server, b"persistence")["aof_rewrite_in_progress"] != "0":
        time.sleep(0.01)
    connection.close()
    return time.perf_counter() - started


def restart_s(server: Server, *directives: str) -> float:
    """Return the time until another server has loaded a copy of the files of this one."""
    with tempfile.TemporaryDirectory() as folder:
        seed = Path(folder) / "seed"
        shutil.copytree(server.directory, seed, ignore=shutil.ignore_patterns("*.lock", ".*"))
        with Server.headrace(*directives, seed=seed) as other:
            wait_until_loaded(other).close()
            return time.monotonic() - other.started


def measure(directives: tuple[str, ...], entries: int) -> dict[str, Any]:
    """Return the figures of one server."""
    each = entries // len(STREAMS) // BATCH * BATCH
    start = each // 4 // BATCH * BATCH  # the limit is reached by then
    found: dict[str, Any] = {}
    is_cold = "--stream-hot-memory" in directives
    with Server.headrace(*directives) as server:
        write(server, 0, start)
        sample = write(server, start, each - start)
        found["XADD, entries per second"] = sample.per_s
        found["XADD, CPU µs"] = sample.cpu_us
        if is_cold:
            wait_until_cold(server)
        count = each // 2 // BATCH * BATCH
        sample = read(server, count, 1)
        found["a group from 0, entries per second"] = sample.per_s
        found["a group from 0, CPU µs an entry"] = sample.cpu_us
        with pings(server) as latencies:
            sample = read(server, count, READERS)
        found["three groups from 0, entries per second"] = sample.per_s
        found["PING beside them, p99 ms"] = latencies[int(len(latencies) * 0.99)]
        found["PING beside them, longest ms"] = latencies[-1]
        latencies = random_reads(server, each)
        found["XRANGE of 100, p50 ms"] = statistics.median(latencies)
        found["XRANGE of 100, p99 ms"] = latencies[int(len(latencies) * 0.99)]
        found["BGREWRITEAOF, s"] = rewrite_s(server)
        memory = info(server)
        found["resident MB"] = server.resident_bytes() / 1e6
        found["data in memory, MB"] = int(memory["used_memory_dataset"]) / 1e6
        if is_cold:
            found["of these the cache, MB"] = int(memory["cold_cache_bytes"]) / 1e6
            found["cold entries"] = int(memory["cold_entries"])
            found["bytes of nodes for a cold entry"] = int(memory["cold_bytes"]) / int(memory["cold_entries"])
            found["bytes on disk for a cold entry"] = int(memory["cold_stored_bytes"]) / int(
                memory["cold_entries"]
            )
        found["restart, s"] = restart_s(server, *directives)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--limit", default="64mb")
    arguments = parser.parse_args()
    found = {
        "hot": measure(LOGGED, arguments.entries),
        "cold": measure((*LOGGED, "--stream-hot-memory", arguments.limit), arguments.entries),
    }
    table = Table("", "all in memory", f"limit {arguments.limit}", "ratio")
    for name, cold in found["cold"].items():
        hot = found["hot"].get(name)
        ratio = f"{cold / hot:.2f}" if hot else ""
        table.add_row(name, f"{hot:,.2f}" if hot is not None else "", f"{cold:,.2f}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
