"""Following a stream in asyncio: everything once and in order, and an end at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest

import headrace
from headrace.api.backend import Stop
from headrace.errors import DatabaseClosed

SECONDS_MAX = 20.0  # for what happens at once unless something is broken


def number(entry: headrace.Entry[Any]) -> int:
    return int(entry["n"])


def test_what_is_there_comes_first_and_then_what_is_added(database: headrace.Database) -> None:
    stream = database.stream("numbers")
    stream.add_many({"n": n} for n in range(600))

    async def read() -> list[int]:
        found = []
        async for entry in stream.follow_async(after="0"):
            found.append(number(entry))
            if len(found) == 605:
                break
            if len(found) >= 600:
                stream.add({"n": len(found)})
        return found

    assert asyncio.run(asyncio.wait_for(read(), SECONDS_MAX)) == list(range(605))


def test_from_now_on_is_from_the_first_wait_on(database: headrace.Database) -> None:
    stream = database.stream("numbers")
    stream.add({"n": 0})

    async def read() -> int:
        entries = stream.follow_async()
        first = asyncio.ensure_future(anext(entries))
        n = 1
        while not first.done():  # one of these is the first that it sees
            stream.add({"n": n})
            n += 1
            await asyncio.sleep(0.005)
        seen = number(first.result())
        stream.add({"n": n})
        assert number(await anext(entries)) == seen + 1
        await entries.aclose()
        return seen

    assert asyncio.run(asyncio.wait_for(read(), SECONDS_MAX)) > 0


def test_the_loop_goes_on_meanwhile_and_stop_ends_it(database: headrace.Database) -> None:
    stream, stop = database.stream("numbers"), Stop()

    async def read() -> tuple[list[int], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while not stop.is_set():
                await asyncio.sleep(0.001)
                ticks += 1
                if ticks == 20:
                    threading.Thread(target=stop.set).start()

        ticking = asyncio.ensure_future(tick())
        found = [number(entry) async for entry in stream.follow_async(stop=stop)]
        await ticking
        return found, ticks

    found, ticks = asyncio.run(asyncio.wait_for(read(), SECONDS_MAX))
    assert found == []
    assert ticks >= 20


def test_a_task_that_is_cancelled_leaves_no_thread_behind(database: headrace.Database) -> None:
    stream = database.stream("numbers")

    async def read() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream.follow_async()), 0.05)

    asyncio.run(asyncio.wait_for(read(), SECONDS_MAX))
    for thread in threading.enumerate():
        if "follow numbers" in thread.name:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()


def test_the_end_of_the_database_is_the_end_of_it() -> None:
    async def read() -> None:
        database = headrace.open()
        asyncio.get_running_loop().call_later(0.05, database.close)
        async for _ in database.stream("numbers").follow_async():
            raise AssertionError("there is nothing")

    with pytest.raises(DatabaseClosed):
        asyncio.run(asyncio.wait_for(read(), SECONDS_MAX))


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals are the main thread's"
)
def test_a_signal_ends_all_that_follow_with_a_stop(database: headrace.Database) -> None:
    stream = database.stream("numbers")
    stop = Stop()
    before = signal.getsignal(signal.SIGTERM)

    async def read() -> int:
        return len([entry async for entry in stream.follow_async(stop=stop)])

    async def read_twice() -> list[int]:
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
        return await asyncio.wait_for(asyncio.gather(read(), read()), SECONDS_MAX)

    with stop.on_signals():
        assert asyncio.run(read_twice()) == [0, 0]
    assert signal.getsignal(signal.SIGTERM) is before
