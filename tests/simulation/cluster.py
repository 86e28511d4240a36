"""Several servers in one process, each on a simulated disk, with a simulated network between them.

    clients ─ socket pair ─ Node A ═══ Wire ═══ Node B ═══ Wire ═══ ...
                              │                    │
                        simulated disk       simulated disk

The servers are real: event loop, group commit, log, snapshots, replication. Simulated are the clock, disks,
network, and the threads that sync, connect and write snapshots.
A run is determined by the test, or by a seed; only replication IDs are random.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import tempfile
import threading
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from headrace.engine.clock import SettableClock
from headrace.persistence.rdb import encoder_thread
from headrace.resp.reply_parser import INCOMPLETE, ReplyParser
from headrace.server import commit
from headrace.server.config.config import Config
from headrace.server.disk import snapshot_job, startup
from headrace.server.main import Server
from headrace.server.replication import primary_connection, replica_side
from simulation.disk import Image, Platter, SimulatedFile, SimulatedFiles
from simulation.network import InlineThread, Network, connection_class, pair
from simulation.server_life import SimulatedSync
from simulation.snapshot_threads import SnapshotThreads
from simulation.world import BIRTH_MS
from support.portrait import Portrait, alive, differences, portrait
from support.speaking import encoded

FIRST_PORT = 7001
TURNS_MAX = 400  # until servers agree that nothing disturbs
OPTIONS = ("--repl-diskless-sync-delay", "0", "--save", "", "--loglevel", "warning")


class NodeFiles(SimulatedFiles):
    """A simulated disk with what the server program asks of a directory besides files."""

    lock_descriptor = 0  # it is locked: leftovers of a killed server are removed
    holder = ""

    def lock(self) -> None:
        """Lock the directory; no-op if this server has done so."""
        self.locked = True

    def path(self, name: str) -> str:
        """Return a real path: the file of a snapshot for replicas is read by its descriptor."""
        return os.path.join(tempfile.gettempdir(), f"headrace-{id(self)}-{name}")


class Node:
    """A server. After crash() it is down until start()."""

    def __init__(self, cluster: Cluster, port: int, options: tuple[str, ...], skew_ms: int) -> None:
        self.cluster = cluster
        self.port = port
        self.options = options
        self.clock = SettableClock(cluster.clock.ms + skew_ms)
        self.up = False
        self.starts = 0
        self.start({})

    # Start and end.

    def start(self, image: Image) -> None:
        """Start the server on what a disk contains."""
        self.files = NodeFiles(image, self.cluster.chance)
        config = Config()
        config.read_arguments([*OPTIONS, "--replica-announce-port", str(self.port), *self.options])
        self.server = Server(config, self.clock, self.files)
        self.server.recover()
        self.up = True
        self.starts += 1
        self.admin = self.engine.create_session()
        self.cluster.network.accepting[self.port] = self.accept

    def crash(self, mode: str) -> Image:
        """Kill the server; return what is left on its disk: see Platter.image() for the modes."""
        self.up = False
        del self.cluster.network.accepting[self.port]
        for wire in self.cluster.network.of(self.port):
            if self.cluster.chance.random() < 0.5:
                wire.pump()  # the system still delivers what the process has sent
        self.cluster.network.cut_all(self.port)
        platter = Platter(self.files.image)
        for op in self.files.journal:
            platter.apply(op)
        image = platter.image(self.cluster.chance, mode)
        self.close()
        return image

    def close(self) -> None:
        """Release descriptors. Nothing reaches a client: the caller has closed their ends."""
        self.up = False
        self.cluster.network.accepting.pop(self.port, None)
        self.cluster.network.cut_all(self.port)
        self.server.close()

    def accept(self, sock: Any) -> None:
        """Serve a connection."""
        self.server.parts.loop.add_connection(sock.detach(), b"127.0.0.1:1", b"127.0.0.1:2")

    # What it has.

    @property
    def engine(self) -> Any:
        return self.server.parts.engine

    @property
    def replication(self) -> Any:
        return self.server.parts.replication

    @property
    def position(self) -> tuple[str, int]:
        """The history of the data, and the offset in it."""
        primary = self.replication.primary
        if self.replication.is_replica():
            return primary.history.id, self.replication.replica_side.offset
        return primary.history.id, primary.end_offset

    @property
    def is_online(self) -> bool:
        """Whether it follows the stream of its primary."""
        return self.replication.is_replica() and self.replication.replica_side.is_online

    def data(self) -> Portrait:
        """Return everything that clients can learn, times of consumers aside."""
        return portrait(self.engine.keyspace, times=False, ties=False)

    def ask(self, *words: bytes | str | int) -> object:
        """Execute a request; commit what it changes."""
        argv = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.engine.execute(self.admin, argv, self.clock.now_ms())
        if self.engine.effects.items:
            self.server.parts.loop.run_once(0)  # timers find every change committed
        parser = ReplyParser()
        parser.feed(bytes(self.admin.reply.take()))
        return parser.next()

    def follow(self, primary: Node) -> None:
        self.ask("REPLICAOF", "127.0.0.1", primary.port)

    def promote(self) -> None:
        self.ask("REPLICAOF", "NO", "ONE")

    def turn(self) -> None:
        """Run the timers, some of a snapshot, and a turn of the event loop."""
        loop = self.server.parts.loop
        self.server.parts.timers.run(self.clock.now_ms())
        if loop.background_work is not None:
            loop.background_work()
        loop.run_tasks()
        loop.run_once(0)
        self.cluster.snapshots.end_some(self.cluster.chance)


class Client:
    """A client's connection to a node."""

    def __init__(self, node: Node) -> None:
        self.sock, theirs = pair()
        node.accept(theirs)
        self.parser = ReplyParser()
        self.closed = False

    def send(self, *requests: tuple[bytes | str | int, ...]) -> None:
        """Send requests at once. Errors are found by receive()."""
        with contextlib.suppress(OSError):
            self.sock.send(b"".join(encoded(*words) for words in requests))

    def receive(self) -> list[object]:
        """Return the replies that have arrived; set `closed` if there will be no more."""
        try:
            while not self.closed:
                data = self.sock.recv(1 << 16)
                self.parser.feed(data)
                self.closed = not data
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        if self.sock.fileno() < 0:
            return []
        replies: list[object] = []
        while (reply := self.parser.next()) is not INCOMPLETE:
            replies.append(reply)
        return replies

    def close(self) -> None:
        self.closed = True
        self.sock.close()


