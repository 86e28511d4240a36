"""A server at work for a long time: producers, groups, trims, snapshots, rewrites; and kill -9 in between.

Each producer numbers what it adds: a group that reads from the start must have been handed each number that
was acknowledged, in order.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from headrace.errors import CommandError
from stress.real_server import RealServer
from support.speaking import Client, encoded

STREAMS = 3
GROUPS = ("bill", "ship")
PIPELINE = 20
PAYLOAD = "x" * 120
KEPT = 20_000  # entries that a stream keeps behind what its groups have done


class Marks:
    """A set of small numbers, a byte each."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def add(self, n: int) -> None:
        """n is in it."""
        if n >= len(self.bytes):
            self.bytes.extend(bytes(n + 10_000 - len(self.bytes)))
        self.bytes[n] = 1

    def __contains__(self, n: int) -> bool:
        return n < len(self.bytes) and self.bytes[n] == 1

    def without(self, other: Marks) -> list[int]:
        """Those that are here and not there."""
        return [n for n, mark in enumerate(self.bytes) if mark and n not in other]


class Hand:
    """A thread that has a client for as long as there is a server, and another after it was killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wrong: BaseException | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        """Steps, until the world ends."""
        while not self.world.over.is_set() and self.wrong is None:
            try:
                with Client.to(self.world.server.port) as client:
                    self.begin(client)
                    while not self.world.over.is_set():
                        self.step(client)
            except (OSError, EOFError):  # it was killed
                time.sleep(0.05)
            except BaseException as wrong:
                self.wrong = wrong

    def begin(self, client: Client) -> None:
        """There is a new server."""

    def step(self, client: Client) -> None:
        """Do one thing."""
        raise NotImplementedError


class Producer(Hand):
    """Adds numbers to its stream. Those of a pipeline that was broken off may be there, or be missing."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world)
        self.stream = f"orders:{number}"
        self.next = 0
        self.added = 0
        self.sure = Marks()  # acknowledged

    def step(self, client: Client) -> None:
        if self.next - min(r.done for r in self.world.readers if r.producer is self) > KEPT // 2:
            time.sleep(0.01)  # a trim must not overtake who reads
            return
        numbers = range(self.next, self.next + PIPELINE)
        self.next += PIPELINE
        client.send(b"".join(encoded("XADD", self.stream, "*", "n", n, "text", PAYLOAD) for n in numbers))
        for n in numbers:
            answer = client.reply()
            assert isinstance(answer, bytes), answer
            self.sure.add(n)
            self.added += 1
        time.sleep(self.world.pause)


class Reader(Hand):
    """The one consumer of a group: reads, checks the order, acknowledges. What was pending comes first."""

    def __init__(self, world: World, producer: Producer, group: str) -> None:
        super().__init__(world)
        self.producer = producer
        self.group = group
        self.seen = Marks()
        self.done = 0  # the highest number seen
        self.read = 0
        self.again = 0  # read twice: the server was killed before it had heard of the acknowledgement
        self.last = b"0-0"
        self.pending = False

    def begin(self, client: Client) -> None:
        made = client.request("XGROUP", "CREATE", self.producer.stream, self.group, 0, "MKSTREAM")
        assert made == "OK" or str(made).startswith("BUSYGROUP"), made
        self.pending = True

    def step(self, client: Client) -> None:
        after = "0" if self.pending else ">"
        stream = self.producer.stream
        answer = client.ask(f"XREADGROUP GROUP {self.group} one COUNT 100 BLOCK 50 STREAMS {stream} {after}")
        assert not isinstance(answer, CommandError), answer
        entries = answer[0][1] if isinstance(answer, list) else []
        if not entries:
            self.pending = False
            return
        for entry, fields in entries:
            n = int(fields[1])
            assert fields[3] == PAYLOAD.encode()
            self.again += n in self.seen
            assert n in self.seen or key_of(entry) > key_of(self.last), (stream, entry, self.last)
            self.seen.add(n)
            self.done = max(self.done, n)
            self.last = max(self.last, entry, key=key_of)
        self.read += len(entries)
        acknowledged = client.request("XACK", stream, self.group, *(entry for entry, _ in entries))
        assert acknowledged == len(entries), (acknowledged, len(entries))


