"""Entries that were removed before a group has read them: what its consumers count, log and raise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import headrace
from headrace.api import stream_gaps
from headrace.api.group_gaps import GroupGapWatch
from headrace.api.stream_gaps import StreamGap
from headrace.api.stream_id import StreamID
from headrace.errors import AccessDenied, UsageError
from support.redis_programs import PACKAGED
from support.redis_server import redis_server

HOUR = 3600.0


@pytest.fixture(autouse=True)
def check_each_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let consumers look for gaps before each read that does not wait."""
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", 0.0)


@pytest.fixture
def redis_8() -> Iterator[headrace.Database]:
    with redis_server(kind=PACKAGED) as port, headrace.connect(f"redis://127.0.0.1:{port}") as db:
        yield db


def add(stream: Any, first: int, last: int) -> None:
    for n in range(first, last + 1):
        stream.add({"n": n}, id=f"{n}-0")


def read_by_another(database: headrace.Database, count: int) -> None:
    """Let another consumer read entries and acknowledge them; then remove it."""
    words = ("GROUP", "billing", "other", "COUNT", str(count), "STREAMS", "orders", ">")
    [[_, entries]] = database.execute("XREADGROUP", *words)
    database.execute("XACK", "orders", "billing", *(entry[0] for entry in entries))
    database.execute("XGROUP", "DELCONSUMER", "orders", "billing", "other")


def consume(consumer: Any, how: str) -> list[str]:
    """Return the IDs of the entries that a consumer gets until none is left."""
    seen: list[str] = []

    async def iterate() -> None:
        async for entry in consumer:
            seen.append(str(entry.id))

    if how == "loop":
        seen.extend(str(entry.id) for entry in consumer)
    elif how == "asyncio":
        asyncio.run(iterate())
    elif how == "run":
        consumer.run(lambda entry: seen.append(str(entry.id)))
    else:
        for batch in consumer.batches(size=3, seconds=0):
            seen.extend(str(entry.id) for entry in batch)
    return seen


def consume_trimming(consumer: Any, stream: Any, trims: dict[str, str]) -> list[str]:
    """Return the IDs of the entries of a loop; after some of them, trim the stream up to another ID."""
    seen: list[str] = []
    for entry in consumer:
        seen.append(str(entry.id))
        if seen[-1] in trims:
            stream.trim(minid=trims[seen[-1]])
    return seen


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "headrace.consumer"]


