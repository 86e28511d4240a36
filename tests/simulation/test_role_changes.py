"""What a change of roles must not break: acknowledgements, leases, pauses, what INFO shows."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.server.replication import replica_side
from simulation.cluster import Client, Cluster, Node

LOST = "ERR writes of this connection may be lost"


def replicated(cluster: Cluster, *options: str) -> tuple[Node, Node]:
    """Return a primary and its replica, both with these options, which agree."""
    primary, replica = cluster.add(*options), cluster.add(*options)
    replica.follow(primary)
    cluster.settle()
    return primary, replica


def exchange(cluster: Cluster, client: Client, *requests: tuple[Any, ...], rounds: int = 10) -> list[Any]:
    """Send requests; return the replies that arrive within some rounds."""
    client.send(*requests)
    replies: list[Any] = []
    for _ in range(rounds):
        cluster.round(20)
        replies += client.receive()
    return replies


def swap_roles(cluster: Cluster, primary: Node, replica: Node) -> None:
    """Promote the replica while the primary has a write that it lacks; the primary follows it."""
    cluster.network.cut_all(replica.port)
    replica.promote()
    replica.ask("XADD", "s", "*", "n", "other")
    primary.follow(replica)
    cluster.settle()


@pytest.mark.parametrize("wait", [("WAIT", 1, 1000), ("WAITAOF", 0, 1, 1000)])
def test_wait_confirms_no_write_that_a_full_synchronisation_has_replaced(wait: tuple[Any, ...]) -> None:
    with Cluster() as cluster:
        first, second = replicated(cluster)
        confirmed, lost, reader = Client(first), Client(first), Client(first)
        replies = exchange(cluster, confirmed, ("XADD", "s", "*", "n", 1), wait, rounds=100)
        assert replies[1] in (1, [1, 1], [0, 1])
        cluster.network.cut_all(second.port)
        second.promote()
        assert len(exchange(cluster, lost, ("XADD", "s", "*", "n", "lost"))) == 1
        swap_roles(cluster, first, second)
        swap_roles(cluster, second, first)
        replies = exchange(cluster, lost, wait, ("XADD", "s", "*", "n", 2), wait, rounds=100)
        assert str(replies[0]).startswith(LOST) and replies[2] in (1, [1, 1], [0, 1])
        for client in (confirmed, reader):
            assert exchange(cluster, client, wait, rounds=100)[0] in (1, [1, 1], [0, 1])


def test_a_server_without_a_log_notices_lost_writes_after_a_confirmed_one() -> None:
    with Cluster() as cluster:
        first, second = replicated(cluster, "--appendonly", "no")
        client = Client(first)
        assert exchange(cluster, client, ("XADD", "s", "*", "n", 1), ("WAIT", 1, 0), rounds=100)[1] == 1
        cluster.network.cut_all(second.port)
        second.promote()
        assert len(exchange(cluster, client, ("XADD", "s", "*", "n", "lost"))) == 1
        swap_roles(cluster, first, second)
        swap_roles(cluster, second, first)
        assert str(exchange(cluster, client, ("WAIT", 1, 1000))[0]).startswith(LOST)


def test_a_log_that_is_not_there_yet_is_shown_as_being_written() -> None:
    with Cluster() as cluster:
        first, second = replicated(cluster)
        swap_roles(cluster, first, second)
        cluster.network.cut_all(first.port)
        full = first.replication.replica_side.full_syncs
        first.replication.replica_side.replication_id = None
        for _ in range(200):
            cluster.advance(20)
            cluster.network.pump()
            for node in cluster.alive:
                node.turn()
                if node is first and first.replication.replica_side.full_syncs > full:
                    break
            cluster.snapshots.end_some(cluster.chance)
            if first.replication.replica_side.full_syncs > full:
                break
        text = first.ask("INFO", "persistence")
        assert isinstance(text, bytes)
        assert b"aof_enabled:1" in text and b"aof_rewrite_in_progress:1" in text
        cluster.settle()


def test_a_short_timeout_lets_replicas_wait_for_a_shared_snapshot() -> None:
    with Cluster() as cluster:
        options = ("--repl-timeout", "3", "--repl-diskless-sync-delay", "5")
        primary, replica = cluster.add(*options), cluster.add()
        primary.ask("SET", "k", "v")
        replica.follow(primary)
        for _ in range(70):
            cluster.round(100)
        assert replica.is_online and replica.ask("GET", "k") == b"v"
        assert primary.replication.primary_side.full_syncs == 1


def test_a_replica_that_loads_for_long_is_not_dropped() -> None:
    with Cluster() as cluster:
        primary = cluster.add("--repl-timeout", "3")
        replica = Client(primary)
        exchange(cluster, replica, ("REPLCONF", "capa", "eof", "capa", "psync2"))
        replica.send(("PSYNC", "?", "-1"))
        for _ in range(10):
            cluster.round(100)
        for _ in range(10):  # it has the snapshot, and loads it for ten seconds
            replica.sock.send(b"\n")
            for _ in range(10):
                cluster.round(100)
        assert len(primary.replication.primary.replicas) == 1
        for _ in range(50):
            cluster.round(100)
        assert not primary.replication.primary.replicas


def test_an_active_consumer_keeps_its_entry_through_a_failover() -> None:
    with Cluster() as cluster:
        first, second = replicated(cluster)
        first.ask("XGROUP", "CREATE", "q", "g", 0, "MKSTREAM")
        rules = ("LEASE", 60_000, "CONSUMER-TTL", 3000, "ORDERED-BY", "user")
        first.ask("XGROUP", "CFGSET", "q", "g", *rules)
        for n in range(2):
            first.ask("XADD", "q", "*", "user", "ada", "n", n)
        read = ("XREADGROUP", "GROUP", "g", "{}", "COUNT", 1, "STREAMS", "q", ">")
        assert first.ask(*(str(word).format("ann") for word in read))
        for _ in range(5):
            cluster.round(1000)
            first.ask(*(str(word).format("ann") for word in read))
        cluster.settle()
        first.ask("FAILOVER")
        cluster.settle()
        assert second.replication.primary_address is None
        cluster.round(2000)
        assert second.ask(*(str(word).format("bob") for word in read)) is None
        cluster.round(2000)
        assert second.ask(*(str(word).format("bob") for word in read)) is not None


def test_the_log_is_synced_while_a_replica_loads_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the simulated clock the load takes seconds: appendfsync everysec must not wait for it."""
    monkeypatch.setattr(replica_side, "TURN_INTERVAL_S", 0.0)
    on_progress = replica_side.ReplicaSide.on_progress
    unsynced: list[int] = []
    with Cluster() as cluster:
        first, second = replicated(cluster, "--appendonly", "yes", "--appendfsync", "everysec")
        log = first.server.parts.durability.log

        def end_syncs() -> None:
            for sync in cluster.threads.syncs:
                if not sync.done():
                    sync.end()

        def slow_progress(side: replica_side.ReplicaSide, done: int = 0) -> None:
            unsynced.append(log.written - log.synced)
            cluster.advance(1100)
            on_progress(side, done)
            end_syncs()

        cluster.network.cut_all(second.port)
        second.promote()
        second.ask("XADD", "s", "*", "n", "other")
        first.ask("XADD", "s", "*", "n", "lost")
        cluster.advance(1100)
        first.turn()  # begins a sync: the next one is due a second later
        end_syncs()
        for key in ("s", "t", "u"):  # the load reports its progress after each stream
            first.ask("XADD", key, "*", "n", "lost")
        monkeypatch.setattr(replica_side.ReplicaSide, "on_progress", slow_progress)
        first.follow(second)
        for _ in range(100):
            cluster.round(2)
        assert first.is_online
        assert unsynced[0] > 0 and unsynced[-1] == 0