class SyncThreads:
    """All threads that sync: their work ends when the test lets it, or when a server waits for it."""

    def __init__(self) -> None:
        self.syncs: list[SimulatedSync] = []

    def submit(self, sync: Any) -> SimulatedSync:
        self.syncs.append(SimulatedSync(sync.__self__))
        return self.syncs[-1]

    def shutdown(self) -> None:
        """Do nothing: a log waits for its own sync when it is closed."""

    def end_some(self, chance: Random, files: list[SimulatedFiles]) -> None:
        """End some syncs on these disks, and forget those on others."""
        waiting = [sync for sync in self.syncs if not sync.done() and belongs(sync.file, files)]
        self.syncs = waiting
        for sync in waiting:
            if chance.random() < 0.6:
                sync.end()


def belongs(file: SimulatedFile, files: list[SimulatedFiles]) -> bool:
    """Return whether the file is on one of these disks."""
    return any(file.files is one for one in files)


class Cluster(contextlib.ExitStack):
    """The servers of a run, with their clock and network."""

    def __init__(self, chance: Random | None = None) -> None:
        super().__init__()
        self.chance = chance or Random(0)
        self.clock = SettableClock(BIRTH_MS)
        self.network = Network()
        self.threads = SyncThreads()
        self.snapshots = SnapshotThreads()
        self.nodes: list[Node] = []
        connection = connection_class(self.network, self.port_of)
        inline = SimpleNamespace(Thread=InlineThread, Lock=threading.Lock)
        snapshot_threading = SimpleNamespace(Thread=self.snapshots.create, Condition=threading.Condition)
        for module, name, value in (
            (startup, "reduced_gc", contextlib.nullcontext),
            (commit, "ThreadPoolExecutor", lambda *arguments: self.threads),
            (encoder_thread, "threading", snapshot_threading),
            (encoder_thread, "_lower_priority", lambda: None),
            (snapshot_job, "system", self.snapshots.clock()),
            (primary_connection, "threading", inline),
            (replica_side, "PrimaryConnection", connection),
            (replica_side, "time", SimpleNamespace(monotonic=lambda: 0.0)),
        ):
            self.enter_context(patch.object(module, name, value))
        self.callback(self.end)

    def end(self) -> None:
        for node in self.nodes:
            if node.up:
                node.close()

    def add(self, *options: str, skew_ms: int = 0) -> Node:
        """Start one more server, whose clock differs by so much."""
        self.nodes.append(Node(self, FIRST_PORT + len(self.nodes), options, skew_ms))
        return self.nodes[-1]

    def port_of(self, loop: object) -> int:
        return next(node.port for node in self.nodes if node.server.parts.loop is loop)

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.up]

    @property
    def latest_ms(self) -> int:
        """The time by the clock that is farthest ahead: what has expired there may be gone elsewhere."""
        return max(node.clock.ms for node in self.nodes)

    def advance(self, ms: int) -> None:
        """Let the time pass for all servers."""
        for clock in (self.clock, *(node.clock for node in self.nodes)):
            clock.advance(ms)

    def end_syncs(self) -> None:
        """End some of the running syncs."""
        self.threads.end_some(self.chance, [node.files for node in self.alive])

    def round(self, ms: int = 0) -> None:
        """Let the time pass, carry all bytes, and give every server a turn."""
        self.advance(ms)
        self.end_syncs()
        self.network.pump()
        for node in self.alive:
            node.turn()

    def settle(self) -> None:
        """Run until every replica has what its primary has."""
        for _ in range(TURNS_MAX):
            self.round(20)
            if self.is_settled():
                return
        raise AssertionError(f"the servers do not agree: {[node.position for node in self.alive]}")

    def is_settled(self) -> bool:
        """Return whether every replica follows, and all have the same position."""
        replicas = [node for node in self.alive if node.replication.is_replica()]
        same = len({node.position for node in self.alive}) == 1
        return same and all(node.is_online for node in replicas)


