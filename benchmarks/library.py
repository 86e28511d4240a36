"""The engine inside a program, beside redis-py and a redis-server on the same machine.

    python -m benchmarks.library [--rounds 5] [--entries 100000] [--out docs]

Every row is the same work done twice: by headrace.open() in this process, and by redis-py (with hiredis, if
it is there) on a redis-server, over TCP. Entries have two fields of a few bytes. What redis-py can do in one
go it does in one go: pipelines without transactions, of the length that suits it best. The server's turn and
ours alternate; the figures are medians, for one entry.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headrace
from benchmarks.servers import Server, load_cores

Work = Callable[[int], None]  # do it for so many entries
ENTRY: dict[Any, Any] = {"customer": "ada", "cents": "1999"}
BATCHES = (100, 1000, 5000)  # of which the best counts
LOG = ("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")


@dataclass(frozen=True)
class Row:
    """One kind of work: ours, theirs, which share of the entries, and the least ratio that will do."""

    name: str
    ours: Callable[[headrace.Database, int], Work]
    theirs: Callable[[redis.Redis, int], Work]
    share: float = 1.0
    aim: float = 1.0
    durable: bool = False
    batches: tuple[int, ...] = (1,)


def add(db: headrace.Database, batch: int) -> Work:
    stream = db.stream("s")

    def work(n: int) -> None:
        for _ in range(n):
            stream.add(ENTRY)

    return work


def xadd(client: redis.Redis, batch: int) -> Work:
    def work(n: int) -> None:
        for _ in range(n):
            client.xadd("s", ENTRY)

    return work


def add_many(db: headrace.Database, batch: int) -> Work:
    stream = db.stream("s")
    entries = [ENTRY] * batch

    def work(n: int) -> None:
        for _ in range(n // batch):
            stream.add_many(entries)

    return work


def pipeline(client: redis.Redis, batch: int) -> Work:
    def work(n: int) -> None:
        for _ in range(n // batch):
            with client.pipeline(transaction=False) as pipe:
                for _ in range(batch):
                    pipe.xadd("s", ENTRY)
                pipe.execute()

    return work


def bridge(db: headrace.Database, batch: int) -> Work:
    return xadd(db.client(), batch)


def consume(db: headrace.Database, batch: int) -> Work:
    """The consumer's loop: an entry is acknowledged when the next one is asked for."""
    stream = db.stream("s")

    def work(n: int) -> None:
        consumer = stream.group("g").consumer("c", batch=batch)
        for _ in itertools.islice(consumer, n):
            pass

    return work


def xreadgroup(client: redis.Redis, batch: int) -> Work:
    """The loop as people write it, at its best: one XACK for a whole batch."""

    def work(n: int) -> None:
        while n > 0:
            reply: Any = client.xreadgroup("g", "c", {"s": ">"}, count=batch, block=1000)
            entries = reply[0][1]
            client.xack("s", "g", *[id for id, _ in entries])
            n -= len(entries)

    return work


ROWS = [
    Row("stream.add | XADD, one round trip each", add, xadd, 0.2, aim=30),
    Row("stream.add_many | the best pipeline", add_many, pipeline, aim=10, batches=BATCHES),
    Row("db.client().xadd | XADD, one round trip each", bridge, xadd, 0.1),
    Row("consumer loop | XREADGROUP, one XACK a batch", consume, xreadgroup, 0.2, batches=(100,)),
    Row("durable add | XADD, appendfsync always", add, xadd, 0.01, durable=True),
    Row("durable add_many of 10 | pipeline of 10", add_many, pipeline, 0.05, durable=True, batches=(10,)),
    Row("durable add_many of 100 | pipeline of 100", add_many, pipeline, 0.2, durable=True, batches=(100,)),
    Row("durable add_many of 1000 | pipeline of 1000", add_many, pipeline, durable=True, batches=(1000,)),
]


@contextmanager
def program(durable: bool) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """A database in this process, and how to ask it anything."""
    with tempfile.TemporaryDirectory() as path, headrace.open(path if durable else None) as db:
        yield db, db.execute


@contextmanager
def server(durable: bool) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """redis-py on a redis-server."""
    with Server.redis(*(LOG if durable else ())) as running, redis.Redis(port=running.port) as client:
        yield client, client.execute_command


def seconds(row: Row, batch: int, entries: int, place: Any, ask: Callable[..., Any], ours: bool) -> float:
    """For one entry."""
    ask("FLUSHALL")
    n = max(int(entries * row.share) // batch, 1) * batch
    if row.ours is consume:
        ask("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        (add_many(place, batch) if ours else pipeline(place, batch))(n)
    work = (row.ours if ours else row.theirs)(place, batch)
    begun = time.perf_counter()
    work(n)
    return (time.perf_counter() - begun) / n


def measure(row: Row, rounds: int, entries: int) -> dict[str, float]:
    """Medians of both, in seconds for one entry, each with the batch that suits it best."""
    taken: dict[tuple[bool, int], list[float]] = {}
    with program(row.durable) as (db, ask_db), server(row.durable) as (client, ask_client):
        for turn in range(rounds):
            for ours in (True, False) if turn % 2 else (False, True):
                for batch in row.batches:
                    place, ask = (db, ask_db) if ours else (client, ask_client)
                    taken.setdefault((ours, batch), []).append(seconds(row, batch, entries, place, ask, ours))
    best = {
        side: min(statistics.median(times) for (ours, _), times in taken.items() if ours == side)
        for side in (True, False)
    }
    return {
        "headrace_us": round(best[True] * 1e6, 3),
        "redis_us": round(best[False] * 1e6, 3),
        "ratio": round(best[False] / best[True], 2),
        "aim": row.aim,
    }


def table(rows: dict[str, dict[str, float]]) -> Table:
    """For people."""
    drawn = Table(title="headrace in a program beside redis-py and redis-server, µs for one entry")
    for head in ("headrace | redis-py", "headrace", "redis-py", "ratio", "aim"):
        drawn.add_column(head, justify="left" if "|" in head else "right")
    for name, row in rows.items():
        short = row["ratio"] < row["aim"]
        drawn.add_row(
            name,
            f"{row['headrace_us']:,.2f}",
            f"{row['redis_us']:,.2f}",
            f"{row['ratio']:,.1f}",
            f"{row['aim']:.0f}{' (short)' if short else ''}",
        )
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--only", default="", help="part of the rows' names")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="where the figures go")
    options = parser.parse_args()
    os.sched_setaffinity(0, load_cores())  # the server has the other core
    wanted = [row for row in ROWS if options.only in row.name]
    rows = {row.name: measure(row, options.rounds, options.entries) for row in track(wanted, "library")}
    Console(width=None if sys.stdout.isatty() else 120).print(table(rows))
    said = {
        "entries": options.entries,
        "rounds": options.rounds,
        "redis_py": redis.__version__,
        "hiredis": importlib.util.find_spec("hiredis") is not None,
        "rows": rows,
    }
    if not options.only:
        (options.out / "library_bench.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
