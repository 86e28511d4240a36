"""Fixtures for pytest: a database in memory, its manual clock, and a redis-py client.

pytest finds them automatically once headrace is installed; a test needs no import:

    def test_an_order_is_claimed_by_another_consumer(headrace_db, headrace_clock):
        group = headrace_db.stream("orders").group("billing", lease=60)
        …
        headrace_clock.advance(minutes=10)      # leases and back-off end, keys expire

Each test gets its own empty database. Time advances only when the test calls `advance`, so the result does
not depend on the speed of the machine. Without pytest:

    clock = ManualClock()
    db = headrace.open(clock=clock)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.api.local.clock import ManualClock

if TYPE_CHECKING:  # pytest loads this module in every project that has headrace: keep the import cheap
    import redis

    from headrace.api.database import Database

__all__ = ["ManualClock", "headrace_client", "headrace_clock", "headrace_db"]


@pytest.fixture
def headrace_clock() -> ManualClock:
    """The clock of `headrace_db`: `headrace_clock.advance(minutes=10)`.

    IDs, idle times, leases, back-off, expiry and timeouts of blocked reads use it. A thread that sleeps by
    this clock wakes up when `advance` passes the end of its sleep.
    """
    return ManualClock()


@pytest.fixture
def headrace_db(headrace_clock: ManualClock) -> Iterator[Database]:
    """An empty `Database` in memory that uses `headrace_clock`; it is closed after the test."""
    with headrace.open(clock=headrace_clock) as db:
        yield db


@pytest.fixture
def headrace_client(headrace_db: Database) -> Iterator[redis.Redis]:
    """A `redis.Redis` client of `headrace_db` with `decode_responses=True`, for code written for redis-py."""
    client = headrace_db.client(decode_responses=True)
    yield client
    client.close()
