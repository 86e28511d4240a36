"""redis.asyncio on the engine in this process: as on a server, and cancelling leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import _parsers
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

import headrace
from api.engine_clients import blocked, sessions
from headrace.api.local.engine_session import EngineSession
from headrace.errors import NotOnDisk
from support.waiting import async_wait_until

SECONDS = 20
PARSERS = {"hiredis": _parsers._AsyncHiredisParser, "python": _parsers._AsyncRESP3Parser}
ONCE = Retry(NoBackoff(), 0)


@pytest.fixture
def database() -> Iterator[headrace.Database]:
    with headrace.open() as opened:
        yield opened


@pytest.fixture(params=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param[-1])


@pytest.fixture(params=PARSERS)
def how(request: pytest.FixtureRequest, protocol: int) -> dict[str, Any]:
    """The settings that decide which of redis-py's parsers reads the answers."""
    parser = PARSERS[request.param]
    if request.param == "python" and protocol == 2:
        parser = _parsers._AsyncRESP2Parser
    return {"protocol": protocol, "parser_class": parser}


def on(
    database: headrace.Database, deed: Callable[[redis.asyncio.Redis], Awaitable[Any]], **settings: Any
) -> Any:
    """Run the deed with a client, in a loop of its own; nothing may be left of it."""

    async def whole() -> Any:
        client = database.async_client(decode_responses=True, **settings)
        try:
            async with asyncio.timeout(SECONDS):
                return await deed(client)
        finally:
            await client.aclose()

    found = asyncio.run(whole())
    assert (sessions(database), blocked(database)) == (0, 0)
    return found


async def calls(client: redis.asyncio.Redis) -> list[Any]:
    """What a series of calls returns: streams, groups, strings, pipelines, refusals."""
    found: list[Any] = [await client.flushall()]
    for number in range(1, 6):
        found.append(await client.xadd("s", {"n": number, "blob": "x" * number**7}, id=f"{number}-1"))
    found.append(await client.xrange("s", "2", "4"))
    found.append(await client.xgroup_create("s", "g", id="0"))
    found.append(await client.xreadgroup("g", "c", {"s": ">"}, count=3))
    found.append(await client.xpending("s", "g"))
    found.append(await client.xread({"s": "$"}, block=5))
    found.append(await client.pipeline().set("k", "v").get("k").xlen("s").execute())
    found += await client.pipeline(transaction=False).incr("s").xlen("s").execute(raise_on_error=False)
    try:
        found.append(await client.xadd("s", {"a": "b"}, id="1-1"))
    except redis.ResponseError as refusal:
        found.append(refusal)
    return [str(item) for item in found]


def test_calls_return_what_they_return_on_a_server(
    database: headrace.Database, server_url: str, how: dict[str, Any]
) -> None:
    async def on_a_server() -> list[Any]:
        async with redis.asyncio.Redis.from_url(server_url, decode_responses=True, **how) as client:
            try:
                return await calls(client)
            finally:
                await client.flushall()

    ours = on(database, calls, **how)
    assert len(ours) == 15
    assert ours == asyncio.run(on_a_server())


def test_many_tasks_share_a_pool(database: headrace.Database, how: dict[str, Any]) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        async def work(name: int) -> None:
            for number in range(20):
                await client.xadd("s", {"by": name, "n": number})
                await client.incr("n")

        await asyncio.gather(*[work(name) for name in range(10)])
        assert await client.get("n") == "200" and await client.xlen("s") == 200

    on(database, deed, **how)


def test_counting_in_transactions_loses_nothing(database: headrace.Database, how: dict[str, Any]) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        async def add_one(pipe: Any) -> None:
            before = int(await pipe.get("n") or 0)
            await asyncio.sleep(0)
            pipe.multi()
            pipe.set("n", before + 1)

        async def count() -> None:
            for _ in range(10):
                await client.transaction(add_one, "n")

        await asyncio.gather(*[count() for _ in range(4)])
        assert await client.get("n") == "40"

    on(database, deed, **how)


