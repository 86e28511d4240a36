"""Measure what the rules of streams and groups cost.

    python -m benchmarks.rules [--commands 200000] [--scheduled 1000000] [--streams 10000] [--keys 100000]

commands    CPU of the server per command, without a rule and with it; one client sends a hundred at a time
scheduled   memory of scheduled entries, CPU and rate of delivery
streams     streams with MAX-AGE: memory, CPU of an idle server, the longest wait of a PING while they trim
keys        a group with ORDERED-BY in which so many keys have a pending entry, whose leases all end at once
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks.connection import Connection
from benchmarks.hot_paths import encode, fields
from benchmarks.servers import IN_MEMORY, Server

BATCH = 100
WARM_UP = 20_000
NO_RULE = ""
STREAM_RULES = (
    NO_RULE,
    "MAX-LEN 10000",
    "MAX-LEN 10000 EXACT 1",
    "MAX-BYTES 1000000",
    "MAX-AGE 1000",
)
ACKED_RULES = (NO_RULE, "MAX-LEN 10000 KEEP-UNACKED 1", "DROP-ACKED 1")
GROUP_RULES = (
    NO_RULE,
    "LEASE 60000",
    "LEASE 60000 BACKOFF 1000,5000",
    "LEASE 60000 MAX-DELIVERIES 5",
    "LEASE 60000 ORDERED-BY device",
    "MAX-PENDING 1000",
    "CONSUMER-TTL 60000",
)
ADD = [encode("XADD", "s", "*", *fields(i)) for i in range(BATCH)]
READ = encode("XREADGROUP", "GROUP", "g", "ann", "COUNT", "1", "STREAMS", "s", ">")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--commands", type=int, default=200_000)
    parser.add_argument("--scheduled", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--keys", type=int, default=100_000)
    options = parser.parse_args()
    console = Console()
    console.print(measure_commands(options.commands))
    console.print(measure_schedule(options.scheduled))
    console.print(measure_streams(options.streams))
    console.print(measure_keys(options.keys))


def measure_commands(count: int) -> Table:
    """Return a table of CPU per command for each rule."""
    table = Table("command", "rule", "CPU per command, µs", "times", title="cost of rules")
    kinds: list[tuple[str, tuple[str, ...], Callable[[Connection, int], None]]] = [
        ("XADD", STREAM_RULES, add),
        ("XADD, XREADGROUP, XACK", ACKED_RULES, add_read_ack),
        ("XADD, XREADGROUP, XACK", GROUP_RULES, add_read_ack),
    ]
    for name, rules, work in kinds:
        base = 0.0
        for rule in rules:
            with Server.headrace(*IN_MEMORY) as server:
                connection = Connection(server.port)
                connection.exchange([encode("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")])
                if work is add:
                    connection.exchange([encode("XGROUP", "DESTROY", "s", "g")])
                if rule:
                    command = ("XGROUP", "CFGSET", "s", "g") if rules is GROUP_RULES else ("XCFGSET", "s")
                    assert connection.exchange([encode(*command, *rule.split())]) == ["OK"], rule
                work(connection, WARM_UP)
                before = server.cpu_s()
                work(connection, count)
                cost = (server.cpu_s() - before) / count * 1e6
            base = base or cost
            table.add_row(name, rule or "none", f"{cost:.2f}", f"{cost / base:.2f}")
    return table


def add(connection: Connection, count: int) -> None:
    """Add entries, a batch at a time."""
    for _ in range(count // BATCH):
        connection.exchange(ADD)


def add_read_ack(connection: Connection, count: int) -> None:
    """Add entries, read each with a request of its own, and acknowledge it; counted as one command."""
    for _ in range(count // BATCH):
        ids = connection.exchange(ADD)
        connection.exchange([READ] * BATCH)
        connection.exchange(
            [encode("XACK", "s", "g", entry.decode()) for entry in ids if isinstance(entry, bytes)]
        )


def measure_schedule(count: int) -> Table:
    """Return a table about so many scheduled entries."""
    table = Table("scheduled entries", "", title=f"{count:,} scheduled entries")
    with Server.headrace(*IN_MEMORY) as server:
        connection = Connection(server.port)
        connection.exchange([encode("PING")])
        memory, cpu_s = server.resident_bytes(), server.cpu_s()
        due = int(time.time() * 1000) + 3_600_000
        for start in range(0, count, BATCH):
            connection.exchange(
                encode("XADD", "s", "DUE", due + (i * 7919) % 3_600_000, "*", *fields(i))
                for i in range(start, start + BATCH)
            )
        table.add_row("CPU of XADD … DUE, µs", f"{(server.cpu_s() - cpu_s) / count * 1e6:.2f}")
        table.add_row("memory per entry, bytes", f"{(server.resident_bytes() - memory) / count:.0f}")
        same = int(time.time() * 1000) + max(2000, count // 200)
        for _ in range(count // 10 // BATCH):
            connection.exchange([encode("XADD", "u", "DUE", same, "*", "f", "v")] * BATCH)
        quiet = longest_ping(connection, 3)
        longest = longest_ping(connection, max(same / 1000 - time.time(), 0) + count / 1e5)
        table.add_row(f"longest PING while {count // 10:,} are due at once, ms", f"{longest:.1f}")
        table.add_row("longest PING before, ms", f"{quiet:.1f}")
        connection.exchange([encode("XADD", "t", "DELAY", "0", "*", "f", "v")] * BATCH)
        before, cpu_s = time.perf_counter(), server.cpu_s()
        requests = [encode("XADD", "t", "DELAY", "1000", "*", *fields(i)) for i in range(BATCH)]
        for _ in range(100):
            connection.exchange(requests)
        while connection.exchange([encode("XLEN", "{t}:scheduled")]) != [0]:
            time.sleep(0.01)
        table.add_row("10,000 due within a second: seconds", f"{time.perf_counter() - before:.2f}")
        table.add_row(
            "CPU per entry scheduled and delivered, µs", f"{(server.cpu_s() - cpu_s) / 1e4 * 1e6:.1f}"
        )
    return table


def longest_ping(connection: Connection, seconds: float) -> float:
    """Return the longest wait of a PING within some seconds, a thousand a second, in milliseconds."""
    longest, deadline = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        connection.exchange([encode("PING")])
        longest = max(longest, time.perf_counter() - started)
        time.sleep(0.001)
    return longest * 1000


def measure_keys(count: int) -> Table:
    """Return a table about a group in which so many keys have a pending entry."""
    table = Table("ORDERED-BY", "", title=f"{count:,} keys with a pending entry each")
    with Server.headrace(*IN_MEMORY) as server:
        connection = Connection(server.port)
        for start in range(0, count, BATCH):
            connection.exchange(
                encode("XADD", "s", "*", "key", f"key-{number}") for number in range(start, start + BATCH)
            )
        sizes = []
        for group, rules in (("plain", "LEASE 3600000"), ("ordered", "LEASE 3600000 ORDERED-BY key")):
            connection.exchange([encode("XGROUP", "CREATE", "s", group, "0")])
            connection.exchange([encode("XGROUP", "CFGSET", "s", group, *rules.split())])
            memory, cpu_s = server.resident_bytes(), server.cpu_s()
            for _ in range(count // BATCH):
                connection.exchange([encode("XREADGROUP", *read_by(group, "ann"), "COUNT", BATCH, *FROM_S)])
            sizes.append(server.resident_bytes() - memory)
            cost = (server.cpu_s() - cpu_s) / count * 1e6
            table.add_row(f"CPU per entry, {group}, µs", f"{cost:.2f}")
        table.add_row("memory per pending entry, plain, bytes", f"{sizes[0] / count:.0f}")
        table.add_row("memory per pending entry, ordered, bytes", f"{sizes[1] / count:.0f}")
        quiet = longest_ping(connection, 3)
        connection.exchange([encode("XGROUP", "CFGSET", "s", "ordered", "LEASE", "1")])
        waiting = Connection(server.port)
        waiting.sock.sendall(
            encode("XREADGROUP", *read_by("ordered", "bob"), "COUNT", BATCH, "BLOCK", 0, *FROM_S)
        )
        longest = longest_ping(connection, 5)
        table.add_row("longest PING while the keys are read again and become due, ms", f"{longest:.1f}")
        table.add_row("longest PING before, ms", f"{quiet:.1f}")
    return table


FROM_S = ("STREAMS", "s", ">")


def read_by(group: str, consumer: str) -> tuple[str, str, str]:
    """Return the first arguments of an XREADGROUP."""
    return "GROUP", group, consumer


def measure_streams(count: int) -> Table:
    """Return a table about so many streams with MAX-AGE, whose entries all become too old."""
    table = Table("streams with rules", "", title=f"{count:,} streams with MAX-AGE 5000")
    with Server.headrace(*IN_MEMORY) as server:
        connection = Connection(server.port)
        names = [f"stream-{number}" for number in range(count)]
        for start in range(0, count, BATCH):
            for name in names[start : start + BATCH]:
                connection.exchange([encode("XADD", name, "*", *fields(i)) for i in range(3)])
        memory = server.resident_bytes()
        for start in range(0, count, BATCH):
            connection.exchange(
                encode("XCFGSET", name, "MAX-AGE", "5000", "EXACT", "1")
                for name in names[start : start + BATCH]
            )
        table.add_row(
            "memory of the rules per stream, bytes", f"{(server.resident_bytes() - memory) / count:.0f}"
        )
        quiet = longest_ping(connection, 3)
        cpu_s = server.cpu_s()
        longest = longest_ping(connection, 12)
        table.add_row("longest PING while all entries become too old, ms", f"{longest:.1f}")
        table.add_row("longest PING before, ms", f"{quiet:.1f}")
        table.add_row(
            "CPU per removed entry with 1,000 PINGs a second, µs",
            f"{(server.cpu_s() - cpu_s) / count / 3 * 1e6:.1f}",
        )
        left = sum(
            size
            for size in connection.exchange(encode("XLEN", name) for name in names[:100])
            if isinstance(size, int)
        )
        cpu_s = server.cpu_s()
        time.sleep(5)
        table.add_row("CPU when idle, percent", f"{(server.cpu_s() - cpu_s) / 5 * 100:.2f}")
        table.add_row("entries left in the first 100 streams", str(left))
    table.caption = f"on {os.cpu_count()} cores"
    return table


if __name__ == "__main__":
    main()