@pytest.mark.parametrize("how", ["loop", "asyncio", "run", "batches"])
def test_entries_that_were_removed_while_no_consumer_ran_are_counted(
    database: headrace.Database, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    orders = database.stream("orders")
    add(orders, 1, 10)
    group = orders.group("billing")
    group.create()
    read_by_another(database, 2)
    orders.trim(minid="8-0")
    consumer = group.consumer("ann", block=0)
    assert consume(consumer, how) == ["8-0", "9-0", "10-0"]
    assert consumer.counters.skipped == 5
    assert consumer.gaps == [StreamGap(StreamID(2, 0), StreamID(8, 0), 5)]
    assert warnings(caplog) == [
        "orders billing ann: 5 entries removed before they were read, between 2-0 and 8-0"
    ]
    again = group.consumer("ann", block=0)
    assert consume(again, how) == [] and again.counters.skipped == 0


@pytest.mark.parametrize("interval", [0.0, HOUR])
@pytest.mark.parametrize("is_alone", [True, False])
def test_entries_that_are_removed_while_a_consumer_runs_are_counted(
    database: headrace.Database, monkeypatch: pytest.MonkeyPatch, interval: float, is_alone: bool
) -> None:
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", interval)
    orders = database.stream("orders")
    add(orders, 1, 10)
    group = orders.group("billing")
    consumer = group.consumer("ann", block=0, fetch_count=1)
    if not is_alone:
        database.execute("XGROUP", "CREATECONSUMER", "orders", "billing", "bob")
    seen = consume_trimming(consumer, orders, {"2-0": "8-0"})
    assert seen == ["1-0", "2-0", "8-0", "9-0", "10-0"]
    assert consumer.counters.skipped == 5
    assert sum(gap.missing or 0 for gap in consumer.gaps) == 5


def test_two_gaps_are_counted_once_each(database: headrace.Database) -> None:
    orders = database.stream("orders")
    add(orders, 1, 20)
    consumer = orders.group("billing").consumer("ann", block=0, fetch_count=1)
    seen = consume_trimming(consumer, orders, {"2-0": "8-0", "9-0": "19-0"})
    assert seen == ["1-0", "2-0", "8-0", "9-0", "19-0", "20-0"]
    assert [gap.missing for gap in consumer.gaps] == [5, 9]
    assert consumer.counters.skipped == 14


@pytest.mark.parametrize("how", ["trim", "delete"])
def test_removing_entries_that_were_read_is_no_gap(database: headrace.Database, how: str) -> None:
    orders = database.stream("orders")
    group = orders.group("billing")
    consumers = [group.consumer(name, block=0, fetch_count=2, on_gap="raise") for name in ("ann", "bob")]
    for first in range(1, 40, 4):
        add(orders, first, first + 3)
        for consumer in consumers:
            for entry in consumer:
                if how == "delete":
                    orders.delete(entry.id)
                else:
                    orders.trim(minid=entry.id)
                if int(entry["n"]) % 4 == 2 and consumer is consumers[0]:
                    break
    assert [consumer.counters.skipped for consumer in consumers] == [0, 0]
    assert min(consumer.counters.handled for consumer in consumers) > 0


def test_a_group_that_begins_in_a_trimmed_stream_has_missed_nothing(database: headrace.Database) -> None:
    orders = database.stream("orders")
    add(orders, 1, 10)
    orders.trim(minid="5-0")
    for start in ("0", "$", "2-0", "7-0"):
        group = orders.group(f"from {start}", start)
        group.create()
        if start == "$":
            add(orders, 11, 12)
        consumer = group.consumer("ann", block=0, on_gap="raise")
        assert consume(consumer, "loop") and consumer.counters.skipped == 0


@pytest.mark.parametrize("how", ["loop", "asyncio", "run", "batches"])
def test_a_gap_is_raised_once_and_no_entry_after_it_is_lost(database: headrace.Database, how: str) -> None:
    orders = database.stream("orders")
    add(orders, 1, 10)
    group = orders.group("billing")
    group.create()
    read_by_another(database, 2)
    orders.trim(minid="8-0")
    consumer = group.consumer("ann", block=0, on_gap="raise")
    with pytest.raises(StreamGap) as caught:
        consume(consumer, how)
    assert caught.value == StreamGap(StreamID(2, 0), StreamID(8, 0), 5)
    assert consumer.counters.handled == 0 and consumer.counters.skipped == 5
    again = group.consumer("ann", block=0.5, on_gap="raise")
    assert sorted(consume(again, how)) == ["10-0", "8-0", "9-0"]
    assert again.counters.skipped == 0 and group.info().pending == 0


@pytest.mark.parametrize("is_async", [False, True])
def test_nothing_after_a_gap_is_delivered_by_a_read_that_waits(
    database: headrace.Database, is_async: bool
) -> None:
    orders = database.stream("orders")
    add(orders, 1, 3)
    consumer = orders.group("billing").consumer("ann", on_gap="raise")
    seen = []
    timers = []

    def lose_entries() -> None:  # in one step, so that the read that waits gets the last entry only
        options = (b"MAXLEN", b"=", b"1")
        words = [(b"XADD", b"orders", *options, b"%d-0" % n, b"n", b"1") for n in range(20, 30)]
        timers.append(threading.Timer(0.3, database.backend.request_all, (words, True)))
        timers[-1].start()

    async def iterate() -> None:
        async for entry in consumer:
            seen.append(str(entry.id))
            if seen[-1] == "3-0":
                lose_entries()

    def run(entry: Any) -> None:
        seen.append(str(entry.id))
        if seen[-1] == "3-0":
            lose_entries()

    with pytest.raises(StreamGap) as caught:
        asyncio.run(iterate()) if is_async else consumer.run(run)
    for timer in timers:
        timer.join()  # before the fixture closes the connection on which it waits for its reply
    assert seen == ["1-0", "2-0", "3-0"]
    assert caught.value.missing == 9


def test_each_consumer_of_a_group_counts_and_an_app_once(database: headrace.Database) -> None:
    orders = database.stream("orders")
    add(orders, 1, 10)
    orders.group("billing").create()
    read_by_another(database, 2)
    orders.trim(minid="8-0")
    app = headrace.App()
    both = threading.Barrier(2, timeout=20)

    def bill(entry: Any) -> None:
        if str(entry.id) in ("8-0", "9-0"):
            both.wait()

    for name in ("ann", "bob"):
        app.handler("orders", group="billing", consumer=name, fetch_count=1)(bill)
    total = app.run_once(database)
    assert total.handled == 3
    assert total.skipped == 5


def test_an_app_and_a_handler_can_raise(database: headrace.Database) -> None:
    orders = database.stream("orders")
    add(orders, 1, 10)
    orders.group("billing").create()
    read_by_another(database, 2)
    orders.trim(minid="8-0")
    group = orders.group("billing")
    group.handler(consumer="ann", block=0, on_gap="raise")(lambda entry: None)
    with pytest.raises(StreamGap):
        group.run()
    app = headrace.App()
    app.handler("orders", group="billing", consumer="bob", on_gap="raise")(lambda entry: None)
    add(orders, 11, 20)
    orders.trim(minid="20-0")
    with pytest.raises(StreamGap):
        app.run_once(database)


def test_an_ordered_group_counts_what_it_has_lost() -> None:
    with headrace.open() as db:
        orders = db.stream("orders")
        add(orders, 1, 10)
        group = orders.group("billing", ordered_by="n")
        consumer = group.consumer("ann", block=0.1, fetch_count=1)
        seen = consume_trimming(consumer, orders, {"2-0": "8-0"})
        assert seen[-3:] == ["8-0", "9-0", "10-0"]
        assert consumer.counters.skipped == group.info().lost_unread == 10 - len(seen)


@pytest.mark.parametrize("on_gap", ["warn", "raise"])
def test_a_consumer_that_may_not_ask_about_the_stream_says_that_it_finds_no_gaps(
    headrace_url: str, caplog: pytest.LogCaptureFixture, on_gap: stream_gaps.OnGap
) -> None:
    with redis.Redis.from_url(headrace_url) as admin:
        admin.flushall()
        rules = ["reset", "on", ">right", "~*", "&*", "+@all", "-xinfo|stream"]
        admin.execute_command("ACL", "SETUSER", "program", *rules)
        try:
            port = admin.connection_pool.connection_kwargs["port"]
            with headrace.connect(f"redis://program:right@127.0.0.1:{port}") as db:
                orders = db.stream("orders")
                add(orders, 1, 5)
                consumer = orders.group("billing").consumer("ann", block=0, fetch_count=1, on_gap=on_gap)
                if on_gap == "raise":
                    with pytest.raises(AccessDenied, match="NOPERM"):
                        consume(consumer, "loop")
                else:
                    assert len(consume(consumer, "loop")) == 5
                [warning] = warnings(caplog)
                assert "entries that are removed unread are not counted: NOPERM" in warning
        finally:
            admin.acl_deluser("program")


def test_consumers_of_many_groups_ask_rarely(database: headrace.Database, monkeypatch: Any) -> None:
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", 1.0)
    orders = database.stream("orders")
    add(orders, 1, 2)
    for n in range(300):
        orders.group(f"g{n}", create=True)
    watch = GroupGapWatch()
    about, groups = (database.execute("XINFO", what, "orders") for what in ("STREAM", "GROUPS"))
    for now, due in ((0, 1000), (1000, 4000)):
        watch.schedule_next_check(now)
        assert not watch.is_due(due - 1) and watch.is_due(due)
        watch.find_gap(about, groups, b"g7")


def test_what_is_done_about_a_gap_is_warn_or_raise(database: headrace.Database) -> None:
    with pytest.raises(UsageError, match='on_gap=\'stop\': must be "warn" or "raise"'):
        database.stream("orders").group("billing").consumer("ann", on_gap="stop")  # type: ignore[arg-type]


@pytest.mark.parametrize("interval", [0.0, HOUR])
def test_redis_8_counts_missing_entries_as_read(
    redis_8: headrace.Database, monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    monkeypatch.setattr(stream_gaps, "CHECK_INTERVAL_S", interval)
    orders = redis_8.stream("orders")
    add(orders, 1, 20)
    consumer = orders.group("billing").consumer("ann", block=0, fetch_count=1)
    seen = consume_trimming(consumer, orders, {"2-0": "8-0", "9-0": "12-0"})
    assert seen == ["1-0", "2-0", *(f"{n}-0" for n in (8, 9, *range(12, 21)))]
    assert consumer.counters.skipped == 7
    assert [gap.missing for gap in consumer.gaps] == ([7] if interval else [5, 2])


def replies(added: int, first: int, last: int, **group: Any) -> tuple[list[Any], list[Any]]:
    """Return replies of XINFO STREAM and XINFO GROUPS: of entries 1-0, 2-0 … the first ones were removed."""
    length = last - first + 1
    stream = {
        b"entries-added": added,
        b"length": length,
        b"last-generated-id": b"%d-0" % last,
        b"first-entry": [b"%d-0" % first, [b"n", b"1"]] if length else None,
    }
    fields = {"consumers": 1, "pending": 0, "lag": None, "entries-read": None, **group}
    fields["last-delivered-id"] = b"%d-0" % group["position"]
    rows = [word for name, value in fields.items() for word in (name.encode(), value)]
    return [word for pair in stream.items() for word in pair], [[b"name", b"g", *rows]]


def check(
    watch: GroupGapWatch, added: int, first: int, last: int, position: int, read: int | None, **more: Any
) -> int:
    """Return how many entries a check finds to be missing."""
    about = replies(added, first, last, position=position, **{"entries-read": read}, **more)
    gap = watch.find_gap(*about, b"g")
    return 0 if gap is None else gap.missing or 0


def test_entries_that_others_have_got_are_not_missing() -> None:
    for consumers in (1, 2):
        watch = GroupGapWatch()
        assert check(watch, 100, 1, 100, 10, 10, consumers=consumers) == 0
        watch.record_deliveries(10, b"60-0")  # others have got 40 entries, or those were removed
        missing = check(watch, 100, 55, 100, 60, 60, consumers=consumers)
        assert missing == (40 if consumers == 1 else 0)


def test_nothing_is_missing_if_a_reply_was_lost_or_the_trim_was_before_the_position() -> None:
    watch = GroupGapWatch()
    assert check(watch, 100, 1, 100, 10, 10) == 0
    watch.record_deliveries(10, b"60-0")
    watch.forget_deliveries()
    assert check(watch, 100, 55, 100, 60, 60) == 0
    watch.record_deliveries(10, b"90-0")
    assert check(watch, 100, 60, 100, 90, 90) == 0
    watch.record_deliveries(1, b"91-0")
    assert check(watch, 100, 91, 100, 100, 100) == 0, "the last read was not its own"


def test_a_stream_that_was_recreated_is_watched_from_its_beginning() -> None:
    watch = GroupGapWatch()
    assert check(watch, 100, 51, 100, 10, 10) == 40
    assert check(watch, 100, 51, 100, 10, 10) == 0
    assert check(watch, 20, 6, 20, 2, 2) == 3


def test_a_server_that_does_not_count_tells_nothing() -> None:
    watch = GroupGapWatch()
    about, groups = replies(100, 51, 100, position=10)
    del about[:2]
    assert watch.find_gap(about, groups, b"g") is None
    about, groups = replies(100, 51, 100, position=10)
    assert watch.find_gap(about, groups, b"g") is None, "entries-read is unknown"
    assert watch.find_gap(about, groups, b"other") is None
    assert watch.found_gaps == []
