"""A Spark query from one stream to another over real Sentinels while the servers change roles.

Source and sink have the URL of the Sentinels, and the sink waitReplicas=1. Each entry that a replica had, by
WAIT, must be in the output exactly once, and nothing must be there twice. With one replica this holds
whatever fails: what the query has written is on the server that is promoted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.sentinel import Sentinel

from replication.nodes import Node, nodes
from replication.sentinel_group import sentinels, url_of_sentinels, wait_for_discovery
from support.server_fixtures import spark  # noqa: F401
from support.waiting import wait_until

pytestmark = pytest.mark.whole

MANY = 80_000


class ConfirmedWriter:
    """Adds entries to the stream "orders" of the present primary until close()."""

    def __init__(self, ports: list[int]) -> None:
        """ports: those of the Sentinels."""
        self.confirmed: list[str] = []  # the IDs of the entries that a replica has
        self.unconfirmed = 0
        self._sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=2)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                host, port = self._sentinel.discover_master("orders")
                with redis.Redis(host, port, single_connection_client=True, socket_timeout=2) as client:
                    while not self._closed.is_set():
                        added = client.xadd("orders", {"n": len(self.confirmed)})
                        if client.execute_command("WAIT", 1, 500) < 1:
                            self.unconfirmed += 1
                            break
                        self.confirmed.append(added.decode())
                        time.sleep(0.002)
            except redis.RedisError:
                time.sleep(0.05)

    def wait_for_more(self, count: int = 200) -> None:
        """Wait until so many further entries are confirmed."""
        wanted = len(self.confirmed) + count
        wait_until(lambda: len(self.confirmed) >= wanted)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()


def add_many(node: Node) -> list[str]:
    """Add entries; return their IDs when a replica has them."""
    added: list[str] = []
    with redis.Redis(port=node.port, single_connection_client=True) as client:
        while len(added) < MANY:
            pipe = client.pipeline(transaction=False)
            for n in range(10_000):
                pipe.execute_command("XADD", "orders", "*", "n", n)
            added += [id.decode() for id in pipe.execute()]
        assert client.execute_command("WAIT", 1, 60_000) == 1
    return added


def primary_of(found: list[Node], sentinel: redis.Redis) -> Node:
    """Return the node that the Sentinel names."""
    _, port = sentinel.sentinel_get_master_addr_by_name("orders")  # type: ignore[misc]
    return next(node for node in found if node.port == int(port))


def start_query(spark: Any, url: str, checkpoint: Path, read_from: str, **trigger: Any) -> Any:  # noqa: F811
    source = spark.readStream.format("headrace").option("url", url).option("subscribe", "orders")
    source = source.option("readFrom", read_from).option("startingOffsets", "earliest")
    rows = source.schema("_id STRING, n INT").load().withColumnRenamed("_id", "source")
    sink = rows.writeStream.format("headrace").option("url", url).option("stream", "copies")
    sink = sink.option("waitReplicas", "1").option("checkpointLocation", str(checkpoint))
    return (sink.trigger(**trigger) if trigger else sink).start()


def check_copies(node: Node, confirmed: list[str]) -> None:
    """Check that each confirmed entry was copied, and no entry twice."""
    copies = [fields[b"source"].decode() for _, fields in node.client.xrange("copies")]
    assert set(confirmed) - set(copies) == set()
    assert [source for source, count in Counter(copies).items() if count > 1] == []
    assert set(copies) <= {id.decode() for id, _ in node.client.xrange("orders")}


@contextlib.contextmanager
def watched_pair(directory: Path, down_after_ms: int) -> Iterator[tuple[Node, Node, list[int]]]:
    """A primary, its replica, and the ports of three Sentinels."""
    with nodes(directory, "headrace", "headrace") as (first, second):
        second.follow(first.port)
        second.wait_for(first)
        with sentinels(directory, first.port, down_after_ms) as ports:
            wait_for_discovery(ports, replicas=1)
            yield first, second, ports


def test_rows_on_a_primary_that_was_replaced_are_written_again(tmp_path: Path, spark: Any) -> None:  # noqa: F811
    # For some seconds after SENTINEL FAILOVER the former primary accepts writes, and nothing replicates them.
    # A task of the query is writing then.
    with watched_pair(tmp_path, down_after_ms=60_000) as (first, second, ports):
        added = add_many(first)
        query = start_query(spark, url_of_sentinels(ports), tmp_path / "state", "primary", availableNow=True)
        wait_until(lambda: first.client.xlen("copies") or query.exception())
        with redis.Redis(port=ports[0]) as sentinel:
            sentinel.execute_command("SENTINEL", "FAILOVER", "orders")
            query.awaitTermination()
            assert primary_of([first, second], sentinel) is second
        check_copies(second, added)


def test_a_query_under_load_copies_confirmed_entries_once_after_a_kill(tmp_path: Path, spark: Any) -> None:  # noqa: F811
    with (
        watched_pair(tmp_path, down_after_ms=2000) as (*found, ports),
        redis.Redis(port=ports[0]) as sentinel,
    ):
        writer = ConfirmedWriter(ports)
        query = start_query(spark, url_of_sentinels(ports), tmp_path / "state", "replica")
        try:
            wait_until(lambda: found[0].client.xlen("copies") > 100 or query.exception())
            old = primary_of(found, sentinel)  # not the first one if that was silent for too long
            (new,) = {*found} - {old}
            old.kill()
            wait_until(lambda: primary_of(found, sentinel) is new)
            old.options += ["--replicaof", f"127.0.0.1 {new.port}"]
            old.start()
            writer.wait_for_more()
        finally:
            writer.close()
        query.processAllAvailable()
        query.stop()
        check_copies(new, writer.confirmed)
