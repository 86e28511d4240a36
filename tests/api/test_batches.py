"""Batches: one settlement for each, and nothing is lost when a batch fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

import headrace
from api.stepping import MortalBackend, on
from headrace import Backoff, Batch
from headrace.api.consuming.batching import BatchSettings
from headrace.api.group import Group
from headrace.errors import CodecError, UsageError


def filled(database: Any, count: int, **settings: Any) -> Group[Any]:
    orders = database.stream("orders")
    if count:
        orders.add_many({"n": n} for n in range(count))
    group: Group[Any] = orders.group("billing", create=True, **settings)
    return group


def numbers(batch: Sequence[Any]) -> list[int]:
    return [int(entry["n"]) for entry in batch]


def test_a_batch_is_full_or_has_what_is_left(database: Any) -> None:
    group = filled(database, 25)
    batches = [numbers(batch) for batch in group.consumer("w", block=0).batches(size=10)]
    assert batches == [list(range(10)), list(range(10, 20)), list(range(20, 25))]
    assert group.info().pending == 0


def test_async_loops_get_the_same_batches(database: Any) -> None:
    group = filled(database, 25)

    async def main() -> list[list[int]]:
        return [numbers(batch) async for batch in group.consumer("w", block=0).batches(size=10)]

    assert [len(batch) for batch in asyncio.run(main())] == [10, 10, 5]
    assert group.info().pending == 0


def test_a_batch_is_acknowledged_by_one_request() -> None:
    with headrace.open() as db:
        group = filled(db, 900)
        backend = MortalBackend(db.backend)
        sent: list[Sequence[bytes]] = []
        request_all = backend.request_all

        def recorded(requests: Sequence[Sequence[bytes]], atomic: bool = False) -> list[Any]:
            sent.extend(requests)
            return request_all(requests, atomic)

        backend.request_all = recorded  # type: ignore[method-assign]
        assert sum(map(len, on(group, backend).consumer("w", block=0).batches(size=300))) == 900
        assert [len(words) - 3 for words in sent if words[0] == b"XACK"] == [300, 300, 300]


def test_an_exception_in_the_loop_leaves_all_of_the_batch_pending(database: Any) -> None:
    group = filled(database, 5)

    def insert_all() -> None:
        for batch in group.consumer("w", block=0).batches(size=3):
            raise ZeroDivisionError(len(batch))

    with pytest.raises(ZeroDivisionError):
        insert_all()
    assert numbers(list(group.consumer("w", block=0))) == [0, 1, 2, 3, 4]


def test_named_entries_are_settled_in_their_own_way(database: Any) -> None:
    group = filled(database, 6, backoff=Backoff(initial=60))
    consumer = group.consumer("w", block=0)
    for batch in consumer.batches(size=6):
        batch.ack([batch[0]])
        batch.retry(batch[1:3], 60)
        batch.fail([batch[3]], "no address")
    assert [entry.times_delivered for entry in group.pending()] == [1, 1]
    assert [(letter["n"], letter.error) for letter in group.dead_letters] == [(b"3", "no address")]
    counters = consumer.counters
    assert (counters.handled, counters.retried, counters.dead_lettered) == (3, 2, 1)


def test_settling_an_entry_of_another_batch_is_an_error() -> None:
    with headrace.open() as db:
        first, second = filled(db, 4).consumer("w", block=0).batches(size=2)
        for settle in (first.ack, first.retry, first.fail):
            with pytest.raises(UsageError, match="not an entry of this batch"):
                settle(second)
            with pytest.raises(UsageError, match="several entries"):
                settle(first[0])


def test_a_handler_of_batches_retries_all_that_it_did_not_settle(database: Any) -> None:
    group = filled(database, 10, backoff=Backoff(initial=0.01))
    tries: list[list[int]] = []

    @group.handler(consumer="w", batch=10, batch_seconds=0.2, block=0.5)
    def insert(batch: Batch[Any]) -> None:
        tries.append(numbers(batch))
        if len(tries) == 1:
            batch.ack(batch[:4])
            raise ConnectionError("the database is away")

    group.run()
    assert tries == [list(range(10)), list(range(4, 10))]
    assert group.info().pending == 0


def test_one_bad_entry_does_not_take_the_others_of_its_batch_with_it(database: Any) -> None:
    group = filled(database, 20, max_deliveries=3, backoff=Backoff(initial=0.01, maximum=0.01))
    tries: list[list[int]] = []
    done: list[int] = []

    @group.handler(consumer="w", batch=20, batch_seconds=0.2, block=0.5)
    def insert(batch: Batch[Any]) -> None:
        tries.append(numbers(batch))
        if 7 in tries[-1]:
            raise ValueError("7 is bad")
        done.extend(tries[-1])

    group.run()
    assert sorted(done) == [n for n in range(20) if n != 7]
    assert [(letter["n"], letter.deliveries) for letter in group.dead_letters] == [(b"7", 3)]
    assert [len(batch) for batch in tries] == [20, 20, *[1] * 20]
    assert group.info().pending == 0


def test_entries_that_kill_their_consumers_do_not_take_others_with_them(
    db: Any, clock: headrace.testing.ManualClock
) -> None:
    """Their deliveries are counted before the consumers die; only the last ones are made one by one."""
    group = filled(db, 6, max_deliveries=3)
    done: list[int] = []
    for _ in range(12):
        backend = MortalBackend(db.backend)
        with contextlib.suppress(BaseException):
            for batch in on(group, backend).consumer("w", block=0).batches(size=6, seconds=0):
                if 2 in numbers(batch):
                    backend.kill()
                done += numbers(batch)
        clock.advance(seconds=31)
    assert set(done) >= {0, 1, 3, 4, 5}
    assert [letter["n"] for letter in group.dead_letters] == [b"2"]
    assert group.info().pending == 0


def test_a_batch_with_a_value_that_cannot_be_decoded_loses_only_that(database: Any) -> None:
    numbers_of = database.stream("n", codec="json")
    numbers_of.add_many([1, 2, 3])
    database.stream("n").add({"json": "{"})
    group = numbers_of.group("g", backoff=Backoff(initial=0.01))
    found: list[Any] = []

    @group.handler(batch=4, batch_seconds=0.2, block=0.5)
    def insert(batch: Batch[Any]) -> None:
        found.append(batch.values)

    group.run()
    assert found == [[1, 2, 3]]
    (letter,) = group.dead_letters
    with pytest.raises(CodecError):
        _ = letter.value


def test_leases_are_renewed_while_a_batch_is_worked_on(db: Any, clock: headrace.testing.ManualClock) -> None:
    group = filled(db, 400, lease=30)
    batches = iter(group.consumer("w", block=0).batches(size=400))
    batch = next(batches)
    worker = batch._settler
    for _ in range(10):
        clock.advance(seconds=9)
        while (ask := worker.next_lease_renewal()) is not None:  # type: ignore[attr-defined]
            worker.handle_replies(ask, db.backend.request_all(ask.requests))  # type: ignore[attr-defined]
    assert list(group.consumer("other", block=0)) == []
    assert list(batches) == [] and group.info().pending == 0


def test_an_incomplete_batch_is_released_when_the_consumer_stops(
    db: Any, clock: headrace.testing.ManualClock
) -> None:
    group = filled(db, 3)
    worker = group.consumer("w").create_worker(BatchSettings(10, 5.0))
    for _ in range(10):
        step = worker.next_action()
        if not hasattr(step, "requests"):
            break
        worker.handle_replies(step, db.backend.request_all(step.requests))  # type: ignore[arg-type]
    assert step.seconds == 5.0, "it waits for more entries"  # type: ignore[union-attr]
    clock.advance(seconds=5)
    step.undo()  # type: ignore[union-attr]
    assert len(worker.next_action()) == 3, "they are due"  # type: ignore[arg-type]


def test_stop_gives_back_the_entries_of_an_incomplete_batch(database: Any) -> None:
    group = filled(database, 3)
    consumer = group.consumer("w")
    seen: list[Batch[Any]] = []

    @group.handler(consumer="v", batch=100, batch_seconds=3600)
    def insert(batch: Batch[Any]) -> None:
        seen.append(batch)

    async def main() -> None:
        running = asyncio.create_task(group.run_async(signals=False))
        while group.info().pending < 3:
            await asyncio.sleep(0.01)
        group.stop()
        await running

    asyncio.run(main())
    assert seen == [] and {one.times_delivered for one in group.pending()} == {0}
    consumer.stop()


@pytest.mark.parametrize("is_async", [False, True])
def test_handlers_of_batches_run_side_by_side(database: Any, is_async: bool) -> None:
    group = filled(database, 1000)
    seen: list[int] = []

    def insert(batch: Batch[Any]) -> None:
        seen.extend(numbers(batch))

    async def insert_async(batch: Batch[Any]) -> None:
        await asyncio.sleep(0)
        insert(batch)

    register = group.handler(batch=64, concurrency=4, block=0.2)
    if is_async:
        register(insert_async)
        asyncio.run(group.run_async(signals=False))
    else:
        register(insert)
        group.run(signals=False)
    assert sorted(seen) == list(range(1000)) and group.info().pending == 0


def test_handling_settles_a_whole_batch(database: Any) -> None:
    group = filled(database, 4, backoff=Backoff(initial=60))
    consumer = group.consumer("w", block=0)
    for batch in consumer.batches(size=2):
        with consumer.handling(batch):
            if 0 in numbers(batch):
                raise TimeoutError("not now")
    assert (consumer.counters.retried, consumer.counters.handled) == (2, 2)


@pytest.mark.parametrize("settings", [{"size": 0}, {"size": 10_001}, {"seconds": -1}, {"size": "5"}])
def test_wrong_settings_of_a_batch_are_rejected(settings: dict[str, Any]) -> None:
    with headrace.open() as db, pytest.raises(UsageError, match="of a batch"):
        db.stream("s").group("g").consumer("w").batches(**settings)
