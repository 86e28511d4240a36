"""The recipes of docs/replication.md, run from its text: a mirror for Spark, a migration, a standby."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql.types import LongType, StructField, StructType

import headrace
from headrace.client.connection_errors import ServerUnavailable
from headrace.client.servers import Servers
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.arrow_reader import make_range_reader
from headrace.spark.source.planner import OffsetRange
from replication.documented_commands import OPTIONS, PASSWORD, Recipe, blocks
from replication.nodes import Node, nodes
from replication.sentinel_group import sentinels, url_of_sentinels, wait_for_discovery
from support.flaky_proxy import FlakyProxy
from support.server_fixtures import spark  # noqa: F401
from support.waiting import wait_until

pytestmark = pytest.mark.whole


def url_of(node: Node) -> str:
    return f"redis://127.0.0.1:{node.port}"


def commands(node: Node) -> set[str]:
    """The commands that clients have sent, without those of replication and administration."""
    names = {name.removeprefix("cmdstat_") for name in node.client.info("commandstats")}
    return {name for name in names if name.startswith(("x", "get", "scan"))}


def test_spark_reads_a_mirror_without_load_on_the_primary(tmp_path: Path, spark: Any) -> None:  # noqa: F811
    with nodes(tmp_path, "redis", "redis", options=OPTIONS) as (production, other):
        recipe = Recipe("Mirror the streams of a production server.", {"production": production})
        production.client.hset("a hash", "a", 1)
        production.client.rpush("a list", 1, 2)
        for n in range(500):
            production.client.xadd("orders", {"customer": "ada", "cents": n}, id=f"{n + 1}-0")
        other.follow(production.port)  # it could be read, too, but has no XARROW
        other.wait_for(production)
        production.client.config_resetstat()
        mirror = recipe.start("mirror", tmp_path / "mirror")
        try:
            recipe.run()
            wait_until(lambda: len(production.client.role()[2]) == 2)
            (program,) = blocks("Mirror the streams", "python")
            program = program.replace("production:6379", f"127.0.0.1:{production.port}")
            exec(program, made := {"spark": spark, "PASSWORD": "a%20password"})
            assert made["orders"].agg({"cents": "sum"}).first()[0] == sum(range(500))
            streaming = program.replace("spark.read.", "spark.readStream.")
            exec(streaming.replace(".load()", '.option("startingOffsets", "earliest").load()'), made)
            stream = made["orders"]
            for count in (500, 600):
                if count == 600:
                    for n in range(500, 600):
                        production.client.xadd("orders", {"cents": n}, id=f"{n + 1}-0")
                    mirror.wait_for(production)
                query = (
                    stream.writeStream.format("parquet")
                    .option("path", str(tmp_path / "rows"))
                    .option("checkpointLocation", str(tmp_path / "checkpoint"))
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                rows = spark.read.schema("cents INT").parquet(str(tmp_path / "rows")).collect()
                assert sorted(row.cents for row in rows) == list(range(count))
            assert commands(production) == {"xadd"}
            assert "xarrow" in commands(mirror) and commands(other) == {"xadd"}
        finally:
            mirror.stop()


def add_to_two(database: headrace.Database, numbers: range) -> list[int]:
    """Add numbers to the stream "orders" so that two servers have them; return them."""
    for n in numbers:
        database.stream("orders").add({"n": n}, idempotency=("test", str(n)), wait_replicas=1, timeout=20)
    return list(numbers)


def values(node: Node, stream: str) -> list[int]:
    return [int(fields[b"n"]) for _, fields in node.client.xrange(stream)]


def test_a_query_survives_failovers_and_reports_lost_entries(tmp_path: Path, spark: Any) -> None:  # noqa: F811
    from pyspark.errors import StreamingQueryException

    def start(fail_on_data_loss: str, **trigger: Any) -> Any:
        source = spark.readStream.format("headrace").option("url", url).option("subscribe", "orders")
        source = source.option("startingOffsets", "earliest").option("failOnDataLoss", fail_on_data_loss)
        sink = source.schema("n INT").load().writeStream.format("headrace").option("url", url)
        sink = sink.option("stream", "copies").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return sink.trigger(**trigger).start()

    kinds = ("headrace",) * 3
    with contextlib.ExitStack() as stack, nodes(tmp_path, *kinds) as (first, *others):
        for other in others:
            other.follow(first.port)
            other.wait_for(first)
        with sentinels(tmp_path, first.port, down_after_ms=2000) as ports:
            wait_for_discovery(ports, replicas=2)
            url = url_of_sentinels(ports)
            database = stack.enter_context(headrace.connect(url))
            added = add_to_two(database, range(100))
            query = start("true", processingTime="0 seconds")
            wait_until(lambda: values(first, "copies") == added or query.exception())
            for other in others:
                other.wait_for(first)
            first.kill()
            added += add_to_two(database, range(100, 200))
            second = next(node for node in others if node.replication()["role"] == "master")
            wait_until(lambda: len(values(second, "copies")) >= len(added) or query.exception())
            assert values(second, "copies") == values(second, "orders") == added

            (third,) = {*others} - {second}
            third.wait_for(second)
            second.client.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
            second.client.client_kill_filter(_type="replica")
            wait_until(lambda: third.replication()["master_link_status"] == "down")
            lost = [second.client.xadd("orders", {"n": n}) for n in range(200, 210)]
            wait_until(lambda: len(values(second, "copies")) >= 210 or query.exception())
            second.kill()
            with pytest.raises(StreamingQueryException, match="a failover took entries back"):
                query.awaitTermination()
            wait_until(lambda: third.replication()["role"] == "master")
            third.client.xadd("orders", {"n": 1000}, id=lost[3])  # before the position of the query
            start("false", availableNow=True).awaitTermination()
            assert set(values(third, "copies")) == {*added, 1000}


def test_a_replica_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        url = url_of(primary)
        with headrace.connect(url, read_from="replica", reconnect_timeout=0) as alone:
            alone.stream("s").add({"n": 0})
            with pytest.raises(headrace.errors.ConnectionLost, match="no replica that is connected"):
                len(alone.stream("s"))
        proxy = FlakyProxy(primary.port, [])
        replica.follow(proxy.port)
        replica.wait_for(primary)
        wait_until(lambda: primary.client.role()[2])
        proxy.flowing.clear()  # the replica is connected, but receives nothing
        last = [primary.client.xadd("s", {"n": n}) for n in range(1, 50)][-1].decode()
        with Servers(url, reconnect_timeout=0.2, read_from="replica") as servers:
            for work in (lambda: servers.open_raw("s", last), lambda: servers.wait_for_replica({"s": last})):
                with pytest.raises(ServerUnavailable, match="it is behind its primary"):
                    work()
            with ThreadPoolExecutor() as threads:
                primary.client.config_resetstat()
                reads = [threads.submit(read_range, url, last, fetch) for fetch in ("arrow", "resp")]
                wait_until(lambda: primary.client.info("commandstats").get("cmdstat_xinfo|stream"))
                proxy.flowing.set()
                assert [read.result() for read in reads] == [list(range(50))] * 2
            primary.client.delete("s")
            replica.wait_for(primary)
            servers.wait_for_replica({"s": last})  # the primary lacks it, too
        with Servers(url_of(replica), read_from="replica") as servers:
            assert servers.client().role()[0] == b"slave"
        replica.kill()
        proxy.close()


def read_range(url: str, last: str, fetch: str) -> list[int]:
    """Read the stream "s" up to an ID as a Spark task does."""
    schema = StructType([StructField("n", LongType())])
    raw = {"url": url, "subscribe": "s", "readFrom": "replica", "fetch": fetch}
    part = OffsetRange("s", "0-0", last, False, None)
    reader = make_range_reader(part, ColumnLayout(schema, "epoch_ms"), parse_options(raw, "batch"))
    return [n for batch in reader.batches() for n in batch.column("n").to_pylist()]


def test_a_program_reads_from_a_replica(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", "headrace") as (primary, replica):
        replica.follow(primary.port)
        replica.wait_for(primary)
        wait_until(lambda: primary.client.role()[2])
        with headrace.connect(url_of(primary), read_from="replica") as db:
            primary.client.config_resetstat()
            orders = db.stream("s")
            added = orders.add({"n": 2})
            replica.wait_for(primary)
            assert orders.last() is not None and added in orders and len(orders) == 1
            assert orders.read(after="0", count=1)
            assert commands(primary) == {"xadd"}
            replica.kill()
            replica.start()
            replica.follow(primary.port)
            assert len(orders) == 1  # over a new connection
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
                with redis.Redis(port=self._ports[0], password=PASSWORD, socket_timeout=60) as client:
                    while not self._closed.is_set():
                        self.acknowledged.append(client.xadd("orders", {"n": number}))
                        number += 1
            except redis.RedisError:
                self._ports.append(self._ports.pop(0))

    def close(self) -> None:
        self._closed.set()
        self._thread.join()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_a_migration_and_its_way_back_lose_nothing(tmp_path: Path, kind: str) -> None:
    with nodes(tmp_path, kind, options=OPTIONS) as (old,):
        recipe = Recipe("Migrate without stopping.", {"old": old})
        old.client.xgroup_create("orders", "billing", mkstream=True)
        old.client.hset("a hash", "a", 1)
        new = recipe.start("new", tmp_path / "new")
        writer = Writer([old.port, new.port])
        try:
            recipe.run()
            wait_until(lambda: len(writer.acknowledged) > 100)
            assert old.client.xreadgroup("billing", "ann", {"orders": ">"}, count=7)
            for primary in (new, old):
                assert "master" in recipe.run()
                before = len(writer.acknowledged)
                wait_until(lambda before=before: len(writer.acknowledged) > before + 100)  # type: ignore[misc]
                assert primary.replication()["role"] == "master"
                stored = {id for id, _ in primary.client.xrange("orders")}
                assert set(writer.acknowledged[:before]) <= stored
                assert primary.client.xpending("orders", "billing")["pending"] == 7
            writer.close()
            stored = {id for id, _ in old.client.xrange("orders")}
            assert set(writer.acknowledged) <= stored
            assert old.client.hget("a hash", "a") == b"1"
            new.wait_for(old)
            old.client.delete("a hash")
            assert new.state() == old.state()
        finally:
            writer.close()
            new.stop()


def test_a_standby_takes_over_without_losing_a_write(tmp_path: Path) -> None:
    with nodes(tmp_path, "headrace", options=OPTIONS) as (first,):
        recipe = Recipe("Standby.", {"first": first})
        second = recipe.start("second", tmp_path / "second")
        writer = Writer([first.port, second.port])
        try:
            wait_until(lambda: len(writer.acknowledged) > 100)
            assert "master" in recipe.run()
            before = len(writer.acknowledged)
            wait_until(lambda: len(writer.acknowledged) > before + 100)
            writer.close()
            assert set(writer.acknowledged) <= {id for id, _ in second.client.xrange("orders")}
            first.wait_for(second)
            assert first.state() == second.state()
        finally:
            writer.close()
            second.stop()
