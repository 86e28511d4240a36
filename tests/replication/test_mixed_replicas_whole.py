"""Replicas of both kinds, Headrace and others, behind one server, as processes; and backups of it."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest
import redis

from replication.nodes import Node, nodes
from replication.writing import fill, write
from support.waiting import wait_until

pytestmark = pytest.mark.whole
NEWER = [
    ("XACKDEL", "s", "g", "DELREF", "IDS", 1, "1-0"),
    ("XNACK", "s", "g", "FAIL", "IDS", 2, "2-0", "3-0"),
    ("XDELEX", "s", "DELREF", "IDS", 1, "3-0"),
    ("XADD", "s", "MAXLEN", 6, "ACKED", "IDMP", "shop", "order-1", "*", "f", "v"),
    ("MOVE", "k", 1),
    ("COPY", "s", "copy", "DB", 1),
]


def prepare(node: Node) -> None:
    """Add ten entries, of which the first five are pending."""
    for number in range(1, 11):
        node.client.xadd("s", {"n": number}, id=f"{number}-0")
    node.client.xgroup_create("s", "g", "0")
    node.client.xreadgroup("g", "ann", {"s": ">"}, count=5)
    node.client.set("k", "v")


def add_once(node: Node, iid: str) -> bytes:
    """Add an entry as an idempotent request; return its ID."""
    found: bytes = node.client.execute_command("XADD", "s", "IDMP", "shop", iid, "*", "f", iid)
    return found


def back_up(node: Node, directory: Path) -> None:
    command = ["redis-cli", "-p", str(node.port), "--rdb", str(directory / "backup.rdb")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def bytes_sent(node: Node, *command: object) -> int:
    """Return by how much the stream grows when the command runs."""
    before = node.replication()["master_repl_offset"]
    node.client.execute_command(*command)
    return int(node.replication()["master_repl_offset"] - before)


@pytest.mark.parametrize("transaction", [False, True])
def test_all_replicas_have_all_keys_when_wait_confirms_them(tmp_path: Path, transaction: bool) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (primary, *replicas):
        prepare(primary)
        for replica in replicas:
            replica.follow(primary.port)
            replica.wait_for(primary)
        with primary.client.pipeline(transaction=transaction) as batch:
            for command in NEWER:
                batch.execute_command(*command)
            replies = batch.execute_command("WAIT", 2, 60_000).execute()
        assert replies[4:6] == [1, 1]
        state = primary.state()
        assert state.keys() == {(0, b"s"), (1, b"k"), (1, b"copy")}
        for replica in replicas:
            replica.wait_for(primary)
            assert replica.state() == state


def test_replicas_of_both_kinds_follow_random_commands_over_cut_links(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (primary, *replicas):
        fill(primary)
        for replica in replicas:
            replica.follow(primary.port)
            replica.wait_for(primary)
        for seed in range(3):
            writer = threading.Thread(target=write, args=(primary.port, seed, 300))
            writer.start()
            primary.client.execute_command("CLIENT", "KILL", "TYPE", "replica")
            writer.join()
        for replica in replicas:
            replica.wait_for(primary)
            assert replica.state() == primary.state()
        assert primary.syncs()[0] <= 2, "both continued"


def test_a_backup_leaves_the_stream_as_it_is(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        prepare(primary)
        replica.follow(primary.port)
        replica.wait_for(primary)
        nack = ("XNACK", "s", "g", "FAIL", "IDS", 1)
        before = bytes_sent(primary, *nack, "2-0")
        for node in (primary, replica):
            back_up(node, tmp_path)
        assert bytes_sent(primary, *nack, "3-0") == before
        replica.wait_for(primary)
        assert (primary.syncs(), replica.syncs()) == ((2, 0), (1, 0)), "the link was not cut"
        assert replica.state() == primary.state()


def test_the_stream_is_translated_for_as_long_as_a_replica_needs_it(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (primary, replica, other):
        prepare(primary)
        for node in (replica, other):
            node.follow(primary.port)
            node.wait_for(primary)
        add = ("XADD", "s", "KEEPREF", "*", "f", "v")
        primary.client.execute_command(*add)  # after a SELECT in the stream
        translated = bytes_sent(primary, *add)
        other.kill()
        wait_until(lambda: primary.replication()["connected_slaves"] == 1)
        assert bytes_sent(primary, *add) == translated, "it may come back"
        primary.client.config_set("repl-backlog-size", 16384)
        for number in range(20):
            primary.client.set("filler", b"x" * 10_000 + b"%d" % number)
        wait_until(lambda: bytes_sent(primary, *add) > translated)
        replica.wait_for(primary)
        assert replica.state() == primary.state()


def test_a_replica_keeps_its_idempotency_records_beside_and_before_others(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (primary, replica, other):
        replica.follow(primary.port)
        replica.wait_for(primary)
        added = [add_once(primary, "a")]
        other.follow(replica.port)
        other.wait_for(replica)
        added.append(add_once(primary, "b"))
        other.promote()
        wait_until(lambda: replica.replication()["connected_slaves"] == 0)
        added.append(add_once(primary, "c"))
        other.follow(primary.port)
        other.wait_for(primary)
        replica.promote()
        replica.follow(primary.port)
        added.append(add_once(primary, "d"))
        for node in (replica, other):
            node.wait_for(primary)
            assert node.state() == primary.state()
        primary.kill()
        replica.promote()
        assert [add_once(replica, iid) for iid in "abcd"] == added


def test_the_links_of_a_chain_stay_when_its_last_replica_is_older(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "headrace", "redis") as (head, second, third, tail):
        prepare(head)
        for node, primary in ((second, head), (third, second), (tail, third)):
            node.follow(primary.port)
            node.wait_for(primary)
        for command in NEWER:
            head.client.execute_command(*command)
        for node in (second, third, tail):
            node.wait_for(head)
            assert node.state() == head.state()
        assert [node.syncs() for node in (head, second, third)] == [(1, 0)] * 3
        tail.promote()
        wait_until(lambda: third.replication()["connected_slaves"] == 0)
        head.client.execute_command("XACKDEL", "s", "g", "IDS", 1, "5-0")
        third.wait_for(head)
        assert third.state() == head.state()


@pytest.mark.parametrize("kind", ["redis", "headrace"])
def test_a_replica_translates_what_a_newer_redis_sends(tmp_path: Path, kind: str) -> None:
    with nodes(tmp_path, "redis 8", "headrace", "redis", kind) as (head, middle, *tails):
        prepare(head)
        middle.follow(head.port)
        middle.wait_for(head)
        for tail in tails:
            tail.follow(middle.port)
            tail.wait_for(middle)
        head.client.xadd("s", {"n": 11}, id="11-0")
        for tail in tails:
            tail.wait_for(middle)
        assert middle.replication()["master_replid"] == head.replication()["master_replid"]
        head.client.execute_command("XACKDEL", "s", "g", "DELREF", "IDS", 2, "1-0", "2-0")
        wait_until(lambda: "has sent XACKDEL" in middle.log())
        head.client.execute_command("XADD", "s", "KEEPREF", "12-0", "n", 12)
        with tails[0].client.pubsub() as subscriber:
            subscriber.subscribe("news")
            assert subscriber.get_message(timeout=10) is not None
            for tail in tails:
                tail.wait_for_link()
            head.client.publish("news", "hello")
            message = subscriber.get_message(timeout=10)
            assert message is not None and message["data"] == b"hello"
        wait_until(lambda: all(tail.state() == head.state() for tail in tails))
        assert head.state() == middle.state() and middle.client.xlen("s") == 10
        assert middle.syncs()[0] == 2 * len(tails)
        restart_and_promote(head, middle, tails)


def restart_and_promote(head: Node, middle: Node, tails: list[Node]) -> None:
    """Check that the one in the middle continues after a restart, and then as a primary."""
    middle.options += ["--replicaof", f"127.0.0.1 {head.port}"]
    middle.stop()
    middle.start()
    middle.wait_for_link()
    assert head.syncs()[1] == 1, "it knew its position"
    head.client.execute_command("XADD", "s", "KEEPREF", "13-0", "n", 13)
    wait_until(lambda: all(tail.state() == head.state() for tail in tails))
    middle.promote()
    add_once(middle, "e")
    for tail in tails:
        tail.wait_for(middle)
        assert tail.state() == middle.state()


def test_a_count_of_entries_read_is_limited_as_by_redis_8(tmp_path: Path) -> None:
    with nodes(tmp_path, "redis 8", "headrace", "headrace") as (head, middle, tail):
        head.client.xadd("s", {"n": 1}, id="1-0")
        for node, primary in ((middle, head), (tail, middle)):
            node.follow(primary.port)
            node.wait_for(primary)
        head.client.execute_command("XGROUP", "CREATE", "s", "g", "$", "ENTRIESREAD", 1000)
        head.client.execute_command("XGROUP", "SETID", "s", "g", "$", "ENTRIESREAD", 77)
        head.client.execute_command("XGROUP", "CREATE", "new", "g", "$", "MKSTREAM", "ENTRIESREAD", 3)
        head.client.xadd("s", {"n": 2}, id="2-0")
        for node in (middle, tail):
            node.wait_for(head)
            for key in ("s", "new"):
                assert groups_of(node, key) == groups_of(head, key)
        assert groups_of(head, "s")[0][b"lag"] == 1


def groups_of(node: Node, key: str) -> list[dict[bytes, object]]:
    with redis.Redis(port=node.port) as client:
        found: list[dict[bytes, object]] = client.execute_command("XINFO", "GROUPS", key)
    return found
