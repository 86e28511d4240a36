"""No job, load or client leaves a reference cycle, a descriptor or a thread in the server."""

from __future__ import annotations

import errno
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from headrace.persistence.data_directory import DiskFile
from headrace.persistence.rdb.encoder_thread import EncoderThread
from headrace.server.replication.replica_side import ReplicaSide, received_file_name
from server.tls_clients import Town
from server.turned_servers import TurnedClient, TurnedServers
from support.census import TIMES, TIMES_OF_JOBS, assert_nothing_left

ENTRIES = 120
STREAMS = 6


@pytest.fixture
def servers() -> Iterator[TurnedServers]:
    servers = TurnedServers()
    yield servers
    servers.close()


def fill(client: TurnedClient) -> None:
    """Store streams with groups, tombstones, idempotency records, schedules and rules, and strings."""
    for number in range(ENTRIES):
        client.request("XADD", f"s{number % STREAMS}", "*", "field", "value" * 30)
    for number in range(STREAMS):
        client.ask(f"XGROUP CREATE s{number} g 0")
        client.ask(f"XREADGROUP GROUP g ann COUNT 20 STREAMS s{number} >")
        client.request("SETEX", f"k{number}", 1000, "v" * 100)
    client.ask("XADD s1 IDMPAUTO producer * item pear")
    for entry, _ in client.ask("XRANGE s2 - + COUNT 30"):  # type: ignore[attr-defined]
        client.request("XDEL", "s2", entry)


