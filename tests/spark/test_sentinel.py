"""A real Sentinel: its master is read, and when that dies, the one it names next."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Iterator

import pytest
import redis
from pyspark.sql.types import LongType, StructField, StructType

from headrace.client.connection_errors import CONNECTION_ERRORS
from headrace.client.servers import Servers
from headrace.positions.stream_state import last_ids
from headrace.spark.decode.schema import ColumnLayout
from headrace.spark.options import parse_options
from headrace.spark.source.planner import plan_ranges
from headrace.spark.source.range_reader import RangeReader
from support.redis_cluster import SentinelSetup

COUNT = 40_000
SCHEMA = StructType([StructField("n", LongType())])


@pytest.fixture
def watched(tmp_path: pathlib.Path) -> Iterator[SentinelSetup]:
    servers = SentinelSetup(tmp_path)
    yield servers
    servers.close()


def test_a_read_follows_the_master_after_a_failover(watched: SentinelSetup) -> None:
    pipe = watched.master.client.pipeline(transaction=False)
    for n in range(COUNT):
        pipe.xadd("s", {"n": n}, id=f"{n + 1}-0")
    pipe.execute()
    watched.master.wait_for(watched.replica)
    servers = pickle.loads(pickle.dumps(Servers(watched.url)))
    assert last_ids(servers, ["s", "none"]) == {"s": f"{COUNT}-0"}
    assert servers.matching_streams("s") == ["s"] and servers.owner_node_name("s") == servers.owner_node_name(
        "t"
    )
    options = parse_options({"url": watched.url, "entriesPerFetch": "2000"}, "batch")
    (part,) = plan_ranges(servers, {}, {"s": f"{COUNT}-0"}, options)
    reading = RangeReader(part, ColumnLayout(SCHEMA, "epoch_ms"), options).batches()
    seen = next(reading).column("n").to_pylist()
    assert 0 < len(seen) < COUNT
    watched.master.kill()
    for batch in reading:
        seen += batch.column("n").to_pylist()
    assert seen == list(range(COUNT))
    assert watched.replica.client.info("replication")["role"] == "master"
    assert servers.client().xadd("s", {"n": COUNT}, id=f"{COUNT + 1}-0")
    assert last_ids(servers, ["s"]) == {"s": f"{COUNT + 1}-0"}
    assert last_ids(Servers(watched.url), ["s"]) == {"s": f"{COUNT + 1}-0"}


def test_a_replica_that_a_sentinel_names_is_not_used_as_master(watched: SentinelSetup) -> None:
    # The master becomes a replica; for a while the Sentinel still names it.
    servers = Servers(watched.url, reconnect_timeout=0)
    watched.master.client.replicaof("127.0.0.1", watched.replica.port)
    with pytest.raises(CONNECTION_ERRORS):
        servers.open_raw("s")
    with pytest.raises(CONNECTION_ERRORS):
        servers.client().xlen("s")


def test_an_unknown_service_counts_as_unavailable(watched: SentinelSetup) -> None:
    servers = Servers(watched.url.replace("/orders", "/other"), reconnect_timeout=0)
    with pytest.raises(redis.ConnectionError, match="other"):
        last_ids(servers, ["s"])