class Steward(Hand):
    """Trims, looks, saves, rewrites."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.random = random.Random(world.seed)
        self.done: dict[str, int] = {}

    def step(self, client: Client) -> None:
        r = self.random
        stream = f"orders:{r.randrange(STREAMS)}"
        lines = [
            f"XTRIM {stream} MAXLEN ~ {KEPT}",
            f"XAUTOCLAIM {stream} bill one 60000 0 COUNT 10",
            f"XINFO STREAM {stream} FULL COUNT 3",
            f"XPENDING {stream} ship - + 10",
            f"XREVRANGE {stream} + - COUNT 50",
            "BGSAVE SCHEDULE",
            "BGREWRITEAOF",
            "INFO",
            f"CONFIG SET appendfsync {r.choice(['always', 'everysec'])}",
            f"SETEX session:{r.randrange(1000)} 1 {PAYLOAD}",
        ]
        line = r.choices(lines, [10, 5, 3, 5, 5, 0.3, 0.3, 2, 0.5, 10])[0]
        answer = client.ask(line)
        if isinstance(answer, CommandError):  # the one below is: another one is under way
            assert line.startswith("BG") and "progress" in str(answer), (line, answer)
        name = line.split()[0]
        self.done[name] = self.done.get(name, 0) + 1
        time.sleep(0.02)


class World:
    """All of them, and the server that they talk to."""

    def __init__(self, start: Callable[[], RealServer], seed: int, pause: float) -> None:
        self.start = start
        self.seed = seed
        self.pause = pause
        self.over = threading.Event()
        self.kills = 0
        self.server = start()
        self.producers = [Producer(self, n) for n in range(STREAMS)]
        self.readers = [Reader(self, one, group) for one in self.producers for group in GROUPS]
        self.steward = Steward(self)
        self.hands: list[Hand] = [*self.producers, *self.readers, self.steward]

    def work(self, seconds: float, kills: int, report: float = 60.0) -> list[str]:
        """So long; the kills all come in the first half. What was seen of the server, line by line."""
        for hand in self.hands:
            hand.thread.start()
        begun = time.monotonic()
        moments = [seconds / 2 * (k + 1) / (kills + 1) for k in range(kills)]
        told = [self.figures(0)]
        while (at := time.monotonic() - begun) < seconds:
            if moments and at >= moments[0]:
                moments.pop(0)
                self.server.kill()
                self.kills += 1
                self.server = self.start()
            if at >= len(told) * report:
                told.append(self.figures(at))
                print(told[-1], flush=True)
            assert not any(hand.wrong for hand in self.hands), [hand.wrong for hand in self.hands]
            time.sleep(0.05)
        told.append(self.figures(seconds))
        self.over.set()
        for hand in self.hands:
            hand.thread.join(30)
            assert not hand.thread.is_alive()
            if hand.wrong is not None:
                raise hand.wrong
        return told

    def figures(self, at: float) -> str:
        """A line of them."""
        added, read = sum(one.added for one in self.producers), sum(one.read for one in self.readers)
        server = self.server
        return (
            f"{at:6.0f} s: {added} added, {read} read, {self.kills} kills, RSS {server.rss() >> 10} KiB,"
            f" {server.descriptors()} descriptors"
        )

    def check(self) -> None:
        """Everything that was acknowledged has been read by each group, once they have read to the end."""
        with Client.to(self.server.port) as client:
            for reader in self.readers:
                reader.pending = True
                reader.begin(client)
                while reader.pending or self._is_behind(client, reader):
                    reader.step(client)
                missing = reader.producer.sure.without(reader.seen)
                assert not missing, (reader.producer.stream, reader.group, sorted(missing)[:10], len(missing))
                assert reader.done < reader.producer.next
                assert client.ask(f"XPENDING {reader.producer.stream} {reader.group}")[0] == 0  # type: ignore[index]

    def _is_behind(self, client: Client, reader: Reader) -> bool:
        last = client.ask(f"XREVRANGE {reader.producer.stream} + - COUNT 1")
        assert isinstance(last, list)
        return bool(last) and key_of(last[0][0]) > key_of(reader.last)


def key_of(entry: bytes) -> tuple[int, int]:
    """An ID as it is ordered."""
    ms, _, seq = entry.partition(b"-")
    return int(ms), int(seq)
