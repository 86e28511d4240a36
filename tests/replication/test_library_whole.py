"""The library on servers with replicas: writes that wait for them, and reads from them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

import headrace
from headrace.errors import NotReplicated, UsageError
from replication.nodes import PAIRS, PAIRS_OF_VALKEY, Node, nodes
from replication.sentinel_group import sentinels, url_of_sentinels, wait_for_discovery
from support.waiting import wait_until

pytestmark = pytest.mark.whole


@pytest.fixture(params=[*PAIRS[:2], PAIRS_OF_VALKEY[0]], ids=" to ".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    with nodes(tmp_path, *request.param) as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        wait_until(lambda: primary.client.role()[2])
        yield primary, replica


def url_of(node: Node) -> str:
    return f"redis://127.0.0.1:{node.port}"


def test_a_write_waits_for_replicas(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    with headrace.connect(url_of(primary), wait_replicas=1, replicas_timeout=20) as db:
        orders = db.stream("orders")
        added = [orders.add({"n": 0}), *orders.add_many({"n": n} for n in range(1, 5))]
        if primary.kind == "headrace":
            added.append(orders.add({"n": 5}, idempotency=("p", "1")))
        assert [str(id) for id in added] == [id.decode() for id, _ in replica.client.xrange("orders")]
        replica.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(NotReplicated, match="is stored, but not yet copied: 0 of 1") as caught:
                orders.add({"n": 6}, wait_replicas=1, timeout=0.1)
            assert caught.value.ids == [primary.client.xrevrange("orders", count=1)[0][0]]
            with pytest.raises(NotReplicated, match="2 entries are stored"):
                orders.add_many([{"n": 7}, {"n": 8}], wait_replicas=1, timeout=0.1)
            if primary.kind == "headrace":
                with pytest.raises(NotReplicated):
                    orders.add({"n": 9}, idempotency=("p", "2"), wait_replicas=1, timeout=0.1)
                with (  # a duplicate, on a connection that has written nothing
                    headrace.connect(url_of(primary), wait_replicas=1, replicas_timeout=0.1) as other,
                    pytest.raises(NotReplicated),
                ):
                    other.stream("orders").add({"n": 9}, idempotency=("p", "2"))
        finally:
            replica.process.send_signal(signal.SIGCONT)
        orders.add({"n": 10})
        assert replica.client.xlen("orders") == len(orders)
        with pytest.raises(NotReplicated, match="1 of 2"):
            orders.add({"n": 11}, wait_replicas=2, timeout=0.1)


def test_a_stored_entry_is_never_reported_as_rejected(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        rights = ("on", ">p", "~orders", "+xadd", "+time")
        primary.client.execute_command("ACL", "SETUSER", "shop", *rights, "+wait")
        primary.client.execute_command("ACL", "SETUSER", "other", *rights)
        url = f"redis://shop:p@127.0.0.1:{primary.port}"
        with headrace.connect(url, wait_replicas=1, replicas_timeout=20) as db:
            orders = db.stream("orders")
            for n in range(200):  # without the right to PUBLISH
                orders.add({"n": n}, idempotency=("p", str(n)))
            assert replica.client.xlen("orders") == 200
            with pytest.raises(NotReplicated, match=r"0 of 1 .*could not be asked: NOPERM"):
                orders.add({"n": 0}, idempotency=("p", "150"))  # a duplicate is not confirmed by WAIT
        with headrace.connect(url.replace("shop", "other"), wait_replicas=1) as db:
            for options in ({}, {"idempotency": ("p", "200")}):
                with pytest.raises(NotReplicated, match=r"0 of 1 .*could not be asked: NOPERM"):
                    db.stream("orders").add({"n": 1}, **options)  # type: ignore[arg-type]
        assert primary.client.xlen("orders") == 202
        with headrace.connect(url_of(primary), wait_replicas=1, replicas_timeout=20) as db:
            db.stream("orders").add({"n": 0}, idempotency=("p", "150"))  # may PUBLISH


def test_a_lost_server_is_waited_for_if_each_call_says_how_many_replicas(tmp_path: Path) -> None:
    with (
        nodes(tmp_path, "headrace", "headrace") as (primary, replica),
        headrace.connect(url_of(primary)) as db,
        ThreadPoolExecutor() as threads,
    ):
        replica.follow(primary.port)
        replica.wait_for(primary)
        db.stream("s").add({"n": 0}, wait_replicas=1, timeout=20)
        primary.kill()
        adding = threads.submit(db.stream("s").add, {"n": 1}, wait_replicas=1, timeout=20)
        primary.start()
        adding.result()
        assert replica.client.xlen("s") == 2


def test_a_server_that_becomes_a_replica_meanwhile_has_not_replicated(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    with headrace.connect(url_of(primary)) as db, ThreadPoolExecutor() as threads:
        replica.process.send_signal(signal.SIGSTOP)
        try:
            adding = threads.submit(db.stream("s").add, {"n": 1}, wait_replicas=1, timeout=20)
            wait_until(lambda: primary.client.info("clients")["blocked_clients"] == 1)
            primary.follow(replica.port)
            with pytest.raises(NotReplicated, match="0 of 1"):
                adding.result()
        finally:
            replica.process.send_signal(signal.SIGCONT)


def test_entries_go_to_the_new_primary_once_a_replica_is_missing(tmp_path: Path) -> None:
    # After SENTINEL FAILOVER the former primary accepts writes for some seconds, and connections stay open.
    with nodes(tmp_path, "headrace", "headrace") as (first, second):
        second.follow(first.port)
        second.wait_for(first)
        with (
            sentinels(tmp_path, first.port) as ports,
            headrace.connect(url_of_sentinels(ports)) as db,
        ):
            wait_for_discovery(ports, replicas=1)
            orders = db.stream("orders")
            orders.add({"n": 0}, wait_replicas=1, timeout=20)
            for port in ports:
                with redis.Redis(port=port) as sentinel:
                    if port == ports[0]:
                        sentinel.execute_command("SENTINEL", "FAILOVER", "orders")
                    wait_until(lambda: sentinel.sentinel_master("orders")["port"] == second.port)
            with pytest.raises(NotReplicated, match="A failover before that loses it"):
                orders.add({"n": 1}, wait_replicas=1, timeout=0.1)
            orders.add({"n": 2})
            assert [entry.text["n"] for entry in orders] == ["0", "2"]
            assert second.client.xlen("orders") == 2


def test_wrong_numbers_of_replicas(tmp_path: Path) -> None:
    with headrace.open() as db, pytest.raises(UsageError, match="no replicas"):
        db.stream("s").add({"a": 1}, wait_replicas=1)
    with headrace.connect("redis://127.0.0.1:1") as db:
        for replicas, timeout in ((0, 1), (-1, 1), ("1", 1), (1, 0)):
            with pytest.raises(UsageError, match="must be"):
                db.stream("s").add({"a": 1}, wait_replicas=replicas, timeout=timeout)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="less than that of the connection"):
            db.stream("s").add_many([{"a": 1}], wait_replicas=1, timeout=30)
    with pytest.raises(UsageError, match="must be"):
        headrace.connect("redis://127.0.0.1:1", wait_replicas=0)
