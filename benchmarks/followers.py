"""Measure many followers of one database: threads, connections, CPU while nothing happens, and delivery.

    python -m benchmarks.followers [--followers 500] [--streams 10] [--idle 10]

Followers wait for entries of some streams, in asyncio or in a thread each. A database in the process and a
server are measured. "Delivered" is the time from the first XADD of an entry to each stream until every
follower has its entry; the time of ten such rounds is divided by ten.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
from rich.console import Console
from rich.table import Table

import headrace
from benchmarks.servers import Server

ROUNDS = 10


class Counter:
    """Counts deliveries of all threads; a thread can wait for a number of them."""

    def __init__(self) -> None:
        self.count = 0
        self.changed = threading.Condition()

    def add(self) -> None:
        with self.changed:
            self.count += 1
            self.changed.notify_all()

    def wait_for(self, number: int) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.count >= number, timeout=60):
                raise SystemExit(f"{self.count} of {number} entries were delivered")


def start_async(
    db: headrace.Database, followers: int, streams: int, counter: Counter, stop: headrace.Stop
) -> list[threading.Thread]:
    """Start the followers as tasks of an event loop in a thread of its own."""

    async def follow(number: int) -> None:
        async for _ in db.stream(f"s:{number % streams}").follow_async(stop=stop):
            counter.add()

    async def follow_all() -> None:
        await asyncio.gather(*[follow(number) for number in range(followers)])

    thread = threading.Thread(target=lambda: asyncio.run(follow_all()))
    thread.start()
    return [thread]


def start_threads(
    db: headrace.Database, followers: int, streams: int, counter: Counter, stop: headrace.Stop
) -> list[threading.Thread]:
    """Start each follower in a thread."""

    def count(follower: headrace.Follower[Any]) -> None:
        for _ in follower:
            counter.add()

    each = [db.stream(f"s:{number % streams}").follow(stop=stop) for number in range(followers)]
    threads = [threading.Thread(target=count, args=(follower,)) for follower in each]
    for thread in threads:
        thread.start()
    return threads


Start = Callable[[headrace.Database, int, int, Counter, headrace.Stop], list[threading.Thread]]


def row(
    name: str, db: headrace.Database, start: Start, options: argparse.Namespace, server: Server | None
) -> list[str]:
    """Return the name and the figures of one kind of followers, as texts for the table."""
    counter, stop = Counter(), headrace.Stop()
    threads_before = threading.active_count()
    streams = [db.stream(f"s:{number}") for number in range(options.streams)]
    started = start(db, options.followers, options.streams, counter, stop)
    time.sleep(2)  # until all of them wait
    cpu, server_cpu, begun = time.process_time(), server.cpu_s() if server else 0.0, time.monotonic()
    time.sleep(options.idle)
    seconds = time.monotonic() - begun
    cpu = time.process_time() - cpu
    server_cpu = server.cpu_s() - server_cpu if server else 0.0
    threads = threading.active_count() - threads_before
    connections = connected_clients(server) if server else 0
    begun = time.monotonic()
    for turn in range(1, ROUNDS + 1):
        for stream in streams:
            stream.add({"turn": turn})
        counter.wait_for(turn * options.followers)
    delivered_ms = (time.monotonic() - begun) * 1e3 / ROUNDS
    stop.set()
    for thread in started:
        thread.join()
    return [
        name, f"{threads}", f"{connections}", f"{cpu / seconds:.2%}",
        f"{server_cpu / seconds:.2%}" if server else "", f"{delivered_ms:.1f} ms",
    ]  # fmt: skip


def connected_clients(server: Server) -> int:
    """Return how many connections a server has beside this one."""
    with redis.Redis(port=server.port) as client:
        return int(client.info("clients")["connected_clients"]) - 1


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--followers", type=int, default=500)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds without entries")
    options = parser.parse_args()
    table = Table("followers", "threads", "connections", "CPU idle", "of the server", "delivered")
    kinds: dict[str, Start] = {"in asyncio": start_async, "in a thread each": start_threads}
    for kind, start in kinds.items():
        name = f"{options.followers} {kind}"
        with headrace.open() as db:
            table.add_row(*row(f"{name}, in the program", db, start, options, None))
        with Server.headrace() as server, headrace.connect(f"redis://localhost:{server.port}") as db:
            table.add_row(*row(f"{name}, of a server", db, start, options, server))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