class PrefixCheck:
    """The states of primaries by position: a replica must have the state of its position.

        history 1   ── o ── o ── o ───┐ promoted
        history 2                     └── o ── o ──

    note() after every request of a primary, so that each state is that of a whole request or transaction.
    Between two noted positions the stream has nothing but SELECT, PING and REPLCONF.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.offsets: dict[str, list[int]] = {}  # by history, ascending
        self.states: dict[str, list[Portrait]] = {}
        self.parents: dict[str, str] = {}
        self.checked = 0

    def note(self, primary: Node) -> None:
        """Note the state of a primary between two requests."""
        history, offset = primary.position
        if history not in self.offsets:
            self.parents[history] = primary.replication.primary.history.second_id
        offsets = self.offsets.setdefault(history, [])
        states = self.states.setdefault(history, [])
        if offsets[-1:] == [offset]:
            states[-1] = primary.data()
        else:
            offsets.append(offset)
            states.append(primary.data())

    def check(self, replica: Node, noted_only: bool = False) -> None:
        """Check that the replica has the state of its position; noted_only: if that was noted exactly."""
        history, offset = replica.position
        while history in self.parents and offset < self.offsets[history][0]:
            history = self.parents[history]
        if history not in self.offsets and noted_only:
            return
        at = bisect.bisect_right(self.offsets[history], offset) - 1
        if noted_only and self.offsets[history][at] != offset:
            return
        now = self.cluster.latest_ms
        seen, expected = alive(replica.data(), now), alive(self.states[history][at], now)
        assert seen == expected, f"offset {offset}: " + "\n".join(differences(seen, expected)[:10])
        self.checked += 1
