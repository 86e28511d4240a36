"""Waiting for what other threads, tasks or processes are about to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import redis

SECONDS_MAX = 60.0  # only a test that fails waits so long
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


async def ended(worker: asyncio.Task[Any]) -> None:
    """Cancel the worker until it ends: now and then one cancellation is lost in its client library."""
    deadline = time.monotonic() + SECONDS_MAX
    while not worker.done():
        assert time.monotonic() < deadline, "the worker does not end"
        worker.cancel()
        await asyncio.wait([worker], timeout=0.2)
    await asyncio.gather(worker, return_exceptions=True)


def answers(client: redis.Redis) -> bool:
    """Whether the server has started and loaded its data."""
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
