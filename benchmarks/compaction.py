"""Measure how long add() waits in a program while compact() writes the database.

    python -m benchmarks.compaction [--gigabytes 1] [--fsync always]

The rows: add() without and with compact(), by two threads; and what the disk alone does meanwhile: fdatasync
of a small file while another thread writes as many bytes to a large one in the same steps.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

import headrace
from headrace.persistence.data_directory import DiskDirectory
from headrace.persistence.gradual_writer import WRITEBACK_BYTES, gradual_writer

VALUE_BYTES = 1000
BATCH = 2000
PAUSE_S = 0.0005  # of a thread between two calls
IDLE_S = 5.0
THREADS = 2


@contextmanager
def timed_calls(work: Callable[[], object]) -> Iterator[list[float]]:
    """Call work() in threads during the block; afterwards the list has the seconds of each call, sorted."""
    waits: list[float] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(PAUSE_S):
            started = time.perf_counter()
            work()
            waits.append(time.perf_counter() - started)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield waits
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        waits.sort()


def add_row(table: Table, name: str, took_s: float, waits: list[float]) -> None:
    """Add the quantiles of the waits, in milliseconds, to the table."""
    quantiles = [waits[int(len(waits) * q)] for q in (0.5, 0.99, 0.999)]
    cells = [f"{seconds * 1000:.2f}" for seconds in (*quantiles, waits[-1])]
    table.add_row(name, f"{took_s:.1f}", f"{len(waits):,}", *cells)


def write_large(directory: Path, size: int) -> None:
    """Write a file of this size as compact() writes it."""
    file = DiskDirectory(str(directory)).create("large")
    write = gradual_writer(file)
    piece = os.urandom(WRITEBACK_BYTES)
    for _ in range(size // WRITEBACK_BYTES):
        write(piece)
    file.sync()
    file.close()


def measure(directory: Path, size: int, fsync: str) -> Table:
    """Return the table of waits."""
    table = Table("", "seconds", "calls", "median ms", "99 % ms", "99.9 % ms", "longest ms")
    with headrace.open(directory / "db", fsync=fsync) as db:  # type: ignore[arg-type]
        stream = db.stream("bench")
        for _ in range(size // VALUE_BYTES // BATCH):
            stream.add_many([{"f": os.urandom(VALUE_BYTES // 2).hex()} for _ in range(BATCH)])
        time.sleep(2 * IDLE_S)  # until the disk has written it
        with timed_calls(lambda: stream.add({"f": "y"})) as waits:
            time.sleep(IDLE_S)
        add_row(table, "add()", IDLE_S, waits)
        started = time.perf_counter()
        with timed_calls(lambda: stream.add({"f": "y"})) as waits:
            db.compact()
            took_s = time.perf_counter() - started
        add_row(table, "add() during compact()", took_s, waits)
    time.sleep(IDLE_S)
    small = DiskDirectory(str(directory)).create("small")
    lock = threading.Lock()

    def write_and_sync() -> None:
        with lock:
            small.write(b"y" * 100)
            small.sync()

    started = time.perf_counter()
    with timed_calls(write_and_sync) as waits:
        write_large(directory, size)
        took_s = time.perf_counter() - started
    add_row(table, "the disk alone", took_s, waits)
    return table


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--fsync", choices=("always", "everysec", "no"), default="always")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        Console().print(measure(Path(directory), int(options.gigabytes * 1e9), options.fsync))


if __name__ == "__main__":
    main()
