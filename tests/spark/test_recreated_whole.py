"""Streaming queries of Spark over streams that are deleted and recreated."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.stream_server import StreamServer
from support.waiting import wait_until

pytestmark = [pytest.mark.whole, pytest.mark.slow]


class Query:
    """A streaming query to Parquet that can be run again from its checkpoint."""

    def __init__(self, spark: SparkSession, server: StreamServer, folder: pathlib.Path) -> None:
        self.spark = spark
        self.server = server
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"

    def start(self, *, now: bool = True, **options: str) -> Any:
        frame = (
            self.spark.readStream.format("headrace").option("url", self.server.url).option("subscribe", "s")
        )
        rows = frame.option("startingOffsets", "earliest").options(**options).schema("n LONG").load()
        writer = rows.writeStream.format("parquet").option("path", str(self.out))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, **options: str) -> None:
        assert self.start(**options).awaitTermination(60), "AvailableNow does not end"

    def numbers(self) -> list[int]:
        return sorted(row.n for row in self.spark.read.parquet(str(self.out)).select("n").collect())

    def offsets(self) -> dict[str, str]:
        """Of the last batch that was planned."""
        folder = self.checkpoint / "offsets"
        last = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
        found: dict[str, str] = json.loads((folder / str(last)).read_text().splitlines()[-1])
        return found

    def forget_commit(self) -> None:
        """As if the driver had died before it noted that the last batch is done."""
        folder = self.checkpoint / "commits"
        max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)).unlink()


@pytest.fixture
def query(spark: SparkSession, stream_server: StreamServer, tmp_path: pathlib.Path) -> Query:
    return Query(spark, stream_server, tmp_path)


def recreate(server: StreamServer, ids: list[str]) -> None:
    server.client.delete("s")
    server.add("s", [(entry_id, {"n": 1000 + n}) for n, entry_id in enumerate(ids)])


WAYS = {
    "lower IDs": lambda server: recreate(server, [f"{n + 1}-0" for n in range(30)]),
    "higher IDs": lambda server: recreate(server, [f"{5_000_000 + n}-0" for n in range(30)]),
    "the same IDs": lambda server: recreate(server, [f"{1_000_000 + n}-0" for n in range(30)]),
}
way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@way
def test_a_query_restarted_after_the_stream_was_recreated_fails_until_loss_is_allowed(
    query: Query, way: Callable[[StreamServer], None]
) -> None:
    query.server.fill("s", 10)
    query.run()
    way(query.server)
    for _ in range(2):
        with pytest.raises(Exception, match="'s' was deleted and recreated"):
            query.run()
    query.run(failOnDataLoss="false", maxOffsetsPerTrigger="20")
    assert query.numbers() == [*range(10), *range(1000, 1030)]
    query.server.client.xadd("s", {"n": 2000}, "9000000-0")
    query.run()
    assert query.numbers() == [*range(10), *range(1000, 1030), 2000]


@way
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_running_query_notices_that_the_stream_was_recreated(
    query: Query, way: Callable[[StreamServer], None], fail: str
) -> None:
    query.server.fill("s", 10)
    running = query.start(now=False, failOnDataLoss=fail)
    running.processAllAvailable()
    way(query.server)
    if fail == "true":
        with pytest.raises(Exception, match=r"deleted and recreated|was deleted"):
            running.awaitTermination(60)
        return
    wait_until(lambda: len(query.numbers()) == 40)
    running.stop()
    assert query.numbers() == [*range(10), *range(1000, 1030)]


@way
def test_a_batch_run_again_over_a_recreated_stream_fails(
    query: Query, way: Callable[[StreamServer], None]
) -> None:
    query.server.fill("s", 10)
    query.run()
    query.forget_commit()
    way(query.server)
    with pytest.raises(Exception, match="deleted and recreated"):
        query.run()
    query.run(failOnDataLoss="false")
    assert [n for n in query.numbers() if n >= 1000] == list(range(1000, 1030))


def test_a_query_continues_from_a_checkpoint_of_plain_ids(query: Query) -> None:
    query.server.fill("s", 10)
    query.run()
    for path in (query.checkpoint / "offsets").iterdir():
        if path.name.isdigit():
            *lines, last = path.read_text().splitlines()
            ids = {stream: text.partition(":")[0] for stream, text in json.loads(last).items()}
            path.write_text("\n".join([*lines, json.dumps(ids)]))
    query.run()
    assert query.offsets()["s"].startswith("1000009-0:10:")
    query.server.fill("s", 10, first=10)
    query.run()
    assert query.numbers() == list(range(20))


def test_deleting_read_entries_does_not_fail_a_query(query: Query) -> None:
    query.server.fill("s", 10)
    query.run()
    query.server.client.xdel("s", *(f"{1_000_000 + n}-0" for n in range(10)))
    query.server.fill("s", 10, first=10)
    query.run()
    query.server.client.xdel("s", "1000019-0")
    query.server.fill("s", 5, first=20)
    query.run()
    assert query.numbers() == list(range(25))
