"""Entries that were removed before a program has read or processed them: counters and warnings in Python."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
from headrace.api import stream_gaps
from headrace_server import headrace_server


@pytest.fixture(params=["in memory", "server"])
def db(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[headrace.Database]:
    """A database; followers look for gaps before each read."""
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", 0.0)
    if request.param == "in memory":
        with headrace.open() as opened:
            yield opened
    else:
        with headrace_server() as port, headrace.connect(f"redis://127.0.0.1:{port}") as connected:
            yield connected


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "headrace.stream"]


def add(stream: Any, first: int, last: int) -> None:
    for n in range(first, last + 1):
        stream.add({"n": n}, id=f"{n}-0")


def test_a_group_says_what_it_has_lost(db: headrace.Database) -> None:
    orders = db.stream("orders")
    add(orders, 1, 8)
    group = orders.group("billing")
    for delivery in group.consumer("ann", fetch_count=2, block=0.1):
        delivery.ack()
        break
    assert (group.info().lost_unread, group.info().lost_pending) == (0, 0)
    read = group.info().entries_read
    assert read is not None
    orders.trim(minid="8-0")
    assert group.info().lost_unread == 7 - read


def test_a_consumer_counts_what_was_deleted_while_it_had_it(db: headrace.Database) -> None:
    orders = db.stream("orders")
    add(orders, 1, 1)
    consumer = orders.group("billing", lease=0.3).consumer("ann", block=1.5)
    for delivery in consumer:
        orders.delete(delivery.id)
        delivery.retry(after=0.01)
    assert (consumer.counters.missing, consumer.counters.lost) == (1, 0)


def test_a_follower_warns_of_entries_that_were_removed_before_it_read_them(
    db: headrace.Database, caplog: pytest.LogCaptureFixture
) -> None:
    orders = db.stream("orders")
    add(orders, 1, 4)
    follower = orders.follow(after="0")
    assert [str(next(follower).id) for _ in range(4)] == ["1-0", "2-0", "3-0", "4-0"]
    add(orders, 5, 20)
    orders.trim(minid="19-0")
    assert [str(next(follower).id) for _ in range(2)] == ["19-0", "20-0"]
    assert warnings(caplog) == [
        "stream orders: 14 entries removed before they were read, between 0-0 and 19-0"
    ]


def test_a_follower_that_continues_after_a_trimmed_position_is_warned(
    db: headrace.Database, caplog: pytest.LogCaptureFixture
) -> None:
    orders = db.stream("orders")
    add(orders, 1, 20)
    for after in ("0", "4-0", "20-0"):
        next_one = orders.follow(after=after)
        if after != "20-0":
            assert str(next(next_one).id) == "1-0" if after == "0" else "5-0"
    assert warnings(caplog) == [], "nothing is missing"
    orders.trim(minid="19-0")
    assert str(next(orders.follow(after="0")).id) == "19-0"
    assert warnings(caplog) == [], "it asked for whatever there is"
    assert str(next(orders.follow(after="4-0")).id) == "19-0"
    assert warnings(caplog) == ["stream orders: entries between 4-0 and 19-0 may have been removed unread"]


def test_a_follower_in_asyncio_warns_too(db: headrace.Database, caplog: pytest.LogCaptureFixture) -> None:
    orders = db.stream("orders")
    add(orders, 1, 4)

    async def follow() -> list[str]:
        seen = []
        async for entry in orders.follow_async(after="0"):
            seen.append(str(entry.id))
            if seen[-1] == "4-0":
                await asyncio.to_thread(add, orders, 5, 20)
                await asyncio.to_thread(orders.trim, minid="20-0")
            if seen[-1] == "20-0":
                break
        return seen

    assert asyncio.run(follow())[-1] == "20-0"
    assert warnings(caplog) == [
        "stream orders: 15 entries removed before they were read, between 0-0 and 20-0"
    ]