def test_an_answer_larger_than_the_stream_holds_comes_through(
    database: headrace.Database, protocol: int
) -> None:
    blobs = [random.Random(number).randbytes(100_000).hex() for number in range(20)]

    async def deed(client: redis.asyncio.Redis) -> None:
        async with client.pipeline(transaction=False) as pipe:
            for blob in blobs:
                pipe.xadd("s", {"blob": blob})
            await pipe.execute()
        for _ in range(3):
            assert [fields["blob"] for _, fields in await client.xrange("s")] == blobs

    on(database, deed, protocol=protocol)


# Waiting.


@pytest.mark.parametrize("by", ["a task", "a thread", "the stream"])
def test_a_blocked_read_ends_when_an_entry_comes(database: headrace.Database, how: Any, by: str) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        reading = asyncio.create_task(client.xread({"s": "$"}, block=0))
        await async_wait_until(lambda: blocked(database) == 1)
        if by == "a task":
            await client.xadd("s", {"by": by})
        elif by == "a thread":
            with database.client() as other:
                await asyncio.to_thread(other.xadd, "s", {"by": by})
        else:
            await asyncio.to_thread(database.stream("s").add, {"by": by})
        assert by in str(await reading)

    on(database, deed, **how)


def test_a_blocked_read_ends_at_its_time_with_nothing_else_going_on(
    database: headrace.Database, how: Any
) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        begin = time.monotonic()
        assert not await client.xread({"s": "$"}, block=150)
        assert time.monotonic() - begin >= 0.149

    on(database, deed, **how)


