"""Waiting for what other threads, tasks or processes are about to do."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import redis

SECONDS_MAX = 400.0  # only a test that fails waits so long
PAUSE_S = 0.005


def wait_until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait for what another thread, or process, is about to do."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what} in vain"
        time.sleep(PAUSE_S)


async def async_wait_until(condition: Callable[[], object]) -> None:
    """Wait for what another task, or thread, is about to do."""
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(PAUSE_S)


@contextlib.asynccontextmanager
async def at_work(worker: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Have a library's worker run meanwhile; then it is cancelled, with all that it has begun, until it ends.

    Now and then one cancellation is lost in its client library, and the worker waits on for what it began.
    """
    others = asyncio.all_tasks()
    task = asyncio.create_task(worker)
    try:
        yield task
    finally:
        deadline = time.monotonic() + SECONDS_MAX
        while not task.done():
            assert time.monotonic() < deadline, "the worker does not end"
            for begun in asyncio.all_tasks() - others:
                begun.cancel()
            await asyncio.wait([task], timeout=0.2)
        await asyncio.gather(task, return_exceptions=True)


def answers(client: redis.Redis) -> bool:
    """Whether the server has started and loaded its data."""
    try:
        return bool(client.ping())
    except redis.AuthenticationError:  # it wants a password first
        return True
    except redis.RedisError:
        return False
