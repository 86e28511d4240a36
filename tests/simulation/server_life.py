"""A server's event loop and log on a simulated disk whose background syncs fail.

Real: the engine, the turn, Durability, the log, and clients on socket pairs. Simulated: disk, clock, and the
thread that syncs. All of it follows from one seed:

    clients send ─ a background sync ends ─ turn: execute, commit, reply or hold ─ clients read ─ timer ...
                                                      └ recorded: position in the journal, value
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import Future
from random import Random

from headrace.commands.server_interface import ServerInterface
from headrace.engine.clock import SettableClock
from headrace.engine.engine import Engine
from headrace.errors import HeadraceError
from headrace.persistence.aof.log import PendingRewrite
from headrace.persistence.cold.cold_files import ColdFiles
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.server.commit import Durability
from headrace.server.config.config import Config
from headrace.server.loop.event_loop import EventLoop
from simulation.disk import Image, SimulatedFile, SimulatedFiles
from simulation.world import BIRTH_MS, Setup, new_engine, recovered_on, write_keyspace
from support.speaking import encoded

CLIENTS = 4
STEPS_MS = (0, 0, 1, 10, 100, 1100)


class SimulatedSync(Future[None]):
    """A sync in the other thread. It ends when the test ends it, or when the event loop waits for it."""

    def __init__(self, file: SimulatedFile) -> None:
        super().__init__()
        self.file = file
        self.operations = file.inode.operations

    def end(self) -> None:
        """End the sync; it fails if the disk fails now."""
        try:
            self.file.sync_up_to(self.operations)
        except OSError as error:
            self.set_exception(error)
        else:
            self.set_result(None)

    def result(self, timeout: float | None = None) -> None:
        if not self.done():
            self.end()
        super().result(timeout)


class SyncThread:
    """Replaces a ThreadPoolExecutor of one thread."""

    def __init__(self) -> None:
        self.syncs: list[SimulatedSync] = []

    @property
    def waiting(self) -> list[SimulatedSync]:
        self.syncs = [sync for sync in self.syncs if not sync.done()]
        return self.syncs

    def submit(self, sync: Callable[[], None]) -> SimulatedSync:
        self.syncs.append(SimulatedSync(sync.__self__))  # type: ignore[attr-defined]
        return self.syncs[-1]

    def shutdown(self) -> None:
        for sync in self.waiting:
            sync.end()


class LogHost(ServerInterface):
    """A host for WAITAOF, which reports how much of the log is synced."""

    durability: Durability

    def synced_log_offset(self) -> int:
        return self.durability.synced_offset()


class SimulatedClient:
    """A client that sends a few requests at once and waits for their replies."""

    def __init__(self, loop: EventLoop, chance: Random, number: int) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        loop.add_connection(theirs.detach(), b"client", b"server")
        self.sock = ours
        self.parser = ReplyParser()
        self.chance = chance
        self.number = number
        self.count = 0
        self.expected: list[list[bytes]] = []  # for each expected reply: the values that it acknowledges
        self.sent: list[bytes] = []  # values since the last WAITAOF

    def send(self) -> None:
        """Send one or some requests, unless replies are missing."""
        if self.expected:
            return
        kind = self.chance.choice(("one", "one", "pipeline", "transaction", "waitaof"))
        requests: list[bytes] = []
        if kind == "transaction":
            values = [self.value(), self.value()]
            requests = [encoded("MULTI"), *(self.xadd(value) for value in values), encoded("EXEC")]
            self.expected = [[], [], [], values]
        else:
            for _ in range(3 if kind == "pipeline" else 1):
                value = self.value()
                requests.append(self.xadd(value))
                self.expected.append([value])
        if kind == "waitaof":
            requests.append(encoded("WAITAOF", 1, 0, 0))
            self.expected.append([])
        self.sock.send(b"".join(requests))

    def value(self) -> bytes:
        self.count += 1
        return b"%d-%d" % (self.number, self.count)

    def xadd(self, value: bytes) -> bytes:
        return encoded("XADD", "s", "*", "v", value)

    def receive(self) -> tuple[list[bytes], list[bytes]]:
        """Return the values that were acknowledged, and those that WAITAOF reported as synced."""
        with contextlib.suppress(BlockingIOError):
            self.parser.feed(self.sock.recv(1 << 16))
        added: list[bytes] = []
        synced: list[bytes] = []
        while self.expected and (reply := self.parser.next()) is not INCOMPLETE:
            values = self.expected.pop(0)
            if isinstance(reply, bytes) or (isinstance(reply, list) and values):
                added += values
                self.sent += values
            elif reply == [1, 0]:
                synced, self.sent = synced + self.sent, []
        return added, synced


class ServerLife:
    """One run. `added` and `synced`: (position in the journal, value) of everything acknowledged."""

    def __init__(self, seed: int, policy: str) -> None:
        self.chance = Random(seed)
        self.setup = Setup(policy=policy)
        self.clock = SettableClock(BIRTH_MS)
        self.files = SimulatedFiles({}, self.chance)
        self.files.lock()
        host = LogHost()
        self.engine = Engine(host.settings, host)
        self.loop = EventLoop(self.engine, self.clock)
        config = Config()
        config.read_arguments(["--appendonly", "yes", "--appendfsync", policy])
        cold_files = ColdFiles(self.files, "appendonlydir/cold")
        self.durability = Durability(config, self.engine, self.loop, self.files, cold_files, lambda: None)
        self.syncs = self.durability.sync_executor = SyncThread()
        host.durability = self.durability
        self.durability.open(None, lambda file, rewrite: self.write_base(file))
        self.loop.commit = self.durability.commit
        self.clients = [SimulatedClient(self.loop, self.chance, number) for number in range(CLIENTS)]
        self.rewrite: PendingRewrite | None = None
        self.added: list[tuple[int, bytes]] = []
        self.synced: list[tuple[int, bytes]] = []

    def write_base(self, file: object) -> None:
        now = self.clock.now_ms()
        write_keyspace(file, self.engine.keyspace, self.setup, now, log=True, rdb=True)  # type: ignore[arg-type]

    def run(self, steps: int) -> None:
        """Run so many turns of the event loop."""
        for _ in range(steps):
            self.step()
        self.files.faults.failing = {}

    def step(self) -> None:
        chance = self.chance
        if chance.random() < 0.15:
            self.files.faults.failing = {"sync": 1.0} if not self.files.faults.failing else {}
        self.clock.advance(chance.choice(STEPS_MS))
        if chance.random() < 0.5:
            self.timer()
        for client in self.clients:
            if chance.random() < 0.7:
                client.send()
        if self.syncs.waiting and chance.random() < 0.4:
            self.syncs.waiting[0].end()
        self.loop.run_once(0)
        place = len(self.files.journal)
        for client in self.clients:
            added, synced = client.receive()
            self.added += [(place, value) for value in added]
            self.synced += [(place, value) for value in synced]

    def timer(self) -> None:
        """Do what the server does between turns: due syncs, and rewrites."""
        now = self.clock.now_ms()
        self.durability.tick(now)
        log = self.durability.log
        assert log is not None
        rewrite, self.rewrite = self.rewrite, None
        if rewrite is not None:
            log.finish_rewrite(rewrite, True)
            self.durability.tick(now)
        elif log.needs_rewrite or self.chance.random() < 0.05:
            with contextlib.suppress(HeadraceError, OSError):
                begun = log.begin_rewrite(True)
                with contextlib.closing(self.files.create(begun.temporary_path)) as file:
                    self.write_base(file)
                self.rewrite = begun  # commits follow before it is finished

    def close(self) -> None:
        """Close the sockets."""
        self.loop.close()
        for client in self.clients:
            client.sock.close()

    def values_in(self, image: Image) -> set[bytes]:
        """Return the values of all entries that are recovered from this image."""
        files = SimulatedFiles(image, self.chance)
        engine, _ = recovered_on(files, self.setup, self.clock.now_ms(), new_engine(self.setup))
        session = engine.create_session()
        engine.execute(session, [b"XRANGE", b"s", b"-", b"+"], self.clock.now_ms())
        parser = ReplyParser()
        parser.feed(bytes(session.reply.take()))
        entries = parser.next()
        return {entry[1][1] for entry in entries} if isinstance(entries, list) else set()
