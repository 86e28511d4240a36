"""Producers and blocked consumers: how long from an XADD until it is with the consumer who waits for it.

    producer i   XADD s<i> ───────────────┐                        ┌─ the next XADD ...
    consumer i   waits in XREADGROUP ─ delivered: noted ─ XACK, XREADGROUP BLOCK 0 ─ acknowledged

Each pair has a stream of its own, and an XADD is sent only when its consumer is blocked again. Fifty pairs
do so at once. One entry more is delivered at the start, which tells how long the answers are.
"""

from __future__ import annotations

import time

from benchmarks.load import Sample
from benchmarks.paths import entry_id, fields, words
from benchmarks.pipes import Pipe, measured, off_the_servers_core
from benchmarks.servers import Server

PAIRS = 50
COMMANDS = 3  # for one entry: XADD, XACK, XREADGROUP
ACKNOWLEDGED = len(b":1\r\n")


class Producer(Pipe):
    """Adds an entry when its consumer says so, and ends when that does."""

    follows = True

    def __init__(self, server: Server, entries: list[bytes]) -> None:
        super().__init__(server)
        self.left = iter(entries)
        self.answer_bytes = self.learn([next(self.left)])
        self.sent_s = 0.0

    def add(self) -> bool:
        """Send the next entry; False when there is none."""
        data = next(self.left, None)
        if data is None:
            return False
        self.missing += self.answer_bytes
        self.sent_s = time.perf_counter()
        self.sock.sendall(data)
        return True

    def go_on(self) -> bool:
        return True


class Consumer(Pipe):
    """Is given entries, acknowledges each and waits again."""

    def __init__(self, server: Server, key: str, producer: Producer, waits_s: list[float], last: int) -> None:
        super().__init__(server)
        self.read = words("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", key, ">")
        self.wire.exchange([words("XGROUP", "CREATE", key, "g", "0")])
        self.delivery_bytes = self.learn([self.read])
        self.acks = iter([words("XACK", key, "g", entry_id(i)) for i in range(last)])
        self.producer = producer
        self.waits_s = waits_s
        self.is_acknowledging = False

    def go_on(self) -> bool:
        if self.is_acknowledging:  # no longer, and so it is blocked again
            self.is_acknowledging = False
            self.missing = self.delivery_bytes
            return self.producer.add()
        if self.producer.sent_s:
            self.waits_s.append(time.perf_counter() - self.producer.sent_s)
        self.is_acknowledging = True
        self.missing = ACKNOWLEDGED
        self.sock.sendall(next(self.acks) + self.read)
        return True


def run(server: Server, entries: int) -> Sample:
    """So many entries in all, over fifty pairs; the latencies are from XADD to delivery."""
    waits_s: list[float] = []
    pipes: list[Pipe] = []
    each = entries // PAIRS + 1
    with off_the_servers_core():
        for number in range(PAIRS):
            key = f"s{number:02}"
            producer = Producer(server, [words("XADD", key, entry_id(i), *fields(0)) for i in range(each)])
            consumer = Consumer(server, key, producer, waits_s, each)
            pipes += [producer, consumer]
        return measured(server, pipes, (each - 1) * PAIRS * COMMANDS, waits_s)
