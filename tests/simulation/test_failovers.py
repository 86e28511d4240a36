"""Seeded failovers: what WAIT has confirmed survives, and nothing else goes wrong; see failovers.py.

HEADRACE_FAILOVERS=n runs n seeds of each kind; `make test-all` runs 200.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from headrace.replication.primary import Primary
from simulation.cluster import Client, Cluster
from simulation.failovers import FailoverRun
from simulation.world import Wrong

SAMPLE = 40
ALL = int(os.environ.get("HEADRACE_FAILOVERS", "200"))
COMPARED = 10  # every tenth run compares the states of replicas, too


def run_all(seeds: range, waits: bool) -> Counter[str]:
    """Run failovers; return what has happened."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        run = FailoverRun(seed, waits, compares=seed % COMPARED == 0)
        report = run.run()
        seen["failovers"] += run.failovers
        seen["handed over"] += run.handed_over
        seen["restarts"] += run.restarts
        seen["confirmed"] += run.confirmed
        seen["lost"] += len(report.lost)
        seen["recovered"] += len(report.recovered)
        seen["read"] += sum(len(reader.entries) for reader in run.history.readers)
        seen["compared"] += 0 if run.states is None else run.states.checked
    return seen


SEEDS = [SAMPLE, pytest.param(ALL, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", SEEDS)
def test_what_wait_has_confirmed_survives_failovers(count: int) -> None:
    seen = run_all(range(1, count + 1), waits=True)
    assert min(seen[name] for name in ("failovers", "handed over", "restarts", "compared")) > 0, seen
    assert seen["confirmed"] > 5 * count, seen


@pytest.mark.parametrize("count", SEEDS)
def test_without_wait_only_the_tail_of_a_failed_primary_is_lost(count: int) -> None:
    seen = run_all(range(1, count + 1), waits=False)
    assert min(seen[name] for name in ("failovers", "lost", "recovered", "read", "compared")) > 0, seen


def test_a_seed_is_the_same_run_again() -> None:
    def told(seed: int) -> list[object]:
        run = FailoverRun(seed, waits=True)
        run.run()
        appends = run.history.appends.values()
        return [(one.value, one.outcome, one.id, one.confirmed) for one in appends]

    assert told(3) == told(3)


def finds(what: str, waits: bool, seeds: int = 40) -> bool:
    """Return whether one of the first seeds fails with this text."""
    for seed in range(1, seeds):
        try:
            FailoverRun(seed, waits, compares=True).run()
        except Wrong as wrong:
            if what in str(wrong):
                return True
    return False


def test_a_wait_that_does_not_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Primary, "count_acknowledged_replicas", lambda self, offset: len(self.replicas))
    assert finds("is only at", waits=True)


# Defects that the simulation has found.


def test_wait_does_not_count_a_replica_that_has_not_loaded_its_snapshot() -> None:
    with Cluster() as cluster:
        primary = cluster.add("--repl-diskless-sync", "no")
        replica = cluster.add()
        client = Client(primary)
        client.send(("XADD", "s", "*", "f", "v"), ("WAIT", 1, 5000))
        primary.turn()  # before there is a stream: the offset is 0
        replica.follow(primary)
        while not primary.replication.primary.online_replicas():
            cluster.round(20)
        cluster.advance(5000)  # the snapshot is on its way
        primary.turn()
        assert client.receive()[1:] == [0] and replica.ask("EXISTS", "s") == 0
        client.send(("WAIT", 1, 0))
        for _ in range(10):
            cluster.round(300)
        assert client.receive() == [1] and replica.ask("EXISTS", "s") == 1


def test_failover_ends_also_on_a_slow_link() -> None:
    """It asked for acknowledgements every 20 ms, which moved the offset that it waited for."""
    with Cluster() as cluster:
        primary, replica = cluster.add(), cluster.add()
        replica.follow(primary)
        cluster.settle()
        primary.ask("XADD", "s", "*", "f", "v")
        assert primary.ask("FAILOVER") == "OK"
        for turn in range(400):
            cluster.advance(20)
            if turn % 5 == 0:
                cluster.network.pump()
            for node in cluster.nodes:
                node.turn()
        assert primary.replication.is_replica() and not replica.replication.is_replica()


def test_a_snapshot_for_replicas_has_keys_that_have_expired_but_are_not_deleted() -> None:
    """Promoted without such a key, a replica sent no DEL, and the others kept it when it was made again."""
    with Cluster() as cluster:
        primary, early = cluster.add(), cluster.add()
        early.follow(primary)
        cluster.settle()
        primary.ask("SET", "s", "old", "PX", 500)
        cluster.settle()
        primary.ask("CLIENT", "PAUSE", 100_000, "WRITE")  # as FAILOVER does: no key is deleted
        cluster.advance(1000)
        late = cluster.add()
        late.follow(primary)
        while not late.is_online:
            cluster.round(20)
        late.promote()
        early.follow(late)
        late.ask("XADD", "s", "*", "f", "v")
        primary.follow(late)
        cluster.settle()
        assert early.data() == late.data() and early.ask("TYPE", "s") == "stream"
