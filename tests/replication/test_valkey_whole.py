"""What only Valkey has: a second connection for the snapshot, and positions in a chain."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from replication.nodes import PAIRS_OF_VALKEY, Node, nodes
from replication.writing import fill, write
from support.redis_programs import VALKEY
from support.waiting import wait_until

pytestmark = pytest.mark.whole


def check_equal(nodes: list[Node]) -> None:
    """Compare servers with the first one, as far as Valkey sends its replicas all state."""
    first, *others = nodes
    expected = first.state(busy_only=True)
    for other in others:
        assert other.state(busy_only=True) == expected


@pytest.mark.parametrize("pair", PAIRS_OF_VALKEY, ids=" to ".join)
def test_valkey_with_a_second_connection_for_snapshots_is_a_peer(
    tmp_path: Path, pair: tuple[str, str]
) -> None:
    with nodes(tmp_path, *pair) as (primary, replica):
        valkey = primary if primary.kind == VALKEY else replica
        valkey.client.config_set("dual-channel-replication-enabled", "yes")
        fill(primary)
        writer = threading.Thread(target=write, args=(primary.port, 1, 600))
        writer.start()
        replica.follow(primary.port)
        writer.join()
        replica.wait_for(primary)
        check_equal([primary, replica])
        assert primary.syncs()[0] == 1


@pytest.mark.parametrize(
    "kinds", [("valkey", "headrace", "valkey"), ("headrace", "valkey", "headrace")], ids=" to ".join
)
def test_valkey_is_a_part_of_a_chain_that_changes_its_head(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    with nodes(tmp_path, *kinds) as (head, middle, tail):
        fill(head)
        middle.follow(head.port)
        middle.wait_for(head)
        tail.follow(middle.port)
        write(head.port, 5, 300)
        middle.wait_for(head)
        tail.wait_for(middle)
        check_equal([head, middle, tail])
        middle.promote()
        write(middle.port, 6, 100)
        head.follow(middle.port)
        for node in (tail, head):
            node.wait_for(middle)
        check_equal([middle, tail, head])
        assert middle.syncs()[0] == 1, "both others continued"


@pytest.mark.parametrize("pair", PAIRS_OF_VALKEY, ids=" to ".join)
def test_the_command_failover_changes_roles_with_valkey(tmp_path: Path, pair: tuple[str, str]) -> None:
    with nodes(tmp_path, *pair) as (first, second):
        fill(first)
        second.follow(first.port)
        second.wait_for(first)
        for old, new in ((first, second), (second, first)):
            added = [old.client.xadd("orders", {"n": n}) for n in range(50)]
            old.client.execute_command("FAILOVER", "TO", "127.0.0.1", new.port, "TIMEOUT", 30_000)
            wait_until(lambda new=new: new.replication()["role"] == "master")  # type: ignore[misc]
            wait_until(lambda old=old: old.replication()["master_failover_state"] == "no-failover")  # type: ignore[misc]
            old.wait_for(new)
            assert {*added} <= {id for id, _ in new.client.xrange("orders")}
            check_equal([new, old])
        assert (first.syncs()[0], second.syncs()[0]) == (1, 0)
