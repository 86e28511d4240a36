"""Bad links between a primary and its replica: cut anywhere, silent, or down for too long."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replication.nodes import PAIRS, Node, nodes
from replication.writing import fill, write
from support.flaky_proxy import Cut, FlakyProxy
from support.waiting import wait_until

pytestmark = pytest.mark.whole


@pytest.fixture(params=PAIRS, ids=" to ".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    with nodes(tmp_path, *request.param) as (primary, replica):
        yield primary, replica


@pytest.fixture
def proxy(pair: tuple[Node, Node]) -> Iterator[FlakyProxy]:
    made = FlakyProxy(pair[0].port, [])
    yield made
    pair[1].kill()
    made.close()


def check_equal(primary: Node, replica: Node) -> None:
    replica.wait_for(primary)
    busy_only = primary.kind != "headrace"
    ours, theirs = replica.state(busy_only=busy_only), primary.state(busy_only=busy_only)
    assert {k: v for k, v in ours.items() if theirs.get(k) != v} == {
        k: v for k, v in theirs.items() if ours.get(k) != v
    }


def test_links_that_break_anywhere_lose_nothing(pair: tuple[Node, Node], proxy: FlakyProxy) -> None:
    primary, replica = pair
    rng = random.Random(5)
    fill(primary)
    lengths = [60, rng.randrange(300, 1000), rng.randrange(1000, 30_000)]  # in the handshake and the snapshot
    proxy.cuts = [Cut(down=length, reset=rng.random() < 0.5) for length in lengths]
    replica.client.set("old", 1)
    replica.follow(proxy.port)
    wait_until(lambda: proxy.connections == 4)
    replica.wait_for(primary)
    assert replica.client.get("old") is None
    proxy.cuts = [Cut(down=rng.randrange(100, 9000), reset=rng.random() < 0.5) for _ in range(3)]
    primary.client.client_kill_filter(_type="replica")
    full, _ = primary.syncs()
    done = threading.Event()
    writer = threading.Thread(target=write_until, args=(primary.port, done))
    writer.start()
    try:
        wait_until(lambda: not proxy.cuts and primary.syncs()[1] >= 4)
    finally:
        done.set()
        writer.join()
    check_equal(primary, replica)
    assert primary.syncs()[0] == full


def write_until(port: int, done: threading.Event) -> None:
    seed = 0
    while not done.is_set():
        seed += 1
        write(port, seed, 50)


def test_a_silent_link_is_given_up_and_continued(pair: tuple[Node, Node], proxy: FlakyProxy) -> None:
    primary, replica = pair
    for node in pair:
        node.client.config_set("repl-timeout", 3)
        node.client.config_set("repl-ping-replica-period", 1)
    fill(primary)
    replica.follow(proxy.port)
    replica.wait_for(primary)
    proxy.flowing.clear()
    write(primary.port, 1, 100)
    wait_until(lambda: replica.replication()["master_link_status"] == "down")
    wait_until(lambda: primary.replication()["connected_slaves"] == 0)
    assert replica.client.xlen("big") > 0
    proxy.flowing.set()
    check_equal(primary, replica)
    assert primary.syncs() == (1, 1)


def test_a_replica_that_was_away_for_too_long_gets_a_snapshot(
    pair: tuple[Node, Node], proxy: FlakyProxy
) -> None:
    primary, replica = pair
    primary.client.config_set("repl-backlog-size", 20_000)
    replica.follow(proxy.port)
    replica.wait_for(primary)
    proxy.cuts = [Cut(up=0)] * 1000
    primary.client.client_kill_filter(_type="replica")
    fill(primary)
    assert primary.replication()["repl_backlog_histlen"] < 200_000
    proxy.cuts = []
    check_equal(primary, replica)
    assert primary.syncs() == (2, 0)


def test_a_replica_that_stops_reading_its_snapshot_is_given_up(
    pair: tuple[Node, Node], proxy: FlakyProxy
) -> None:
    primary, replica = pair
    primary.client.config_set("repl-timeout", 3)
    primary.client.config_set("rdbcompression", "no")
    pipeline = primary.client.pipeline(transaction=False)
    for number in range(400):
        pipeline.set(f"key {number}", random.Random(number).randbytes(50_000))
    pipeline.execute()
    replica.follow(proxy.port)
    wait_until(lambda: primary.replication()["connected_slaves"] == 1)
    proxy.flowing.clear()
    wait_until(lambda: primary.replication()["connected_slaves"] == 0)
    proxy.flowing.set()
    check_equal(primary, replica)
