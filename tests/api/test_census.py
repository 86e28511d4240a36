"""Followers and consumers leave no reference cycle, descriptor or thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import headrace
from headrace.api.backend import Stop
from headrace.api.consuming.async_consumer import run as run_async
from support.census import TIMES, assert_nothing_left
from support.waiting import wait_until

ENTRIES = 3
OURS = "headrace.api."  # of a remote database: redis-py has cycles of its own


class Site:
    """A database, one stream in it, and an event loop."""

    def __init__(self, database: headrace.Database, loop: asyncio.AbstractEventLoop) -> None:
        self.database = database
        self.loop = loop
        self.stream = database.stream("orders")

    def group(self, **policy: Any) -> Any:
        """Return a new group that has read no entry."""
        self.database.execute("DEL", "orders", "orders:billing:dead")
        self.stream.add_many({"n": n} for n in range(ENTRIES))
        return self.stream.group("billing", **policy)

    # Followers.

    def follow(self) -> None:
        """Follow until stop() is called."""
        self.group()
        stop = Stop()
        for number, _ in enumerate(self.stream.follow(after="0", stop=stop), 1):
            if number == ENTRIES:
                stop.set()

    def leave_following(self) -> None:
        """Leave the iteration."""
        self.group()
        for _ in self.stream.follow(after="0"):
            break

    def follow_async(self) -> None:
        """Follow in asyncio until the task is cancelled while it waits."""
        self.group()

        async def work() -> None:
            async def follow() -> None:
                async for _ in self.stream.follow_async(after="0"):
                    seen.append(1)

            seen: list[int] = []
            task = asyncio.create_task(follow())
            while len(seen) < ENTRIES:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

        self.loop.run_until_complete(work())

    # Consumers.

    def iterate(self) -> None:
        """Handle all entries in a loop."""
        assert len(list(self.group().consumer(block=0))) == ENTRIES

    def leave_iterating(self) -> None:
        """Leave the loop by an error."""

        def handle_all() -> None:
            for entry in self.group().consumer("w", block=0):
                raise ValueError(entry.id)

        with pytest.raises(ValueError):
            handle_all()

    def run(self) -> None:
        """Handle all entries in threads; one fails."""

        def handle(entry: Any) -> None:
            if entry["n"] == b"1":
                raise ValueError(entry.id)

        self.group(max_deliveries=1).consumer(block=0, concurrency=2).run(handle)

    def run_async(self) -> None:
        """Handle all entries in asyncio; one fails."""

        async def handle(entry: Any) -> None:
            if entry["n"] == b"1":
                raise ValueError(entry.id)

        consumer = self.group(max_deliveries=1).consumer(block=0, concurrency=2)
        self.loop.run_until_complete(run_async(consumer, handle))


KINDS: dict[str, Callable[[Site], None]] = {
    "a follower": Site.follow,
    "a follower that is left": Site.leave_following,
    "an async follower": Site.follow_async,
    "a loop": Site.iterate,
    "a loop that is left by an error": Site.leave_iterating,
    "a handler in threads": Site.run,
    "an async handler": Site.run_async,
}


@pytest.fixture
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("name", KINDS)
def test_a_reader_leaves_nothing(
    database: headrace.Database, kind: str, event_loop: asyncio.AbstractEventLoop, name: str, times: int
) -> None:
    # The thread of an earlier test's followers stays for a second, and its database as long.
    wait_until(lambda: not any(one.name == "headrace followers" for one in threading.enumerate()))
    site = Site(database, event_loop)
    if kind == "near":
        assert_nothing_left(lambda: KINDS[name](site), times)
        return
    pool = database.backend.topology.client().connection_pool
    close_idle = partial(pool.disconnect, inuse_connections=False)
    assert_nothing_left(lambda: KINDS[name](site), times, OURS, close_idle)