def disk_is_full(file: DiskFile) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class Site:
    """A server with data, and a client of it."""

    def __init__(self, servers: TurnedServers, directory: Path, *words: str) -> None:
        self.servers = servers
        self.directory = directory
        self.server = servers.open(directory, *words)
        self.client = servers.dial(self.server)
        fill(self.client)

    def finish_jobs(self) -> None:
        """Run turns until no snapshot or rewrite is running or queued."""
        saving = self.server.parts.saving
        self.servers.until(lambda: saving.running_job is None and not saving.queued)

    def change(self) -> None:
        """Change each kind of data, so that a running job has to keep what was there."""
        for number in range(STREAMS):
            self.client.request("XADD", f"s{number}", "MAXLEN", ENTRIES // STREAMS, "*", "field", "other")
            self.client.request("SETEX", f"k{number}", 1000, "other")
        self.client.ask("XREADGROUP GROUP g ann COUNT 2 STREAMS s1 >")

    def job(self, command: str) -> None:
        """Run a job while the data change."""
        self.client.ask(command)
        self.change()
        self.finish_jobs()

    def killed_job(self, command: str) -> None:
        """Kill a job while the data change."""
        with patch.object(EncoderThread, "has_room", lambda self: False):
            self.client.ask(command)
            self.change()
            running = self.server.parts.saving.running_job
            assert running is not None
            self.server.parts.saving.cancel_all()
        assert running.thread.wait(60)

    def failing_job(self, command: str) -> None:
        """Run a job while the disk is full."""
        with patch.object(DiskFile, "sync", disk_is_full):
            self.client.ask(command)
            self.finish_jobs()


JOBS: dict[str, tuple[list[str], Callable[[Site], object]]] = {
    "BGSAVE": ([], lambda site: site.job("BGSAVE")),
    "BGSAVE without early writeback": (
        ["--rdb-save-incremental-fsync", "no"],
        lambda site: site.job("BGSAVE"),
    ),
    "BGREWRITEAOF": ([], lambda site: site.job("BGREWRITEAOF")),
    "BGREWRITEAOF as commands": (
        ["--aof-use-rdb-preamble", "no"],
        lambda site: site.job("BGREWRITEAOF"),
    ),
    "SAVE": ([], lambda site: site.client.ask("SAVE")),
    "a killed BGSAVE": ([], lambda site: site.killed_job("BGSAVE")),
    "a killed BGREWRITEAOF": ([], lambda site: site.killed_job("BGREWRITEAOF")),
    "a BGSAVE that fails": ([], lambda site: site.failing_job("BGSAVE")),
    "a BGREWRITEAOF that fails": (["--appendfsync", "no"], lambda site: site.failing_job("BGREWRITEAOF")),
}


@pytest.mark.parametrize("times", TIMES_OF_JOBS)
@pytest.mark.parametrize("kind", JOBS)
def test_a_job_leaves_nothing(servers: TurnedServers, tmp_path: Path, kind: str, times: int):
    words, work = JOBS[kind]
    site = Site(servers, tmp_path / "one", *words)
    assert_nothing_left(lambda: work(site), times)
    site.client.close()


load_snapshot = ReplicaSide.on_snapshot_complete


def load_damaged_snapshot(replica: ReplicaSide) -> None:
    """Cut the file of a snapshot that was received, before it is loaded."""
    path = Path(replica.data_directory.path(received_file_name()))
    path.write_bytes(path.read_bytes()[:-30])
    load_snapshot(replica)


class Pair:
    """A primary with data, and a server that becomes its replica now and then."""

    def __init__(self, servers: TurnedServers, directory: Path, *words: str) -> None:
        self.servers = servers
        self.primary = Site(servers, directory / "primary", *words)
        self.other = servers.open(directory / "other")
        self.client = servers.dial(self.other)

    def follow(self) -> None:
        """Have the other server become a replica."""
        self.client.ask(f"REPLICAOF 127.0.0.1 {self.primary.server.parts.listeners.port}")

    def part(self) -> None:
        """Make it a primary with another history: its next synchronisation is a full one."""
        self.client.ask("REPLICAOF NO ONE")
        self.client.ask("XADD own * item pear")
        saving, replicas = self.other.parts.saving, self.primary.server.parts.replication.primary_side
        self.servers.until(lambda: saving.running_job is None and not saving.queued)
        self.servers.until(lambda: not replicas.known_replicas)
        self.servers.until(lambda: replicas.full_sync is None)

    def synchronise(self) -> None:
        """Synchronise, and write on both sides of it."""
        syncs = self.other.parts.replication.replica_side.full_syncs
        self.follow()
        self.primary.change()
        self.servers.until(lambda: self.other.parts.replication.replica_side.is_online)
        assert self.other.parts.replication.replica_side.full_syncs == syncs + 1
        self.primary.change()
        assert self.client.ask("XLEN s1") == self.primary.client.ask("XLEN s1")
        self.part()

    def break_off(self) -> None:
        """End a synchronisation in the middle."""
        self.follow()
        replicas = self.primary.server.parts.replication.primary_side
        self.servers.until(lambda: replicas.full_sync is not None)
        self.part()

    def fail_to_load(self) -> None:
        """Synchronise with a snapshot that the replica cannot load."""
        replica = self.other.parts.replication.replica_side
        with patch.object(ReplicaSide, "on_snapshot_complete", load_damaged_snapshot):
            self.follow()
            self.servers.until(lambda: "cannot be loaded" in replica.failure)
        self.part()


SYNCS: dict[str, tuple[list[str], Callable[[Pair], None]]] = {
    "through a pipe": ([], Pair.synchronise),
    "through a file": (["--repl-diskless-sync", "no"], Pair.synchronise),
    "broken off": ([], Pair.break_off),
    "broken off, through a file": (["--repl-diskless-sync", "no"], Pair.break_off),
    "with a damaged snapshot": ([], Pair.fail_to_load),
}


@pytest.mark.parametrize("times", TIMES_OF_JOBS)
@pytest.mark.parametrize("kind", SYNCS)
def test_a_full_synchronisation_leaves_nothing(servers: TurnedServers, tmp_path: Path, kind: str, times: int):
    words, work = SYNCS[kind]
    pair = Pair(servers, tmp_path, *words)
    assert_nothing_left(lambda: work(pair), times)
    pair.client.close()
    pair.primary.client.close()


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Town:
    return Town(tmp_path_factory.mktemp("town"))


class TlsSite:
    """A server with a TLS port only."""

    def __init__(self, servers: TurnedServers, directory: Path, town: Town) -> None:
        self.servers = servers
        self.town = town
        words = ("--port", "0", "--tls-port", "free", *town.server_words())
        self.server = servers.open(directory, *words)
        self.trusting = town.context()
        self.nameless = town.nameless()

    def talk(self) -> None:
        """Shake hands, send requests with large replies, and say goodbye."""
        with self.servers.dial(self.server) as client:
            client.start_tls(self.trusting)
            client.ask("XADD s MAXLEN 10 * field " + "v" * 20_000)
            client.ask("XRANGE s - +")

    def leave(self, abruptly: bool) -> None:
        """End the connection while a reply is waited for, and another is not read."""
        client = self.servers.dial(self.server)
        client.start_tls(self.trusting)
        client.send("XRANGE", "s", "-", "+")
        client.send("XREAD", "BLOCK", 0, "STREAMS", "never", "$")
        if abruptly:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()

    def send_plain_bytes(self) -> None:
        """Send a request without TLS."""
        with self.servers.dial(self.server) as client:
            client.send("PING")
            self.servers.turn(3)

    def leave_in_the_handshake(self) -> None:
        """Begin a handshake, and close the connection."""
        with self.servers.dial(self.server) as client:
            outgoing = ssl.MemoryBIO()
            with pytest.raises(ssl.SSLWantReadError):
                self.trusting.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
            client.sock.sendall(outgoing.read())
            self.servers.turn(3)

    def show_no_certificate(self) -> None:
        """Be rejected, because there is no certificate."""
        with self.servers.dial(self.server) as client:
            try:
                client.start_tls(self.nameless)
                client.request("PING")
            except (OSError, EOFError):
                return
            raise AssertionError("it was not rejected")


TLS: dict[str, Callable[[TlsSite], None]] = {
    "that talks": TlsSite.talk,
    "that leaves": lambda site: site.leave(False),
    "that is reset": lambda site: site.leave(True),
    "without TLS": TlsSite.send_plain_bytes,
    "that leaves in the handshake": TlsSite.leave_in_the_handshake,
    "without a certificate": TlsSite.show_no_certificate,
}


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("kind", TLS)
def test_a_tls_connection_leaves_nothing(
    servers: TurnedServers, tmp_path: Path, town: Town, kind: str, times: int
):
    site = TlsSite(servers, tmp_path / "one", town)

    def connect() -> None:
        TLS[kind](site)
        servers.until(lambda: not site.server.parts.loop.connections)

    assert_nothing_left(connect, times)
