"""Entries that were removed before a program has read or processed them: counters and warnings in Python."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import headrace
from headrace.api import stream_gaps
from headrace.api.stream_gaps import GapWatch, StreamGap
from headrace.api.stream_id import StreamID
from support.headrace_server import headrace_server
from support.waiting import wait_until


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


def replace(stream: Any, first: int, last: int) -> None:
    """Add entries, each of which replaces all before it."""
    for n in range(first, last + 1):
        stream.add({"n": n}, id=f"{n}-0", maxlen=1, approximate=False)


def test_a_gap_is_found_while_the_stream_is_quiet(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", 0.5)
    orders = db.stream("orders")
    add(orders, 1, 3)
    stop = headrace.Stop()
    follower = orders.follow(after="0", stop=stop)
    seen = [str(next(follower).id) for _ in range(3)]
    replace(orders, 20, 29)
    thread = threading.Thread(target=lambda: seen.extend(str(entry.id) for entry in follower))
    thread.start()
    try:
        wait_until(lambda: bool(follower.gaps))
    finally:
        stop.set()
        thread.join()
    assert seen == ["1-0", "2-0", "3-0", "29-0"]
    assert follower.gaps == [StreamGap(StreamID(0, 0), StreamID(29, 0), 9)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_nothing_after_a_gap_is_delivered_with_raise(
    db: headrace.Database, monkeypatch: pytest.MonkeyPatch, is_async: bool, waits: bool
) -> None:
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", 3600.0)
    orders = db.stream("orders")
    add(orders, 1, 3)
    seen = []
    timers: list[threading.Timer] = []
    stop = headrace.Stop()

    def lose_entries() -> None:
        if waits:  # in one step, so that the read that waits gets the last entry only
            words = [
                (b"XADD", b"orders", b"MAXLEN", b"=", b"1", b"%d-0" % n, b"n", b"1") for n in range(20, 30)
            ]
            timers.append(threading.Timer(0.2, db.backend.request_all, (words, True)))
            timers[0].start()
        else:
            replace(orders, 20, 29)

    async def follow_async() -> None:
        async for entry in orders.follow_async(after="0", stop=stop, on_gap="raise"):
            seen.append(str(entry.id))
            if seen[-1] == "3-0":
                lose_entries()

    def follow() -> None:
        for entry in orders.follow(after="0", stop=stop, on_gap="raise"):
            seen.append(str(entry.id))
            if seen[-1] == "3-0":
                lose_entries()

    with pytest.raises(StreamGap) as caught:
        asyncio.run(follow_async()) if is_async else follow()
    for timer in timers:  # it may still wait for a reply, which the end of the test would cut off
        timer.join()
    assert seen == ["1-0", "2-0", "3-0"]
    assert (caught.value.before, caught.value.missing) == (StreamID(29, 0), 9)


def test_entries_that_are_read_in_time_are_no_gap(db: headrace.Database) -> None:
    orders = db.stream("orders")
    add(orders, 1, 1)
    follower = orders.follow(after="0", on_gap="raise")
    assert str(next(follower).id) == "1-0"
    for n in range(2, 20):
        replace(orders, n, n)
        assert str(next(follower).id) == f"{n}-0"
    replace(orders, 20, 21)
    with pytest.raises(StreamGap, match=r"^1 entry removed"):
        next(follower)


def stream_info(added: int, first: int, last: int) -> dict[str, Any]:
    entry = [b"%d-0" % first, [b"n", b"1"]]
    length = last - first + 1
    return {
        "entries-added": added,
        "length": length,
        "last-generated-id": b"%d-0" % last,
        "first-entry": entry if length else None,
    }


def test_a_check_counts_the_entries_that_were_read_before_it() -> None:
    watch = GapWatch("s", StreamID(0, 0), "raise")
    unread = [[b"%d-0" % n, [b"n", b"1"]] for n in range(1, 6)]
    assert watch.find_gap(stream_info(8, 4, 8), unread) is None  # 1 to 3 were removed after they were read
    for n in range(1, 6):
        watch.record_read(StreamID(n, 0))
    assert watch.find_gap(stream_info(8, 4, 8)) is None
    gap = watch.find_gap(stream_info(10, 9, 10), [[b"9-0", [b"n", b"1"]]])
    assert gap is not None and (gap.before, gap.missing) == (StreamID(9, 0), 3)


def test_after_a_check_nothing_is_due_until_the_next_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = GapWatch("s", StreamID(0, 0))
    assert watch.seconds_until_due() == 0.0
    watch.find_gap(stream_info(1, 1, 1))
    assert watch.seconds_until_due() is None
    watch.record_read(StreamID(1, 0))
    left = watch.seconds_until_due()
    assert left is not None and 0 < left <= stream_gaps.CHECK_INTERVAL_S
    watch.schedule_next_check()  # the user may not ask
    assert watch.seconds_until_due() is None
