"""The consumer's loop as users write it, in threads: near, on a Headrace server and on redis-server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import headrace
from headrace.api.group import Group
from headrace.api.local.clock import ManualClock
from headrace.api.retry_policy import Backoff
from headrace.errors import HeadraceError, NoSuchGroup, UsageError

SOON = Backoff(initial=0.01, maximum=0.01)


def filled(database: Any, count: int, **policy: Any) -> Group[Any]:
    orders = database.stream("orders")
    orders.add_many({"n": n} for n in range(count))
    group: Group[Any] = orders.group("billing", create=True, **policy)
    return group


def test_the_loop_acknowledges_the_last_when_it_asks_for_the_next(database: Any) -> None:
    group = filled(database, 25)
    seen = [int(entry["n"]) for entry in group.consumer("w", block=0)]
    assert seen == list(range(25)) and group.info().pending == 0


def test_a_loop_that_is_left_acknowledges_what_is_finished_and_gives_back_the_rest(database: Any) -> None:
    group = filled(database, 20)
    consumer = group.consumer("w", fetch_count=10, block=0)
    for entry in consumer:
        if entry["n"] == b"5":
            break
    left = {one.id: one.times_delivered for one in group.pending()}
    assert len(left) == 5 and left[entry.id] == 1 and sorted(left.values()) == [0, 0, 0, 0, 1]
    again = [int(entry["n"]) for entry in consumer]
    assert again == list(range(5, 20)) and group.info().pending == 0


def test_an_exception_leaves_the_entry_pending(database: Any) -> None:
    group = filled(database, 3)

    def handle_all() -> None:
        for entry in group.consumer("w", block=0):
            raise ValueError(entry.id)

    with pytest.raises(ValueError):
        handle_all()
    assert group.pending()[0].times_delivered == 1
    again = list(group.consumer("w", block=0))
    assert [entry.times_delivered for entry in again] == [2, 1, 1]
    assert group.info().pending == 0


def test_handling_tries_again_and_buries(database: Any) -> None:
    group = filled(database, 6, max_deliveries=3, backoff=SOON)
    tries: list[int] = []
    consumer = group.consumer("w", block=0.5)
    for entry in consumer:
        with consumer.handling(entry):
            tries.append(int(entry["n"]))
            if entry["n"] in (b"2", b"4") and (entry["n"] == b"4" or entry.times_delivered < 3):
                raise ValueError(f"no {entry['n']!r}")
    assert sorted(tries) == sorted([0, 1, 2, 3, 4, 5] + [2, 2] + [4, 4])
    (letter,) = group.dead_letters
    assert letter["n"] == b"4" and letter.deliveries == 3 and letter.error == "ValueError: no b'4'"
    assert (
        consumer.counters.handled == 5
        and consumer.counters.retried == 4
        and consumer.counters.dead_lettered == 1
    )


def test_values_come_through_the_codec_of_the_stream(database: Any) -> None:
    orders = database.stream("orders", codec="json")
    orders.add({"cents": [1, 2]})
    assert [entry.value for entry in orders.group("billing").consumer("w", block=0)] == [{"cents": [1, 2]}]


def test_a_value_that_cannot_be_decoded_is_a_failure_of_the_entry(database: Any) -> None:
    orders = database.stream("orders", codec="json")
    database.execute("XADD", "orders", "*", "json", "{")
    group = orders.group("billing", max_deliveries=1)
    group.handler(consumer="w", block=0)(lambda entry: entry.value)
    group.run()
    (letter,) = group.dead_letters
    assert letter.error.startswith("CodecError")


def test_new_entries_wake_the_loop_and_stop_ends_it(database: Any, aside: Callable[[Any], Any]) -> None:
    group = filled(database, 0)
    consumer = group.consumer("w")
    seen: list[int] = []
    enough = threading.Event()

    def loop() -> None:
        for entry in consumer:
            seen.append(int(entry["n"]))
            if len(seen) == 3:
                enough.set()

    running = aside(loop)
    for n in range(3):
        group.stream.add({"n": n})
    assert enough.wait(20)
    consumer.stop()
    running.result()
    assert seen == [0, 1, 2] and group.info().pending == 0
    assert list(consumer) == []


def test_an_entry_that_is_put_off_wakes_the_loop_when_it_is_due(
    database: Any, aside: Callable[[Any], Any]
) -> None:
    group = filled(database, 1)
    consumer = group.consumer("w")
    handed: list[Any] = []
    got = threading.Event()

    def loop() -> None:
        for entry in consumer:
            entry.retry(after=0.05)
            handed.append(entry)
            if len(handed) == 2:
                got.set()

    running = aside(loop)
    assert got.wait(20)
    consumer.stop()
    running.result()
    assert [entry["n"] for entry in handed] == [b"0", b"0"]


def test_one_loop_at_a_time(database: Any) -> None:
    group = filled(database, 2)
    consumer = group.consumer("w", block=0)
    loop = iter(consumer)
    next(loop)
    with pytest.raises(UsageError, match="running already"):
        next(iter(consumer))
    loop.close()
    assert len(list(consumer)) == 2


def test_threads_handle_at_the_same_time(database: Any) -> None:
    group = filled(database, 40)
    together = threading.Barrier(4, timeout=20)
    seen: list[int] = []

    def handle(entry: Any) -> None:
        together.wait()
        seen.append(int(entry["n"]))

    group.consumer("w", concurrency=4, block=0, fetch_count=40).run(handle)
    assert sorted(seen) == list(range(40)) and group.info().pending == 0


def test_threads_keep_the_order_of_each_key(database: Any) -> None:
    orders = database.stream("orders")
    orders.add_many({"n": n, "customer": n % 5} for n in range(200))
    group = orders.group("billing", backoff=SOON)
    seen: dict[bytes, list[int]] = {}
    busy: set[bytes] = set()

    def handle(entry: Any) -> None:
        customer = entry["customer"]
        assert customer not in busy
        busy.add(customer)
        try:
            if int(entry["n"]) % 20 == 7 and entry.times_delivered == 1:
                raise ValueError("not now")
            seen.setdefault(customer, []).append(int(entry["n"]))
        finally:
            busy.remove(customer)

    consumer = group.consumer("w", concurrency=4, block=0.2, ordered_by=lambda entry: entry["customer"])
    consumer.run(handle)
    assert sorted(seen) == [b"%d" % n for n in range(5)]
    assert all(handled == list(range(int(key), 200, 5)) for key, handled in seen.items())
    assert consumer.counters.retried == 10


def test_what_ends_a_handler_ends_the_run_and_is_raised(database: Any) -> None:
    group = filled(database, 4)

    def handle(entry: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        group.consumer("w", concurrency=2).run(handle)
    assert group.info().pending >= 1


def test_a_lost_group_ends_the_loop_that_waits(database: Any, aside: Callable[[Any], Any]) -> None:
    group = filled(database, 1)
    seen = threading.Event()

    def loop() -> None:
        for _ in group.consumer("w"):
            seen.set()

    running = aside(loop)
    assert seen.wait(20)
    group.destroy()
    with pytest.raises(NoSuchGroup):
        running.result()


def test_a_lost_stream_is_made_again_under_the_loop_that_waits(
    database: Any, aside: Callable[[Any], Any]
) -> None:
    group = filled(database, 1, recreate="0")
    consumer = group.consumer("w")
    seen = threading.Semaphore(0)

    def loop() -> None:
        for _ in consumer:
            seen.release()

    running = aside(loop)
    assert seen.acquire(timeout=20)
    group.stream.destroy()
    group.stream.add({"n": 1})
    assert seen.acquire(timeout=20)
    consumer.stop()
    running.result()


def test_a_consumer_without_a_name_leaves_none_behind(database: Any) -> None:
    group = filled(database, 3)
    for n, entry in enumerate(group.consumer(block=0, fetch_count=1)):
        if n == 2:
            break
        assert entry["n"] == b"%d" % n
    (left,) = group.consumers()
    assert left.pending == 1
    assert len(list(group.consumer(block=0))) == 0
    assert [one.name for one in group.consumers()] == [left.name]


def test_the_lease_is_renewed_while_a_handler_works(database: Any, aside: Callable[[Any], Any]) -> None:
    group = filled(database, 1, lease=0.3)
    other = group.consumer("other", block=1.0)
    counts: list[int] = []

    def handle(entry: Any) -> None:
        counts.append(len(list(other)))
        counts.append(group.pending()[0].times_delivered)

    group.consumer("slow", block=0).run(handle)
    assert counts == [0, 1] and group.info().pending == 0


def test_what_a_dead_consumer_had_is_taken_over_by_one_that_waits(database: Any) -> None:
    group = filled(database, 5, lease=0.2)
    database.execute("XREADGROUP", "GROUP", "billing", "dead", "STREAMS", "orders", ">")
    taken = list(group.consumer("alive", block=1.0))
    assert [entry.times_delivered for entry in taken] == [2] * 5 and group.info().pending == 0


def test_groups_tell_what_they_know(database: Any) -> None:
    group = filled(database, 4)
    assert not group.create()
    loop = iter(group.consumer("w", block=0, fetch_count=4))
    first = next(loop)
    assert [one.consumer for one in group.pending()] == ["w"] * 4
    assert group.pending(first.id, first.id)[0].times_delivered == 1
    assert group.pending(consumer="nobody") == [] == group.pending(idle=3600)
    with pytest.raises(UsageError, match="entries pending"):
        group.remove_consumer("w")
    loop.close()
    assert [one.name for one in group.consumers()] == ["w"]
    list(group.consumer("w", block=0))
    group.remove_consumer("w")
    assert group.consumers() == []
    group.set_position("0")
    assert len(list(group.consumer("w", block=0))) == 4
    assert group.destroy() and not group.destroy()
    with pytest.raises(NoSuchGroup):
        group.info()
    group.stream.destroy()
    assert not group.destroy() and group.create()


def test_a_group_begins_where_it_is_told(database: Any) -> None:
    orders = database.stream("orders")
    ids = [orders.add({"n": n}, id=f"{1000 + n}-0") for n in range(5)]
    starts: dict[str, Any] = {"0": range(5), "$": [], "1002-0": [3, 4]}
    for start, expected in starts.items():
        group = orders.group(f"from {start}", start=start)
        assert [int(entry["n"]) for entry in group.consumer("w", block=0)] == list(expected)
    group = orders.group("from a moment", start=ids[3].datetime)
    assert [int(entry["n"]) for entry in group.consumer("w", block=0)] == [3, 4]
    group.set_position(ids[1].datetime)
    assert [int(entry["n"]) for entry in group.consumer("w", block=0)] == [1, 2, 3, 4]


def test_a_loop_by_a_clock_that_is_turned(aside: Callable[[Any], Any]) -> None:
    clock = ManualClock()
    with headrace.open(clock=clock) as db:
        group = filled(db, 1, backoff=Backoff(initial=600, maximum=600))
        consumer = group.consumer("w")
        counts: list[int] = []
        first = threading.Event()

        def loop() -> None:
            for entry in consumer:
                counts.append(entry.times_delivered)
                if entry.times_delivered == 2:
                    return
                entry.retry()
                first.set()

        running = aside(loop)
        assert first.wait(20)
        while running.running():
            clock.advance(minutes=1)
            threading.Event().wait(0.001)
        running.result()
        assert counts == [1, 2]


def test_wrong_settings_are_refused(database: Any) -> None:
    stream = database.stream("orders")
    for policy in ({"lease": 0}, {"max_deliveries": 0}, {"recreate": "5"}, {"dead_letters": "orders"}):
        with pytest.raises(UsageError):
            stream.group("billing", **policy)
    group = stream.group("billing")
    for settings in (
        {"fetch_count": 0},
        {"concurrency": 0},
        {"block": -1},
        {"name": ""},
        {"ordered_by": "n"},
    ):
        with pytest.raises(UsageError):
            group.consumer(**settings)
    with pytest.raises(UsageError):
        Backoff(initial=2, maximum=1)
    assert issubclass(UsageError, HeadraceError)
