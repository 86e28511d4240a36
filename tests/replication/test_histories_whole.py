"""Servers that continue a history after a restart or a promotion, or behind another server."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.persistence.rule_records import rule_record
from replication.nodes import Node, nodes
from support.waiting import wait_until

pytestmark = pytest.mark.whole
SNAPSHOTS = ("--appendonly", "no", "--save", "3600 1")


def wait_until_expired(at_ms: int) -> None:
    wait_until(lambda: time.time() * 1000 > at_ms + 1)


def group_of(node: Node) -> dict[bytes, Any]:
    found: dict[bytes, Any] = node.client.execute_command("XINFO", "GROUPS", "s")[0]
    return found


def test_a_key_that_expires_while_its_primary_is_down_is_deleted_at_the_replica(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", options=SNAPSHOTS) as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        primary.client.xadd("s", {"old": 1})
        expires_ms = int(time.time() * 1000) + 300
        primary.client.pexpireat("s", expires_ms)
        replica.wait_for(primary)
        primary.stop()
        wait_until_expired(expires_ms)
        primary.start()
        primary.client.xadd("s", {"new": 1})
        replica.wait_for(primary)
        assert primary.syncs() == (0, 1)
        assert replica.client.xlen("s") == primary.client.xlen("s") == 1
        assert replica.state() == primary.state()


def test_a_key_kept_by_the_primary_while_a_replica_is_down_is_kept_there_too(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", options=SNAPSHOTS) as (primary, replica):
        replica.options += ["--replicaof", f"127.0.0.1 {primary.port}"]
        replica.follow(primary.port)
        replica.wait_for(primary)
        primary.client.xadd("s", {"a": 1})
        expires_ms = int(time.time() * 1000) + 3000
        primary.client.pexpireat("s", expires_ms)
        replica.wait_for(primary)
        replica.stop()
        primary.client.persist("s")
        wait_until_expired(expires_ms)
        replica.start()
        replica.wait_for(primary)
        assert primary.syncs() == (1, 1)
        assert replica.state() == primary.state() != {}


@pytest.mark.parametrize("killed", [False, True])
def test_a_replica_continues_from_its_log_unless_it_was_killed(tmp_path: Path, killed: bool) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        replica.options += ["--replicaof", f"127.0.0.1 {primary.port}"]
        replica.follow(primary.port)
        replica.wait_for(primary)
        for number in range(1, 20):
            primary.client.xadd("s", {"n": number}, id=f"{number}-0")
        primary.client.xgroup_create("s", "g", "0")
        primary.client.xreadgroup("g", "ann", {"s": ">"}, count=7)
        replica.wait_for(primary)
        replica.stop()
        primary.client.xack("s", "g", "1-0")
        replica.start()
        replica.wait_for(primary)
        assert primary.syncs() == (1, 1)
        primary.client.xadd("s", {"n": 20}, id="20-0")
        replica.wait_for(primary)
        replica.kill() if killed else replica.stop()
        primary.client.xadd("s", {"n": 21}, id="21-0")
        replica.start()
        replica.wait_for(primary)
        assert primary.syncs() == ((2, 1) if killed else (1, 2))
        assert replica.state() == primary.state() != {}


def test_a_primary_that_was_killed_after_a_restart_does_not_continue(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", options=("--appendfsync", "always")) as (primary, replica):
        replica.follow(primary.port)
        primary.client.xadd("s", {"n": 1})
        replica.wait_for(primary)
        primary.stop()
        primary.start()
        replica.wait_for(primary)
        assert primary.syncs() == (0, 1)
        primary.client.xadd("s", {"n": 2})
        replica.wait_for(primary)
        primary.kill()
        primary.start()
        primary.client.xadd("s", {"n": 3})
        replica.wait_for(primary)
        assert primary.syncs() == (1, 0)
        assert replica.state() == primary.state()


def test_a_transaction_that_is_cut_off_by_the_shutdown_is_applied_after_it(tmp_path: Path) -> None:
    """The position in the log of a replica is that of whole transactions."""
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        replica.options += ["--replicaof", f"127.0.0.1 {primary.port}"]
        replica.follow(primary.port)
        replica.wait_for(primary)
        for round_ in range(5):
            pipeline = primary.client.pipeline(transaction=True)
            for number in range(20_000):
                pipeline.xadd("s", {"n": number}, id=f"{round_ + 1}-{number}")
            pipeline.execute()
            replica.stop()
            assert primary.client.xlen("s") == 20_000 * (round_ + 1)
            replica.start()
        replica.wait_for(primary)
        assert primary.syncs() == (1, 5)
        assert replica.state() == primary.state()


def test_redis_reads_a_log_that_ends_in_a_position(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        replica.follow(primary.port)
        primary.client.xadd("s", {"n": 1})
        replica.wait_for(primary)
        state = primary.state()
        primary.stop()
        log = max(primary.directory.glob("appendonlydir/*.incr.aof"))
        assert log.read_bytes().splitlines()[-1].startswith(b"#REPL:0,")
        manifest = next(primary.directory.glob("appendonlydir/*.manifest"))
        subprocess.run(["redis-check-aof", str(manifest)], check=True, capture_output=True)
        with nodes(tmp_path / "other", "redis") as (server,):
            server.stop()
            shutil.copytree(log.parent, server.directory / "appendonlydir")
            server.options += ["--appendonly", "yes"]
            server.start()
            assert server.state() == state


def test_a_redis_that_returns_after_a_promotion_gets_only_what_it_knows(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (first, second, third):
        for replica in (second, third):
            replica.follow(first.port)
            replica.wait_for(first)
        for number in range(1, 5):
            first.client.xadd("s", {"n": number}, id=f"{number}-0")
        first.client.xgroup_create("s", "g", "0")
        first.client.xreadgroup("g", "ann", {"s": ">"})
        for replica in (second, third):
            replica.wait_for(first)
        second.promote()
        second.client.xadd("s", {"n": 5}, id="5-0")
        third.follow(second.port)
        third.wait_for(second)
        assert second.syncs() == (0, 1), "what was written so far is known to Redis"
        third.follow(first.port)
        wait_until(lambda: second.replication()["connected_slaves"] == 0)
        second.client.execute_command("XACKDEL", "s", "g", "IDS", 1, "1-0")
        third.follow(second.port)
        third.wait_for(second)
        assert third.state() == second.state()


def test_a_redis_gets_a_snapshot_if_it_missed_what_only_headrace_knows(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (first, second, third):
        for replica in (second, third):
            replica.follow(first.port)
            replica.wait_for(first)
        first.client.xadd("s", {"n": 1}, id="1-0")
        first.client.xgroup_create("s", "g", "0")
        first.client.xreadgroup("g", "ann", {"s": ">"})
        for replica in (second, third):
            replica.wait_for(first)
        second.promote()
        second.client.execute_command("XACKDEL", "s", "g", "IDS", 1, "1-0")
        first.kill()
        third.follow(second.port)
        third.wait_for(second)
        assert second.syncs() == (1, 0)
        assert third.state() == second.state()


def test_a_transaction_with_what_only_headrace_knows_reaches_every_replica(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (primary, *replicas):
        for replica in replicas:
            replica.follow(primary.port)
            replica.wait_for(primary)
        pipeline = primary.client.pipeline(transaction=True)
        pipeline.xadd("s", {"f": 1})
        pipeline.execute_command("XCFGSET", "s", "IDMP-DURATION", 1000)
        pipeline.execute_command("XADD", "s", "IDMP", "producer", "1", "*", "f", "v")
        first = pipeline.set("k", "v").execute()[2]
        for replica in replicas:
            replica.wait_for(primary)
            assert replica.state() == primary.state()
        replicas[0].promote()
        add = ("XADD", "s", "IDMP", "producer", "1", "*", "f", "v")
        assert replicas[0].client.execute_command(*add) == first, "the new primary knows the producer"


@pytest.mark.parametrize("behind", ["headrace", "restarted"])
def test_the_stream_of_a_redis_is_applied_in_the_same_way_everywhere(tmp_path: Path, behind: str) -> None:
    with nodes(tmp_path, "redis", "headrace", "headrace", options=("--appendonly", "no")) as servers:
        head, middle, tail = servers
        for number in range(1, 6):
            head.client.xadd("s", {"n": number}, id=f"{number}-0")
        head.client.xgroup_create("s", "g", "0")
        middle.follow(head.port)
        middle.wait_for(head)
        tail.follow(middle.port)
        tail.wait_for(middle)
        if behind == "restarted":
            middle.options += ["--save", "3600 1", "--replicaof", f"127.0.0.1 {head.port}"]
            middle.client.config_set("save", "3600 1")
            middle.stop()
            middle.start()
            middle.wait_for(head)
            assert head.syncs() == (1, 1)
        head.client.xreadgroup("g", "ann", {"s": ">"}, count=2)
        head.client.execute_command(*rule_record([b"XCFGSET", b"s", b"MAX-LEN", b"1"]))
        for replica in (middle, tail):
            replica.wait_for(head)
            assert group_of(replica)[b"entries-read"] == group_of(head)[b"entries-read"] == 2
            assert b"rules" not in replica.client.execute_command("XINFO", "STREAM", "s")
