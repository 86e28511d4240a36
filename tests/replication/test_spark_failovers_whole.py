"""A Spark query from one stream to another over real Sentinels, under load, while its servers change roles.

    writer    XADD and WAIT 1 to the primary that the Sentinels name; an entry counts if a replica has it
    query     readFrom=replica, and the sink with waitReplicas=1, both with the URL of the Sentinels

Each entry that counts must be in the output exactly once, and nothing must be there twice. With one replica
this holds whatever is killed: what the query reads, and what it wrote, is on the server that is promoted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis
from nodes import Node, nodes
from redis.sentinel import Sentinel
from sentinel_group import sentinels, url_of_sentinels, wait_for_discovery
from server_fixtures import spark  # noqa: F401

from waiting import wait_until

pytestmark = pytest.mark.whole


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


def output(node: Node) -> list[str]:
    """The IDs of the entries that the query has copied."""
    return [fields[b"source"].decode() for _, fields in node.client.xrange("copies")]


def primary_of(found: list[Node], sentinel: redis.Redis) -> Node:
    """Return the node that the Sentinel names."""
    _, port = sentinel.sentinel_get_master_addr_by_name("orders")  # type: ignore[misc]
    return next(node for node in found if node.port == int(port))


def start_query(spark: Any, url: str, checkpoint: Path) -> Any:  # noqa: F811
    source = spark.readStream.format("headrace").option("url", url).option("subscribe", "orders")
    source = source.option("readFrom", "replica").option("startingOffsets", "earliest")
    rows = source.schema("_id STRING, n INT").load().withColumnRenamed("_id", "source")
    sink = rows.writeStream.format("headrace").option("url", url).option("stream", "copies")
    return sink.option("waitReplicas", "1").option("checkpointLocation", str(checkpoint)).start()


def test_confirmed_entries_are_copied_once_whatever_server_fails(tmp_path: Path, spark: Any) -> None:  # noqa: F811
    with nodes(tmp_path, "headrace", "headrace") as found:
        first, second = found
        second.follow(first.port)
        second.wait_for(first)
        with sentinels(tmp_path, first.port, down_after_ms=1000) as ports:
            wait_for_discovery(ports, replicas=1)
            sentinel = redis.Redis(port=ports[0])
            writer = ConfirmedWriter(ports)
            query = start_query(spark, url_of_sentinels(ports), tmp_path / "checkpoint")
            try:
                wait_until(lambda: len(output(first)) > 100 or query.exception())
                sentinel.execute_command("SENTINEL", "FAILOVER", "orders")
                wait_until(lambda: primary_of(found, sentinel) is second)
                writer.wait_for_more()
                before = len(output(second))
                wait_until(lambda: len(output(second)) > before or query.exception())
                assert query.exception() is None
                second.kill()
                wait_until(lambda: primary_of(found, sentinel) is first)
                second.start()
                writer.wait_for_more()
            finally:
                writer.close()
            query.processAllAvailable()
            query.stop()
            copied = Counter(output(first))
            assert set(writer.confirmed) <= copied.keys()
            assert set(copied.values()) == {1}
            assert set(copied) <= {id.decode() for id, _ in first.client.xrange("orders")}
            assert primary_of(found, sentinel) is first and first.replication()["role"] == "master"
