"""Compare the engine inside a program with redis-py and a redis-server on the same machine.

    python -m benchmarks.library [--rounds 5] [--entries 100000] [--out docs]
    python -m benchmarks.library --tables 10000000 [--rounds 5]

Each row is the same work done by headrace.open() in this process, and by redis-py (with hiredis if it is
installed) on a redis-server, over TCP. Entries have two fields of a few bytes. Where possible redis-py uses
pipelines without transactions, of the length that is fastest for it. The two alternate; the figures are
medians per entry.

With --tables only that is measured: a stream of so many entries of four fields, from a database in this
process into Arrow tables, Polars and DuckDB. The CPU time is that of all threads.
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

Work = Callable[[int], None]  # called with the number of entries
ENTRY: dict[Any, Any] = {"customer": "ada", "cents": "1999"}
BATCHES = (100, 1000, 5000)  # the fastest one counts
LOG = ("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")


@dataclass(frozen=True)
class Row:
    """One kind of work. `share` is its fraction of the entries, `target` the minimum ratio."""

    name: str
    embedded: Callable[[headrace.Database, int], Work]
    redispy: Callable[[redis.Redis, int], Work]
    share: float = 1.0
    target: float = 1.0
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


def client_xadd(db: headrace.Database, batch: int) -> Work:
    return xadd(db.client(), batch)


def consume(db: headrace.Database, batch: int) -> Work:
    """Return the loop over a consumer: an entry is acknowledged when the next one is requested."""
    stream = db.stream("s")

    def work(n: int) -> None:
        consumer = stream.group("g").consumer("c", fetch_count=batch)
        for _ in itertools.islice(consumer, n):
            pass

    return work


def consume_batches(db: headrace.Database, batch: int) -> Work:
    """Return the loop over batches of a consumer, which are acknowledged as a whole."""
    stream = db.stream("s")

    def work(n: int) -> None:
        batches = stream.group("g").consumer("c").batches(size=batch, seconds=1)
        for _ in itertools.islice(batches, n // batch):
            pass

    return work


def xreadgroup(client: redis.Redis, batch: int) -> Work:
    """Return the usual loop in redis-py, with one XACK per batch."""

    def work(n: int) -> None:
        while n > 0:
            reply: Any = client.xreadgroup("g", "c", {"s": ">"}, count=batch, block=1000)
            entries = reply[0][1]
            client.xack("s", "g", *[id for id, _ in entries])
            n -= len(entries)

    return work


ROWS = [
    Row("stream.add | XADD, one round trip each", add, xadd, 0.2, target=30),
    Row("stream.add_many | the best pipeline", add_many, pipeline, target=10, batches=BATCHES),
    Row("db.client().xadd | XADD, one round trip each", client_xadd, xadd, 0.1),
    Row("consumer loop | XREADGROUP, one XACK a batch", consume, xreadgroup, 0.2, batches=(100,)),
    Row(
        "consumer.batches of 500 | XREADGROUP of 500, one XACK a batch",
        consume_batches,
        xreadgroup,
        0.2,
        batches=(500,),
    ),
    Row("durable add | XADD, appendfsync always", add, xadd, 0.01, durable=True),
    Row("durable add_many of 10 | pipeline of 10", add_many, pipeline, 0.05, durable=True, batches=(10,)),
    Row("durable add_many of 100 | pipeline of 100", add_many, pipeline, 0.2, durable=True, batches=(100,)),
    Row("durable add_many of 1000 | pipeline of 1000", add_many, pipeline, durable=True, batches=(1000,)),
]


@contextmanager
def program(durable: bool) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """Open a database in this process; yield it and its `execute`."""
    with tempfile.TemporaryDirectory() as path, headrace.open(path if durable else None) as db:
        yield db, db.execute


@contextmanager
def server(durable: bool) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """Start a redis-server; yield a redis-py client and its `execute_command`."""
    with Server.redis(*(LOG if durable else ())) as running, redis.Redis(port=running.port) as client:
        yield client, client.execute_command


def seconds_per_entry(
    row: Row, batch: int, entries: int, target: Any, execute: Callable[..., Any], is_headrace: bool
) -> float:
    """Do the work once and return the seconds per entry."""
    execute("FLUSHALL")
    n = max(int(entries * row.share) // batch, 1) * batch
    if row.embedded in (consume, consume_batches):
        execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        (add_many(target, batch) if is_headrace else pipeline(target, batch))(n)
    work = (row.embedded if is_headrace else row.redispy)(target, batch)
    started = time.perf_counter()
    work(n)
    return (time.perf_counter() - started) / n


def measure(row: Row, rounds: int, entries: int) -> dict[str, float]:
    """Return the medians of both, in microseconds per entry, each with its fastest batch size."""
    taken: dict[tuple[bool, int], list[float]] = {}
    with program(row.durable) as embedded, server(row.durable) as remote:
        for turn in range(rounds):
            for is_headrace in (True, False) if turn % 2 else (False, True):
                for batch in row.batches:
                    target, execute = embedded if is_headrace else remote
                    taken.setdefault((is_headrace, batch), []).append(
                        seconds_per_entry(row, batch, entries, target, execute, is_headrace)
                    )
    best = {
        side: min(statistics.median(times) for (each, _), times in taken.items() if each == side)
        for side in (True, False)
    }
    return {
        "headrace_us": round(best[True] * 1e6, 3),
        "redis_us": round(best[False] * 1e6, 3),
        "ratio": round(best[False] / best[True], 2),
        "aim": row.target,
    }


def table(rows: dict[str, dict[str, float]]) -> Table:
    """Return the table for the terminal."""
    shown = Table(title="headrace in a program beside redis-py and redis-server, µs per entry")
    for head in ("headrace | redis-py", "headrace", "redis-py", "ratio", "target"):
        shown.add_column(head, justify="left" if "|" in head else "right")
    for name, row in rows.items():
        missed = row["ratio"] < row["aim"]
        shown.add_row(
            name,
            f"{row['headrace_us']:,.2f}",
            f"{row['redis_us']:,.2f}",
            f"{row['ratio']:,.1f}",
            f"{row['aim']:.0f}{' (missed)' if missed else ''}",
        )
    return shown


def order(n: int) -> dict[Any, Any]:
    """Return the fields of an entry for the tables."""
    return {"customer": f"c{n % 1000}", "cents": n * 7 % 100_000, "price": f"{n % 997}.5", "site": "berlin"}


def table_reads(db: headrace.Database, entries: int) -> dict[str, Callable[[], int]]:
    """Return what is measured, by name; each returns how many entries it has read."""
    import polars
    import pyarrow as pa

    columns = {"customer": pa.string(), "cents": pa.int64(), "price": pa.float64(), "site": pa.string()}
    typed, stream = pa.schema(columns), db.stream("orders")
    with_ids = pa.schema([("_id", pa.string()), *columns.items()])
    texts = pa.schema([(name, pa.string()) for name in columns])
    total = "SELECT count(*) AS n, sum(cents), max(price), min(customer), min(site) FROM orders"
    return {
        "to_arrow, four typed columns": lambda: stream.to_arrow(typed).num_rows,
        "to_arrow, four typed columns and _id": lambda: stream.to_arrow(with_ids).num_rows,
        "to_arrow, four columns of text": lambda: stream.to_arrow(texts).num_rows,
        "to_arrow without a schema: _id and a map": lambda: stream.to_arrow().num_rows,
        "arrow_batches, each dropped": lambda: sum(each.num_rows for each in stream.arrow_batches(typed)),
        "polars.DataFrame(arrow_batches)": lambda: polars.DataFrame(stream.arrow_batches(typed)).height,
        "db.sql: aggregates of the four columns": lambda: db.sql(total).column("n")[0].as_py(),
        "iteration, for comparison": lambda: 10 * sum(1 for _ in stream.range(count=entries // 10)),
    }


def measure_tables(entries: int, rounds: int) -> Table:
    """Measure reads of a stream as tables; return the table for the terminal."""
    shown = Table(title=f"{entries:,} entries of four fields from a database in the process")
    for head in ("read", "s", "s of CPU", "ns of CPU an entry"):
        shown.add_column(head, justify="left" if head == "read" else "right")
    with headrace.open() as db:
        stream = db.stream("orders")
        for begin in track(range(0, entries, BATCHES[-1]), "adding"):
            stream.add_many(order(n) for n in range(begin, min(begin + BATCHES[-1], entries)))
        for name, read in table_reads(db, entries).items():
            taken = []
            for _ in range(rounds):
                started, cpu = time.perf_counter(), time.process_time()
                rows = read()
                taken.append((time.perf_counter() - started, time.process_time() - cpu))
                assert rows == entries, f"{name}: {rows} entries"
            scale = 10 if name.startswith("iteration") else 1  # only a tenth is read
            wall, cpu = (scale * statistics.median(each) for each in zip(*taken, strict=True))
            shown.add_row(name, f"{wall:.2f}", f"{cpu:.2f}", f"{cpu / entries * 1e9:,.0f}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--only", default="", help="a part of the row names")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the directory for the figures")
    parser.add_argument("--tables", type=int, metavar="N", help="measure only reads of N entries as tables")
    options = parser.parse_args()
    if options.tables:
        Console(width=None if sys.stdout.isatty() else 120).print(
            measure_tables(options.tables, options.rounds)
        )
        return
    os.sched_setaffinity(0, load_cores())  # the server has the other core
    wanted = [row for row in ROWS if options.only in row.name]
    rows = {row.name: measure(row, options.rounds, options.entries) for row in track(wanted, "library")}
    Console(width=None if sys.stdout.isatty() else 120).print(table(rows))
    figures = {
        "entries": options.entries,
        "rounds": options.rounds,
        "redis_py": redis.__version__,
        "hiredis": importlib.util.find_spec("hiredis") is not None,
        "rows": rows,
    }
    if not options.only:
        (options.out / "library_bench.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
