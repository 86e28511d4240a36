"""Measure the memory of one more entry, stream or connection, each in a new server.

entry              two small fields, in one stream
pending entry      of a group with three consumers, without the entry itself
small stream       a key with one entry of one field
idle connection    that has sent one PING

There are two figures: the resident set, and the server's used_memory. That of redis-server is what it has
requested from its allocator; that of Headrace is all its memory.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.progress import track

from benchmarks.connection import Connection
from benchmarks.hot_paths import encode, entry_id, fill_requests
from benchmarks.rounds import SERVERS, Figures, Rows
from benchmarks.servers import Server

OTHER_FILES = 100  # open files of a process that are not connections


@dataclass(frozen=True)
class MemoryUse:
    """The memory of a server, or of one item, in bytes."""

    resident: float
    used: float

    @classmethod
    def measure(cls, server: Server, connection: Connection) -> MemoryUse:
        [info] = connection.exchange([encode("INFO", "memory")])
        assert isinstance(info, bytes)
        fields = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
        return cls(server.resident_bytes(), int(fields[b"used_memory"]))

    def growth_since(self, before: MemoryUse, count: int) -> MemoryUse:
        """Return the growth per item."""
        return MemoryUse((self.resident - before.resident) / count, (self.used - before.used) / count)


@dataclass(frozen=True)
class MemoryCase:
    """A kind of item; `share` is the number of items per requested entry."""

    name: str
    measure_each: Callable[[Server, int], MemoryUse]
    share: float
    maximum: int = 1 << 30


def measure_growth(server: Server, requests: Iterator[bytes], count: int) -> MemoryUse:
    """Return the memory that the requests add, divided by `count`."""
    connection = Connection(server.port)
    before = MemoryUse.measure(server, connection)
    connection.exchange(requests)
    added = MemoryUse.measure(server, connection).growth_since(before, count)
    connection.close()
    return added


def entry(server: Server, count: int) -> MemoryUse:
    return measure_growth(server, fill_requests("s", count), count)


def pending_entry(server: Server, count: int) -> MemoryUse:
    measure_growth(server, fill_requests("s", count), count)
    measure_growth(server, iter([encode("XGROUP", "CREATE", "s", "g", "0")]), 1)
    return measure_growth(server, read_requests(count), count)


def read_requests(count: int) -> Iterator[bytes]:
    """Yield XREADGROUPs with which three consumers read a hundred entries each in turn."""
    for i in range(0, count, 100):
        yield encode("XREADGROUP", "GROUP", "g", f"c{i // 100 % 3}", "COUNT", 100, "STREAMS", "s", ">")


def small_stream(server: Server, count: int) -> MemoryUse:
    return measure_growth(
        server, (encode("XADD", f"stream:{i:07}", entry_id(i), "temp", i % 90) for i in range(count)), count
    )


def idle_connection(server: Server, count: int) -> MemoryUse:
    first = Connection(server.port)
    before = MemoryUse.measure(server, first)
    connections = [Connection(server.port) for _ in range(count)]
    for connection in connections:
        connection.exchange([encode("PING")])
    added = MemoryUse.measure(server, first).growth_since(before, count)
    for connection in [first, *connections]:
        connection.close()
    return added


def connections_max() -> int:
    """Raise the limit of open files, and return the number of connections that it allows."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    return hard_limit - OTHER_FILES


MEMORY_CASES = [
    MemoryCase("entry of two small fields", entry, 1.0),
    MemoryCase("pending entry", pending_entry, 0.6),
    MemoryCase("small stream", small_stream, 2.0),
    MemoryCase("idle connection", idle_connection, 0.01, 9000),
]


def measure(entries: int) -> Rows:
    """Return the bytes of each item, by server. One round suffices, because memory does not vary."""
    found: Rows = {}
    for case in track(MEMORY_CASES, description="memory"):
        count = min(int(entries * case.share), case.maximum)
        if case.measure_each is idle_connection:
            count = min(count, connections_max())
        resident: Figures = {}
        used: Figures = {}
        for name, make in SERVERS.items():
            with make() as server:
                added = case.measure_each(server, count)
                resident[name] = {"bytes": added.resident}
                used[name] = {"bytes": added.used}
        found[case.name] = resident
        if case.measure_each is not idle_connection:  # used_memory counts only data
            found[f"{case.name}, used_memory"] = used
    return found
