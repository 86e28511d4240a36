"""Fixtures for pytest: a database in memory, a clock that the test turns, a redis-py client.

Installed with headrace and found by pytest itself; nothing to import or to declare:

    def test_an_order_is_taken_over(headrace_db, headrace_clock):
        group = headrace_db.stream("orders").group("billing", lease=60)
        …
        headrace_clock.advance(minutes=10)      # leases are over, back-off too, keys expire

Each test gets its own database, with nothing in it. Time stands still between two calls of `advance`, so what
a test sees does not depend on how fast the machine is. Without pytest the same is two lines:

    clock = ManualClock()
    db = headrace.open(clock=clock)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.api.local.clock import ManualClock

if TYPE_CHECKING:  # pytest loads this module in every project that has headrace: it must cost nothing
    import redis

    from headrace.api.database import Database

__all__ = ["ManualClock", "headrace_client", "headrace_clock", "headrace_db"]


@pytest.fixture
def headrace_clock() -> ManualClock:
    """The clock of `headrace_db`: `headrace_clock.advance(minutes=10)`.

    Ids, idle times, leases, back-off, expiry and the time-outs of blocked reads go by it. Whoever sleeps or
    waits by this clock, in whatever thread, wakes up when its time has come by an `advance`.
    """
    return ManualClock()


@pytest.fixture
def headrace_db(headrace_clock: ManualClock) -> Iterator[Database]:
    """A `Database` in memory, empty, on `headrace_clock`; closed when the test is over."""
    with headrace.open(clock=headrace_clock) as db:
        yield db


@pytest.fixture
def headrace_client(headrace_db: Database) -> Iterator[redis.Redis]:
    """A `redis.Redis` on `headrace_db` with `decode_responses=True`: for code that is written on redis-py."""
    client = headrace_db.client(decode_responses=True)
    yield client
    client.close()
