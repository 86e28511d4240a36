"""What a server says of its replication, compared with redis-server; and primaries that are none."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from headrace.cli.commands.top import request_sender
from headrace.console.exposition import exposition
from headrace.console.replication_picture import replication_lines
from headrace.console.server_stats import ServerStats, collect_stats
from replication.nodes import Node, Raw, nodes
from replication.writing import fill
from support.waiting import wait_until

pytestmark = pytest.mark.whole

# Fields of INFO replication that redis-server shows of a replica, and Headrace does not.
SINCE_REDIS_8 = [
    "replica_full_sync_buffer_size",  # 8.0
    "replica_full_sync_buffer_peak",
    "master_current_sync_attempts",  # 8.2
    "master_total_sync_attempts",
    "master_link_up_since_seconds",
    "total_disconnect_time_sec",
]


def shape(value: Any) -> Any:
    """Return a reply with its numbers and texts replaced by their types."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """A primary and its replica of each kind."""
    with nodes(tmp_path_factory.mktemp("four"), "headrace", "headrace", "redis", "redis") as made:
        yield made


def test_reports_have_the_form_of_redis(four: list[Node]) -> None:
    primary, replica, redis_primary, redis_replica = four
    redis_primary.client.config_set("min-replicas-to-write", 1)
    primary.client.config_set("min-replicas-to-write", 1)
    assert all_reports(primary) == all_reports(redis_primary)
    for first, second in ((primary, replica), (redis_primary, redis_replica)):
        first.client.config_set("min-replicas-to-write", 0)
        second.follow(first.port)
        second.wait_for(first)
        first.client.xadd("s", {"a": 1})
        assert first.client.wait(1, 60_000) == 1
    assert all_reports(primary) == all_reports(redis_primary)
    assert all_reports(replica) == all_reports(redis_replica)
    for node in four:
        named = b"master" if node in (primary, redis_primary) else b"replica"
        assert node.client.execute_command("HELLO")[b"role"] == named
    role = replica.client.role()
    assert role[1:4] == [b"127.0.0.1", primary.port, b"connected"]
    role = primary.client.role()
    assert role[2][0][:2] == [b"127.0.0.1", b"%d" % replica.port]
    row = primary.replication()["slave0"]
    assert row["port"] == replica.port and row["state"] == "online"
    wait_until(lambda: has_acknowledged_all(primary.replication()))
    for second, port in ((replica, 1), (redis_replica, 1)):
        second.follow(port)
        wait_until(lambda second=second: second.client.role()[3] in (b"connect", b"connecting"))
    assert all_reports(replica) == all_reports(redis_replica)
    for node in (replica, redis_replica):
        node.promote()
    assert all_reports(replica) == all_reports(redis_replica)


def has_acknowledged_all(info: dict[str, Any]) -> bool:
    """Whether the replica has acknowledged the stream to its end; WAIT itself adds a request to it."""
    offset: int = info["slave0"]["offset"]
    return offset == info["master_repl_offset"]


def all_reports(node: Node) -> Any:
    """Return the form of INFO replication, ROLE and CLIENT LIST TYPE replica."""
    flags = [row["flags"] for row in node.client.client_list(_type="replica")]
    role = node.client.role()
    shown = {name: shape(value) for name, value in node.replication().items()}
    for name in ("master_link_down_since_seconds", *SINCE_REDIS_8):  # the first: in Redis after a connection
        shown.pop(name, None)
    return shown, role[0], shape(role[:1] + role[2:] if role[0] == b"master" else role[:3]), flags


def test_the_link_to_a_primary_is_a_client_of_the_kind_master(four: list[Node]) -> None:
    for primary, replica in (four[:2], four[2:]):
        primary.promote()
        replica.follow(primary.port)
        replica.wait_for(primary)
        partial = primary.syncs()[1]
        client = replica.client
        for condition in ({"_type": "master"}, {"addr": f"127.0.0.1:{primary.port}"}):
            (row,) = client.client_list(_type="master")
            shown = [row[name] for name in ("addr", "flags", "user", "resp")]
            assert shown == [f"127.0.0.1:{primary.port}", "M", "(superuser)", "2"]
            assert row["cmd"] in ("NULL", "replconf")  # Redis 8: the primary asked for the offset
            assert [other["addr"] for other in client.client_list(client_id=[row["id"]])] == [row["addr"]]
            assert row["id"] not in [other["id"] for other in client.client_list(_type="normal")]
            synced = primary.syncs()[1]
            assert client.client_kill_filter(**condition) == 1
            wait_until(lambda primary=primary, synced=synced: primary.syncs()[1] == synced + 1)
            replica.wait_for(primary)
        assert primary.syncs()[1] == partial + 2
        replica.promote()
        assert client.client_list(_type="master") == []


def test_settings_apply_from_the_next_request_on(four: list[Node]) -> None:
    requests = [
        "REPLICAOF NO ONE",
        "CONFIG SET min-replicas-to-write 1",
        "SET a 1",
        "CONFIG SET min-replicas-to-write 0",
        "SET a 1",
        "CONFIG SET replica-serve-stale-data no",
        "REPLICAOF 127.0.0.1 1",
        "GET a",
        "PING",
        "CONFIG SET replica-serve-stale-data yes",
        "GET a",
        "SET a 2",
        "CONFIG SET replica-read-only no",
        "SET a 2",
        "CONFIG SET replica-read-only yes",
        "SET a 3",
        "REPLICAOF NO ONE",
        "SET a 4",
    ]
    found = []
    for node, replica in (four[:2], four[2:]):
        replica.promote()
        wait_until(lambda node=node: not node.client.role()[2])
        with Raw(node.port) as client:
            found.append([(request, str(client.request(*request.split()))) for request in requests])
    assert found[0] == found[1]
    assert len({reply for _, reply in found[0]}) > 4


def test_servers_that_are_no_primary_do_no_harm(four: list[Node]) -> None:
    _, node, _, _ = four
    node.promote()
    node.client.set("a", 1)
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\xff" * 5000, b"+PONG\r\n" * 500):
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            listener.settimeout(60)
            node.follow(listener.getsockname()[1])
            with closing(listener.accept()[0]) as connection:
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(60)
                while connection.recv(1000):
                    pass
            assert node.client.get("a") == b"1"
            assert node.replication()["master_link_status"] == "down"
            with pytest.raises(redis.ReadOnlyError):
                node.client.set("a", 2)
    node.client.execute_command("REPLICAOF", "no-such-host.invalid", 6379)
    wait_until(lambda: "no-such-host.invalid" in node.log())
    assert node.client.get("a") == b"1"
    node.promote()
    assert node.client.set("a", 2)


def test_two_servers_that_follow_each_other_still_answer(four: list[Node]) -> None:
    first, second, _, _ = four
    for node in (first, second):
        node.promote()
        node.client.set("own", node.port)
    first.follow(second.port)
    second.follow(first.port)
    time.sleep(1.5)
    for node in (first, second):
        assert node.client.ping() and node.client.exists("own") == 1
        assert node.replication()["role"] == "slave"
    first.promote()
    first.client.set("own", "first")
    second.wait_for(first)
    assert second.client.get("own") == b"first"


def test_redis_cli_shows_the_stream_of_a_primary(four: list[Node]) -> None:
    primary, other = four[:2]
    other.promote()
    primary.promote()
    wait_until(lambda: not primary.client.role()[2])
    fill(primary)
    command = ["redis-cli", "-p", str(primary.port), "--replica"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as cli:
        try:
            wait_until(lambda: primary.client.role()[2])
            primary.client.xadd("shown", {"a": "what redis-cli shows"})
            assert cli.stdout is not None
            while b"what redis-cli shows" not in (line := cli.stdout.readline()):
                assert line, "redis-cli ended"
        finally:
            cli.kill()
    wait_until(lambda: not primary.client.role()[2])


@pytest.mark.parametrize("kinds", [("headrace", "redis"), ("redis", "headrace"), ("headrace", "headrace")])
def test_transactions_change_databases_and_expired_keys_vanish(
    tmp_path: Path, kinds: tuple[str, str]
) -> None:
    with nodes(tmp_path, *kinds) as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        with Raw(primary.port) as client:
            client.request("SELECT", 2)
            for words in (
                ["MULTI"],
                ["XADD", "s", "1-1", "a", 1],
                ["SELECT", 1],
                ["XADD", "s", "2-2", "a", 2],
                ["SELECT", 0],
                ["SET", "a", 1, "PX", 300],
                ["SET", "b", 1, "PX", 3_600_000],
                ["SWAPDB", 0, 1],
                ["SET", "c", 1],
            ):
                client.request(*words)
            assert len(client.request("EXEC")) == 8
            client.request("XGROUP", "CREATE", "s", "g", 0, "MKSTREAM")
        replica.wait_for(primary)
        state, of_primary = replica.state(), primary.state()
        for found in (state, of_primary):
            found.pop((1, b"a"), None)  # it expires about now
        assert state == of_primary
        assert {(2, b"s"), (0, b"s"), (1, b"b"), (0, b"c")} == set(state)
        with redis.Redis(port=replica.port, db=1) as client:
            wait_until(lambda: client.get("a") is None)
        replica.client.config_set("replica-read-only", "no")
        with redis.Redis(port=replica.port, db=1) as client, redis.Redis(port=primary.port, db=1) as other:
            assert other.get("a") is None
            wait_until(lambda: client.dbsize() == 1)


def test_writes_wait_for_the_answer_of_a_slow_replica(tmp_path: Path) -> None:
    """WAIT of several clients is answered by one replica, also for those that come during the wait."""
    with nodes(tmp_path, "headrace", "redis", "headrace") as (primary, *replicas):
        for replica in replicas:
            replica.follow(primary.port)
            replica.wait_for(primary)
        found: list[int] = []

        def add_and_wait() -> None:
            with redis.Redis(port=primary.port, single_connection_client=True) as client:
                for number in range(10):
                    client.xadd("s", {"n": number})
                    found.append(client.wait(2, 60_000))

        threads = [threading.Thread(target=add_and_wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [2] * 80


def test_top_and_metrics_show_the_link(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "redis") as (primary, replica):
        assert picture(primary) == []
        for first, second in ((primary, replica), (replica, primary)):
            first.promote()
            second.follow(first.port)
            second.wait_for(first)
            first.client.xadd("s", {"a": 1})
            assert first.client.wait(1, 60_000) == 1
            wait_until(lambda first=first: first.replication()["slave0"]["lag"] == 0)
            assert picture(first)[0].startswith(f"replica 127.0.0.1:{second.port}   online   ")
            assert picture(second)[0].startswith(f"replica of 127.0.0.1:{first.port}   connected   last data")
            labels = f'slave_ip="127.0.0.1",slave_port="{second.port}",slave_state="online"'
            lag = f"redis_connected_slave_lag_seconds{{{labels}}} 0"
            wait_until(lambda first=first, lag=lag: lag in metrics(first))  # or 1, between two seconds
            labels = f'master_host="127.0.0.1",master_port="{first.port}"'
            assert f"redis_master_link_up{{{labels}}} 1" in metrics(second)
        replica.kill()
        wait_until(lambda: primary.replication()["master_link_status"] == "down")
        assert "no link" in picture(primary)[0]


def stats_of(node: Node) -> ServerStats:
    with request_sender(f"redis://127.0.0.1:{node.port}") as send:
        return collect_stats(send)


def picture(node: Node) -> list[str]:
    """The lines of `headrace top` about replication."""
    return [line.plain for line in replication_lines(stats_of(node).info)]


def metrics(node: Node) -> str:
    return exposition(stats_of(node))
