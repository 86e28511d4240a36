"""A primary and its replicas as processes: each pair of Headrace and redis-server."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from replication.nodes import PAIRS, PAIRS_OF_REDIS_8, Node, nodes
from replication.writing import fill, write
from support.waiting import wait_until

pytestmark = pytest.mark.whole
ECHO = "#!lua name=l\nredis.register_function('echo', function(keys, args) return args[1] end)"


@pytest.fixture(params=PAIRS, ids=" to ".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    with nodes(tmp_path, *request.param) as (primary, replica):
        yield primary, replica


def check_equal(primary: Node, replica: Node, *, exact: bool = False, busy_only: bool = False) -> None:
    replica.wait_for(primary)
    ours, theirs = [node.state(exact=exact, busy_only=busy_only) for node in (replica, primary)]
    assert ours == theirs


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_a_replica_has_all_data_of_its_primary(pair: tuple[Node, Node], diskless: str) -> None:
    primary, replica = pair
    primary.client.config_set("repl-diskless-sync", diskless)
    fill(primary)
    replica.client.set("old", "data")
    replica.follow(primary.port)
    check_equal(primary, replica, exact=primary.kind == replica.kind)
    assert len(replica.state()) == 5
    with redis.Redis(port=primary.port, db=2) as client:
        client.xadd("elsewhere", {"a": 2})
    check_equal(primary, replica)
    assert primary.syncs()[0] == 1


@pytest.mark.parametrize("pair", PAIRS + PAIRS_OF_REDIS_8, indirect=True, ids=" to ".join)
def test_random_commands_have_the_same_result(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    writers = [threading.Thread(target=write, args=(primary.port, seed, 600)) for seed in (1, 2)]
    writers[0].start()
    replica.follow(primary.port)
    writers[1].start()
    for writer in writers:
        writer.join()
    wait_until(lambda: replica.replication().get("master_link_status") == "up")
    write(primary.port, 3, 300)
    replica.wait_for(primary)
    busy_only = primary.kind != "headrace"
    ours, theirs = replica.state(busy_only=busy_only), primary.state(busy_only=busy_only)
    assert ours.keys() == theirs.keys()
    assert primary.replication()["master_repl_offset"] > 1000
    for key, value in theirs.items():
        assert ours[key] == value, key


def test_transactions_messages_and_blocked_readers(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    replica.follow(primary.port)
    replica.wait_for(primary)
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(replica.client.xread({"s": "$"}, block=60_000)))
    with redis.Redis(port=replica.port) as other, other.pubsub() as subscriber:
        subscriber.subscribe("news")
        assert subscriber.get_message(timeout=10) is not None
        subscriber.ssubscribe("news")
        assert subscriber.get_message(timeout=10) is not None
        reader.start()
        wait_until(lambda: other.info("clients")["blocked_clients"] == 1)
        transaction = primary.client.pipeline()
        transaction.xadd("s", {"a": 1}, id="5-0").set("k", "v").execute()
        primary.client.spublish("news", "to the shard channel")
        primary.client.publish("news", "hello")
        reader.join(60)
        assert found == [[[b"s", [(b"5-0", {b"a": b"1"})]]]]
        messages: list[object] = []
        while len(messages) < 2:
            message = subscriber.get_message(timeout=10)
            if message is not None:
                messages.append((message["type"], message["data"]))
        assert messages == [("smessage", b"to the shard channel"), ("message", b"hello")]
        with pytest.raises(redis.ReadOnlyError):
            other.xadd("s", {"a": 2})
        with pytest.raises(redis.ReadOnlyError):
            other.xreadgroup("g", "c", {"s": ">"})
    check_equal(primary, replica)


def test_a_cut_link_continues_where_it_was(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    fill(primary)
    replica.follow(primary.port)
    replica.wait_for(primary)
    for cut in range(6):
        writer = threading.Thread(target=write, args=(primary.port, 10 + cut, 80))
        writer.start()
        time.sleep(0.02 * cut)
        primary.client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        writer.join()
    check_equal(primary, replica, busy_only=primary.kind != "headrace")
    full, partial = primary.syncs()
    assert full == 1 and partial >= 1


def test_a_primary_and_its_replica_change_roles(pair: tuple[Node, Node]) -> None:
    first, second = pair
    fill(first)
    second.follow(first.port)
    second.wait_for(first)
    second.promote()
    second.client.xadd("big", {"new": 1})
    first.follow(second.port)
    check_equal(second, first)
    assert second.syncs() == (0, 1), "the former primary continued"
    with pytest.raises(redis.ReadOnlyError):
        first.client.set("a", 1)


def test_wait_counts_replicas(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    assert primary.client.execute_command("WAIT", 1, 10) == 0
    replica.follow(primary.port)
    replica.wait_for(primary)
    with redis.Redis(port=primary.port, single_connection_client=True) as client:
        for n in range(20):
            client.xadd("s", {"n": n})
            assert client.execute_command("WAIT", 1, 60_000) == 1
            assert replica.client.xlen("s") == n + 1
        replica.process.send_signal(19)  # SIGSTOP
        client.xadd("s", {"n": 20})
        assert client.execute_command("WAIT", 1, 100) == 0
        replica.process.send_signal(18)  # SIGCONT
        assert client.execute_command("WAIT", 1, 60_000) == 1


def test_writes_need_enough_replicas(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        primary.client.config_set("min-replicas-to-write", 1)
        primary.client.config_set("min-replicas-max-lag", 2)
        wait_until(lambda: rejection(primary, "NOREPLICAS"))
        replica.follow(primary.port)
        wait_until(lambda: not rejection(primary, "NOREPLICAS"))
        replica.kill()
        wait_until(lambda: rejection(primary, "NOREPLICAS"))


def rejection(node: Node, word: str) -> bool:
    """Whether a write is rejected with an error that begins with the word."""
    try:
        node.client.set("a", 1)
    except redis.ResponseError as error:
        return str(error).startswith(word)
    return False


def test_a_chain_follows_its_head_and_survives_a_promotion(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "headrace") as (head, middle, tail):
        fill(head)
        middle.follow(head.port)
        middle.wait_for(head)
        tail.follow(middle.port)
        write(head.port, 5, 200)
        middle.wait_for(head)
        check_equal(head, tail)
        head.kill()
        middle.promote()
        middle.client.xadd("big", {"after": 1})
        check_equal(middle, tail)
        assert middle.syncs() == (1, 1)


@pytest.mark.parametrize("transaction", [False, True])
def test_writes_just_before_a_change_of_role_are_not_kept_silently(tmp_path: Path, transaction: bool) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (old, new):
        fill(old)
        new.follow(old.port)
        new.wait_for(old)
        new.promote()
        batch = old.client.pipeline(transaction=transaction)
        batch.xadd("s", {"a": 1}).execute_command("REPLICAOF", "127.0.0.1", new.port)
        batch.execute()
        check_equal(new, old)
        assert new.syncs()[0] == 1, "the new primary never had the entry"


def test_a_snapshot_names_the_position_of_its_data(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", options=("--appendonly", "no")) as (primary, replica):
        fill(primary)
        replica.follow(primary.port)
        replica.wait_for(primary)
        replica.process.send_signal(19)  # SIGSTOP
        primary.client.pipeline(transaction=False).xadd("s", {"a": 1}).save().execute()
        primary.kill()
        primary.start()
        replica.process.send_signal(18)  # SIGCONT
        check_equal(primary, replica)
        assert replica.client.xlen("s") == 1


def test_the_head_of_a_chain_sends_what_its_last_replica_knows(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", "redis") as (head, middle, tail):
        fill(head)
        middle.follow(head.port)
        middle.wait_for(head)
        tail.follow(middle.port)
        tail.wait_for(middle)
        head.client.execute_command("XACKDEL", "big", "g", "IDS", 2, "3-0", "4-0")
        head.client.execute_command("XDELEX", "big", "DELREF", "IDS", 1, "5-0")
        middle.wait_for(head)
        check_equal(head, tail)
        assert not head.client.xrange("big", "3-0", "5-0")


def test_a_rejected_failover_leaves_the_primary_in_place(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (first, second):
        second.follow(first.port)
        second.wait_for(first)
        second.client.execute_command("ACL", "SETUSER", "default", "-psync")
        first.client.execute_command("FAILOVER", "TIMEOUT", 30_000)
        wait_until(lambda: "is the primary again" in first.log())
        first.client.xadd("s", {"a": 1})
        assert first.replication()["role"] == "master"


@pytest.mark.parametrize("kind", ["headrace", "redis", "valkey"])
def test_a_killed_replica_comes_back(tmp_path: Path, kind: str) -> None:
    with nodes(tmp_path, "headrace", kind) as (primary, replica):
        fill(primary)
        replica.options += ["--replicaof", f"127.0.0.1 {primary.port}"]
        replica.kill()
        primary.client.xadd("big", {"meanwhile": 1})
        replica.start()
        check_equal(primary, replica)


@pytest.mark.parametrize("options", [("--appendonly", "no", "--save", "3600 1"), ()], ids=["snapshot", "log"])
def test_replicas_continue_after_a_restart_of_their_primary(tmp_path: Path, options: tuple[str, ...]) -> None:
    with nodes(tmp_path, "headrace", "headrace", options=options) as (primary, replica):
        fill(primary)
        replica.follow(primary.port)
        replica.wait_for(primary)
        write(primary.port, 6, 100)
        primary.stop()
        primary.start()
        primary.client.xadd("big", {"after": 1})
        check_equal(primary, replica)
        assert primary.syncs() == (0, 1)


def test_a_shutdown_waits_for_replicas(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        replica.process.send_signal(19)  # SIGSTOP
        primary.client.xadd("s", {"a": 1})
        primary.process.terminate()
        wait_until(lambda: "the shutdown waits for 1 replica" in primary.log())
        assert primary.process.poll() is None
        replica.process.send_signal(18)  # SIGCONT
        assert primary.process.wait(60) == 0
        assert replica.client.xlen("s") == 1


def test_a_shutdown_that_waits_for_replicas_is_not_unblocked_but_aborted(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        replica.process.send_signal(19)  # SIGSTOP
        primary.client.xadd("s", {"a": 1})
        with redis.Redis(port=primary.port, single_connection_client=True) as waiting:
            number = waiting.client_id()
            waiting.connection.send_command("SHUTDOWN")
            wait_until(lambda: "the shutdown waits for 1 replica" in primary.log())
            assert primary.client.info("clients")["blocked_clients"] == 1
            assert primary.client.execute_command("CLIENT", "UNBLOCK", number) == 0
            primary.client.execute_command("SHUTDOWN", "ABORT")
            with pytest.raises(redis.ResponseError, match="SHUTDOWN"):
                waiting.connection.read_response()
        replica.process.send_signal(18)  # SIGCONT


def test_failover_hands_the_role_to_a_replica(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (first, second):
        with pytest.raises(redis.ResponseError, match="FAILOVER requires connected replicas"):
            first.client.execute_command("FAILOVER")
        fill(first)
        second.follow(first.port)
        second.wait_for(first)
        first.client.execute_command("FAILOVER")
        wait_until(lambda: second.replication()["role"] == "master")
        wait_until(lambda: first.replication()["master_failover_state"] == "no-failover")
        second.client.xadd("big", {"new": 1})
        check_equal(second, first)


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_only_streams_and_strings_are_mirrored(tmp_path: Path, kind: str) -> None:
    with nodes(tmp_path, kind, "headrace") as (primary, replica):
        fill(primary)
        client = primary.client
        client.rpush("list", *range(2000))
        client.hset("hash", mapping={"a": 1, "b": 2})
        client.sadd("set", 1, 2, 3)
        client.zadd("sorted", {"a": 1.5, "b": float("inf")})
        replica.client.set("old", "data")
        replica.follow(primary.port)
        wait_until(lambda: "replica-skip-foreign-types" in replica.log())
        assert replica.client.get("old") == b"data"
        replica.client.config_set("replica-skip-foreign-types", "yes")
        replica.follow(primary.port)
        replica.promote()
        replica.follow(primary.port)
        wait_until(lambda: replica.replication().get("master_link_status") == "up")
        client.lpush("list", "more")
        client.delete("set")
        client.xadd("big", {"after": 1})
        replica.wait_for(primary)
        mirrored = {key: value for key, value in primary.state().items() if value[1] is not None}
        assert replica.state() == {
            key: value for key, value in mirrored.items() if key[1] not in (b"list", b"hash", b"sorted")
        }


def test_what_is_no_primary_gives_a_clear_state(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace", options=("--masterauth", "wrong")) as (node, other):
        node.client.set("a", 1)
        node.follow(node.port)  # itself
        wait_until(lambda: node.replication()["role"] == "slave")
        assert node.client.get("a") == b"1"
        node.follow(1)
        wait_until(lambda: "127.0.0.1:1" in node.log())
        other.client.config_set("requirepass", "right")
        node.follow(other.port)
        wait_until(lambda: "masterauth" in node.log())
        assert node.replication()["master_link_status"] == "down"
        assert node.client.get("a") == b"1"


def test_redis_cli_takes_a_snapshot(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace") as (primary,):
        fill(primary)
        file = tmp_path / "copy" / "dump.rdb"
        file.parent.mkdir()
        run = subprocess.run(
            ["redis-cli", "-p", str(primary.port), "--rdb", str(file)], capture_output=True, timeout=60
        )
        assert run.returncode == 0, run
        expected = primary.state()
        copy = Node("redis", file.parent)
        assert copy.state() == expected
        copy.stop()


@pytest.mark.parametrize("kind", ["headrace", "redis", "redis 8"])
def test_redis_cli_takes_the_functions_alone(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("lupa.luajit21")
    file = tmp_path / "copy" / "dump.rdb"
    file.parent.mkdir()
    with nodes(tmp_path, "headrace") as (primary,):
        fill(primary)
        primary.client.function_load(ECHO)
        words = ["redis-cli", "-p", str(primary.port), "--functions-rdb", str(file)]
        run = subprocess.run(words, capture_output=True, timeout=60)
        assert run.returncode == 0, run
    copy = Node(kind, file.parent)
    try:
        assert copy.client.fcall("echo", 0, "heard") == b"heard"
        assert copy.client.dbsize() == 0
    finally:
        copy.stop()
