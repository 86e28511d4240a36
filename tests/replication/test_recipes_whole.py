"""The recipes of docs/replication.md: a mirror that Spark reads, and a migration without a pause."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from nodes import Node, nodes
from server_fixtures import spark  # noqa: F401

import headrace
from headrace.client.connection_errors import ServerUnavailable
from headrace.client.servers import Servers
from waiting import wait_until

pytestmark = pytest.mark.whole

MIRROR = ("--replica-skip-foreign-types", "yes")


def url_of(node: Node) -> str:
    return f"redis://127.0.0.1:{node.port}"


def commands(node: Node) -> set[str]:
    """The commands that clients have sent, without those of replication and administration."""
    names = {name.removeprefix("cmdstat_") for name in node.client.info("commandstats")}
    return {name for name in names if name.startswith(("x", "get", "scan"))}


def test_spark_reads_a_mirror_without_load_on_the_primary(tmp_path: Path, spark: Any) -> None:  # noqa: F811
    with nodes(tmp_path, "redis", "headrace", options=()) as (production, mirror):
        mirror.client.config_set("replica-skip-foreign-types", "yes")
        production.client.hset("a hash", "a", 1)
        for n in range(500):
            production.client.xadd("orders", {"n": n}, id=f"{n + 1}-0")
        production.client.config_resetstat()
        mirror.follow(production.port)
        mirror.wait_for(production)
        wait_until(lambda: production.client.role()[2])
        reader = spark.read.format("headrace").option("subscribe", "orders").option("url", url_of(production))
        assert reader.option("readFrom", "replica").schema("n INT").load().agg({"n": "sum"}).first()[0] == (
            sum(range(500))
        )
        stream = (
            spark.readStream.format("headrace")
            .option("url", url_of(production))
            .option("readFrom", "replica")
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .schema("n INT")
            .load()
        )
        for count in (500, 600):
            if count == 600:
                for n in range(500, 600):
                    production.client.xadd("orders", {"n": n}, id=f"{n + 1}-0")
                mirror.wait_for(production)
            query = (
                stream.writeStream.format("parquet")
                .option("path", str(tmp_path / "rows"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            rows = spark.read.schema("n INT").parquet(str(tmp_path / "rows")).collect()
            assert sorted(row.n for row in rows) == list(range(count))
        assert commands(production) == {"xadd"}
        assert "xarrow" in commands(mirror)


def test_a_replica_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        with headrace.connect(url_of(primary), read_from="replica", reconnect_timeout=0) as alone:
            alone.stream("s").add({"n": 0})
            with pytest.raises(headrace.errors.ConnectionLost, match="no replica that is connected"):
                len(alone.stream("s"))
        replica.follow(primary.port)
        replica.wait_for(primary)
        wait_until(lambda: primary.client.role()[2])
        for url in (url_of(primary), url_of(replica)):
            with Servers(url, reconnect_timeout=0.2, read_from="replica") as servers:
                assert servers.client().role()[0] == b"slave"
                last = primary.client.xadd("s", {"n": 1}).decode()
                replica.wait_for(primary)
                servers.wait_for_replica({"s": last})
                with pytest.raises(ServerUnavailable, match="not yet up to 9999999999999-0"):
                    servers.wait_for_replica({"s": "9999999999999-0"})
        with headrace.connect(url_of(primary), read_from="replica") as db:
            primary.client.config_resetstat()
            orders = db.stream("s")
            added = orders.add({"n": 2})
            replica.wait_for(primary)
            assert orders.last() is not None and added in orders and len(orders) == 4
            assert orders.read(after="0", count=1)
            assert commands(primary) == {"xadd"}
            replica.kill()
            replica.start()
            replica.follow(primary.port)
            assert len(orders) == 4  # over a new connection
    with pytest.raises(headrace.errors.UsageError, match="cluster"):
        headrace.connect("cluster://127.0.0.1:1", read_from="replica")


class Writer:
    """Adds numbers to a stream, at one server after the other, until close(); a lost reply is repeated."""

    def __init__(self, ports: list[int]) -> None:
        self.acknowledged: list[bytes] = []
        self._ports = ports
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._closed.is_set():
            try:
                with redis.Redis(port=self._ports[0], socket_timeout=60) as client:
                    while not self._closed.is_set():
                        self.acknowledged.append(client.xadd("orders", {"n": number}))
                        number += 1
            except redis.RedisError:
                self._ports.append(self._ports.pop(0))

    def close(self) -> None:
        self._closed.set()
        self._thread.join()


def test_a_migration_without_a_pause_loses_nothing(tmp_path: Path) -> None:
    with nodes(tmp_path, "redis", "headrace") as (old, new):
        old.client.xgroup_create("orders", "billing", mkstream=True)
        writer = Writer([old.port, new.port])
        try:
            new.follow(old.port)
            wait_until(lambda: new.replication()["master_link_status"] == "up")
            assert old.client.xreadgroup("billing", "ann", {"orders": ">"}, count=7)
            old.client.execute_command("CLIENT", "PAUSE", 10_000, "WRITE")
            offset = old.replication()["master_repl_offset"]
            wait_until(lambda: new.replication()["slave_repl_offset"] == offset)
            new.promote()
            old.follow(new.port)
            old.client.execute_command("CLIENT", "UNPAUSE")
            before = len(writer.acknowledged)
            wait_until(lambda: len(writer.acknowledged) > before + 100)
        finally:
            writer.close()
        stored = [id for id, _ in new.client.xrange("orders")]
        assert set(writer.acknowledged) <= set(stored)
        assert new.client.xpending("orders", "billing")["pending"] == 7
        old.wait_for(new)
        assert old.state() == new.state()  # the way back
