"""Seeded runs of a primary and replicas that fail: writers, readers, faults, and a checked history.

    writers   XADD log * v VALUE, some in transactions, some retried with the same idempotency ID,
              some followed by WAIT 1
    readers   on every server: the entries after the last one
    faults    links are cut or stall, servers are killed or separated from the others, power fails
    failover  of the replicas that share the primary's history, the one with the highest offset is promoted;
              the others follow it, later the former primary, too

With `waits`, every value is confirmed by WAIT, and a second failure waits until the first one is repaired:
until every server is a replica of the present primary and has what the failed one had.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headrace.errors import CommandError
from simulation.cluster import Client, Cluster, Node, PrefixCheck
from simulation.disk import Image
from simulation.history_checker import FAIL, OK, Append, Entry, OperationHistory, Reader, Report
from simulation.world import Wrong
from support.command_generator import CommandGenerator
from support.portrait import alive, differences

STEPS = 110
STEPS_MS = (0, 0, 1, 5, 40, 300)
STREAM = "log"
WAIT_MS = 2000
SKEWS_MS = (0, 0, -5000, 700)  # how far the clocks of servers differ
MODES = ("kept", "forgotten", "torn", "mixed")  # what a crash leaves on a disk: see Platter.image()
DANGEROUS = (b"FLUSHALL", b"FLUSHDB", b"SWAPDB")  # for the stream that is checked


def parse_id(text: bytes) -> tuple[int, int]:
    ms, seq = text.split(b"-")
    return int(ms), int(seq)


def entries_of(reply: object) -> list[Entry]:
    """Return the entries of a reply to XRANGE."""
    assert isinstance(reply, list), reply
    return [(parse_id(found), fields[1]) for found, fields in reply]


class Writer:
    """A client that adds values, and connects again when its connection is lost."""

    def __init__(self, run: FailoverRun, number: int) -> None:
        self.run = run
        self.number = number
        self.count = 0
        self.client: Client | None = None
        self.node: Node | None = None
        self.expected: list[list[Append]] = []  # for each reply: what it acknowledges
        self.unconfirmed: list[Append] = []  # acknowledged on this connection; WAIT is to be answered
        self.rejected = False  # the server is no primary any more: look for another one
        self.retried: Append | None = None  # with its idempotency ID, until it is acknowledged

    def step(self) -> None:
        """Read replies; send the next requests if none is missing."""
        if self.client is not None:
            self.receive(self.client)
        if self.client is None:
            self.connect()
        if self.client is not None and not self.expected:
            self.send(self.client)

    def connect(self) -> None:
        self.node = self.run.primary
        self.client = Client(self.node) if self.node.up else None

    def send(self, client: Client) -> None:
        kind = self.run.chance.choice(("one", "one", "pipeline", "transaction", "retry"))
        requests: list[tuple[bytes | str | int, ...]]
        if kind == "retry" or self.retried is not None:
            append = self.retried = self.retried or self.invoke()
            words = ("XADD", STREAM, "IDMP", f"w{self.number}", append.value, "*", "v", append.value)
            requests, self.expected = [words], [[append]]
        else:
            appends = [self.invoke() for _ in range(1 if kind == "one" else 2)]
            requests = [("XADD", STREAM, "*", "v", append.value) for append in appends]
            self.expected = [[append] for append in appends]
            if kind == "transaction":
                requests = [("MULTI",), *requests, ("EXEC",)]
                self.expected = [[], [], [], appends]
        if self.run.waits:
            requests.append(("WAIT", 1, WAIT_MS))
            self.expected.append([])
        client.send(*requests)

    def invoke(self) -> Append:
        self.count += 1
        return self.run.history.invoke(b"%d-%d" % (self.number, self.count))

    def receive(self, client: Client) -> None:
        assert self.node is not None
        if not self.node.up and self.run.chance.random() < 0.5:
            client.close()  # the last replies were lost on their way
        for reply in client.receive():
            self.note(reply, self.expected.pop(0))
        if client.closed or (self.rejected and not self.expected):
            self.rejected = False
            client.close()
            self.client, self.expected, self.unconfirmed = None, [], []

    def note(self, reply: object, appends: list[Append]) -> None:
        """Note what a reply says of some values."""
        history = self.run.history
        if isinstance(reply, CommandError):
            for append in appends:
                if append is not self.retried:  # an earlier attempt may have succeeded
                    history.complete(append, FAIL)
            self.rejected = True
            return
        if isinstance(reply, int):
            if reply >= 1:
                self.run.confirm(self.unconfirmed)
            self.unconfirmed = []
        ids = reply if isinstance(reply, list) else [reply]
        for append, found in zip(appends, ids, strict=bool(appends)):
            assert isinstance(found, bytes), reply
            history.complete(append, OK, parse_id(found))
            self.unconfirmed.append(append)
            if append is self.retried:
                self.retried = None


class FailoverRun:
    """One run. run() returns the checked history; it raises Wrong with the seed if something is wrong."""

    def __init__(self, seed: int, waits: bool, compares: bool = False) -> None:
        """Prepare a run.

        Args:
            compares: change other keys, too, and compare the states of replicas; takes longer.
        """
        self.seed = seed
        self.waits = waits
        self.chance = chance = Random(seed)
        self.cluster = Cluster(chance)
        self.history = OperationHistory()
        self.may_be_lost: set[bytes] = set()  # only a failed primary had them
        self.failovers = self.handed_over = self.restarts = self.confirmed = 0
        self.states = PrefixCheck(self.cluster) if compares else None
        self.generator = CommandGenerator("crashes", chance)
        self.other: Client | None = None
        self.other_at: Node | None = None
        self.has_log = chance.random() < 0.7
        self.policy = chance.choice(("always", "everysec"))
        self.repaired = True
        self.needed = 0  # the offset that all servers have when everything is repaired
        self.due: list[tuple[int, Callable[[], None]]] = []  # (step, what is to be done then)
        self.step_number = 0

    def run(self) -> Report:
        """Run, repair everything, and check the history."""
        try:
            with self.cluster:
                self.begin()
                for self.step_number in range(STEPS):
                    self.step()
                return self.end()
        except AssertionError as wrong:
            raise Wrong(f"seed {self.seed}, waits={self.waits}: {wrong}") from wrong

    def begin(self) -> None:
        options = ["--appendonly", "yes" if self.has_log else "no", "--appendfsync", self.policy]
        diskless = self.chance.choice(("yes", "no"))
        for _ in range(self.chance.choice((2, 3, 3))):
            skew = self.chance.choice(SKEWS_MS)
            self.cluster.add(*options, "--repl-diskless-sync", diskless, skew_ms=skew)
        self.primary = self.nodes[0]
        for node in self.replicas:
            node.follow(self.primary)
        self.writers = [Writer(self, number) for number in range(self.chance.choice((1, 2, 3)))]
        self.readers: dict[tuple[int, int, int], Reader] = {}

    @property
    def nodes(self) -> list[Node]:
        return self.cluster.nodes

    @property
    def replicas(self) -> list[Node]:
        return [node for node in self.nodes if node is not self.primary]

    def step(self) -> None:
        chance, cluster = self.chance, self.cluster
        cluster.advance(chance.choice(STEPS_MS))
        for repair in self.take_due():
            repair()
        if chance.random() < 0.12:
            self.disturb()
        for writer in self.writers:
            if chance.random() < 0.7:
                writer.step()
        if self.states is not None and self.primary.up:
            self.change_other_keys()
        cluster.network.pump_some(chance, cluster.clock.now_ms())
        cluster.end_syncs()
        for node in cluster.alive:
            if chance.random() < 0.85:
                node.turn()
                self.look_at(node)
        self.note_repaired()

    def take_due(self) -> list[Callable[[], None]]:
        """Return the repairs that are due, and forget them."""
        due = [repair for step, repair in self.due if step <= self.step_number]
        self.due = [(step, repair) for step, repair in self.due if step > self.step_number]
        return due

    def change_other_keys(self) -> None:
        """Send a random command on other keys than the stream that is checked."""
        if self.other is None or self.other_at is not self.primary or self.other.closed:
            self.other, self.other_at = Client(self.primary), self.primary
        self.generator.now = self.primary.clock.now_ms()
        words = self.generator.command()
        if words[0].upper() not in DANGEROUS and b"BLOCK" not in words:
            self.other.send(tuple(words))
        self.other.receive()

    # What clients see.

    def look_at(self, node: Node) -> None:
        """Compare states; read on at a replica that follows its primary."""
        if self.states is not None:
            if not node.replication.is_replica():
                self.states.note(node)
            elif node.is_online:
                self.states.check(node, noted_only=True)
        if node.is_online and self.chance.random() < 0.3:
            key = node.port, node.starts, node.replication.replica_side.full_syncs
            if key not in self.readers:
                self.readers[key] = self.history.reader(f"{key}")
            reader = self.readers[key]
            newest = entries_of(node.ask("XREVRANGE", STREAM, "+", "-", "COUNT", 1))
            if newest and newest[0][0] < reader.last:
                reader.entries += newest
            after = b"(%d-%d" % reader.last
            reader.entries += entries_of(node.ask("XRANGE", STREAM, after, "+", "COUNT", 5))

    def confirm(self, appends: list[Append]) -> None:
        """Note that WAIT has confirmed values, and check that another server has them."""
        for append in appends:
            assert append.id is not None
            append.confirmed = True
            self.confirmed += 1
            found = b"%d-%d" % append.id
            holders = [node.port for node in self.cluster.alive if node.ask("XRANGE", STREAM, found, found)]
            assert len(holders) >= 2 or not self.repaired, f"{append.value!r} is only at {holders}"

    # Faults.

    def disturb(self) -> None:
        """Let something fail."""
        chance, wires = self.chance, self.cluster.network.wires
        what = chance.choice(
            ("cut", "cut", "stall", "kill replica", "kill", "separate", "restart", "hand over")
        )
        if what == "cut" and wires:
            wire = chance.choice(wires)
            wire.cut_after = wire.down.delivered + chance.choice((0, 1, 10, 100))
        elif what == "stall" and wires:
            chance.choice(wires).stalled_until_ms = self.cluster.clock.now_ms() + 2000
        elif not self.due and (self.repaired or not self.waits):
            if what == "kill replica":
                self.begin_trouble()
                self.kill(chance.choice(self.replicas), chance.choice(MODES))
            elif what == "restart" and self.has_log:
                self.restart_primary()
            elif what == "hand over" and self.primary.ask("FAILOVER", "TIMEOUT", 3000) == "OK":
                self.begin_trouble()
                self.later(self.find_primary)
            elif what in ("kill", "separate") and self.candidates(self.primary.position[0]):
                self.fail_primary(what)

    def begin_trouble(self) -> None:
        """Note that until further notice not all servers have what the primary has now."""
        self.repaired, self.needed = False, self.primary.position[1]

    def later(self, repair: Callable[[], None]) -> None:
        self.due.append((self.step_number + self.chance.randint(1, 12), repair))

    def kill(self, node: Node, mode: str) -> None:
        """Kill a server; it comes back later as a replica."""
        image = node.crash(mode)

        def start() -> None:
            node.start(image)
            node.follow(self.primary)

        self.later(start)

    def restart_primary(self) -> None:
        """Kill the primary and start it again at once: its log has everything that was acknowledged."""
        self.begin_trouble()
        self.needed = 0
        self.restarts += 1
        mode = self.chance.choice(MODES) if self.policy == "always" else "kept"
        self.primary.start(self.primary.crash(mode))

    def candidates(self, history: str) -> list[Node]:
        """Return the replicas with data of this history."""
        return [node for node in self.replicas if node.up and node.position[0] == history]

    def fail_primary(self, what: str) -> None:
        """Kill the primary, or separate it from the others, while its clients still reach it."""
        self.begin_trouble()
        failed, history = self.primary, self.primary.position[0]
        if what == "separate":
            self.cluster.network.separated |= {frozenset((failed.port, n.port)) for n in self.replicas}
            self.later(lambda: self.promote(failed, history, None))
        else:
            had = self.entries(failed)
            image = failed.crash(self.chance.choice(MODES))
            self.later(lambda: self.promote(failed, history, (image, had)))

    def promote(self, failed: Node, history: str, crashed: tuple[Image, list[Entry]] | None) -> None:
        """Promote the most advanced replica."""
        chosen = max(self.candidates(history), key=lambda node: node.position[1])
        chosen.promote()
        self.failovers += 1
        kept = self.entries(chosen)
        self.primary = chosen
        self.needed = chosen.position[1]
        if self.states is not None:
            self.states.note(chosen)
        for node in self.replicas:
            if node is not failed and node.up:
                node.follow(chosen)

        def bring_back() -> None:
            had = self.entries(failed) if crashed is None else crashed[1]
            assert kept == had[: len(kept)], "the promoted server did not have a prefix"
            self.may_be_lost |= {value for _, value in had[len(kept) :]}
            if crashed is None:
                self.cluster.network.separated.clear()
            else:
                failed.start(crashed[0])
            failed.follow(self.primary)

        self.later(bring_back)

    def find_primary(self) -> None:
        """Find which server is the primary after FAILOVER; there must not be two."""
        old = self.primary
        if old.replication.failover.state != "no-failover":
            self.later(self.find_primary)
            return
        primaries = [node for node in self.nodes if not node.replication.is_replica()]
        assert len(primaries) <= 1, "there are two primaries after FAILOVER"
        if not primaries:  # the link was lost when the replica was asked: the operator decides
            old.promote()
        self.primary = primaries[0] if primaries else old
        self.handed_over += self.primary is not old
        self.needed = self.primary.position[1]
        for node in self.replicas:
            node.follow(self.primary)

    def note_repaired(self) -> None:
        """Note that all replicas have what the primary had at the last failure."""
        if self.repaired or self.due or not self.primary.up:
            return
        history = self.primary.position[0]
        self.repaired = all(
            node.is_online and node.position[0] == history and node.position[1] >= self.needed
            for node in self.replicas
        )

    # The end.

    def entries(self, node: Node) -> list[Entry]:
        return entries_of(node.ask("XRANGE", STREAM, "-", "+"))

    def end(self) -> Report:
        """Repair everything, let all servers agree, and check the history."""
        network = self.cluster.network
        while self.due:
            self.step_number += 20
            self.cluster.round(300)
            for due in self.take_due():
                due()
        for wire in network.wires:
            wire.cut_after, wire.stalled_until_ms = -1, 0
        self.cluster.settle()
        for writer in self.writers:
            if writer.client is not None:
                writer.receive(writer.client)
        now = self.cluster.latest_ms
        for node in self.replicas:
            wrong = differences(alive(node.data(), now), alive(self.primary.data(), now))
            assert not wrong, f"the servers have different data in the end: {wrong[:9]}"
        report = self.history.check(self.entries(self.primary))
        unexplained = set(report.lost) - self.may_be_lost
        assert not unexplained, f"lost, and not the tail of a failed primary: {unexplained}"
        self.forgive_readers(report)
        assert not report.errors, f"{report.errors}"
        return report

    def forgive_readers(self, report: Report) -> None:
        """Drop errors of readers at a killed replica that had more than the one that was promoted."""
        if self.waits:
            return
        unlucky = {name for name, value in report.vanished if value in self.may_be_lost}
        report.vanished = [(name, value) for name, value in report.vanished if value not in self.may_be_lost]
        report.skipped = [(name, value) for name, value in report.skipped if name not in unlucky]
