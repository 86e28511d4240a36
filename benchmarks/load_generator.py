"""A load generator for what redis-benchmark cannot do: requests that differ, and long replies.

    scripts   the batches of each connection: requests, encoded before the measurement
    run       sends a batch when all replies to the previous batch have come, which is known by their bytes

The replies to all batches of a connection have the same total length. It is measured with the first batch,
whose replies are parsed. So a batch costs the generator little more than two system calls.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.connection import REPLY_SECONDS_MAX, Connection
from benchmarks.redis_benchmark import Sample
from benchmarks.servers import Server, load_cores

BUFFER_BYTES = 1 << 20
Batch = list[bytes]  # requests that are sent at once


class LoadConnection:
    """A connection, and the number of reply bytes that it waits for."""

    is_passive = False  # whether another connection makes it send

    def __init__(self, server: Server) -> None:
        self.connection = Connection(server.port)
        self.sock = self.connection.sock
        self.missing = 0

    def send_next(self) -> bool:
        """Send the next batch; called when all replies have come. Return False if there is none."""
        raise NotImplementedError

    def measure_reply_bytes(self, batch: Batch) -> int:
        """Send a batch and return the number of bytes of its replies. CommandError if one is an error."""
        before = self.connection.received
        self.connection.exchange(batch)
        return self.connection.received - before


class ScriptedConnection(LoadConnection):
    """Sends the batches of a script one after the other, and records the latency of each."""

    def __init__(self, server: Server, script: Sequence[Batch], latencies_s: list[float]) -> None:
        super().__init__(server)
        self.reply_bytes = self.measure_reply_bytes(script[0])
        self.batches = iter([b"".join(batch) for batch in script[1:]])
        self.latencies_s = latencies_s
        self.sent_s = 0.0

    def send_next(self) -> bool:
        now = time.perf_counter()
        if self.sent_s:
            self.latencies_s.append(now - self.sent_s)
        data = next(self.batches, None)
        if data is None:
            return False
        self.sent_s = now
        self.missing = self.reply_bytes
        self.sock.sendall(data)
        return True


def run_until_done(connections: Sequence[LoadConnection]) -> None:
    """Run the connections until all have sent their last batch."""
    buffer = bytearray(BUFFER_BYTES)
    by_fd = {connection.sock.fileno(): connection for connection in connections}
    poller = select.epoll()
    for fd in by_fd:
        poller.register(fd, select.EPOLLIN)
    busy = sum(connection.send_next() for connection in connections if not connection.is_passive)
    while busy:
        events = poller.poll(REPLY_SECONDS_MAX)
        if not events:
            raise TimeoutError("no replies: their lengths differ, or the server hangs")
        for fd, _ in events:
            connection = by_fd[fd]
            connection.missing -= connection.sock.recv_into(buffer)
            if connection.missing <= 0:
                if connection.missing < 0:
                    raise ValueError("a reply is longer than the first one")
                busy -= not connection.send_next()
    poller.close()


def run(server: Server, scripts: Sequence[Sequence[Batch]]) -> Sample:
    """Run all scripts concurrently, each on its own connection."""
    latencies_s: list[float] = []
    commands = sum(len(batch) for script in scripts for batch in script[1:])
    with leave_server_core():
        connections = [ScriptedConnection(server, script, latencies_s) for script in scripts]
        return measure_load(server, connections, commands, latencies_s)


def measure_load(
    server: Server, connections: Sequence[LoadConnection], commands: int, latencies_s: list[float]
) -> Sample:
    """Run the connections and return the figures.

    Args:
        server: The server.
        connections: The connections; they are closed.
        commands: The number of commands that they send.
        latencies_s: The list to which they append their latencies, in seconds.
    """
    cpu_s, started = server.cpu_s(), time.perf_counter()
    run_until_done(connections)
    seconds, cpu_s = time.perf_counter() - started, server.cpu_s() - cpu_s
    for each in connections:
        each.connection.close()
    latencies_s.sort()
    p50, p99, p999 = (latencies_s[int(len(latencies_s) * share)] * 1e3 for share in (0.5, 0.99, 0.999))
    return Sample(commands / seconds, p50, p99, p999, cpu_s / commands * 1e6, cpu_s / seconds)


@contextmanager
def leave_server_core() -> Iterator[None]:
    """Keep this process, which generates the load, off the server's core within the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, load_cores())
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
