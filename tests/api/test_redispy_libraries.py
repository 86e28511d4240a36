"""Libraries written on redis-py run on the engine in this process: FastStream, taskiq, an example."""

from __future__ import annotations

import asyncio
import importlib.util
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from faststream.redis import RedisBroker, StreamSub
from taskiq.api import run_receiver_task
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

import headrace
from api.engine_clients import sessions
from support.waiting import async_wait_until, at_work

SECONDS = 20
EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def database() -> Iterator[headrace.Database]:
    with headrace.open() as opened:
        yield opened


def pending(database: headrace.Database, stream: str, group: str) -> int:
    return int(database.execute("XPENDING", stream, group)[0])


def test_faststream_works_off_a_stream_in_groups(database: headrace.Database) -> None:
    """Two consumers of one group share the entries; each is handled once and acknowledged."""
    handled: list[int] = []

    async def job() -> None:
        broker = RedisBroker(connection_class=database.async_connection_class(), logger=None)

        @broker.subscriber(stream=StreamSub("jobs", group="workers", consumer="one", polling_interval=50))
        async def one(number: int) -> None:
            handled.append(number)

        @broker.subscriber(stream=StreamSub("jobs", group="workers", consumer="two", polling_interval=50))
        async def two(number: int) -> None:
            handled.append(number)

        async with broker:
            await broker.start()
            for number in range(100):
                await broker.publish(number, stream="jobs")
            await async_wait_until(lambda: len(handled) >= 100 and pending(database, "jobs", "workers") == 0)

    asyncio.run(job())
    assert sorted(handled) == list(range(100))
    assert sessions(database) == 0


def test_faststream_listens_to_a_channel_and_asks_for_an_answer(database: headrace.Database) -> None:
    async def job() -> Any:
        broker = RedisBroker(connection_class=database.async_connection_class(), logger=None)

        @broker.subscriber("squares")
        async def square(number: int) -> int:
            return number * number

        async with broker:
            await broker.start()
            answer = await broker.request(12, "squares", timeout=SECONDS)
            return await answer.decode()

    assert asyncio.run(job()) == 144
    assert sessions(database) == 0


def test_taskiq_works_off_a_stream_and_keeps_the_results(database: headrace.Database) -> None:
    """Its worker reads, claims what another left, holds a lock meanwhile; strings keep what came out."""

    async def job() -> list[int]:
        bound: Any = {"connection_class": database.async_connection_class()}
        broker = RedisStreamBroker(
            "redis://here",
            queue_name="tasks",
            consumer_group_name="workers",
            xread_block=50,
            idle_timeout=1,
            **bound,
        ).with_result_backend(RedisAsyncResultBackend("redis://here", **bound))

        @broker.task
        async def square(number: int) -> int:
            return number * number

        await broker.startup()
        first = await square.kiq(0)
        database.execute("XREADGROUP", "GROUP", "workers", "dead", "STREAMS", "tasks", ">")
        async with at_work(run_receiver_task(broker)):
            tasks = [first, *[await square.kiq(number) for number in range(1, 30)]]
            results = [await task.wait_result(timeout=SECONDS, check_interval=0.01) for task in tasks]
            await async_wait_until(lambda: pending(database, "tasks", "workers") == 0)
        await broker.shutdown()
        return [result.return_value for result in results]

    assert asyncio.run(job()) == [number * number for number in range(30)]
    assert sessions(database) == 0


@pytest.mark.parametrize("kept", [False, True])
def test_the_faststream_app_bills_and_mails(tmp_path: pathlib.Path, kept: bool) -> None:
    spec = importlib.util.spec_from_file_location("faststream_app", EXAMPLES / "faststream_app.py")
    assert spec is not None and spec.loader is not None
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    directory = str(tmp_path / "data") if kept else None
    assert asyncio.run(app.main(directory)) == ["ann owes 12.50", "bob owes 0.99", "ann owes 30.00"]
    if kept:
        with headrace.open(directory) as database:
            assert len(database.client().xrange("orders")) == 3
            assert pending(database, "orders", "billing") == 0
