"""Redis's and Valkey's own Sentinels over Headrace servers: a killed primary comes back as a replica."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis
from redis.sentinel import Sentinel

import headrace
from replication.nodes import Node, nodes
from replication.sentinel_group import sentinels, url_of_sentinels
from support.waiting import wait_until

pytestmark = pytest.mark.whole


def add_until_accepted(sentinel: Sentinel, number: int) -> bool:
    """Add an entry at the present primary; return whether a replica has it, too."""
    while True:
        try:
            with sentinel.master_for("orders", socket_timeout=2) as client:
                connection = client.connection_pool.get_connection()
                connection.send_command("XADD", "s", "*", "n", number)
                connection.read_response()
                connection.send_command("WAIT", 1, 1000)
                confirmed = connection.read_response() >= 1
                client.connection_pool.release(connection)
                return bool(confirmed)
        except redis.RedisError:
            time.sleep(0.1)


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_a_killed_primary_is_replaced_and_comes_back_as_a_replica(tmp_path: Path, kind: str) -> None:
    with nodes(tmp_path, "headrace", "headrace", "headrace") as found:
        first, *others = found
        for other in others:
            other.follow(first.port)
            other.wait_for(first)
        with sentinels(tmp_path, first.port, kind=kind) as ports:
            sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=2)
            knows = sentinel.sentinels[0].sentinel_master
            wait_until(
                lambda: knows("orders")["num-slaves"] == 2 and knows("orders")["num-other-sentinels"] == 2
            )
            with headrace.connect(url_of_sentinels(ports)) as database:
                stream = database.stream("by headrace")
                stream.add({"n": 0})
                confirmed = [n for n in range(20) if add_until_accepted(sentinel, n)]
                first.kill()
                confirmed += [n for n in range(20, 40) if add_until_accepted(sentinel, n)]
                stream.add({"n": 1})
            first.start()
            wait_until(lambda: has_one_primary(found))
            primary = next(node for node in found if node.replication()["role"] == "master")
            assert primary is not first
            stored = [int(fields[b"n"]) for _, fields in primary.client.xrange("s")]
            assert set(confirmed) <= set(stored) and len(confirmed) >= 20
            assert primary.client.xlen("by headrace") >= 1
            for node in found:
                assert node.state() == primary.state()


def has_one_primary(found: list[Node]) -> bool:
    """Whether one of the servers is the primary, and all others have its data."""
    states = [node.replication() for node in found]
    primaries = [state for state in states if state["role"] == "master"]
    return len(primaries) == 1 and all(
        state is primaries[0]
        or (
            state["master_link_status"] == "up"
            and state["master_repl_offset"] == primaries[0]["master_repl_offset"]
        )
        for state in states
    )
