"""Producers and blocked consumers: measure the latency from an XADD to the delivery of its entry.

    producer i   XADD s<i> ──────────────┐                       ┌─ the next XADD ...
    consumer i   waits in XREADGROUP ─ delivery: timed ─ XACK, XREADGROUP BLOCK 0 ─ acknowledged

Each pair has its own stream, and an XADD is sent only when its consumer is blocked again. Fifty pairs run at
once. One additional entry is delivered at the start, to measure the length of the replies.
"""

from __future__ import annotations

import time

from benchmarks.hot_paths import encode, entry_id, fields
from benchmarks.load_generator import LoadConnection, leave_server_core, measure_load
from benchmarks.redis_benchmark import Sample
from benchmarks.servers import Server

PAIRS = 50
COMMANDS = 3  # for one entry: XADD, XACK, XREADGROUP
ACK_REPLY_BYTES = len(b":1\r\n")


class Producer(LoadConnection):
    """Adds an entry when its consumer calls add()."""

    is_passive = True

    def __init__(self, server: Server, entries: list[bytes]) -> None:
        super().__init__(server)
        self.entries = iter(entries)
        self.reply_bytes = self.measure_reply_bytes([next(self.entries)])
        self.sent_s = 0.0

    def add(self) -> bool:
        """Send the next entry. Return False if there is none."""
        data = next(self.entries, None)
        if data is None:
            return False
        self.missing += self.reply_bytes
        self.sent_s = time.perf_counter()
        self.sock.sendall(data)
        return True

    def send_next(self) -> bool:
        return True


class Consumer(LoadConnection):
    """Reads entries, acknowledges each one and blocks again."""

    def __init__(
        self, server: Server, key: str, producer: Producer, latencies_s: list[float], last: int
    ) -> None:
        super().__init__(server)
        self.read = encode("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", key, ">")
        self.connection.exchange([encode("XGROUP", "CREATE", key, "g", "0")])
        self.delivery_bytes = self.measure_reply_bytes([self.read])
        self.acks = iter([encode("XACK", key, "g", entry_id(i)) for i in range(last)])
        self.producer = producer
        self.latencies_s = latencies_s
        self.is_acknowledging = False

    def send_next(self) -> bool:
        if self.is_acknowledging:  # the reply to XACK has come, so the consumer is blocked again
            self.is_acknowledging = False
            self.missing = self.delivery_bytes
            return self.producer.add()
        if self.producer.sent_s:
            self.latencies_s.append(time.perf_counter() - self.producer.sent_s)
        self.is_acknowledging = True
        self.missing = ACK_REPLY_BYTES
        self.sock.sendall(next(self.acks) + self.read)
        return True


def run(server: Server, entries: int) -> Sample:
    """Add about `entries` entries over all pairs; the latencies are from XADD to delivery."""
    latencies_s: list[float] = []
    connections: list[LoadConnection] = []
    each = entries // PAIRS + 1
    with leave_server_core():
        for number in range(PAIRS):
            key = f"s{number:02}"
            producer = Producer(server, [encode("XADD", key, entry_id(i), *fields(0)) for i in range(each)])
            consumer = Consumer(server, key, producer, latencies_s, each)
            connections += [producer, consumer]
        return measure_load(server, connections, (each - 1) * PAIRS * COMMANDS, latencies_s)
