"""Rules of a running server: plain clients, restarts, rewrites, and redis-server as reader and replica."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from replication.nodes import Node, nodes
from support.redis_server import redis_server
from support.waiting import wait_until

pytestmark = pytest.mark.whole


def state(client: redis.Redis) -> dict[bytes, Any]:
    """Return all streams, with groups and pending entries, as any server shows them."""
    found: dict[bytes, Any] = {}
    for key in sorted(client.keys()):
        if client.type(key) != b"stream":
            found[key] = client.get(key)
            continue
        groups = [
            (
                group["name"],
                group["last-delivered-id"],
                client.xpending_range(key, group["name"], "-", "+", 1000),
            )
            for group in client.xinfo_groups(key)
        ]
        for _, _, rows in groups:
            for row in rows:
                del row["time_since_delivered"]
        found[key] = (client.xrange(key), client.xinfo_stream(key)["last-generated-id"], groups)
    return found


def rules(client: redis.Redis) -> tuple[Any, Any]:
    """Return the rules of the stream s and its group g."""
    return client.xinfo_stream("s").get("rules"), client.xinfo_groups("s")[0].get("rules")


def prepare(client: redis.Redis) -> None:
    """Set rules, and make every one of them have an effect."""
    client.xgroup_create("s", "g", "0", mkstream=True)
    client.execute_command("XCFGSET", "s", "MAX-LEN", 10, "KEEP-UNACKED", 1, "EXACT", 1)
    client.execute_command("XGROUP", "CFGSET", "s", "g", "LEASE", 50, "MAX-DELIVERIES", 2)
    for number in range(30):
        client.xadd("s", {"n": number})
        ((_, ((entry, _),)),) = client.xreadgroup("g", "ann", {"s": ">"}, count=1)
        if number not in (25, 27):
            client.xack("s", "g", entry)
    client.execute_command("XADD", "s", "DELAY", 20, "*", "n", "later")
    client.execute_command("XADD", "s", "DELAY", 100_000_000, "*", "n", "much later")
    wait_until(lambda: client.xrevrange("s", count=1)[0][1] == {b"n": b"later"}, "the scheduled entry")
    deadline = time.monotonic() + 60
    while client.xlen("{s}:dead") < 2 and time.monotonic() < deadline:
        for _, entries in client.xreadgroup("g", "bob", {"s": ">"}, block=100):
            for entry, fields in entries:
                if fields == {b"n": b"later"}:
                    client.xack("s", "g", entry)
    assert client.xlen("s") == 10 and client.xlen("{s}:dead") == 2


def rewrite(node: Node) -> None:
    """Rewrite the log of a server."""
    node.client.bgrewriteaof()
    wait_until(lambda: not node.client.info("persistence")["aof_rewrite_in_progress"], "the rewrite")


LOGGED = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_rules_survive_a_kill_a_rewrite_and_a_snapshot(tmp_path: Path, preamble: str) -> None:
    node = Node("headrace", tmp_path, *LOGGED, "--aof-use-rdb-preamble", preamble)
    try:
        prepare(node.client)
        expected = rules(node.client)
        assert None not in expected
        for end in ("kill", "rewrite", "save"):
            before = state(node.client)
            if end == "rewrite":
                rewrite(node)
            elif end == "save":
                node.client.save()
            node.kill()
            node.start()
            assert (state(node.client), rules(node.client)) == (before, expected)
    finally:
        node.stop()


def test_redis_server_loads_the_log_and_has_the_same_data(tmp_path: Path) -> None:
    for preamble in ("yes", "no"):
        node = Node("headrace", tmp_path / preamble, *LOGGED, "--aof-use-rdb-preamble", preamble)
        try:
            prepare(node.client)
            for name in ("log", "rewritten log"):
                if name == "rewritten log":
                    rewrite(node)
                copy = tmp_path / f"{name} {preamble}"
                shutil.copytree(node.directory, copy)
                with redis_server(copy, "--appendonly", "yes") as port, redis.Redis(port=port) as reader:
                    assert state(reader) == state(node.client)
        finally:
            node.stop()


def test_replicas_of_both_kinds_have_the_same_data(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (primary, replica, redis_replica):
        for node in (replica, redis_replica):
            node.follow(primary.port)
            node.wait_for(primary)
        prepare(primary.client)
        for node in (replica, redis_replica):
            node.wait_for(primary)
            assert state(node.client) == state(primary.client)
        assert rules(replica.client) == rules(primary.client)
        primary.kill()
        replica.client.replicaof("NO", "ONE")
        for number in range(20):
            replica.client.xadd("s", {"n": number})
            for _, entries in replica.client.xreadgroup("g", "ann", {"s": ">"}):
                replica.client.xack("s", "g", *[entry for entry, _ in entries])
        wait_until(lambda: replica.client.xlen("s") <= 10, "the limit at the promoted replica")
