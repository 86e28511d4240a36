"""The remote backend in a cluster and with Sentinel: moving slots, dying masters. Real redis-servers."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import redis

import headrace
from headrace.api.remote_backend import RemoteBackend
from headrace.client.redis_clients import redis_client_of
from headrace.errors import ConnectionLost, CrossSlot, UsageError
from support.redis_cluster import Cluster, SentinelSetup


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


def slot_of(cluster: Cluster, stream: str) -> int:
    return int(cluster.client.keyslot(stream))


def test_streams_are_where_their_owners_are(cluster: Cluster) -> None:
    with headrace.connect(cluster.url) as db:
        names = [cluster.stream_of(master, "spread") for master in cluster.masters]
        for n, name in enumerate(names):
            stream = db.stream(name)
            first = stream.add({"n": n})
            stream.add_many([{"n": n}, {"n": n}])
            assert len(stream.read("0")) == len(list(stream)) == 3 and stream[first]["n"] == b"%d" % n
        assert {stream.name for stream in db.streams("spread*")} == set(names)
        lengths = db.backend.request_all([(b"XLEN", name.encode()) for name in names * 3])
        assert lengths == [3] * 9
        for master, name in zip(cluster.masters, names, strict=True):
            assert master.client.xlen(name) == 3
        with pytest.raises(CrossSlot):
            db.backend.request_all(
                [(b"XADD", name.encode(), b"*", b"a", b"b") for name in names], atomic=True
            )


def test_a_slot_that_moves_is_followed(cluster: Cluster) -> None:
    origin, target = cluster.masters[0], cluster.masters[1]
    name = cluster.stream_of(origin, "moving")
    slot = slot_of(cluster, name)
    backend = RemoteBackend(redis.RedisCluster("127.0.0.1", origin.port))
    stream = headrace.Stream(backend, name)
    stream.add({"n": 0})
    target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(origin))
    origin.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(target))
    assert len(stream) == 1  # still there
    origin.client.migrate("127.0.0.1", target.port, name, 0, 5000)
    stream.add({"n": 1})  # ASK
    assert backend.request_all([(b"XLEN", name.encode()), (b"XLEN", name.encode())]) == [2, 2]
    assert len(stream.add_many([{"n": 2}, {"n": 3}])) == 2
    for node in (target, origin):
        node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(target))
    stream.add({"n": 4})  # MOVED
    assert [int(entry["n"]) for entry in stream] == [0, 1, 2, 3, 4]
    assert target.client.xlen(name) == 5
    backend.close()


def test_a_group_is_worked_through_on_every_shard_while_its_stream_moves(cluster: Cluster) -> None:
    with headrace.connect(cluster.url) as db:
        for n, origin in enumerate(cluster.masters):
            target = cluster.masters[(n + 1) % 3]
            stream = db.stream(cluster.stream_of(origin, "work"))
            keys = [stream.name, f"{{{stream.name}}}:dead"]
            slot = slot_of(cluster, stream.name)
            stream.add_many({"n": n} for n in range(40))
            group = stream.group("g", max_deliveries=1)
            seen = []
            for entry in group.consumer("one", fetch_count=5, block=0.1):
                seen.append(int(entry["n"]))
                if len(seen) == 5:
                    entry.fail("the dead letters move, too")
                if len(seen) == 12:
                    target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(origin))
                    origin.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(target))
                    origin.client.migrate("127.0.0.1", target.port, keys, 0, 5000)
                if len(seen) == 20:
                    entry.fail("while it moves")
                if len(seen) == 28:
                    for node in (target, origin):
                        node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", cluster.id(target))
            assert seen == list(range(40))
            assert group.info().pending == 0 and target.client.xlen(stream.name) == 40
            assert [int(letter["n"]) for letter in group.dead_letters] == [4, 19]
            assert group.dead_letters.retry() == 2


def test_in_a_cluster_a_lease_that_is_over_is_taken_over(cluster: Cluster) -> None:
    with headrace.connect(cluster.url) as db:
        for master in cluster.masters:
            stream = db.stream(cluster.stream_of(master, "lease"))
            stream.add_many({"n": n} for n in range(6))
            group = stream.group("g", lease=0.1, create=True)
            master.client.xreadgroup("g", "dead", {stream.name: ">"}, count=4)
            taken = {int(entry["n"]): entry.times_delivered for entry in group.consumer("two", block=0.3)}
            assert taken == {0: 2, 1: 2, 2: 2, 3: 2, 4: 1, 5: 1}
            assert group.info().pending == 0


def test_a_node_asked_as_if_it_were_alone_says_so_at_once(cluster: Cluster) -> None:
    name = cluster.stream_of(cluster.masters[1])
    with headrace.connect(f"redis://127.0.0.1:{cluster.masters[0].port}") as db:
        for call in (lambda: db.stream(name).add({"n": 0}), lambda: db.stream(name).add_many([{"n": 0}] * 2)):
            with pytest.raises(UsageError, match="use cluster://"):
                call()


def test_a_script_is_run_where_its_key_is(cluster: Cluster) -> None:
    with headrace.connect(cluster.url) as db:
        for master in cluster.masters:
            name = cluster.stream_of(master)
            script = "return redis.call('SET', KEYS[1], ARGV[1])"
            assert db.execute("EVAL", script, 1, name, "x") == b"OK"
            assert master.client.get(name) == b"x"
        assert db.execute("EVAL", "return 7", 0) == 7


def test_a_master_that_a_sentinel_replaces(tmp_path: pathlib.Path) -> None:
    servers = SentinelSetup(tmp_path)
    try:
        with headrace.connect(servers.url) as db:
            stream = db.stream("s")
            id = stream.add({"n": 1})
            servers.master.wait_for(servers.replica)
            servers.master.kill()
            assert [entry.id for entry in stream] == [id]
            stream.add({"n": 2})
            assert servers.replica.client.xlen("s") == 2
    finally:
        servers.close()


def test_clients_of_the_same_servers(cluster: Cluster, server_url: str) -> None:
    with redis_client_of(cluster.url, decode_responses=True) as far:
        assert far.set("k", "v") and far.get("k") == "v"
    with redis_client_of(server_url, decode_responses=True) as far:
        assert far.set("k", "v") and far.get("k") == "v"


def test_a_replica_that_a_sentinel_still_names_is_not_used(tmp_path: pathlib.Path) -> None:
    servers = SentinelSetup(tmp_path)
    try:
        rules = {"enabled": True, "passwords": ["+p"], "keys": ["*"], "commands": ["+@all", "-role"]}
        servers.master.client.acl_setuser("u", **rules)
        with headrace.connect(servers.url.replace("//", "//u:p@"), reconnect_timeout=0) as db:
            assert db.stream("s").add({"n": 1}), "a user that may not ask for the role trusts the Sentinel"
        servers.master.client.replicaof("127.0.0.1", servers.replica.port)
        with headrace.connect(servers.url, reconnect_timeout=0) as db, pytest.raises(ConnectionLost):
            list(db.stream("s"))
    finally:
        servers.close()
