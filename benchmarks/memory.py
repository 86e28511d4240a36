"""Memory: what one more of each thing adds to a server that was started for it alone.

entry              two small fields, in one stream
pending entry      of a group with three consumers, beyond the entry itself
small stream       a key of its own with one entry of one field
idle connection    that has sent one PING

It is said twice: by the system (resident set) and by the server (used_memory: of redis-server what it has
asked its allocator for, of headrace all it has).
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.progress import track

from benchmarks.paths import entry_id, filled, words
from benchmarks.rounds import SERVERS, Figures, Rows
from benchmarks.servers import Server
from benchmarks.wire import Wire

FILES_SPARE = 100  # of a process, for what is no connection


@dataclass(frozen=True)
class Held:
    """Bytes: what a server holds, or what each thing has added."""

    resident: float
    used: float

    @classmethod
    def by(cls, server: Server, wire: Wire) -> Held:
        [info] = wire.exchange([words("INFO", "memory")])
        assert isinstance(info, bytes)
        said = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
        return cls(server.resident_bytes(), int(said[b"used_memory"]))

    def since(self, before: Held, count: int) -> Held:
        return Held((self.resident - before.resident) / count, (self.used - before.used) / count)


@dataclass(frozen=True)
class Thing:
    """Something of which there are many: how many, as a share of the entries asked for."""

    name: str
    held_each: Callable[[Server, int], Held]
    share: float
    most: int = 1 << 30


def grown(server: Server, requests: Iterator[bytes], count: int) -> Held:
    """What the requests add, over the count."""
    wire = Wire(server.port)
    before = Held.by(server, wire)
    wire.exchange(requests)
    added = Held.by(server, wire).since(before, count)
    wire.close()
    return added


def entry(server: Server, count: int) -> Held:
    return grown(server, filled("s", count), count)


def pending_entry(server: Server, count: int) -> Held:
    grown(server, filled("s", count), count)
    grown(server, iter([words("XGROUP", "CREATE", "s", "g", "0")]), 1)
    return grown(server, reads(count), count)


def reads(count: int) -> Iterator[bytes]:
    """Each of three consumers is given a hundred entries in turn."""
    for i in range(0, count, 100):
        yield words("XREADGROUP", "GROUP", "g", f"c{i // 100 % 3}", "COUNT", 100, "STREAMS", "s", ">")


def small_stream(server: Server, count: int) -> Held:
    return grown(
        server, (words("XADD", f"stream:{i:07}", entry_id(i), "temp", i % 90) for i in range(count)), count
    )


def idle_connection(server: Server, count: int) -> Held:
    first = Wire(server.port)
    before = Held.by(server, first)
    wires = [Wire(server.port) for _ in range(count)]
    for wire in wires:
        wire.exchange([words("PING")])
    added = Held.by(server, first).since(before, count)
    for wire in [first, *wires]:
        wire.close()
    return added


def connections_max() -> int:
    """How many this process may have, after asking for all it can get."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most - FILES_SPARE


THINGS = [
    Thing("entry of two small fields", entry, 1.0),
    Thing("pending entry", pending_entry, 0.6),
    Thing("small stream", small_stream, 2.0),
    Thing("idle connection", idle_connection, 0.01, 9000),
]


def measure(entries: int) -> Rows:
    """Bytes of each thing, by server. One round: memory does not waver."""
    found: Rows = {}
    for thing in track(THINGS, description="memory"):
        count = min(int(entries * thing.share), thing.most)
        if thing.held_each is idle_connection:
            count = min(count, connections_max())
        by: Figures = {}
        by_itself: Figures = {}
        for name, make in SERVERS.items():
            with make() as server:
                added = thing.held_each(server, count)
                by[name] = {"bytes": added.resident}
                by_itself[name] = {"bytes": added.used}
        found[thing.name] = by
        if thing.held_each is not idle_connection:  # what used_memory counts are data
            found[f"{thing.name}, used_memory"] = by_itself
    return found
