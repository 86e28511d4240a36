"""The mixed load of the soak: the same for each server, at a fixed rate, by some threads.

The amount of data stays the same: streams have a maximum length, keys expire or are overwritten, consumers
that were created are deleted. So nothing in the server may grow.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.connection import Connection
from benchmarks.hot_paths import encode
from benchmarks.servers import Server
from headrace.errors import CommandError

STREAMS = 8
LENGTH = 3000  # entries of each stream
BATCH = 20  # entries added, read or acknowledged at once
STRINGS = 1000
SUBSCRIBERS = 5
SCRIPTS = [
    f"local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'script', '{n}'); "
    "return {id, redis.call('XLEN', KEYS[1])}"
    for n in range(10)
]
STOP_S_MAX = 10.0
BUSY = ("in progress", "already", "scheduled", "can't BGSAVE")  # replies to a save beside another job


def fill(port: int) -> None:
    """Store as much data as there will be later."""
    connection = Connection(port)
    for n in range(STREAMS):
        connection.exchange(
            encode("XADD", f"s{n}", "*", "device", f"dev{i % BATCH}", "text", "v" * (20 + i % BATCH))
            for i in range(LENGTH)
        )
    connection.exchange(encode("SET", f"k{n}", "v" * (n % 300), "EX", 10 + n % 20) for n in range(STRINGS))
    connection.close()


def add_entries(port: int) -> Iterator[float]:
    """Add entries to all streams in turn."""
    connection = Connection(port)
    for n in itertools.count():
        add = ("XADD", f"s{n % STREAMS}", "MAXLEN", "~", LENGTH, "*")
        connection.exchange(encode(*add, "device", f"dev{i}", "text", "v" * (20 + i)) for i in range(BATCH))
        yield 0.05


def read_as_group(port: int) -> Iterator[float]:
    """Read the streams as consumers of a group, acknowledge most entries, and claim the others later."""
    connection = Connection(port)
    for n in range(STREAMS):
        with contextlib.suppress(CommandError):  # BUSYGROUP
            connection.exchange([encode("XGROUP", "CREATE", f"s{n}", "g", "0", "MKSTREAM")])
    for n in itertools.count():
        key, consumer = f"s{n % STREAMS}", f"c{n % 24}"
        read = encode("XREADGROUP", "GROUP", "g", consumer, "COUNT", 2 * BATCH, "STREAMS", key, ">")
        [found] = connection.exchange([read])
        ids = [entry[0].decode() for entry in found[0][1]] if found else []  # type: ignore[index]
        if len(ids) > 1:
            connection.exchange([encode("XACK", key, "g", *ids[1:])])
        if n % 50 == 0:
            connection.exchange([encode("XAUTOCLAIM", key, "g", "janitor", 0, "0-0", "COUNT", 500, "JUSTID")])
            [owned] = connection.exchange([encode("XPENDING", key, "g", "-", "+", 500)])
            pending = [entry[0].decode() for entry in owned]  # type: ignore[attr-defined]
            if pending:
                connection.exchange([encode("XACK", key, "g", *pending)])
            connection.exchange([encode("XGROUP", "DELCONSUMER", key, "g", consumer)])
        yield 0.04


def read_blocking(port: int) -> Iterator[float]:
    """Wait for entries, with and without a group, now and then in vain."""
    connection = Connection(port)
    while True:
        connection.exchange([encode("XREAD", "BLOCK", 50, "COUNT", 5, "STREAMS", "s0", "s1", "$", "$")])
        connection.exchange([encode("XREAD", "BLOCK", 20, "STREAMS", "missing", "$")])
        yield 0.02


def run_scripts(port: int) -> Iterator[float]:
    """Run scripts by text and by digest."""
    connection = Connection(port)
    for n in itertools.count():
        script = SCRIPTS[n % len(SCRIPTS)]
        [digest] = connection.exchange([encode("SCRIPT", "LOAD", script)])
        assert isinstance(digest, bytes)
        connection.exchange(
            [
                encode("EVAL", script, 1, "scripted", 500),
                encode("EVALSHA", digest.decode(), 1, "scripted", 500),
                encode("EVAL", "redis.pcall('XADD', KEYS[1])", 1, "scripted"),
            ]
        )
        yield 0.05


def run_transactions(port: int) -> Iterator[float]:
    """Change strings and streams in transactions, some of which fail or are discarded."""
    connection = Connection(port)
    for n in itertools.count():
        key = f"k{n % STRINGS}"
        connection.exchange(
            [
                encode("WATCH", key),
                encode("MULTI"),
                encode("SET", key, "v" * (n % 300), "EX", 10 + n % 20),
                encode("XADD", "transactions", "MAXLEN", 200, "*", "n", n),
                encode("EXEC" if n % 5 else "DISCARD"),
                encode("SET", f"short{n}", "v", "PX", 200),
            ]
        )
        yield 0.02


def publish(port: int) -> Iterator[float]:
    """Publish messages to subscribers."""
    connection = Connection(port)
    for n in itertools.count():
        connection.exchange(encode("PUBLISH", f"news{n % 3}", f"message {n} {i}") for i in range(5))
        yield 0.05


def subscribe(port: int) -> Iterator[float]:
    """Read messages; subscribe to other channels now and then."""
    connection = Connection(port)
    connection.sock.settimeout(0.5)
    for n in itertools.count():
        connection.sock.sendall(encode("SUBSCRIBE", "news0", f"news{n % 3}", f"other{n % 100}"))
        connection.sock.sendall(encode("UNSUBSCRIBE", f"other{n % 100}"))
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                connection.read_reply()
        yield 0.0


def come_and_go(port: int) -> Iterator[float]:
    """Open connections, and close them in all kinds of states."""
    states = [
        [encode("PING")],
        [encode("SUBSCRIBE", "news0"), encode("PSUBSCRIBE", "n*")],
        [encode("WATCH", "s0"), encode("MULTI"), encode("XLEN", "s0")],
        [encode("MONITOR")],
        [encode("HELLO", 3), encode("CLIENT", "TRACKING", "ON"), encode("GET", "k1")],
        [encode("XREAD", "BLOCK", 0, "STREAMS", "missing", "$")],
        [encode("XREADGROUP", "GROUP", "g", "passing", "BLOCK", 0, "STREAMS", "s2", ">")],
        [encode("XRANGE", "s1", "-", "+")],  # the reply is not read
        [b"*3\r\n$4\r\nXLEN\r\n$1000\r\nabc"],
        [b"*1\r\n$x\r\n"],
        [encode("CLIENT", "SETNAME", "passing"), encode("INFO"), encode("COMMAND", "COUNT")],
    ]
    connection = Connection(port)
    for requests in itertools.cycle(states):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=30) as visitor,
        ):
            visitor.sendall(b"".join(requests))
            time.sleep(0.01)
        connection.exchange([encode("PING")])
        yield 0.04


def save(port: int, interval_s: float) -> Iterator[float]:
    """Have snapshots and logs written in turn."""
    connection = Connection(port)
    for command in itertools.cycle(("BGSAVE", "BGREWRITEAOF")):
        try:
            connection.exchange([encode(command)])
        except CommandError as error:
            if not any(word in str(error) for word in BUSY):
                raise
        yield interval_s


def resynchronise(primary: int, replica: int, interval_s: float) -> Iterator[float]:
    """Have the replica copy all data again, or continue after its connection was cut."""
    connection, other = Connection(primary), Connection(replica)
    follow = encode("REPLICAOF", "127.0.0.1", primary)
    other.exchange([follow])
    for n in itertools.count():
        yield interval_s
        if n % 3 == 2:
            connection.exchange([encode("CLIENT", "KILL", "TYPE", "replica")])
        else:
            other.exchange([encode("REPLICAOF", "NO", "ONE"), encode("XADD", "own", "*", "f", "v"), follow])


class SoakLoad:
    """The threads that send the load to one server and its replica."""

    def __init__(self, primary: Server, replica: Server, save_s: float, resync_s: float) -> None:
        """save_s, resync_s: seconds between two saves, and between two synchronisations of the replica."""
        self.failure: BaseException | None = None
        self._done = threading.Event()
        self._port = port = primary.port
        kinds: list[Callable[[int], Iterator[float]]] = [
            *(add_entries, read_as_group, read_blocking, run_scripts, run_transactions, publish),
            *(come_and_go, come_and_go),
            *[subscribe] * SUBSCRIBERS,
        ]
        loads = [kind(port) for kind in kinds]
        loads += [save(port, save_s), resynchronise(port, replica.port, resync_s)]
        self._threads = [threading.Thread(target=self._run, args=(load,), daemon=True) for load in loads]

    def start(self) -> None:
        """Store the data, and start the threads."""
        fill(self._port)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads."""
        self._done.set()
        until = time.monotonic() + STOP_S_MAX
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0))

    def _run(self, load: Iterator[float]) -> None:
        try:
            due = time.monotonic()
            for pause_s in load:
                due = max(due + pause_s, time.monotonic() - 1.0)  # after a stall it catches up with a second
                if self._done.wait(max(due - time.monotonic(), 0)):
                    break
        except BaseException as error:
            self.failure = error