def test_cancelling_ends_the_wait_in_the_engine(database: headrace.Database, how: Any) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        await client.xgroup_create("s", "g", mkstream=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.xreadgroup("g", "c", {"s": ">"}, block=0), 0.05)
        tasks = [asyncio.create_task(client.xreadgroup("g", "c", {"s": ">"}, block=0)) for _ in range(5)]
        await async_wait_until(lambda: blocked(database) == 5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert blocked(database) == 0
        await client.xadd("s", {"a": "b"})
        assert (await client.xpending("s", "g"))["pending"] == 0  # nobody who is gone was served
        assert len(await client.xreadgroup("g", "c", {"s": ">"}, block=0)) == 1

    on(database, deed, **how)


def test_a_read_that_outlasts_the_timeout_is_given_up(database: headrace.Database, how: Any) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        with pytest.raises(redis.TimeoutError):
            await client.xread({"s": "$"}, block=0)
        assert blocked(database) == 0
        assert await client.xadd("s", {"a": "b"}, id="1-1") == "1-1"

    on(database, deed, socket_timeout=0.05, retry=ONCE, **how)


def test_a_connection_killed_between_two_calls_is_not_noticed(database: headrace.Database, how: Any) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        mine = await client.client_id()
        with database.client() as other:
            assert other.client_kill_filter(_id=mine) == 1
        assert await client.ping() and await client.client_id() != mine

    on(database, deed, **how)


def test_a_killed_connection_ends_its_wait(database: headrace.Database, how: Any) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        reading = asyncio.create_task(client.xread({"s": "$"}, block=0))
        await async_wait_until(lambda: blocked(database) == 1)
        with database.client(decode_responses=True) as other:
            waiting = next(c["id"] for c in other.client_list() if "b" in c["flags"])
            assert other.client_kill_filter(_id=waiting) == 1
        with pytest.raises(redis.ConnectionError):
            await reading
        assert await client.ping()

    on(database, deed, retry=ONCE, **how)


# Channels.


def test_channels_are_listened_to(database: headrace.Database, how: Any) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        async with client.pubsub(ignore_subscribe_messages=True) as listener:
            await listener.subscribe("news")
            await listener.psubscribe("we*")

            async def hear() -> list[str]:
                heard = []
                async for message in listener.listen():
                    heard.append(message["data"])
                    if message["data"] == "last":
                        return heard
                return heard

            hearing = asyncio.create_task(hear())
            await async_wait_until(lambda: listener.subscribed)
            with database.client() as other:
                for number in range(300):
                    await asyncio.to_thread(other.publish, "news", number)
            await client.publish("weather", "last")
            assert await hearing == [*map(str, range(300)), "last"]
            assert await listener.get_message(timeout=0.01) is None

    on(database, deed, **how)


# Loops and the end.


def test_two_loops_in_two_threads_use_one_database(database: headrace.Database, how: Any) -> None:
    async def deed(client: redis.asyncio.Redis, mine: str, other: str) -> list[str]:
        last, heard = "0", []
        for number in range(30):
            await client.xadd(other, {"n": number})
            found = await client.xread({mine: last}, block=0, count=1)
            entries = found[mine][0] if isinstance(found, dict) else found[0][1]
            last = entries[0][0]
            heard.append(entries[0][1]["n"])
        return heard

    heard: dict[str, list[str]] = {}

    async def whole(mine: str, other: str) -> None:
        async with database.async_client(decode_responses=True, **how) as client:
            heard[mine] = await asyncio.wait_for(deed(client, mine, other), SECONDS)

    threads = [
        threading.Thread(target=asyncio.run, args=(whole(mine, other),))
        for mine, other in (("ping", "pong"), ("pong", "ping"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert heard == {name: [str(number) for number in range(30)] for name in ("ping", "pong")}
    assert sessions(database) == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_that_nobody_closed_leaves_no_session(database: headrace.Database, how: Any) -> None:
    async def careless() -> None:
        client = database.async_client(**how)
        await client.ping()
        asyncio.create_task(client.xread({"s": "$"}, block=0))  # noqa: RUF006
        await async_wait_until(lambda: blocked(database) == 1)

    asyncio.run(careless())
    gc.collect()
    assert (sessions(database), blocked(database)) == (0, 0)


def test_a_closed_database_is_a_lost_connection_at_once(how: Any) -> None:
    async def whole() -> None:
        database = headrace.open()
        client = database.async_client(**how)
        reading = asyncio.create_task(client.xread({"s": "$"}, block=0))
        await async_wait_until(lambda: blocked(database) == 1)
        await asyncio.to_thread(database.close)
        for each in (reading, client.ping()):
            with pytest.raises(redis.ConnectionError):
                await asyncio.wait_for(each, SECONDS)
        await client.aclose()

    asyncio.run(whole())


def test_a_blocked_reader_gets_the_error_of_the_disk(
    database: headrace.Database, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def whole() -> None:
        client = database.async_client(protocol=protocol, retry=Retry(NoBackoff(), 0))
        reading = asyncio.create_task(client.xreadgroup("g", "c", {"s": ">"}, block=0))
        await async_wait_until(lambda: blocked(database) == 1)

        def receive(session: EngineSession, timeout: float | None) -> bytes:
            raise NotOnDisk("simulated")

        monkeypatch.setattr(EngineSession, "receive", receive)
        await asyncio.to_thread(database.stream("s").add, {"n": 1})
        with pytest.raises((redis.ConnectionError, NotOnDisk)):
            await asyncio.wait_for(reading, SECONDS)
        monkeypatch.undo()
        await client.aclose()

    database.client().xgroup_create("s", "g", mkstream=True)
    asyncio.run(whole())


def test_a_loop_goes_on_while_the_disk_is_at_work(tmp_path: Any, protocol: int) -> None:
    async def deed(client: redis.asyncio.Redis) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        for number in range(20):
            before = ticks
            await client.xadd("s", {"n": number}, id=f"{number + 1}-0")
            assert ticks > before
        ticking.cancel()
        ids = await asyncio.gather(*[client.xadd("t", {"n": number}) for number in range(50)])
        assert sorted(ids) == [i for i, _ in await client.xrange("t")]

    with headrace.open(tmp_path / "data") as database:
        on(database, deed, protocol=protocol)
    with headrace.open(tmp_path / "data") as database:
        assert [i for i, _ in database.client().xrange("s")] == [b"%d-0" % n for n in range(1, 21)]
        assert database.client().xlen("t") == 50


def test_the_client_of_a_server_is_redis_py_on_its_url(server_url: str, protocol: int) -> None:
    async def whole() -> None:
        with headrace.connect(server_url + "/5") as database:
            async with database.async_client(protocol=protocol, decode_responses=True) as client:
                await client.flushdb()
                database.stream("s").add({"a": "b"}, id="1-1")
                assert await client.xrange("s") == [("1-1", {"a": "b"})]
                await client.flushdb()
            with pytest.raises(headrace.HeadraceError, match="URL"):
                database.async_connection_class()

    asyncio.run(whole())
